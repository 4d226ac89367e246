package informer

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// counts holds the figures of a listener. Except untold, they only grow.
type counts struct {
	read      atomic.Int64 // events of the log before the cursor
	taken     atomic.Int64 // events taken from the log or from a state
	untold    atomic.Int64 // objects of a state that were not taken yet
	merged    atomic.Int64
	delivered atomic.Int64
	failed    atomic.Int64
	retried   atomic.Int64
}

// done returns how many events were delivered or have failed.
func (c *counts) done() int64 { return c.delivered.Load() + c.failed.Load() }

// countStep is how many events of a segment are counted one by one. After these, countStep
// events are counted at a time: to count each event would double its cost. So the key for which
// a hung watcher was called is known exactly only for the first events of a segment.
const countStep = 16

// hand holds the segment that run has taken and is calling the watcher for.
type hand[T Object] struct {
	mu      sync.Mutex // protects the rest
	segment segment[T]
	before  int64 // counts.done when the segment was taken
}

func (h *hand[T]) take(s segment[T], done int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.segment, h.before = s, done
}

func (h *hand[T]) empty() { h.take(segment[T]{}, 0) }

// since returns when the first event of the segment was appended to the log. It returns 0 if
// there is no segment.
func (h *hand[T]) since() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.segment.Records) == 0 {
		return 0
	}
	return h.segment.Records[0].since
}

// calling returns the key of the event that follows the first done events.
func (h *hand[T]) calling(done int64) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	done -= h.before
	for i := range h.segment.Records {
		r := &h.segment.Records[i]
		switch {
		case !r.isEvent():
		case done > 0:
			done--
		case i < countStep:
			return []string{r.event.Key().String()}
		default:
			others := min(countEvents(h.segment.Records[i:]), countStep) - 1
			return []string{fmt.Sprintf("%v or one of the %d after it", r.event.Key(), others)}
		}
	}
	return nil
}
