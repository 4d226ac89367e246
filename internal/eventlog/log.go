// Package eventlog is a log that one goroutine writes and any number read, each at its
// own pace. Appending never waits for a reader, and what nobody reads any more is
// garbage. It knows nothing of Kubernetes, and owns no goroutine.
package eventlog

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// The chunks of a log start small, so that one with little to say keeps little alive,
// and double up to MaxChunk, at which one hand-over to a reader is paid for by many
// records.
const (
	minChunk = 16
	// MaxChunk is the most that a Segment holds.
	MaxChunk = 256
)

// Log holds every record once. It is made by New, and must not be copied.
type Log[R any] struct {
	count  func([]R) int
	tail   atomic.Pointer[chunk[R]]
	events atomic.Int64 // how many of the records are events
	// stirred gets a token when the first record of a chunk is written.
	stirred chan struct{}

	mu       sync.Mutex // orders appending, sealing and going to sleep
	sleepers []*Sleeper
	earliest int64 // what the first of sleepers waits for
}

// chunk is a part of the log. Only records[:filled] may be read; once next is
// set, filled does not change any more. Chunks point forward only, so that the garbage
// collector takes a chunk as soon as the last cursor has left it.
type chunk[R any] struct {
	first   int64 // the position of records[0]
	events  int64 // how many events come before
	records []R
	others  atomic.Int64 // 0 if all of records[:filled] are events
	filled  atomic.Int64
	next    atomic.Pointer[chunk[R]]
}

// New returns an empty log. Some of its records may be no events for its readers, but
// notes to them: count says how many of a run of records are events. It is called once
// for what is appended at once, and for what is read where there are notes.
func New[R any](count func([]R) int) *Log[R] {
	l := &Log[R]{count: count, stirred: make(chan struct{}, 1), earliest: math.MaxInt64}
	l.tail.Store(&chunk[R]{records: make([]R, minChunk)})
	return l
}

// End returns the position after the last record.
func (l *Log[R]) End() int64 {
	c := l.tail.Load()
	return c.first + c.filled.Load()
}

// Events returns how many of the records are events.
func (l *Log[R]) Events() int64 { return l.events.Load() }

// Stirred returns a channel that gets a token when the log has begun a chunk: some time
// after that, it may be idle.
func (l *Log[R]) Stirred() <-chan struct{} { return l.stirred }

// Append publishes records and wakes those that sleep until there are so many. The
// records are copied.
func (l *Log[R]) Append(records []R) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(records) > 0 {
		c := l.tail.Load()
		filled := c.filled.Load()
		if filled == int64(len(c.records)) {
			c, filled = l.growLocked(c, min(2*len(c.records), MaxChunk)), 0
		}
		n := copy(c.records[filled:], records)
		events := l.count(records[:n])
		if events < n {
			c.others.Add(int64(n - events))
		}
		c.filled.Store(filled + int64(n))
		l.events.Add(int64(events))
		records = records[n:]
		if filled == 0 {
			select {
			case l.stirred <- struct{}{}:
			default:
			}
		}
	}
	if end := l.End(); end >= l.earliest {
		l.wakeLocked(end)
	}
}

// SealIfIdle ends the current chunk if nothing was appended since the log ended
// at position since, and returns where it ends now. Otherwise the last records of
// a log that has gone quiet would stay alive until the next.
func (l *Log[R]) SealIfIdle(since int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.tail.Load()
	end := c.first + c.filled.Load()
	if end == since && end > c.first {
		l.growLocked(c, minChunk)
		l.wakeLocked(end + 1) // who waits for the next record holds on to the old chunk
	}
	return end
}

func (l *Log[R]) growLocked(c *chunk[R], size int) *chunk[R] {
	next := &chunk[R]{first: c.first + c.filled.Load(), events: l.events.Load(), records: make([]R, size)}
	c.next.Store(next)
	l.tail.Store(next)
	return next
}

// wakeLocked wakes those that wait for a position up to end.
func (l *Log[R]) wakeLocked(end int64) {
	still := l.sleepers[:0]
	l.earliest = math.MaxInt64
	for _, s := range l.sleepers {
		if s.until > end {
			still = append(still, s)
			l.earliest = min(l.earliest, s.until)
			continue
		}
		s.asleep = false
		s.Poke()
	}
	clear(l.sleepers[len(still):])
	l.sleepers = still
}

// Sleep asks for a token in s.Wake once the log ends at position until. It returns
// false if it does already.
func (l *Log[R]) Sleep(s *Sleeper, until int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sleepLocked(s, until)
}

func (l *Log[R]) sleepLocked(s *Sleeper, until int64) bool {
	if l.End() >= until {
		return false
	}
	s.until = until
	l.earliest = min(l.earliest, until)
	if !s.asleep {
		s.asleep = true
		l.sleepers = append(l.sleepers, s)
	}
	return true
}

// Forget takes s off those that sleep.
func (l *Log[R]) Forget(s *Sleeper) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.sleepers, s); i >= 0 {
		l.sleepers = slices.Delete(l.sleepers, i, i+1)
	}
}

// Sleeper is woken when the log has reached a position. It is made by NewSleeper, and
// must not be copied after that.
type Sleeper struct {
	wake   chan struct{}
	until  int64 // the position; protected by the log's mu
	asleep bool  // among the log's sleepers; protected by the log's mu
}

// NewSleeper returns a Sleeper that is awake.
func NewSleeper() Sleeper { return Sleeper{wake: make(chan struct{}, 1)} }

// Wake returns a channel that gets a token when it is time to look again.
func (s *Sleeper) Wake() <-chan struct{} { return s.wake }

// Poke leaves a token.
func (s *Sleeper) Poke() {
	select {
	case s.wake <- struct{}{}:
	default: // it has not looked since the last time
	}
}
