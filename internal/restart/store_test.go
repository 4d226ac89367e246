package restart_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func TestAnyStoreWillDo(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		store := newPlainStore()
		src := informertest.NewSource(objects("a", "b")...)
		inf, r := watched(t, src, options{Queue: queue, Store: store})
		r.Expect(t, "added default/a", "added default/b")
		synctest.Wait()
		src.SetFaults(informertest.Faults{Mute: true})
		src.Apply(object("a", "2"))
		_, _ = src.Delete(keyOf("b")) // only the relist finds it: a cache.DeletedFinalStateUnknown in the queue
		src.Expire()
		src.SetFaults(informertest.Faults{})
		r.Expect(t, "updated default/a", "deleted default/b")
		src.Apply(object("c", "1"))
		r.Expect(t, "added default/c")
		checkStore(t, inf, src)
		src.Compact()
		src.Bookmark()
		synctest.Wait()
		equal(t, "the store's last bookmark", store.Marks[len(store.Marks)-1], src.ResourceVersion())
	})
}

func TestAnInformerIsNotSyncedWhileItsStoreIsDown(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		down := errors.New("the disk is on fire")
		store := newPlainStore()
		store.Fail = func(op, key string) error { return errorIf(key == "default/b", down) }
		src := informertest.NewSource(objects("a", "b", "c")...)
		var errs errorLog
		inf, _, stop := begun(t, src, options{Queue: queue, Store: store, ErrorHandler: errs.Handle})
		err := inf.WaitForSync(within(t, hour))
		var failed *informer.StoreError
		if !errors.Is(err, down) || !errors.As(err, &failed) || failed.Key != "default/b" || failed.Failures < 100 {
			t.Errorf("waiting ended with %v", err)
		}
		equal(t, "reports in an hour", len(errs.Take()), 1)
		for range 3 * 2000 { // more changes than the informer holds between source and store
			src.Apply(object("a", fmt.Sprint(len(src.Objects()))))
		}
		sleepBubble(time.Minute)
		equal(t, "synced without its second object", inf.HasSynced(), false)
		equal(t, "stopping took", took(stop), "0s")
		got := errs.Take()
		if len(got) != 1 || !errors.As(got[0], &failed) || !failed.GaveUp || !errors.Is(got[0], down) {
			t.Errorf("reported at the stop: %v", got)
		}
	})
}

// The stop comes between two attempts, or interrupts one.
func TestAnOperationThatTheStopInterruptsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("the disk is on fire")
		store := informertest.NewDurable()
		store.Fail(func(op, _ string) error {
			if op != "apply" {
				return nil
			}
			store.Hang() // the next attempt
			return down
		})
		var errs errorLog
		_, _, stop := begun(t, informertest.NewSource(object("a", "1")), options{Durable: store, ErrorHandler: errs.Handle})
		sleepBubble(hour)
		equal(t, "reports in an hour", len(errs.Take()), 1)
		stop()
		var failed *informer.StoreError
		if got := errs.Take(); len(got) != 1 || !errors.As(got[0], &failed) || !failed.GaveUp || failed.Failures != 1 || !errors.Is(got[0], down) {
			t.Errorf("reported at the stop: %v", got)
		}
	})
}

// A store that hangs must not keep a wait beyond its ctx.
func TestAWaitForAnObjectEndsWithItsCtxAlthoughTheStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := lived(t, options{}, "a")
		inf := running(t, src, options{Durable: store})
		release := store.Hang()
		time.AfterFunc(time.Hour, release)
		begun := time.Now()
		err := inf.WaitFor(within(t, time.Second), keyOf("a"), func(configMap, bool) bool { return true })
		var late *informer.SyncError
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &late) {
			t.Errorf("the wait returned %v", err)
		}
		equal(t, "the wait lasted", time.Since(begun), time.Second)
		sleepBubble(hour)
		noError(t, inf.WaitFor(within(t, time.Second), keyOf("a"), func(configMap, bool) bool { return true }))
	})
}

