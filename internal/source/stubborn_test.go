package source_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// Tests with slow stores, slow transforms and stores that are down.

func TestWaitForEndsWithItsCtxAlsoIfThereIsAlwaysMoreToRead(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		inf, src := testkit.StartWith(t, queue, object("a", "1"))
		var writing sync.WaitGroup
		defer writing.Wait()
		writing.Go(func() {
			for n := range 60 {
				src.Apply(object("a", fmt.Sprint("v", n)))
				time.Sleep(time.Second / 2)
			}
		})
		begin := time.Now()
		err := inf.WaitFor(within(t, 10*time.Second), keyOf("a"), func(configMap, bool) bool {
			time.Sleep(time.Second) // slower than the writes, so that events always wait
			return false
		})
		if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took > 12*time.Second {
			t.Errorf("returned after %v: %v", took, err)
		}
	})
}

// TestAStoreOutageDoesNotKeepTheReflectorFromItsWatch expects the reflector to read its
// watch while the store is down, once it has a whole list. A server ends a watch that is not read, and the next list
// would merge the changes that came in the meantime.
func TestAStoreOutageDoesNotKeepTheReflectorFromItsWatch(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		const objects = 500
		src := informertest.NewSource[configMap]()
		for n := range objects {
			src.Apply(testkit.Small(n, 0))
		}
		store := informertest.NewStore(nil)
		store.Fail(func(string, string) error { return errDown })
		inf := newInformer(t, src, options{
			Queue: queue, Store: store, WatchList: informer.WatchListOff, Intake: informer.IntakeWhole,
			ErrorHandler: func(context.Context, error) {},
		})
		var w recorder
		addWatcher(t, inf, &w, informer.WatcherOptions{MaxBacklog: -1})
		start(t, inf)
		if err := src.WaitForWatches(within(t, 2*time.Second), 1); err != nil {
			t.Error(err)
		}
		store.Heal()
		<-inf.Synced()
		if lists := len(src.Requests()); lists != 2 {
			t.Errorf("%d requests, want one list and one watch", lists)
		}
		synctest.Wait()
		checkView(t, &w, src)
	})
}

// TestChangesOfASlowStoreAreDeliveredWithoutWaitingForTheNext expects an event soon after each
// write. Publishing several changes together saves time only with a fast store.
func TestChangesOfASlowStoreAreDeliveredWithoutWaitingForTheNext(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		const changes, each = 50, 10 * time.Millisecond // each operation takes 10 ms; a change needs a get and a write
		src, store := informertest.NewSource[configMap](), informertest.NewStore(nil)
		inf := newInformer(t, src, options{Queue: queue, Store: store})
		var told []time.Time
		addWatcher(t, inf, informer.WatcherFunc[configMap](func(context.Context, event) error {
			told = append(told, time.Now())
			return nil
		}), informer.WatcherOptions{MaxBacklog: -1})
		start(t, inf)
		<-inf.Synced()
		store.Delay(each)
		begun := time.Now()
		for n := range changes {
			src.Apply(object(fmt.Sprint(n), "1"))
		}
		sleepBubble(time.Minute)
		if len(told) != changes {
			t.Fatalf("the watcher got %d events for %d changes", len(told), changes)
		}
		for n, at := range told {
			// Two more operations may come first: the check that the first object is found by
			// its key, and the bookmark of the list.
			if late := at.Sub(begun) - time.Duration(2*n+2)*each; late > 2*each {
				t.Errorf("the event of change %d came %v after its write", n, late)
			}
		}
	})
}

func TestASlowStoreDelaysTheStopByOneChange(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		const each = time.Second
		src, store := informertest.NewSource[configMap](), informertest.NewStore(nil)
		inf := newInformer(t, src, options{Queue: queue, Store: store, DrainTimeout: time.Minute})
		var w recorder
		addWatcher(t, inf, &w, informer.WatcherOptions{})
		stop := start(t, inf)
		<-inf.Synced()
		store.Delay(each)
		for n := range 500 {
			src.Apply(object(fmt.Sprint(n), "1"))
		}
		sleepBubble(10*each + each/2)
		begun := time.Now()
		stop()
		if took := time.Since(begun); took > 2*each {
			t.Errorf("stopping took %v", took)
		}
		if stored, told := len(store.ListKeys()), len(w.Events()); stored != told || told < 5 {
			t.Errorf("%d objects are stored, the watcher got %d", stored, told)
		}
	})
}

// TestStoredObjectsOfAListAreDeliveredWhileTheRestTakesItsTime also checks that the watcher gets the
// stored objects if the informer stops in the middle of the list.
func TestStoredObjectsOfAListAreDeliveredWhileTheRestTakesItsTime(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"), object("b", "1"), object("c", "1"))
		inf := newInformer(t, src, options{Queue: queue, WatchList: informer.WatchListOff, DrainTimeout: time.Minute, Transform: func(obj configMap) (configMap, error) {
			if obj.Name == "b" {
				time.Sleep(time.Hour)
			}
			return obj, nil
		}})
		var w recorder
		addWatcher(t, inf, &w, informer.WatcherOptions{})
		stop := start(t, inf)
		time.Sleep(time.Minute)
		w.Expect(t, "added default/a")
		stop() // Transform must return first
		if stored, _ := inf.List("", nil); len(stored) != len(w.View()) {
			t.Errorf("%d objects are stored, the watcher got %d", len(stored), len(w.View()))
		}
	})
}

// A DeltaFIFO puts a change in the place of an older change of the same object. The new change
// then comes before a list that arrived between the two. It does not if the list has objects, behind which it waits in one entry.
func TestObjectsAddedAfterAListAreNotTakenForLacking(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("slow", "1"), object("x", "1"))
		store := informertest.NewStore(nil)
		inf, r := watched(t, src, options{Queue: queue, Store: store})
		hold := make(chan struct{})
		store.Fail(func(op, key string) error {
			if op == "get" && key == "default/slow" {
				<-hold
			}
			return nil
		})
		src.Apply(object("slow", "2"))
		synctest.Wait()
		_, _ = src.Delete(keyOf("x"))
		synctest.Wait()
		_, _ = src.Delete(keyOf("slow"))
		synctest.Wait()
		src.Expire() // the list is empty
		sleepBubble(hour / 60)
		_, _ = src.Create(object("x", "2"))
		synctest.Wait()
		close(hold)
		sleepBubble(hour / 60)
		checkView(t, r, src)
		checkStore(t, inf, src)
	})
}
