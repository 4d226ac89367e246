package eventlog

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"weak"
)

// numbered is a record that knows its position. It is a pointer, so that a test can see when
// the log releases it.
type numbered = *int64

func number(n int64) numbered { return &n }

// all counts every record as an event.
func all(records []numbered) int { return len(records) }

func TestEveryCursorReadsEveryRecordOnceAndInOrder(t *testing.T) {
	const total, readers = 50_000, 8
	l := New(all)
	var wg sync.WaitGroup
	read := func(c *Cursor[numbered]) {
		defer c.Close()
		for want := c.Position(); want < total; {
			s, ok := c.Next(MaxChunk)
			if !ok {
				if c.Sleep() {
					<-c.Wake()
				}
				continue
			}
			for i := range s.Records {
				if got := *s.Records[i]; got != want {
					t.Errorf("read record %d, want %d", got, want)
					return
				}
				want++
			}
			if s.End != want || c.Position() != want {
				t.Errorf("after record %d the segment ends at %d, the cursor is at %d", want, s.End, c.Position())
				return
			}
		}
	}
	for range readers {
		c := l.Cursor()
		wg.Go(func() { read(c) })
	}
	wg.Go(func() { // seals whenever the log pauses
		for last := int64(-1); last < total; {
			last = l.SealIfIdle(last)
			runtime.Gosched()
		}
	})
	r := rand.New(rand.NewPCG(1, 2))
	for n := int64(0); n < total; {
		var batch []numbered
		for range min(1+r.Int64N(700), total-n) {
			batch = append(batch, number(n))
			n++
		}
		l.Append(batch)
		if r.IntN(10) == 0 {
			c := l.Cursor() // begins in the midst of the log
			wg.Go(func() { read(c) })
		}
	}
	wg.Wait()
}

func TestACursorThatSleepsIsWokenByTheNextAppend(t *testing.T) {
	l := New(all)
	c := l.Cursor()
	if !c.Sleep() {
		t.Fatal("Sleep returned false with nothing to read")
	}
	l.Append([]numbered{number(0)})
	<-c.Wake()
	if c.Sleep() {
		t.Fatal("Sleep returned true with a record to read")
	}
	c.Next(MaxChunk)
	if !c.Sleep() {
		t.Fatal("Sleep returned false after the last record")
	}
	c.Close()
	if len(l.sleepers) != 0 {
		t.Fatal("a closed cursor is still one of the sleepers")
	}
}

func TestAChunkIsCollectedWhenTheLastCursorHasLeftIt(t *testing.T) {
	l := New(all)
	fast, slow := l.Cursor(), l.Cursor()
	obj := number(0)
	first := weak.Make(obj)
	l.Append([]numbered{obj})
	for n := range int64(3 * MaxChunk) {
		l.Append([]numbered{number(n + 1)})
	}
	drain := func(c *Cursor[numbered]) {
		for _, ok := c.Next(MaxChunk); ok; _, ok = c.Next(MaxChunk) {
		}
	}
	drain(fast)
	runtime.GC()
	if first.Value() == nil {
		t.Fatal("the object is gone while a cursor is before it")
	}
	drain(slow)
	runtime.GC()
	if first.Value() != nil {
		t.Fatal("the object is still alive after the last cursor has passed it")
	}
	runtime.KeepAlive(l)
	runtime.KeepAlive(fast)
	runtime.KeepAlive(slow)
}

func TestASealedLogReleasesItsLastRecords(t *testing.T) {
	l := New(all)
	c := l.Cursor()
	obj := number(0)
	last := weak.Make(obj)
	l.Append([]numbered{obj})
	c.Next(MaxChunk)
	if !c.Sleep() {
		t.Fatal("Sleep returned false after the last record")
	}
	end := l.SealIfIdle(-1)
	runtime.GC()
	if last.Value() == nil {
		t.Fatal("the chunk was sealed although the log was not idle")
	}
	if got := l.SealIfIdle(end); got != end {
		t.Fatalf("the log ends at %d after sealing, at %d before", got, end)
	}
	<-c.Wake() // to leave the old chunk
	if _, ok := c.Next(MaxChunk); ok {
		t.Fatal("read something from an empty chunk")
	}
	runtime.GC()
	if last.Value() != nil {
		t.Fatal("the last object of an idle log is still alive")
	}
	runtime.KeepAlive(l)
	runtime.KeepAlive(c)
}

func TestASleeperIsWokenAtItsPositionAndNotBefore(t *testing.T) {
	l := New(all)
	early, late := NewSleeper(), NewSleeper()
	if !l.Sleep(&late, 5) || !l.Sleep(&early, 2) {
		t.Fatal("Sleep returned false in an empty log")
	}
	for n := range int64(6) {
		l.Append([]numbered{number(n)})
		for name, s := range map[string]struct {
			*Sleeper
			until int64
		}{"early": {&early, 2}, "late": {&late, 5}} {
			select {
			case <-s.Wake():
				if n+1 != s.until {
					t.Errorf("%s was woken at %d", name, n+1)
				}
			default:
				if n+1 == s.until {
					t.Errorf("%s was not woken at %d", name, n+1)
				}
			}
		}
	}
	if l.Sleep(&early, 6) {
		t.Error("Sleep returned true at a position that the log has reached")
	}
}
