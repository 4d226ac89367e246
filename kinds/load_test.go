package kinds_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/kinds"
)

// TestManyCallsLeaveNothing acquires and releases kinds at random, some of which come and go meanwhile.
func TestManyCallsLeaveNothing(t *testing.T) {
	const callers, calls, all = 16, 10_000, 20
	of := func(n int) crd {
		return crd{plural: fmt.Sprintf("things%d", n), kind: fmt.Sprintf("Thing%d", n), scope: "Namespaced", versions: []string{"v1"}}
	}
	run(t, kinds.Options[whole]{}, func(s *server) {
		for n := range all {
			s.define(of(n))
			s.objects(of(n).name(), "default", "a", "b")
		}
	}, func(w *world) {
		synctest.Wait()
		idle := runtime.NumGoroutine()
		seed := rand.Uint64()
		w.t.Logf("seed %d", seed)
		var callersDone sync.WaitGroup
		for caller := range callers {
			callersDone.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(caller)))
				for range calls / callers {
					l, err := w.set.Acquire(kinds.Kind{Group: "example.com", Kind: of(random.IntN(all)).kind})
					if err != nil {
						w.t.Error(err)
						return
					}
					if random.IntN(2) == 0 {
						time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond)
					}
					l.Release()
					runtime.Gosched()
				}
			})
		}
		for n := range all / 4 {
			time.Sleep(300 * time.Millisecond)
			w.undefine(of(n))
			time.Sleep(300 * time.Millisecond)
			w.define(of(n))
		}
		callersDone.Wait()
		after(time.Minute)
		h, inf := w.set.Health(), w.set.Informer().Health()
		if len(h.Kinds) != 0 || len(inf.Clusters) != 0 || inf.Objects != 0 {
			w.t.Errorf("left: %+v, %d clusters, %d objects", h.Kinds, len(inf.Clusters), inf.Objects)
		}
		synctest.Wait()
		if now := runtime.NumGoroutine(); now > idle+2 { // the runtime has some of its own at times, such as that of the finalizers
			w.t.Errorf("%d goroutines, and %d before", now, idle)
		}
		w.do(func() {
			if w.open != 2 {
				w.t.Errorf("%d watches are open", w.open)
			}
		})
		w.t.Logf("%d requests", w.asked(""))
	})
}

