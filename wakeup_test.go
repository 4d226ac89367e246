package informer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	corev1 "k8s.io/api/core/v1"
)

// TestNoWakeUpIsLost makes watchers of every kind fall asleep and wake up thousands of times,
// on real goroutines. A watcher that misses one wake-up stays asleep.
func TestNoWakeUpIsLost(t *testing.T) {
	rounds := 5000
	if testing.Short() {
		rounds = 400
	}
	d := newDistribution()
	var handled sync.WaitGroup
	versions := make([]atomic.Int64, 24) // version of the last event that each watcher has seen
	for i := range versions {
		w := WatcherFunc[pod](func(_ context.Context, e Event[pod]) error {
			if rand.IntN(50) == 0 {
				runtime.Gosched() // the watcher falls behind sometimes
			}
			if v := e.New.Generation; v > 0 { // the last event of a round
				versions[i].Store(v)
				handled.Done()
			}
			return nil
		})
		opts := WatcherOptions{MaxBacklog: []int{-1, 1, 3, 100}[i%4]}
		if i%6 == 5 {
			opts.Workers = 2
		}
		if _, err := d.add(w, opts); err != nil {
			t.Fatal(err)
		}
	}
	d.begin()
	defer d.end()
	rnd := rand.New(rand.NewPCG(1, 1))
	burst := d.updates(600)
	for round := range int64(rounds) {
		handled.Add(len(versions))
		if n := rnd.IntN(10); n == 0 {
			d.distribute(burst[:rnd.IntN(len(burst))], "")
		} else if n < 5 {
			d.distribute(burst[:rnd.IntN(3)], "")
		}
		last := &corev1.Pod{}
		last.Name, last.Generation = "last", round+1
		d.distribute([]record[pod]{{key: "last", event: Event[pod]{Old: last, New: last, Type: EventUpdated}}}, "")
		if rnd.IntN(3) == 0 {
			d.log.SealIfIdle(d.log.End())
		}
		handled.Wait()
		for i := range versions {
			if got := versions[i].Load(); got != round+1 {
				t.Fatalf("watcher %d has seen round %d, not %d", i, got, round+1)
			}
		}
	}
}

// TestAnIdleInformerKeepsNoOldObjects checks that idle watchers keep no objects of handled events
// alive.
func TestAnIdleInformerKeepsNoOldObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDistribution()
		var busy sync.WaitGroup
		for _, opts := range []WatcherOptions{{MaxBacklog: -1}, {MaxBacklog: 1}, {MaxBacklog: 10, Workers: 2}} {
			w := WatcherFunc[pod](func(context.Context, Event[pod]) error { time.Sleep(time.Millisecond); return nil })
			if _, err := d.add(w, opts); err != nil {
				t.Fatal(err)
			}
		}
		d.begin()
		busy.Go(func() { d.run(d.ctx) })
		var olds []weak.Pointer[corev1.Pod]
		for range 3 * maxChunk {
			old := &corev1.Pod{}
			old.Name = "a"
			olds = append(olds, weak.Make(old))
			d.distribute([]record[pod]{{key: "a", event: Event[pod]{Old: old, New: old, Type: EventUpdated}}}, "")
		}
		time.Sleep(time.Hour)
		runtime.GC()
		alive := slices.DeleteFunc(olds, func(old weak.Pointer[corev1.Pod]) bool { return old.Value() == nil })
		if len(alive) > 0 {
			t.Errorf("%d of %d objects are still alive", len(alive), len(olds))
		}
		d.informerProcessor.stop()
		d.stop()
		busy.Wait()
	})
}

func TestTheCallThatAWatcherHangsInIsNamed(t *testing.T) {
	for _, place := range []int{0, 1, countStep - 1, countStep, 100, maxChunk - 1} {
		synctest.Test(t, func(t *testing.T) {
			d := newDistribution()
			hang := make(chan struct{})
			at := fmt.Sprint(place)
			w := WatcherFunc[pod](func(_ context.Context, e Event[pod]) error {
				if e.New.Name == at {
					<-hang
				}
				return nil
			})
			l, err := d.add(w, WatcherOptions{MaxBacklog: -1})
			if err != nil {
				t.Fatal(err)
			}
			// The chunks of the log grow. Fill the small ones, so that the updates fill exactly
			// one chunk.
			for d.log.End() < 16+32+64+128+maxChunk {
				d.distribute([]record[pod]{{kind: recordVoid}}, "")
			}
			d.begin()
			defer d.end()
			defer close(hang)
			synctest.Wait()
			d.distribute(d.updates(maxChunk), "")
			synctest.Wait()
			calls := l.calling()
			if len(calls) != 1 {
				t.Fatalf("hanging at event %d, the watcher is reported in %q", place, calls)
			}
			var first, more int
			if n, _ := fmt.Sscanf(strings.TrimPrefix(calls[0], "default/"), "%d or one of the %d after it", &first, &more); n == 0 || place < first || place > first+more {
				t.Errorf("hanging at event %d, the watcher is reported in %q", place, calls)
			}
			if place < countStep && more > 0 || more >= countStep {
				t.Errorf("hanging at event %d, the watcher is reported in %q, which is too vague", place, calls)
			}
			if s := l.stats(); s.Delivered > place || s.Delivered <= place-countStep || s.Delivered+s.Pending != maxChunk {
				t.Errorf("hanging at event %d, the stats are %+v", place, s)
			}
		})
	}
}
