package informer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/customcacheinformer/informer/internal/channel"
)

var errMemberFailed = errors.New("a member has failed")

// WaitForSync blocks until the group runs, has at least one member, and all its
// members have synced, with the watchers that each has when the waiting for it
// begins. It may be called before Run, and before there is a member. Members that
// are added meanwhile are waited for too, those that are removed no longer count.
//
// What has synced stays so, also when the group has stopped: see [Group.Ready]. If ctx or
// the group ends before that, or as soon as the Run of a member has failed, it
// returns a *SyncError: Late names every member that is late, and with what, and
// Reason holds all failures that stand in the way. In the callback of a watcher that
// has not synced it returns an error, if it is given the callback's ctx.
func (g *Group) WaitForSync(ctx context.Context) error {
	asking, giveUp := context.WithCancel(ctx)
	w := &groupWait{ctx: asking, group: g, answers: map[*member]*answer{}}
	defer w.calls.Wait()
	defer giveUp()
	for {
		run, members, changed := g.now()
		late, cause := w.look(members)
		switch {
		case channel.Closed(changed): // who was late may not be a member any more
			continue
		case run != nil && run.Err() != nil:
			cause = ErrStopped
		case run != nil && len(members) > 0 && late == 0:
			return nil
		}
		if cause = cmp.Or(cause, ctx.Err()); cause != nil {
			giveUp()
			w.calls.Wait()
			return w.syncError(cause, run != nil, members)
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// groupWait is a call of WaitForSync. It asks each member once.
type groupWait struct {
	ctx     context.Context
	group   *Group
	answers map[*member]*answer
	calls   sync.WaitGroup
}

// answer is what a member's WaitForSync returns.
type answer struct {
	stop context.CancelFunc // asks no longer
	come chan struct{}      // closed when err is set
	err  error
}

func (w *groupWait) ask(m *member) *answer {
	a := w.answers[m]
	if a == nil {
		ctx, stop := context.WithCancel(w.ctx)
		a = &answer{stop: stop, come: make(chan struct{})}
		w.answers[m] = a
		w.calls.Go(func() {
			defer stop()
			a.err = m.WaitForSync(ctx)
			close(a.come)
			w.group.change()
		})
	}
	return a
}

// look returns how many members are late, and why there is no use in waiting for
// them, if so.
func (w *groupWait) look(members []*member) (late int, cause error) {
	for m, a := range w.answers {
		if !slices.Contains(members, m) { // it was removed
			a.stop()
			delete(w.answers, m)
		}
	}
	for _, m := range members {
		a := w.ask(m)
		switch {
		case m.failure() != nil:
			cause = errMemberFailed
		case !channel.Closed(a.come):
		case a.err != nil:
			cause = a.err
			if own := (*SyncError)(nil); errors.As(a.err, &own) {
				cause = own.Err
			}
		default:
			continue
		}
		late++
	}
	return late, cause
}

// syncError returns the *SyncError of a wait that was given up, or nil if nobody is
// late after all. All answers must have come.
func (w *groupWait) syncError(cause error, running bool, members []*member) error {
	e := &SyncError{Informer: "Group", Err: cause}
	if !running {
		e.Late = append(e.Late, "Run")
	}
	if len(members) == 0 {
		e.Late = append(e.Late, "a member (it has none)")
	}
	for i, name := range names(observe(members)) {
		failed, err := members[i].failure(), w.answers[members[i]].err
		if failed == nil && err == nil {
			continue
		}
		if late := (*SyncError)(nil); errors.As(err, &late) {
			name += ": " + strings.Join(late.Late, ", ")
			err = late.Reason
		}
		e.Late = append(e.Late, name)
		reason := cmp.Or(failed, err)
		if e.Reason != nil && reason != nil {
			reason = fmt.Errorf("%w; %w", e.Reason, reason) // in one line, unlike errors.Join
		}
		e.Reason = cmp.Or(reason, e.Reason)
	}
	if len(e.Late) == 0 {
		return nil
	}
	return e
}
