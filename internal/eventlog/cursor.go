package eventlog

// Cursor is one reader's position in the log. It keeps its current chunk and all later chunks
// alive. Its methods, except Poke and Wake, must not be called by two goroutines at once.
type Cursor[R any] struct {
	Sleeper
	log    *Log[R]
	chunk  *chunk[R]
	offset int64
	events int64 // number of events before the next record
}

// Cursor returns a cursor at the end of the log. The cursor is never between two records of one
// call of Append.
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

// Clone returns another cursor at the same position.
func (c *Cursor[R]) Clone() *Cursor[R] {
	return &Cursor[R]{Sleeper: NewSleeper(), log: c.log, chunk: c.chunk, offset: c.offset, events: c.events}
}

// Position returns the position of the next record.
func (c *Cursor[R]) Position() int64 { return c.chunk.first + c.offset }

// Events returns the number of events before the next record.
func (c *Cursor[R]) Events() int64 { return c.events }

// Next moves the cursor over up to limit records of one chunk and returns them. It does not
// block: it returns false if the cursor is at the end of the log.
func (c *Cursor[R]) Next(limit int) (Segment[R], bool) {
	for {
		if filled := c.chunk.filled.Load(); filled > c.offset {
			to := min(filled, c.offset+int64(limit))
			s := Segment[R]{Records: c.chunk.records[c.offset:to], End: c.chunk.first + to}
			if s.Events = len(s.Records); c.chunk.nonEvents.Load() > 0 {
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
		// The chunk may have been filled further between the loads of filled and next. It
		// does not change after next is set.
		if c.chunk.filled.Load() == c.offset {
			c.chunk, c.offset = next, 0
		}
	}
}

// Sleep makes the log send a token to Wake with the next record, or when the chunk of the cursor
// is sealed. It does not block. It returns false if the caller must call Next instead.
func (c *Cursor[R]) Sleep() bool {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	// A cursor that slept in a sealed chunk would keep it alive.
	return c.chunk.next.Load() == nil && c.log.sleepLocked(&c.Sleeper, c.Position()+1)
}

// Close releases the records that the cursor keeps alive. The cursor must not be used after
// Close.
func (c *Cursor[R]) Close() {
	c.log.Forget(&c.Sleeper)
	c.chunk = nil
}

// Segment is a run of records that a reader handles together. The records belong to the log. The
// log never changes them, and a reader must not.
type Segment[R any] struct {
	Records []R   // the capacity reaches to the end of the chunk: see Extend
	Events  int   // how many of the records are events
	End     int64 // the position after the last record
	AsOf    int64 // of records that a reader has made: the position of the log that they sum up; otherwise 0
}

// At returns the position of a record in the log, or AsOf if it is not 0.
func (s Segment[R]) At(record int) int64 {
	if s.AsOf > 0 {
		return s.AsOf
	}
	return s.End - int64(len(s.Records)-record)
}

// Extend appends next to s without copying and returns true, if next follows s in the same chunk.
// Otherwise it returns false and changes nothing. Both s and next must have records.
func (s *Segment[R]) Extend(next Segment[R]) bool {
	n, more := len(s.Records), len(next.Records)
	if cap(s.Records) < n+more || &s.Records[:n+1][n] != &next.Records[0] {
		return false
	}
	s.Records, s.End = s.Records[:n+more], next.End
	s.Events += next.Events
	return true
}