func TestAStoreOutageHoldsTheSourceBack(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		const writes = 10_000
		store := newPlainStore()
		src := informertest.NewSource[configMap]()
		arrived := 0
		inf := newInformer(t, src, options{Queue: queue, Store: store, ErrorHandler: ignore,
			Transform: func(obj configMap) (configMap, error) { arrived++; return obj, nil }})
		var r recorder
		addWatcher(t, inf, &r, informer.WatcherOptions{MaxBacklog: -1})
		informertest.Run(t, inf)
		store.SetFail(func(string, string) error { return errors.New("down") })
		for n := range writes {
			src.Apply(object("a", fmt.Sprint(n)))
		}
		sleepBubble(hour)
		testkit.AtMost(t, "changes taken from a source while the store is down", arrived, writes/4)
		src.Expire() // a list waits for the store too
		sleepBubble(hour)
		testkit.AtMost(t, "changes after a relist", arrived, writes/4)
		store.SetFail(nil)
		sleepBubble(hour)
		checkView(t, &r, src)
	})
}

func TestAVersionIsReachedWhenEverythingBeforeItIsStored(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		store := newPlainStore()
		src := informertest.NewSource(objects("first", "a", "b")...)
		inf := running(t, src, options{Queue: queue, Store: store, ErrorHandler: ignore})
		synctest.Wait()
		failFor := func(name string) {
			store.SetFail(func(_, key string) error { return errorIf(key == "default/"+name, errors.New("down")) })
		}
		failFor("first") // until all changes are in the queue
		src.Apply(object("first", "2"))
		synctest.Wait()
		reached := src.Apply(object("a", "2")).ResourceVersion
		src.Apply(object("b", "2"))
		last := src.Apply(object("a", "3")).ResourceVersion // DeltaFIFO returns it before b
		synctest.Wait()
		failFor("b")
		sleepBubble(time.Minute)
		if got := inf.ResourceVersion(); got > reached { // both have the same length, so that they compare as strings
			t.Errorf("with b not stored yet ResourceVersion is %s, past %s", got, reached)
		}
		store.SetFail(nil)
		noError(t, inf.WaitForVersion(t.Context(), "", last))
	})
}

func TestTheContentsOfTheStoreBeforeRunAreTheInitialState(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(objects("same", "changed", "gone")...)
		store := newPlainStore(src.Objects()...)
		src.Apply(object("changed", "2"))
		_, _ = src.Delete(keyOf("gone"))
		src.Apply(object("new", "1"))
		inf, r := watched(t, src, options{Queue: queue, Store: store})
		r.Expect(t, "added default/same", "added default/changed", "added default/gone",
			"updated default/changed", "deleted default/gone", "added default/new")
		synctest.Wait()
		r.Expect(t)
		checkView(t, r, src)
		checkStore(t, inf, src)
		for _, e := range r.Events() {
			equal(t, fmt.Sprint("origin of ", e.Type, " ", e.Key()), e.Origin, informer.OriginInitial)
		}
		late := joined(t, inf)
		late.Expect(t, "added default/same", "added default/changed", "added default/new")
	})
}

func TestADeleteIsDeliveredAlsoIfTheStoreHasLostTheObject(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		store := newPlainStore()
		src := informertest.NewSource(objects("seen", "unseen")...)
		uid := src.Objects()[1].UID
		inf := newInformer(t, src, options{Queue: queue, Store: store})
		r := joined(t, inf)
		informertest.Run(t, inf)
		synctest.Wait()
		clear(store.Objects)
		last, _ := src.Delete(keyOf("seen"))
		synctest.Wait()
		src.SetFaults(informertest.Faults{Mute: true})
		_, _ = src.Delete(keyOf("unseen"))
		src.Expire()
		src.SetFaults(informertest.Faults{})
		sleepBubble(time.Minute)
		events := r.Events()[2:]
		if len(events) != 2 {
			t.Fatalf("the watcher got %v", events)
		}
		if e := events[0]; e.Type != informer.EventDeleted || e.FinalStateUnknown || e.Old.ResourceVersion != last.ResourceVersion {
			t.Errorf("a delete that was seen came as %+v", e)
		}
		if e := events[1]; e.Type != informer.EventDeleted || !e.FinalStateUnknown || e.Key() != keyOf("unseen") || e.Old.UID != uid {
			t.Errorf("a delete of an object with only a known key came as %+v", e)
		}
	})
}

