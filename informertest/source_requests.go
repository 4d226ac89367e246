package informertest

import (
	"context"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The verbs that a [Source] answers.
const (
	verbList  = "list"
	verbWatch = "watch"
)

// Request is a LIST or WATCH that a [Source] received.
type Request struct {
	Verb    string             // "list" or "watch"
	Options metav1.ListOptions // a request for one namespace has a field selector for metadata.namespace
	// Err is the error of the answer, or nil if the request succeeded. If a watch got 410 Expired
	// as its only event, Err is that error. While a LIST is held or delayed, Err is nil.
	Err error
}

type lifetime struct {
	// request ends when the reader needs no more events: the reader has stopped the watch, the
	// reader's ctx is done, or the time is up.
	request context.Context
	cancel  context.CancelFunc
	// live ends with request, or when the source ends the watch. The cause may then be an error
	// that the reader must still get.
	live context.Context
	end  context.CancelCauseFunc
}

func newLifetime(ctx context.Context, seconds *int64) *lifetime {
	l := &lifetime{}
	if seconds != nil && *seconds > 0 {
		most := int64(math.MaxInt64 / time.Second)
		l.request, l.cancel = context.WithTimeout(ctx, time.Duration(min(*seconds, most))*time.Second)
	} else {
		l.request, l.cancel = context.WithCancel(ctx)
	}
	l.live, l.end = context.WithCancelCause(l.request)
	return l
}

// readers is what a source knows about its readers: their requests, and the open watches.
type readers struct {
	requests []*Request
	open     map[*lifetime]bool
	waiters  map[*waiter]bool
}

// waiter is one call of WaitForWatches.
type waiter struct {
	n    int
	done chan struct{}
}

// openChanged wakes up the calls of WaitForWatches that wait for the current number of open
// watches. It must be called with the lock held, whenever that number changes.
func (r *readers) openChanged() {
	for w := range r.waiters {
		if w.n == len(r.open) {
			close(w.done)
			delete(r.waiters, w)
		}
	}
}

func (r *readers) closed(w *lifetime) {
	if r.open[w] {
		delete(r.open, w)
		r.openChanged()
	}
}

// endWatches ends all open watches. If cause is not nil, the watches pass it to their readers.
func (r *readers) endWatches(cause error) {
	for w := range r.open {
		w.end(cause)
		r.closed(w)
	}
}
