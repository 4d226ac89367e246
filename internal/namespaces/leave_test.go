package namespaces_test

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// A namespace leaves while its list comes in: in the middle of a page, of a stream, and in Transform.
func TestANamespaceLeavesInTheMiddleOfItsList(t *testing.T) {
	eachStore(t, func(t *testing.T, opts options) {
		s := newServer(object("a", "u", "1"), object("a", "v", "1"), object("a", "w", "1"), object("b", "x", "1"))
		var inf *reader
		var taken atomic.Int32
		opts.Transform = func(obj configMap) (configMap, error) {
			if obj.Namespace == "a" && taken.Add(1) == 2 {
				inf.set("b")
			}
			return obj, nil
		}
		inf = s.informer(t, opts, "a", "b")
		inf.start(time.Minute)
		inf.check("b")
		if !inf.HasSynced() || taken.Load() != 2 {
			t.Errorf("%d objects were transformed: %+v", taken.Load(), inf.Health())
		}
		inf.set("b", "a")
		inf.checkAfter(time.Minute, "a", "b")
	})
}

// An event that has arrived, and that Transform holds until its namespace has left, is dropped.
func TestANamespaceLeavesWhileTransformHasItsObject(t *testing.T) {
	eachStore(t, func(t *testing.T, opts options) {
		s, hold := newServer(object("a", "x", "1"), object("b", "x", "1")), make(chan struct{})
		opts.Transform = func(obj configMap) (configMap, error) {
			if obj.Data["value"] == "hold" {
				<-hold
			}
			return obj, nil
		}
		inf := s.informer(t, opts, "a", "b")
		inf.start(time.Minute)
		s.Apply(object("a", "x", "hold"))
		time.Sleep(time.Second)
		inf.set("b")
		time.Sleep(time.Second)
		close(hold)
		inf.checkAfter(time.Second, "b")
	})
}

// While the informer is held up, a namespace leaves with a change of an object, returns, and the object changes again.
func TestANamespaceLeavesAndReturnsBehindAChange(t *testing.T) {
	eachStore(t, func(t *testing.T, opts options) {
		s, hold := newServer(object("a", "x", "1"), object("b", "x", "1")), make(chan struct{})
		opts.Observer = &informer.Observer{Apply: func(a informer.ApplyInfo) {
			if a.Key == "b/x" && a.Type == informer.EventUpdated {
				<-hold
			}
		}}
		inf := s.informer(t, opts, "a", "b")
		inf.start(time.Minute)
		s.Apply(object("b", "x", "2"))
		synctest.Wait()
		s.Apply(object("a", "x", "2")) // waits in the queue, and a DeltaFIFO puts a later change of a/x in its place
		synctest.Wait()
		inf.set("b")
		_, _ = s.Delete(keyOf("a", "x"))
		inf.set("a", "b")
		time.Sleep(time.Second)
		s.Apply(object("a", "x", "3"))
		synctest.Wait()
		close(hold)
		inf.checkAfter(time.Minute, "a", "b")
	})
}

// Any callback may change the set.
func TestACallbackChangesTheSet(t *testing.T) {
	callbacks := maps.Clone(testkit.Callbacks)
	callbacks["ErrorHandler"] = func(opts *options, change func()) informer.ResourceWatcher[configMap] {
		opts.Transform = testkit.NotBad
		opts.ErrorHandler = func(context.Context, error) { change() }
		return nil
	}
	for name, arrange := range callbacks {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, opts options) {
				s := newServer(object("a", "x", "1"), object("a", "y", "1"), object("b", "x", "1"), object("a", "z", "bad"))
				s.client("b")
				var inf *reader
				var once sync.Once
				changed := make(chan struct{})
				w := arrange(&opts, func() {
					once.Do(func() { inf.set("b"); close(changed) })
				})
				inf = s.informer(t, opts, "a")
				if w != nil {
					testkit.AddWatcher(t, inf.Informer, w, informer.WatcherOptions{Name: name})
				}
				inf.start(time.Minute)
				<-changed
				inf.check("b")
			})
		})
	}
}

// An object that cannot be used is forgotten with its namespace.
func TestTheFailuresOfANamespaceLeaveWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, errs := newServer(object("a", "x", "bad"), object("b", "x", "1")), &testkit.ErrorLog{}
		inf := s.informer(t, options{ErrorHandler: errs.Handle, Transform: testkit.NotBad}, "a", "b")
		inf.start(0)
		for range 3 {
			time.Sleep(time.Minute)
			equal(t, "reports", len(errs.Take()), 1)
			inf.set("b")
			time.Sleep(time.Minute)
			inf.set("a", "b")
		}
		inf.checkAfter(time.Minute, "b")
	})
}

// A set that changes leaves nothing behind.
func TestTenThousandChangesOfTheSet(t *testing.T) {
	testkit.EachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		s := newServer(object("keep", "x", "1"))
		inf := s.informerOver(t, options{Queue: queue, WatchList: informer.WatchListOff}, s.Namespace, "keep")
		inf.start(0)
		n := 0
		change := func(times int) (goroutines int, heap uint64) {
			for range times {
				n++
				inf.set("keep", fmt.Sprint("n", n))
				synctest.Wait()
			}
			inf.set("keep")
			s.Apply(object("keep", "x", fmt.Sprint(n))) // the source forgets watches that ended at its next event
			time.Sleep(time.Hour)
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return runtime.NumGoroutine(), m.HeapAlloc
		}
		times := testkit.LongOrShort(5000, 500)
		goroutines, heap := change(times)
		after, grown := change(times)
		if after != goroutines || int64(grown)-int64(heap) > int64(times)*2000 { // the source notes each request; a source that stays takes 10 kB
			t.Errorf("%d goroutines and %d bytes after %d changes, %d and %d after %d more", goroutines, heap, times, after, grown, times)
		}
	})
}

// A process that ends in the middle of a leave has a store from which the next one starts.
func TestARestartInTheMiddleOfALeave(t *testing.T) {
	for next, namespaces := range map[string][]string{"with the namespace": {"a", "b"}, "without it": {"b"}} {
		for applies := range 5 {
			inBubble(t, fmt.Sprint(next, "/", applies), func(t *testing.T) {
				s := newServer(object("b", "x", "1"))
				for n := range 2500 { // more than one batch
					s.Apply(object("a", fmt.Sprint("x", n), "1"))
				}
				inf := s.informer(t, options{Durable: s.store, ErrorHandler: testkit.Ignore}, "a", "b")
				inf.start(time.Minute)
				failAfter(s.store, applies)
				inf.set("b")
				time.Sleep(time.Second)
				inf.stop()
				if s.reopen(); applies == 1 && len(testkit.Stored(s.store)) < 2 {
					t.Error("the leave was over")
				}
				s.run(t, namespaces...)
			})
		}
	}
}