func TestReadingWorksOverStoresWithAndWithoutIndexes(t *testing.T) {
	for name, store := range map[string]cache.Store{
		"default": nil,
		"indexer": cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		"bare":    cache.NewStore(cache.MetaNamespaceKeyFunc),
		"plain":   newPlainStore(),
	} {
		inBubble(t, name, func(t *testing.T) {
			elsewhere := object("a", "x")
			elsewhere.Namespace = "elsewhere"
			src := informertest.NewSource(object("a", "x"), object("b", "y"), object("c", "x"), elsewhere)
			var errs errorLog
			inf := running(t, src, options{Store: store, Indexers: indexers, ErrorHandler: errs.Handle})
			checkNames(t, "all", "a a b c")(inf.List("", nil))
			checkNames(t, "namespace", "a b c")(inf.List("default", nil))
			checkNames(t, "labels", "a a c")(inf.List("", labels.SelectorFromSet(labels.Set{"value": "x"})))
			checkNames(t, "both", "b")(inf.List("default", labels.SelectorFromSet(labels.Set{"value": "y"})))
			checkNames(t, "index", "a a c")(inf.ByIndex("value", "x"))
			checkNames(t, "no such namespace", "")(inf.List("nowhere", nil))
			_, err := inf.ByIndex("unknown", "x")
			errorSays(t, err, "unknown")
			src.Apply(object("c", "y"))
			_, _ = src.Delete(keyOf("b"))
			synctest.Wait()
			checkNames(t, "index after changes", "c")(inf.ByIndex("value", "y"))
			n := 0
			for key, obj := range inf.All() {
				if key.Name != obj.Name || key.Namespace != obj.Namespace {
					t.Errorf("All yields %v under %v", obj, key)
				}
				n++
			}
			equal(t, "objects that All yields", n, 3)
			equal(t, "a deleted object", valueOf(inf.Get(keyOf("b"))), "none")
			src.Apply(object("c", "bad"))
			synctest.Wait()
			got := errs.Take()
			var failed *informer.ObjectError
			if len(got) != 1 || !errors.As(got[0], &failed) || failed.Op != "index" || failed.Key != "default/c" {
				t.Errorf("an object that cannot be indexed is reported as %v", got)
			}
			checkNames(t, "not indexed any more", "")(inf.ByIndex("value", "y"))
			checkNames(t, "stored all the same", "a c")(inf.List("default", nil))
		})
	}
}

// indexers have an index of the values. An object with the value "bad" cannot be indexed.
var indexers = informer.Indexers[configMap]{"value": func(obj configMap) ([]string, error) {
	if obj.Data["value"] == "bad" {
		return nil, errors.New("cannot be indexed")
	}
	return []string{obj.Data["value"]}, nil
}}

func checkNames(t *testing.T, what, want string) func([]configMap, error) {
	t.Helper()
	return func(objs []configMap, err error) {
		t.Helper()
		if got := names(objs); got != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", what, got, err, want)
		}
	}
}

func names(objs []configMap) string {
	var all []string
	for _, obj := range objs {
		all = append(all, obj.Name)
	}
	return strings.Join(sorted(all), " ")
}

// doubled is a store that lists every object twice.
type doubled struct{ *plainStore }

func (s doubled) List() []any {
	objs := s.plainStore.List()
	return append(objs, objs...)
}

func TestAnObjectThatAStoreListsTwiceIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"))
		src.Fail("list", errDown, -1)
		src.Fail("watch", errDown, -1)
		inf := newInformer(t, src, options{Store: doubled{newPlainStore(object("a", "1"))}, ErrorHandler: ignore})
		start(t, inf)
		synctest.Wait()
		equal(t, "objects", inf.Health().Objects, 1)
	})
}
