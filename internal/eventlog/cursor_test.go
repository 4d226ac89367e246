package eventlog

import (
	"slices"
	"testing"
)

// positive counts the positive numbers as events and all others as notes.
func positive(records []int) int {
	n := 0
	for _, r := range records {
		if r > 0 {
			n++
		}
	}
	return n
}

// upTo returns the numbers from 1 to n.
func upTo(n int) []int {
	records := make([]int, n)
	for i := range records {
		records[i] = i + 1
	}
	return records
}

func TestNotesHavePositionsButDoNotCountAsEvents(t *testing.T) {
	l := New(positive)
	c := l.Cursor()
	l.Append([]int{1, 0, 2})
	if l.End() != 3 || l.Events() != 2 {
		t.Errorf("the log ends at %d with %d events, want 3 and 2", l.End(), l.Events())
	}
	late := l.Cursor()
	if late.Position() != 3 || late.Events() != 2 {
		t.Errorf("a cursor at the end is at %d after %d events, want 3 and 2", late.Position(), late.Events())
	}
	for _, want := range []struct{ limit, records, events, position, before int }{{2, 2, 1, 2, 1}, {2, 1, 1, 3, 2}} {
		s, ok := c.Next(want.limit)
		if !ok || len(s.Records) != want.records || s.Events != want.events || s.End != int64(want.position) {
			t.Errorf("the segment is %+v, %v, want %+v", s, ok, want)
		}
		if c.Position() != int64(want.position) || c.Events() != int64(want.before) {
			t.Errorf("the cursor is at %d after %d events, want %+v", c.Position(), c.Events(), want)
		}
	}
	if s, ok := c.Next(MaxChunk); ok {
		t.Errorf("read %+v after the last record", s)
	}
}

func TestEventsAreCountedAcrossChunks(t *testing.T) {
	l := New(positive)
	c := l.Cursor()
	l.Append(append(upTo(20), 0, 0))
	l.Append(upTo(100))
	for _, ok := c.Next(MaxChunk); ok; _, ok = c.Next(MaxChunk) {
		if late := l.Cursor(); late.Events() != 120 {
			t.Errorf("there are %d events before the end, want 120", late.Events())
		}
	}
	if c.Position() != 122 || c.Events() != 120 {
		t.Errorf("the cursor is at %d after %d events, want 122 and 120", c.Position(), c.Events())
	}
}

func TestACloneReadsOnFromTheSamePlaceByItself(t *testing.T) {
	l := New(positive)
	c := l.Cursor()
	l.Append([]int{1, 0, 2, 3})
	c.Next(2)
	clone := c.Clone()
	c.Next(MaxChunk)
	if clone.Position() != 2 || clone.Events() != 1 {
		t.Errorf("the clone is at %d after %d events, want 2 and 1", clone.Position(), clone.Events())
	}
	if s, _ := clone.Next(MaxChunk); !slices.Equal(s.Records, []int{2, 3}) {
		t.Errorf("the clone reads %v, want 2 and 3", s.Records)
	}
	if !clone.Sleep() {
		t.Fatal("Sleep returned false after the last record")
	}
	l.Append([]int{4})
	<-clone.Wake()
	select {
	case <-c.Wake():
		t.Error("the append has woken a cursor that does not sleep")
	default:
	}
}

func TestSegmentsOfOneChunkAreJoinedWithoutCopying(t *testing.T) {
	l := New(positive)
	c := l.Cursor()
	l.Append([]int{1, 0, 2})
	first, _ := c.Next(2)
	second, _ := c.Next(1)
	l.Append([]int{3})
	third, _ := c.Next(1)
	if s := first; s.Extend(third) {
		t.Errorf("a segment was extended by one that does not follow it: %+v", s)
	}
	if !first.Extend(second) || !first.Extend(third) {
		t.Fatal("a segment was not extended by the next of the same chunk")
	}
	if !slices.Equal(first.Records, []int{1, 0, 2, 3}) || first.Events != 3 || first.End != 4 {
		t.Errorf("the segment is %+v", first)
	}
	if &first.Records[3] != &third.Records[0] {
		t.Error("the records were copied")
	}
	if !slices.Equal(second.Records, []int{2}) {
		t.Errorf("the other segment has changed: %v", second.Records)
	}
}

