package informer_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// gatedStore makes listings wait, like those of a slow or hanging store.
type gatedStore struct {
	cache.Store
	gate chan struct{} // listings wait until this is closed; nil lets them pass
}

func (s *gatedStore) List() []any {
	if s.gate != nil {
		<-s.gate
	}
	return s.Store.List()
}

// TestJoiningUnderLoadMissesAndRepeatsNothing runs on real goroutines. It proves for each
// object that nothing is missing: the recorder checks that the Old of each event is the New of
// the event before it, and the first event must be the state at the call of AddWatcher.
func TestJoiningUnderLoadMissesAndRepeatsNothing(t *testing.T) {
	const objects, joins = 20, 60
	writes := longOrShort(5000, 1000)
	for name, queue := range queues {
		t.Run(name, func(t *testing.T) {
			src := informertest.NewSource(letters("xyz")...)
			d := newDivided(src, "xyz")
			inf := newInformer(t, d, options{Queue: queue})
			type joiner struct {
				recorder
				done chan struct{} // closed when the watcher has got everything
			}
			join := func() *joiner {
				j := &joiner{done: make(chan struct{})}
				j.Hook = func(_ context.Context, e event) error {
					if e.Key() == keyOf("last") {
						close(j.done)
					}
					return nil
				}
				addWatcher(t, inf, &j.recorder, informer.WatcherOptions{MaxBacklog: -1})
				return j
			}
			informertest.Run(t, inf)
			d.turn("last o0 o1 o2 o3 o4 o5 o6 o7 o8 o9 o10 o11 o12 o13 o14 o15 o16 o17 o18 o19")
			for inf.Health().Objects > 0 { // those of the other part have left, which makes no event
				runtime.Gosched()
			}
			remove(t, src, "x", "y", "z")
			truth := join() // registered before all writes

			var all []*joiner
			now := make(chan struct{})
			var writing sync.WaitGroup
			writing.Go(func() {
				defer close(now)
				for n := range writes {
					if n%(writes/joins) == 0 {
						now <- struct{}{}
					}
					name := fmt.Sprint("o", n%objects)
					if n%7 == 6 {
						_, _ = src.Delete(keyOf(name))
					} else {
						src.Apply(object(name, strconv.Itoa(n)))
					}
				}
			})
			for range now {
				all = append(all, join())
			}
			writing.Wait()
			src.Apply(object("last", ""))
			<-truth.done
			for _, j := range all {
				<-j.done
				checkView(t, &j.recorder, src)
				checkTail(t, j.Events(), truth.Events())
			}
		})
	}
}

// checkTail fails the test unless, for each object, the joiner first got a state that the
// truth went through, and then every event of the truth after that state.
func checkTail(t *testing.T, joined, truth []event) {
	t.Helper()
	told, happened := versionsOf(joined), versionsOf(truth)
	for name, versions := range told {
		tail := happened[name]
		if tail = tail[max(0, len(tail)-len(versions)):]; !slices.Equal(versions, tail) {
			t.Errorf("%s: got %v, the last events are %v", name, versions, tail)
		}
	}
}

// versionsOf returns the versions of each object after its events.
func versionsOf(events []event) map[string][]string {
	versions := map[string][]string{}
	for _, e := range events {
		version := e.Object().ResourceVersion
		if e.Type == informer.EventDeleted {
			version = "gone after " + e.Old.ResourceVersion
		}
		versions[e.Key().Name] = append(versions[e.Key().Name], version)
	}
	return versions
}

