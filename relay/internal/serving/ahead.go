package serving

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/storage"
)

// answerLife is how long the answer counts that the source has a version. A fleet of clients that comes
// from a newer relay asks for almost the same version at once.
const answerLife = 10 * time.Second

// askTime is how long a question to the source may take. Without an answer, the client gets 429.
const askTime = 10 * time.Second

// ahead answers reads of versions that the relay does not have yet. The usual answer is 504 with the
// cause ResourceVersionTooLarge. After it, client-go's informers read without a version, and would get
// an older state than they have from a late relay. So if the source has the version, the answer is 429,
// and clients come back. If the source does not have the version, it was restored from a backup. Then
// the answer is 410, and clients begin again at once. After the usual answer, client-go would repeat
// the request up to ten times.
//
// ahead shares answers of the source among clients. "The source has version v" stays true, unless the
// source is restored. "The source does not have v" is true only for a moment: it counts only for
// clients that were waiting when the source was asked, and that want v or a later version.
type ahead struct {
	reached func(context.Context, uint64) (bool, error)
	// turn lets one request ask, and guards the rest.
	turn    chan struct{}
	version uint64 // the source has it
	until   time.Time
	lacking uint64 // the source did not have it after asked
	asked   time.Time
}

func newAhead(reached func(context.Context, uint64) (bool, error)) *ahead {
	return &ahead{reached: reached, turn: make(chan struct{}, 1)}
}

// explain returns the error for a client whose read of a version has returned err. It returns err
// itself unless err reports that the version is too large.
func (a *ahead) explain(ctx context.Context, version string, err error) error {
	if a.reached == nil || !storage.IsTooLargeResourceVersion(err) {
		return err
	}
	wanted, parseErr := storage.APIObjectVersioner{}.ParseResourceVersion(version)
	if parseErr != nil {
		return err
	}
	// If the source cannot be asked, clients had better keep what they have.
	if has, askErr := a.ask(ctx, wanted); askErr == nil && !has {
		return apierrors.NewResourceExpired("the API server does not have version " + version + ", and may have been restored from a backup")
	}
	return apierrors.NewTooManyRequests("the relay is behind version "+version, 1)
}

// ask reports whether the source has the version, from an earlier answer if possible. If many clients
// ask at once, the source gets only few questions: those that earlier answers do not cover.
func (a *ahead) ask(ctx context.Context, version uint64) (bool, error) {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	now := time.Now()
	switch {
	case version <= a.version && now.Before(a.until):
		return true, nil
	case version >= a.lacking && begun.Before(a.asked):
		return false, nil
	}
	has, err := a.reached(ctx, version)
	switch {
	case err != nil:
	case has:
		a.version, a.until = version, now.Add(answerLife)
	default:
		a.lacking, a.asked = version, now
	}
	return has, err
}
