package serving

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/storage"
)

// answerLife is how long the source counts as having a version. A fleet of clients that comes from a
// newer relay asks about almost the same version at once.
const answerLife = 10 * time.Second

// askTime is how long a question may take. A client that gets no answer is told to come back.
const askTime = 10 * time.Second

// ahead answers reads of versions that the relay does not have yet. The usual answer is 504 with the
// cause ResourceVersionTooLarge, and makes client-go's informers read without a version. From an API
// server they then get the newest state. From a relay that is late they would get an older state
// than they have. So they are told to come back, with 429, if the source has the version. If it has
// not, it was restored from a backup, and 410 makes the clients begin again at once. client-go would
// make the same request up to ten times after the usual answer.
//
// A client gets only what is true for it. "The source has version v" stays true, unless the source is
// restored. "It does not have v" is true for a moment: it counts for the clients that were waiting when
// the source was asked, and that want v or a later version.
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

// explain returns the answer to a read of a version that ended with err.
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

// ask reports whether the source has the version, from an earlier answer if possible. Of a herd that asks
// at once, the source gets few questions: only the versions that are above, or below, all before.
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