func TestAJoinGetsTheStateAtTheCallAlsoIfTheStoreListsLater(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		store := &gatedStore{Store: cache.NewStore(cache.MetaNamespaceKeyFunc)}
		src := informertest.NewSource(object("stays", "1"), object("changes", "1"), object("goes", "1"), object("again", "1"))
		inf := newInformer(t, src, options{Queue: queue, Store: store})
		var early recorder
		addWatcher(t, inf, &early, informer.WatcherOptions{})
		informertest.Run(t, inf)
		early.Expect(t, "added default/stays", "added default/changes", "added default/goes", "added default/again")

		store.gate = make(chan struct{}) // listings hang from now on
		var late recorder
		lateReg := addWatcher(t, inf, &late, informer.WatcherOptions{})
		src.Apply(object("changes", "2"))
		src.Apply(object("changes", "3"))
		_, _ = src.Delete(keyOf("goes"))
		_, _ = src.Delete(keyOf("again"))
		src.Apply(object("again", "2"))
		src.Apply(object("comes", "1"))
		synctest.Wait()
		late.Expect(t) // only this join waits
		early.Expect(t, "updated default/changes", "updated default/changes", "deleted default/goes",
			"deleted default/again", "added default/again", "added default/comes")

		close(store.gate)
		<-lateReg.Synced()
		late.Expect(t,
			"added default/stays", "added default/changes", "added default/goes", "added default/again",
			"updated default/changes", "updated default/changes", "deleted default/goes",
			"deleted default/again", "added default/again", "added default/comes")
		for _, e := range late.Events() {
			if e.Key() == keyOf("changes") && e.Type == informer.EventAdded && e.New.Data["value"] != "1" {
				t.Errorf("joined at value 1, got %s", e.New.Data["value"])
			}
		}
		checkView(t, &late, src)
	})
}

func TestAJoinThatHangsIsNotInTheWayOfRemoveAndStop(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		store := &gatedStore{Store: cache.NewStore(cache.MetaNamespaceKeyFunc)}
		inf, r := newInformer(t, informertest.NewSource(object("a", "1")), options{Queue: queue, Store: store}), &recorder{}
		informertest.Run(t, inf)
		store.gate = make(chan struct{})
		reg := addWatcher(t, inf, r, informer.WatcherOptions{MaxBacklog: -1})
		synctest.Wait()
		reg.Remove()
		close(store.gate)
		<-reg.Stopped()
		r.Expect(t)
	})
}

// The store gets a batch shortly before the log does. In between it reports index functions that fail, so an
// ErrorHandler that blocks keeps the informer there.
func TestBetweenTheStoreAndTheLogNothingIsMissedOrRepeated(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		stuck, release := make(chan error), make(chan struct{})
		src := informertest.NewSource(object("a", "1"))
		inf := newInformer(t, src, options{
			Queue: queue,
			Indexers: informer.Indexers[configMap]{"x": func(obj configMap) ([]string, error) {
				if obj.Name == "b" {
					return nil, errors.New("no index value")
				}
				return nil, nil
			}},
			ErrorHandler: func(_ context.Context, err error) { stuck <- err; <-release },
		})
		early, late := &recorder{}, &recorder{}
		addWatcher(t, inf, early, informer.WatcherOptions{ResyncPeriod: hour})
		informertest.Run(t, inf)
		early.Expect(t, "added default/a")

		b := src.Apply(object("b", "1"))
		t.Log(<-stuck)
		want := "" // see Snapshot.Version
		if queue == informer.QueueRealFIFO {
			want = b.ResourceVersion
		}
		v := must(inf.Snapshot())
		if _, exists, err := v.Get(keyOf("b")); !exists || err != nil || v.Version() != want {
			t.Errorf("a snapshot at version %q, want %q, with the new object: %t, %v", v.Version(), want, exists, err)
		}
		joined := addWatcher(t, inf, late, informer.WatcherOptions{})
		sleepBubble(hour + 1) // a resync is due
		early.Expect(t)
		late.Expect(t)
		close(release)
		late.Expect(t, "added default/a", "added default/b")
		early.Expect(t, "added default/b", "updated default/a", "updated default/b")
		src.Apply(object("a", "2"))
		late.Expect(t, "updated default/a")
		early.Expect(t, "updated default/a")
		synctest.Wait()
		early.Expect(t)
		late.Expect(t)
		if s := joined.Stats(); s.Pending != 0 || s.Delivered != 3 {
			t.Errorf("pending and delivered: %+v", s)
		}
	})
}