func TestTheLastReleaseAndANewAcquireAtTheSameMoment(t *testing.T) {
	run(t, kinds.Options[whole]{}, func(s *server) {
		s.define(widgets)
		s.objects(widgets.name(), "default", "a", "b")
	}, func(w *world) {
		last := w.acquire(widget)
		for n := range 300 {
			if n%3 == 0 { // otherwise the list is under way, or the old objects leave still
				after(time.Second)
			}
			var next *kinds.Lease[whole]
			var both sync.WaitGroup
			both.Go(func() { last.Release() })
			both.Go(func() { next = w.acquire(widget) })
			both.Wait()
			last = next
			if h := last.Health(); h.Users != 1 {
				w.t.Fatalf("%+v", h)
			}
		}
		if err := last.WaitForSync(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
		if objs, err := last.List("", nil); len(objs) != 2 || err != nil {
			w.t.Errorf("%d objects, %v", len(objs), err)
		}
		w.objects(widgets.name(), "default", "c")
		after(time.Second)
		if _, exists, err := last.Get(key("c")); !exists || err != nil {
			w.t.Errorf("%v, %v", exists, err)
		}
		last.Release()
		after(time.Second)
		if n := w.set.Informer().Health().Objects; n != 0 {
			w.t.Errorf("%d objects", n)
		}
	})
}

// usage is what a part of a program uses.
type usage struct{ heap, goroutines, watches, requests int }

// measure returns what runs since begin uses.
func measure(s *server, begin func()) (u usage) {
	look := func() (u usage) {
		for range 3 {
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		s.do(func() { u = usage{int(m.HeapAlloc), runtime.NumGoroutine(), s.open, len(s.requests)} })
		return u
	}
	before := look()
	begin()
	after(time.Minute)
	now := look()
	return usage{now.heap - before.heap, now.goroutines - before.goroutines, now.watches - before.watches, now.requests - before.requests}
}

// TestUnusedKindsAreCheap compares a set over 50 of 500 CRDs with 50 informers.
func TestUnusedKindsAreCheap(t *testing.T) {
	const all, used = 500, 50
	large := strings.Repeat("a field of the schema of a CRD. ", 50_000/32)
	of := func(n int) crd {
		return crd{plural: fmt.Sprintf("things%d", n), kind: fmt.Sprintf("Thing%d", n), scope: "Namespaced", versions: []string{"v1"},
			categories: []any{"managed"}, schema: large}
	}
	for name, streams := range map[string]bool{"streams": true, "lists": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				if !streams {
					s.fail = func(verb, _ string) *status {
						if verb == "stream" {
							return failure(422, "Invalid", "sendInitialEvents is forbidden for watch")
						}
						return nil
					}
				}
				for n := range all {
					s.define(of(n))
					s.objects(of(n).name(), "default", "a", "b")
				}
				clients := clientsOf(s)
				watchList := informer.WatchListOn
				if !streams {
					watchList = informer.WatchListOff
				}
				byHand := measure(s, func() {
					for n := range used {
						inf := must(informer.NewFrom(informer.ListWatch(clients.Dynamic.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: of(n).plural})),
							informer.Options[whole]{WatchList: watchList}))
						informertest.Run(t, inf)
					}
				})
				begin := func(use int) func() {
					return func() {
						set := must(kinds.New(clients, kinds.Options[whole]{Informer: informer.Options[whole]{WatchList: watchList}}))
						informertest.Run(t, set.Informer())
						informertest.Run(t, set)
						for n := range use {
							l := must(set.Acquire(kinds.Kind{Group: "example.com", Kind: of(n).kind}))
							if err := l.WaitForSync(t.Context()); err != nil {
								t.Error(err)
							}
						}
						if h := set.Informer().Health(); h.Objects != 2*use {
							t.Errorf("%d objects", h.Objects)
						}
					}
				}
				empty, ofSet := measure(s, begin(0)), measure(s, begin(used))
				t.Logf("50 informers by hand: %+v; a set over %d CRDs: %+v; that uses 50: %+v", byHand, all, empty, ofSet)
				const mib = 1 << 20
				if empty.heap > 2*mib {
					t.Errorf("a set over %d CRDs takes %d bytes", all, empty.heap)
				}
				if ofSet.heap*10 > byHand.heap*11+40*mib || ofSet.goroutines*10 > byHand.goroutines*11 || ofSet.watches*10 > byHand.watches*11 || ofSet.requests > 106 {
					t.Errorf("a set takes %+v, and 50 informers %+v", ofSet, byHand)
				}
			})
		})
	}
}

// TestAWatcherOverAllKindsHasTwoGoroutines is why a set has one informer.
func TestAWatcherOverAllKindsHasTwoGoroutines(t *testing.T) {
	run(t, kinds.Options[whole]{Wanted: func(o kinds.Offer) bool { return o.Group == "example.com" }}, func(s *server) {
		for n := range 20 {
			s.define(crd{plural: fmt.Sprint("things", n), kind: fmt.Sprint("Thing", n), scope: "Cluster", versions: []string{"v1"}})
			s.objects(fmt.Sprint("things", n, ".example.com"), "", "a")
		}
	}, func(w *world) {
		before := runtime.NumGoroutine()
		seen := 0
		must(w.set.Informer().AddWatcher(informer.WatcherFunc[whole](func(context.Context, informer.Event[whole]) error { seen++; return nil }), informer.WatcherOptions{}))
		after(time.Second)
		if got := runtime.NumGoroutine() - before; seen != 20 || got > 2 {
			w.t.Errorf("a watcher of 20 kinds has %d goroutines, and got %d events", got, seen)
		}
	})
}

// A program may add and remove watchers for as long as it has a lease.
func TestALeaseForgetsWatchersThatWereRemoved(t *testing.T) {
	run(t, kinds.Options[whole]{}, func(s *server) { s.define(widgets) }, func(w *world) {
		lease := w.acquire(widget)
		var last *informer.Registration
		for range 100 {
			last = must(lease.AddWatcher(informer.WatcherFuncs[whole]{}, informer.WatcherOptions{}))
			last.Remove()
			<-last.Stopped()
		}
		last = must(lease.AddWatcher(informer.WatcherFuncs[whole]{}, informer.WatcherOptions{}))
		if n := reflect.ValueOf(lease).Elem().FieldByName("watchers").Len(); n != 1 {
			w.t.Errorf("the lease keeps %d watchers, want the one that was not removed", n)
		}
		lease.Release()
		<-last.Stopped()
	})
}
