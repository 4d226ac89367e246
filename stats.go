package informer

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// WatcherStats are figures about one registration of a watcher. Every event that
// the watcher was to be told is in exactly one of Pending, Delivered, Failed and
// Merged. It is a value, and its zero value means nothing.
type WatcherStats struct {
	// Name is WatcherOptions.Name.
	Name string `json:"name"`
	// Synced says whether Registration.Synced is closed.
	Synced bool `json:"synced"`
	// Pending is how many events wait for the watcher now, the one that it is
	// being called for included. After Stopped it is how many were never
	// delivered. While the watcher is being told a state, it may be a little
	// too high, or too low by what a Scanner has not been asked for yet; in a burst, by the last 15 events, which are counted together.
	Pending int `json:"pending"`
	// Delivered is how many events the watcher has handled without an error.
	Delivered int `json:"delivered"`
	// Failed is how many events were given up after an error.
	Failed int `json:"failed"`
	// Retried is how many calls repeated one that had failed.
	Retried int `json:"retried"`
	// Merged is how many events were merged into others, or have undone each other:
	// beyond WatcherOptions.MaxBacklog, or because of Workers or Retry.
	Merged int `json:"merged"`
	// Lagging says whether the watcher has fallen behind by more than
	// WatcherOptions.MaxBacklog and has not caught up yet, as Observer.Lagging does.
	Lagging bool `json:"lagging"`
	// OldestWaiting is for how long the oldest event that is not handled has been
	// waiting, 0 if there is none, and after Stopped.
	OldestWaiting time.Duration `json:"-"`
}

// WatcherHealth is how a watcher is doing: its figures, and what it is being called for.
// As JSON it is the figures alone.
type WatcherHealth struct {
	WatcherStats
	// Calls says what the watcher is being called for now: keys, or "OnSynced". Retries
	// are the keys of what waits for another attempt, no more than ten.
	Calls, Retries []string
	// Hung says whether a call has lasted for more than 10 s, Retrying whether the oldest
	// event waits for another attempt. Both are known of watchers with Workers or Retry.
	Hung, Retrying bool
}

// MarshalJSON encodes the figures with names in camel case, and OldestWaiting in seconds as
// "oldestWaitingSeconds".
func (s WatcherStats) MarshalJSON() ([]byte, error) {
	type fields WatcherStats // has the tags, but not this method
	return json.Marshal(struct {
		fields
		OldestWaitingSeconds float64 `json:"oldestWaitingSeconds"`
	}{fields(s), s.OldestWaiting.Seconds()})
}

// retriesShown is the largest number of keys in WatcherHealth.Retries.
const retriesShown = 10

// counts holds what a listener has done. The counts only grow, except untold.
type counts struct {
	read      atomic.Int64 // events of the log before the cursor
	taken     atomic.Int64 // events taken from the log or from a state
	untold    atomic.Int64 // objects of a state that were not taken yet
	merged    atomic.Int64
	delivered atomic.Int64
	failed    atomic.Int64
	retried   atomic.Int64
}

// done returns how many events have been handled by a call.
func (c *counts) done() int64 { return c.delivered.Load() + c.failed.Load() }

// countStep is how many events of a segment are counted one by one; after these,
// countStep events are counted at a time. Counting every event would double the cost of
// an event. The key that a hung watcher was called for is therefore known exactly only
// for the first events of a segment.
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

// since returns when the first event of the segment was appended to the log, or 0.
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