func TestAResyncRepeatsTheStoreForTheOneThatAsked(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"), object("b", "1"))
		inf := newInformer(t, src, options{Queue: queue})
		var asked, other recorder
		addWatcher(t, inf, &asked, informer.WatcherOptions{ResyncPeriod: hour})
		addWatcher(t, inf, &other, informer.WatcherOptions{})
		informertest.Run(t, inf)
		asked.Expect(t, "added default/a", "added default/b")
		src.Apply(object("a", "2"))
		asked.Expect(t, "updated default/a")
		lists := listsOf(src)
		sleepBubble(hour - 1)
		asked.Expect(t)
		sleepBubble(2)
		asked.Expect(t, "updated default/a", "updated default/b")
		for _, e := range asked.Events()[3:] {
			if e.Origin != informer.OriginResync || e.Old != e.New {
				t.Errorf("a resync came as %+v", e)
			}
		}
		equal(t, "the resync delivered", asked.View()[keyOf("a")].Data["value"], "2")
		sleepBubble(2 * hour)
		asked.Expect(t, "updated default/a", "updated default/b", "updated default/a", "updated default/b")
		other.Expect(t, "added default/a", "added default/b", "updated default/a")
		other.Expect(t)
		equal(t, "lists for resyncs", listsOf(src), lists)
	})
}

func TestAResyncWaitsUntilTheWatcherHasNothingElseToDo(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		inf := newInformer(t, src, options{Queue: queue})
		blocked, release := make(chan struct{}), make(chan struct{})
		r := recorder{Hook: func(_ context.Context, e event) error {
			if e.Type == informer.EventUpdated && e.New.Data["value"] == "2" && e.Origin == informer.OriginWatch {
				close(blocked)
				<-release
			}
			return nil
		}}
		addWatcher(t, inf, &r, informer.WatcherOptions{ResyncPeriod: hour})
		informertest.Run(t, inf)
		src.Apply(object("a", "2"))
		<-blocked
		sleepBubble(10 * hour)
		src.Apply(object("a", "3")) // a resync that did not wait would come before this
		synctest.Wait()
		close(release)
		sleepBubble(1)
		r.Expect(t, "added default/a", "updated default/a", "updated default/a", "updated default/a")
		if e := r.Events()[3]; e.Origin != informer.OriginResync || e.New.Data["value"] != "3" {
			t.Errorf("after the backlog came %v of %s", e.Origin, e.New.Data["value"])
		}
		r.Expect(t) // one resync, not ten
	})
}

func TestWatchersThatJoinTogetherShareAListingOfTheStore(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		store := informertest.NewStore(nil)
		src := informertest.NewSource(object("a", ""), object("b", ""))
		inf := running(t, src, options{Queue: queue, Store: store})
		store.Delay(10 * time.Millisecond)
		before := store.Calls("list")
		recorders := make([]recorder, 100)
		for n := range recorders {
			addWatcher(t, inf, &recorders[n], informer.WatcherOptions{})
			if n == 50 {
				src.Apply(object("c", ""))
			}
		}
		for n := range recorders {
			recorders[n].Expect(t, "added default/a", "added default/b", "added default/c")
		}
		if n := store.Calls("list") - before; n > 2 { // some may come while the first listing is under way
			t.Errorf("%d listings for %d watchers", n, len(recorders))
		}
	})
}

func TestAListingThatHangsHoldsUpOtherJoinsForSecondsAtMost(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		store, hang := &gatedStore{Store: newPlainStore()}, make(chan struct{})
		defer close(hang)
		inf := running(t, informertest.NewSource(object("a", "")), options{Queue: queue, Store: store})
		store.gate = hang
		stuck := addWatcher(t, inf, &recorder{}, informer.WatcherOptions{})
		synctest.Wait()
		store.gate = nil // for the next listings
		regs := make([]*informer.Registration, 10)
		for n := range regs {
			regs[n] = addWatcher(t, inf, &recorder{}, informer.WatcherOptions{})
		}
		sleepBubble(3 * time.Second)
		for _, reg := range regs {
			equal(t, "synced", reg.Stats().Synced, true)
		}
		equal(t, "the watcher whose listing hangs is synced", stuck.Stats().Synced, false)
	})
}