func TestASegmentDoesNotGrowBeyondItsChunk(t *testing.T) {
	l := New(positive)
	c := l.Cursor()
	l.Append(upTo(minChunk + 1))
	s, _ := c.Next(MaxChunk)
	next, _ := c.Next(MaxChunk)
	if s.Extend(next) || len(s.Records) != minChunk || len(next.Records) != 1 {
		t.Errorf("the segments have %d and %d records, want %d and 1", len(s.Records), len(next.Records), minChunk)
	}
}

func TestChunksDoubleUpToTheLargestAndStartSmallAfterAPause(t *testing.T) {
	l := New(positive)
	c := l.Cursor()
	sizes := func() (sizes []int) {
		for s, ok := c.Next(2 * MaxChunk); ok; s, ok = c.Next(2 * MaxChunk) {
			sizes = append(sizes, len(s.Records))
		}
		return sizes
	}
	l.Append(upTo(16 + 32 + 64 + 128 + 256 + 256 + 1))
	if got := sizes(); !slices.Equal(got, []int{16, 32, 64, 128, 256, 256, 1}) {
		t.Errorf("the chunks have %v records", got)
	}
	l.SealIfIdle(l.End())
	l.Append(upTo(17))
	if got := sizes(); !slices.Equal(got, []int{16, 1}) {
		t.Errorf("after the pause the chunks have %v records", got)
	}
}

func TestTheFirstRecordOfAChunkIsAnnounced(t *testing.T) {
	l := New(positive)
	check := func(when string, want bool) {
		t.Helper()
		got := false
		select {
		case <-l.Stirred():
			got = true
		default:
		}
		if got != want {
			t.Errorf("%s: announced %v, want %v", when, got, want)
		}
	}
	check("an empty log", false)
	l.Append([]int{1})
	check("the first record", true)
	l.Append(upTo(minChunk - 1))
	check("the rest of the chunk", false)
	l.Append([]int{1})
	check("the next chunk", true)
	l.Append(upTo(10 * MaxChunk))
	check("many chunks at once", true)
	check("many chunks at once, a second time", false)
	l.SealIfIdle(l.End())
	check("a sealed chunk", false)
	l.Append([]int{1})
	check("the first record after a sealed chunk", true)
}

func TestAnEmptyChunkIsNotSealed(t *testing.T) {
	l := New(positive)
	c := l.Cursor()
	c.Sleep()
	if end := l.SealIfIdle(0); end != 0 {
		t.Errorf("an empty log ends at %d", end)
	}
	l.Append([]int{1})
	<-c.Wake()
	c.Next(1)
	l.SealIfIdle(1)
	c.Next(1)
	c.Sleep()
	l.SealIfIdle(1)
	select {
	case <-c.Wake():
		t.Error("an empty chunk was sealed")
	default:
	}
}

func TestACursorDoesNotSleepInASealedChunk(t *testing.T) {
	l := New(positive)
	c := l.Cursor()
	l.Append([]int{1})
	c.Next(1)
	l.SealIfIdle(1)
	if c.Sleep() {
		t.Fatal("the cursor sleeps in a sealed chunk, and keeps its records alive")
	}
	if _, ok := c.Next(1); ok || !c.Sleep() {
		t.Error("the cursor has not moved to the new chunk")
	}
}

func TestAForgottenSleeperIsNotWokenUntilItSleepsAgain(t *testing.T) {
	l := New(positive)
	s := NewSleeper()
	l.Forget(&s) // does nothing: the sleeper is awake
	l.Sleep(&s, 1)
	l.Forget(&s)
	l.Append([]int{1})
	select {
	case <-s.Wake():
		t.Fatal("a forgotten sleeper was woken")
	default:
	}
	if !l.Sleep(&s, 2) {
		t.Fatal("Sleep returned false before the position is reached")
	}
	l.Append([]int{2})
	select {
	case <-s.Wake():
	default:
		t.Fatal("the sleeper was not woken")
	}
}

func TestASecondSleepReplacesThePosition(t *testing.T) {
	l := New(positive)
	s := NewSleeper()
	l.Sleep(&s, 1)
	l.Sleep(&s, 3)
	for n, want := range []bool{false, false, true, false} {
		l.Append([]int{1})
		got := false
		select {
		case <-s.Wake():
			got = true
		default:
		}
		if got != want {
			t.Errorf("record %d: woken %v, want %v", n, got, want)
		}
	}
}

func TestPokesAreNotCounted(t *testing.T) {
	s := NewSleeper()
	s.Poke()
	s.Poke()
	<-s.Wake()
	select {
	case <-s.Wake():
		t.Error("two pokes have left two tokens")
	default:
	}
}
