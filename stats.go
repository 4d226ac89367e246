package informer

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// WatcherStats are figures about one registration of a watcher. Every event that
// the watcher was to be told is in exactly one of Pending, Delivered, Failed and
// Merged. It is a value, and its zero value means nothing.
type WatcherStats struct {
	// Name is WatcherOptions.Name.
	Name string
	// Synced says whether Registration.Synced is closed.
	Synced bool
	// Pending is how many events wait for the watcher now, the one that it is
	// being called for included. After Stopped it is how many were never
	// delivered. While the watcher is being told a state, it may be a little
	// too high, or too low by what a Scanner has not been asked for yet; in a burst, by the last 15 events, which are counted together.
	Pending int
	// Delivered is how many events the watcher has handled without an error.
	Delivered int
	// Failed is how many events were given up after an error.
	Failed int
	// Retried is how many calls repeated one that had failed.
	Retried int
	// Merged is how many events were merged into others, or have undone each other:
	// beyond WatcherOptions.MaxBacklog, or because of Workers or Retry.
	Merged int
	// Lagging says whether the watcher has fallen behind by more than
	// WatcherOptions.MaxBacklog and has not caught up yet, as Observer.Lagging does.
	Lagging bool
	// OldestWaiting is for how long the oldest event that is not handled has been
	// waiting, 0 if there is none, and after Stopped.
	OldestWaiting time.Duration
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

// MarshalJSON encodes the figures with names in camel case and OldestWaiting in
// seconds.
func (s WatcherStats) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Name                 string  `json:"name"`
		Synced               bool    `json:"synced"`
		Pending              int     `json:"pending"`
		Delivered            int     `json:"delivered"`
		Failed               int     `json:"failed"`
		Retried              int     `json:"retried"`
		Merged               int     `json:"merged"`
		Lagging              bool    `json:"lagging"`
		OldestWaitingSeconds float64 `json:"oldestWaitingSeconds"`
	}{s.Name, s.Synced, s.Pending, s.Delivered, s.Failed, s.Retried, s.Merged, s.Lagging, s.OldestWaiting.Seconds()})
}

// counts are what a listener has done. They only grow, but for untold.
type counts struct {
	read      atomic.Int64 // how many events of the log come before the cursor
	taken     atomic.Int64 // events that were, or were of a state
	untold    atomic.Int64 // objects of a state that were not taken yet
	merged    atomic.Int64
	delivered atomic.Int64
	failed    atomic.Int64
	retried   atomic.Int64
}

// done returns how many events are over and done with, in calls.
func (c *counts) done() int64 { return c.delivered.Load() + c.failed.Load() }

func (l *informerProcessorListener[T]) stats() WatcherStats {
	c := &l.counts
	// What is subtracted is read first, so that the result is never less than it was.
	delivered, failed, merged := c.delivered.Load(), c.failed.Load(), c.merged.Load()
	read := c.read.Load()
	s := WatcherStats{
		Name:          l.opts.Name,
		Synced:        closed(l.synced),
		Pending:       int(c.taken.Load() + c.untold.Load() - delivered - failed - merged),
		Delivered:     int(delivered),
		Failed:        int(failed),
		Retried:       int(c.retried.Load()),
		Merged:        int(merged),
		Lagging:       l.lag.behind.Load() && !closed(l.stopped),
		OldestWaiting: l.oldestWaiting(),
	}
	if !closed(l.stopped) {
		s.Pending += int(max(0, l.processor.log.Events()-read))
	}
	return s
}

// health returns the figures, and what the watcher is called for.
func (l *informerProcessorListener[T]) health() WatcherHealth {
	s := WatcherHealth{WatcherStats: l.stats(), Calls: l.calling()}
	if l.crew != nil {
		s.Hung, s.Retrying, s.Retries = l.crew.trouble(retriesShown)
	}
	return s
}

// retriesShown is how many keys are shown of what a watcher will be called for again.
const retriesShown = 10

func (l *informerProcessorListener[T]) oldestWaiting() time.Duration {
	since := l.hands.since()
	if l.crew != nil {
		since = l.crew.since()
	}
	if since == 0 || closed(l.stopped) {
		return 0
	}
	return max(0, l.processor.Now()-since)
}

// calling returns what the watcher is being called for now, in words.
func (l *informerProcessorListener[T]) calling() []string {
	var calls []string
	switch {
	case l.crew != nil:
		calls = l.crew.calling()
	case !l.syncing.Load():
		calls = l.hands.calling(l.counts.done())
	}
	if l.syncing.Load() {
		calls = append(calls, "OnSynced")
	}
	slices.Sort(calls)
	return calls
}

// hands are what run has taken and not handled yet.
type hands[T Object] struct {
	mu      sync.Mutex // protects the rest
	segment segment[T]
	before  int64 // counts.done when it was taken
}

func (h *hands[T]) take(s segment[T], done int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.segment, h.before = s, done
}

func (h *hands[T]) empty() { h.take(segment[T]{}, 0) }

func (h *hands[T]) since() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return waitsSince(h.segment)
}

// calling returns what the event is that is next after as many as are done, in words.
func (h *hands[T]) calling(done int64) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	done -= h.before
	for i := range h.segment.Records {
		r := &h.segment.Records[i]
		switch {
		case !r.isEvent():
		case done > 0:
			done--
		case i < exactly:
			return []string{r.event.Key().String()}
		default:
			others := min(countEvents(h.segment.Records[i:]), exactly) - 1
			return []string{fmt.Sprintf("%v or one of the %d after it", r.event.Key(), others)}
		}
	}
	return nil
}
