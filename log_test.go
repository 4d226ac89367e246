package informer

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"weak"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func numbered(n int64) record[*corev1.Pod] {
	return record[*corev1.Pod]{key: fmt.Sprint(n), event: Event[*corev1.Pod]{New: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Generation: n}}}}
}

func TestEveryCursorReadsEveryRecordOnceAndInOrder(t *testing.T) {
	const total, readers = 50_000, 8
	l := newEventLog[*corev1.Pod]()
	var wg sync.WaitGroup
	read := func(c *cursor[*corev1.Pod]) {
		defer c.close()
		for want := c.position(); want < total; {
			s, ok := c.next(maxChunk)
			if !ok {
				if c.sleep() {
					<-c.wake
				}
				continue
			}
			for i := range s.records {
				if got := s.records[i].event.New.Generation; got != want {
					t.Errorf("read record %d, want %d", got, want)
					return
				}
				want++
			}
			if s.end != want || c.position() != want {
				t.Errorf("after record %d the segment ends at %d, the cursor stands at %d", want, s.end, c.position())
				return
			}
		}
	}
	for range readers {
		c := l.cursor()
		wg.Go(func() { read(c) })
	}
	wg.Go(func() { // the processor's part
		for last := int64(-1); last < total; {
			last = l.sealIfIdle(last)
			runtime.Gosched()
		}
	})
	r := rand.New(rand.NewPCG(1, 2))
	for n := int64(0); n < total; {
		var batch []record[*corev1.Pod]
		for range min(1+r.Int64N(700), total-n) {
			batch = append(batch, numbered(n))
			n++
		}
		l.append(batch)
		if r.IntN(10) == 0 {
			c := l.cursor() // one that joins late
			wg.Go(func() { read(c) })
		}
	}
	wg.Wait()
}

func TestACursorThatSleepsIsWokenByTheNextAppend(t *testing.T) {
	l := newEventLog[*corev1.Pod]()
	c := l.cursor()
	if !c.sleep() {
		t.Fatal("there is nothing to read, and sleep returned false")
	}
	l.append([]record[*corev1.Pod]{numbered(0)})
	<-c.wake
	if c.sleep() {
		t.Fatal("there is a record to read, and sleep returned true")
	}
	c.next(maxChunk)
	if !c.sleep() {
		t.Fatal("all is read, and sleep returned false")
	}
	c.close()
	if len(l.sleepers) != 0 {
		t.Fatal("a closed cursor is still among the sleepers")
	}
}

func TestAChunkIsCollectedWhenTheLastCursorHasLeftIt(t *testing.T) {
	l := newEventLog[*corev1.Pod]()
	fast, slow := l.cursor(), l.cursor()
	obj := numbered(0)
	first := weak.Make(obj.event.New)
	l.append([]record[*corev1.Pod]{obj})
	obj = record[*corev1.Pod]{}
	for n := range int64(3 * maxChunk) {
		l.append([]record[*corev1.Pod]{numbered(n + 1)})
	}
	drain := func(c *cursor[*corev1.Pod]) {
		for _, ok := c.next(maxChunk); ok; _, ok = c.next(maxChunk) {
		}
	}
	drain(fast)
	runtime.GC()
	if first.Value() == nil {
		t.Fatal("the object is gone while a cursor stands before it")
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

func TestAnIdleLogLetsGoOfItsLastEvents(t *testing.T) {
	l := newEventLog[*corev1.Pod]()
	c := l.cursor()
	obj := numbered(0)
	last := weak.Make(obj.event.New)
	l.append([]record[*corev1.Pod]{obj})
	obj = record[*corev1.Pod]{}
	c.next(maxChunk)
	if !c.sleep() {
		t.Fatal("all is read, and sleep returned false")
	}
	end := l.sealIfIdle(-1)
	runtime.GC()
	if last.Value() == nil {
		t.Fatal("sealed although the log has moved")
	}
	if got := l.sealIfIdle(end); got != end {
		t.Fatalf("the log ends at %d after sealing, at %d before", got, end)
	}
	<-c.wake // to leave the old chunk
	if _, ok := c.next(maxChunk); ok {
		t.Fatal("read something from an empty chunk")
	}
	runtime.GC()
	if last.Value() != nil {
		t.Fatal("the last object of an idle log is still alive")
	}
	runtime.KeepAlive(l)
	runtime.KeepAlive(c)
}

func TestABacklogTakesOneEntryPerChunk(t *testing.T) {
	const total = 20 * maxChunk
	l := newEventLog[*corev1.Pod]()
	c := l.cursor()
	b := &backlog[*corev1.Pod]{limit: -1}
	for n := range int64(total) {
		l.append([]record[*corev1.Pod]{numbered(n)})
		s, _ := c.next(maxChunk)
		b.push(s)
	}
	if got := b.ring.Len(); got > 25 {
		t.Errorf("%d events that came one by one take %d entries", total, got)
	}
	want := int64(0)
	for s, ok := b.pop(); ok; s, ok = b.pop() {
		for i := range s.records {
			if got := s.records[i].event.New.Generation; got != want {
				t.Fatalf("record %d comes where %d should", got, want)
			}
			want++
		}
		if s.end != want {
			t.Fatalf("a segment that ends with record %d ends at %d", want-1, s.end)
		}
	}
	if want != total {
		t.Errorf("%d of %d records came out", want, total)
	}
}
