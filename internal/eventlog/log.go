package eventlog

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// The first chunk is small, so that a log with few records keeps little memory alive. Later
// chunks double in size up to MaxChunk, so that many records share the cost of one hand-over to a
// reader.
const (
	minChunk = 16
	// MaxChunk is the largest number of records in a Segment.
	MaxChunk = 256
)

// Log holds every record once. The position of a record is the number of records before it. New
// makes a Log, which must not be copied. Its methods may be called from any goroutine.
type Log[R any] struct {
	count   func([]R) int
	tail    atomic.Pointer[chunk[R]]
	events  atomic.Int64  // how many of the records are events
	stirred chan struct{} // gets a token when the first record of a chunk is written

	mu       sync.Mutex // orders appending, sealing and going to sleep
	sleepers []*Sleeper
	earliest int64 // no sleeper waits for a lower position
}

// chunk is a part of the log. Only records[:filled] may be read. Once next is set, filled no
// longer changes. Chunks point only forward, so the garbage collector frees a chunk as soon as
// the last cursor has left it.
type chunk[R any] struct {
	first     int64 // the position of records[0]
	events    int64 // number of events before records[0]
	records   []R
	nonEvents atomic.Int64 // how many of records[:filled] are not events
	filled    atomic.Int64
	next      atomic.Pointer[chunk[R]]
}

// New returns an empty log. Some records may be notes to the readers instead of events: count
// must return how many of the given records are events. The log calls count for every run of
// records that is appended, and for every run that is read from a chunk with notes.
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

// Stirred returns a channel that gets a token when the first record of a chunk is written.
// From then on the log holds records that SealIfIdle can release.
func (l *Log[R]) Stirred() <-chan struct{} { return l.stirred }

// Append copies records to the end of the log, and wakes the sleepers that wait for a position up
// to the new end. It does not wait for readers.
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
			c.nonEvents.Add(int64(n - events))
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

// SealIfIdle ends the current chunk if nothing was appended since the log ended at position
// since, and returns the end of the log. Without it, the last chunk of a quiet log would
// keep its records alive until more records have filled it.
func (l *Log[R]) SealIfIdle(since int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.tail.Load()
	end := c.first + c.filled.Load()
	if end == since && end > c.first {
		l.growLocked(c, minChunk)
		l.wakeLocked(end + 1) // a cursor that waits for the next record must leave the old chunk
	}
	return end
}

// growLocked appends an empty chunk with room for size records. c must be the last chunk.
func (l *Log[R]) growLocked(c *chunk[R], size int) *chunk[R] {
	next := &chunk[R]{first: c.first + c.filled.Load(), events: l.events.Load(), records: make([]R, size)}
	c.next.Store(next)
	l.tail.Store(next)
	return next
}

// wakeLocked wakes the sleepers that wait for a position up to end.
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

// Sleep makes the log wake s once its end has reached the position until. It does not block. It
// returns false if the end has reached the position already. A second call replaces the position
// of the first. SealIfIdle may wake s one record early.
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

// Forget cancels Sleep: the log no longer wakes s.
func (l *Log[R]) Forget(s *Sleeper) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.sleepers, s); i >= 0 {
		l.sleepers = slices.Delete(l.sleepers, i, i+1)
		s.asleep = false
	}
}

// Sleeper waits until the log has reached a position, see [Log.Sleep]. NewSleeper makes one. It
// must not be copied after its first use.
type Sleeper struct {
	wake   chan struct{}
	until  int64 // the position to wait for; protected by the log's mu
	asleep bool  // s is one of the log's sleepers; protected by the log's mu
}

// NewSleeper returns a Sleeper that is awake.
func NewSleeper() Sleeper { return Sleeper{wake: make(chan struct{}, 1)} }

// Wake returns a channel that gets a token when the log or Poke wakes s.
func (s *Sleeper) Wake() <-chan struct{} { return s.wake }

// Poke wakes s. It may be called from any goroutine and does not block.
func (s *Sleeper) Poke() {
	select {
	case s.wake <- struct{}{}:
	default: // s still has a token
	}
}
