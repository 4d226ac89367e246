package informer

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The chunks of the log start small, so that an informer with little to say
// keeps little alive, and double up to a size at which one hand-over to a
// listener is paid for by many events.
const (
	minChunk = 16
	maxChunk = 256
)

// recordKind says what a record of the log stands for.
type recordKind uint8

const (
	recordEvent  recordKind = iota
	recordMarker            // the informer has synced
	recordVoid              // the store has refused what was announced
	recordFinal             // New is what the object of the next record, a delete, was in the end
)

// record is an entry of the log. It is written once and shared by all listeners.
type record[T Object] struct {
	key       string // as the store has it
	event     Event[T]
	kind      recordKind
	unchanged bool          // a relist found the object as it was: no event for native watchers
	since     time.Duration // when it was told, by the processor's stopwatch
}

// isEvent reports whether a watcher is called for r.
func (r *record[T]) isEvent() bool { return r.kind == recordEvent && !r.unchanged }

// segment is a run of records that one listener handles in one go. The records
// belong to the log and are never written again.
type segment[T Object] struct {
	records []record[T] // with the capacity of the chunk behind it
	events  int         // how many of them a watcher is called for
	end     int64       // the position that is reached with the last record
}

// since returns since when the first record waits, 0 if there is none.
func (s segment[T]) since() time.Duration {
	if len(s.records) == 0 {
		return 0
	}
	return s.records[0].since
}

// extend takes in next if it follows in the same chunk.
func (s *segment[T]) extend(next segment[T]) bool {
	n, more := len(s.records), len(next.records)
	if cap(s.records) < n+more || &s.records[:n+1][n] != &next.records[0] {
		return false
	}
	s.records, s.end = s.records[:n+more], next.end
	s.events += next.events
	return true
}

func countEvents[T Object](records []record[T]) int {
	n := 0
	for i := range records {
		if records[i].isEvent() {
			n++
		}
	}
	return n
}

// chunk is a part of the log. Only records[:filled] may be read; once next is
// set, filled does not change any more.
type chunk[T Object] struct {
	first   int64 // the position of records[0]
	events  int64 // how many events come before
	records []record[T]
	others  atomic.Int64 // 0 if all of records[:filled] are events
	filled  atomic.Int64
	next    atomic.Pointer[chunk[T]]
}

// eventLog holds every event once, for any number of cursors that read it at
// their own pace. Appending never waits for a reader. Chunks point forward only,
// so that the garbage collector takes a chunk as soon as the last cursor has
// left it. The log owns no goroutine.
type eventLog[T Object] struct {
	// begun is the position up to which changes of the store may have been
	// started. The writer raises it before it touches the store; see
	// informerProcessorListener.snapshot for the other half.
	begun  atomic.Int64
	tail   atomic.Pointer[chunk[T]]
	events atomic.Int64 // how many of the records are events
	// stirred gets a token when the first record of a chunk is written.
	stirred chan struct{}

	mu       sync.Mutex // orders appending, sealing and going to sleep
	sleepers []*sleeper
	earliest int64 // what the first of sleepers waits for
}

func newEventLog[T Object]() *eventLog[T] {
	l := &eventLog[T]{stirred: make(chan struct{}, 1), earliest: math.MaxInt64}
	l.tail.Store(&chunk[T]{records: make([]record[T], minChunk)})
	return l
}

// end returns the position after the last record.
func (l *eventLog[T]) end() int64 {
	c := l.tail.Load()
	return c.first + c.filled.Load()
}

