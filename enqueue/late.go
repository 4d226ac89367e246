package enqueue

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/customcacheinformer/informer"
)

type lateness struct {
	what   string // in words such as "informer pods"; "" if nothing is missing
	hasRun bool   // Run of the member was called
	reason error  // why the member does not sync; nil if unknown
}

// lateInformer returns what is missing for an informer that has not synced.
func lateInformer(h informer.Health) lateness {
	l := lateness{"informer " + h.Name, h.Started, nil}
	switch {
	case h.Stopped:
		l.reason = fmt.Errorf("informer %s: %w", h.Name, informer.ErrStopped)
	case !h.Started:
		l.neverRun()
	case h.SourceFailures == 0 && h.SourceWaiting == 0: // a first state that comes slowly is not a failure
		l.reason = h.StoreError
	default:
		l.reason = cmp.Or(h.StoreError, h.SourceError)
	}
	return l
}

// lateMember returns what is missing for a member of Options.Reads. name is used for a
// member that is not an informer.
func lateMember(name string, of informer.MemberHealth) lateness {
	if h, ok := of.(informer.Health); ok {
		if h.Synced {
			return lateness{}
		}
		return lateInformer(h)
	}
	err := of.Ready()
	if err == nil {
		return lateness{}
	}
	l := lateness{name, of.HasRun(), nil}
	switch {
	case !l.hasRun:
		l.neverRun()
	case errors.Is(err, informer.ErrStopped): // any other error may pass or not
		l.reason = err
	}
	return l
}

func (l *lateness) neverRun() {
	l.reason = fmt.Errorf("%s has not started: add it to the group, or call its Run", l.what)
	l.what = "Run of " + l.what
}
