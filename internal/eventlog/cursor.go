package eventlog

// Cursor is one reader's place in the log. It belongs to one goroutine at a time, but
// for Poke and Wake.
type Cursor[R any] struct {
	Sleeper
	log    *Log[R]
	chunk  *chunk[R]
	offset int64
	events int64 // how many events come before the next record
}

// Cursor returns a cursor at the end of the log. It does not stand in the midst of what
// is appended at once.
func (l *Log[R]) Cursor() *Cursor[R] {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.tail.Load()
	filled := c.filled.Load()
	return &Cursor[R]{
		Sleeper: NewSleeper(), log: l, chunk: c, offset: filled,
		events: c.events + int64(l.count(c.records[:filled])),
	}
}

// Clone returns another cursor at the same place.
func (c *Cursor[R]) Clone() *Cursor[R] {
	return &Cursor[R]{Sleeper: NewSleeper(), log: c.log, chunk: c.chunk, offset: c.offset, events: c.events}
}

// Position returns the position of the next record.
func (c *Cursor[R]) Position() int64 { return c.chunk.first + c.offset }

// Events returns how many events come before the next record.
func (c *Cursor[R]) Events() int64 { return c.events }

// Next takes up to so many records, no more than the rest of the chunk or of the
// log. It returns false if there are none.
func (c *Cursor[R]) Next(most int) (Segment[R], bool) {
	for {
		if filled := c.chunk.filled.Load(); filled > c.offset {
			to := min(filled, c.offset+int64(most))
			s := Segment[R]{Records: c.chunk.records[c.offset:to], End: c.chunk.first + to}
			if s.Events = len(s.Records); c.chunk.others.Load() > 0 {
				s.Events = c.log.count(s.Records)
			}
			c.offset = to
			c.events += int64(s.Events)
			return s, true
		}
		next := c.chunk.next.Load()
		if next == nil {
			return Segment[R]{}, false
		}
		// The chunk may have been filled further between the two loads, but
		// not after the second.
		if c.chunk.filled.Load() == c.offset {
			c.chunk, c.offset = next, 0
		}
	}
}

// Sleep asks for a token in Wake at the next append. It returns false if there
// is something to read already.
func (c *Cursor[R]) Sleep() bool {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	// A chunk that was sealed must be left, and not be slept on.
	return c.chunk.next.Load() == nil && c.log.sleepLocked(&c.Sleeper, c.Position()+1)
}

// Close lets go of the log. The cursor must not be used afterwards.
func (c *Cursor[R]) Close() {
	c.log.Forget(&c.Sleeper)
	c.chunk = nil
}

// Segment is a run of records that one reader handles in one go. The records
// belong to the log and are never written again.
type Segment[R any] struct {
	Records []R   // with the capacity of the chunk behind it
	Events  int   // how many of them are events
	End     int64 // the position that is reached with the last record
}

// Extend takes in next if it follows in the same chunk.
func (s *Segment[R]) Extend(next Segment[R]) bool {
	n, more := len(s.Records), len(next.Records)
	if cap(s.Records) < n+more || &s.Records[:n+1][n] != &next.Records[0] {
		return false
	}
	s.Records, s.End = s.Records[:n+more], next.End
	s.Events += next.Events
	return true
}