// append publishes records and wakes those that sleep until there are so many.
func (l *eventLog[T]) append(records []record[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(records) > 0 {
		c := l.tail.Load()
		filled := c.filled.Load()
		if filled == int64(len(c.records)) {
			c, filled = l.growLocked(c, min(2*len(c.records), maxChunk)), 0
		}
		n := copy(c.records[filled:], records)
		events := countEvents(records[:n])
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
	if end := l.end(); end >= l.earliest {
		l.wakeLocked(end)
	}
}

// sealIfIdle ends the current chunk if nothing was appended since the log ended
// at position since, and returns where it ends now. Otherwise the last events of
// an informer that has gone quiet, with all their old objects, would stay alive
// until the next event.
func (l *eventLog[T]) sealIfIdle(since int64) int64 {
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

func (l *eventLog[T]) growLocked(c *chunk[T], size int) *chunk[T] {
	next := &chunk[T]{first: c.first + c.filled.Load(), events: l.events.Load(), records: make([]record[T], size)}
	c.next.Store(next)
	l.tail.Store(next)
	return next
}

// wakeLocked wakes those that wait for a position up to end.
func (l *eventLog[T]) wakeLocked(end int64) {
	still := l.sleepers[:0]
	l.earliest = math.MaxInt64
	for _, s := range l.sleepers {
		if s.until > end {
			still = append(still, s)
			l.earliest = min(l.earliest, s.until)
			continue
		}
		s.asleep = false
		s.poke()
	}
	clear(l.sleepers[len(still):])
	l.sleepers = still
}

// sleep asks for a token in s.wake once the log ends at position until. It returns
// false if it does already.
func (l *eventLog[T]) sleep(s *sleeper, until int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sleepLocked(s, until)
}

func (l *eventLog[T]) sleepLocked(s *sleeper, until int64) bool {
	if l.end() >= until {
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

// forget takes s off those that sleep.
func (l *eventLog[T]) forget(s *sleeper) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.sleepers, s); i >= 0 {
		l.sleepers = slices.Delete(l.sleepers, i, i+1)
	}
}

// sleeper is woken when the log has reached a position.
type sleeper struct {
	wake   chan struct{} // gets a token when it should look again
	until  int64         // the position; protected by the log's mu
	asleep bool          // among the log's sleepers; protected by the log's mu
}

func newSleeper() sleeper { return sleeper{wake: make(chan struct{}, 1)} }

// poke leaves a token.
func (s *sleeper) poke() {
	select {
	case s.wake <- struct{}{}:
	default: // it has not looked since the last time
	}
}

// cursor is one reader's place in the log. It belongs to one goroutine at a time.
type cursor[T Object] struct {
	sleeper
	log    *eventLog[T]
	chunk  *chunk[T]
	offset int64
	events int64 // how many events come before the next record
}

// cursor returns a cursor at the end of the log. It does not stand in the midst of what
// is appended at once: the final state of a deleted object belongs to what comes next.
func (l *eventLog[T]) cursor() *cursor[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.tail.Load()
	filled := c.filled.Load()
	return &cursor[T]{
		sleeper: newSleeper(), log: l, chunk: c, offset: filled,
		events: c.events + int64(countEvents(c.records[:filled])),
	}
}

// clone returns another cursor at the same place.
func (c *cursor[T]) clone() *cursor[T] {
	return &cursor[T]{sleeper: newSleeper(), log: c.log, chunk: c.chunk, offset: c.offset, events: c.events}
}

// position returns the position of the next record.
func (c *cursor[T]) position() int64 { return c.chunk.first + c.offset }

// next takes up to so many records, no more than the rest of the chunk or of the
// log. It returns false if there are none.
func (c *cursor[T]) next(most int) (segment[T], bool) {
	for {
		if filled := c.chunk.filled.Load(); filled > c.offset {
			to := min(filled, c.offset+int64(most))
			s := segment[T]{records: c.chunk.records[c.offset:to], end: c.chunk.first + to}
			if s.events = len(s.records); c.chunk.others.Load() > 0 {
				s.events = countEvents(s.records)
			}
			c.offset = to
			c.events += int64(s.events)
			return s, true
		}
		next := c.chunk.next.Load()
		if next == nil {
			return segment[T]{}, false
		}
		// The chunk may have been filled further between the two loads, but
		// not after the second.
		if c.chunk.filled.Load() == c.offset {
			c.chunk, c.offset = next, 0
		}
	}
}

// sleep asks for a token in wake at the next append. It returns false if there
// is something to read already.
func (c *cursor[T]) sleep() bool {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	// A chunk that was sealed must be left, and not be slept on.
	return c.chunk.next.Load() == nil && c.log.sleepLocked(&c.sleeper, c.position()+1)
}

// close lets go of the log. The cursor must not be used afterwards.
func (c *cursor[T]) close() {
	c.log.forget(&c.sleeper)
	c.chunk = nil
}
