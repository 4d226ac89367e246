package informer_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func TestAWatcherGetsTheStateAndThenEachChange(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"), object("b", "1"))
		inf, r := watched(t, src, options{Queue: queue})

		r.Expect(t, "added default/a", "added default/b")
		src.Apply(object("a", "2"))
		src.Apply(object("c", "1"))
		_, _ = src.Delete(keyOf("b"))
		r.Expect(t, "updated default/a", "added default/c", "deleted default/b")
		synctest.Wait()
		r.Expect(t)
		checkView(t, r, src)
		checkStore(t, inf, src)
		for i, e := range r.Events() {
			if want := i < 2; want != (e.Origin == informer.OriginInitial) {
				t.Errorf("event %d has origin %v", i, e.Origin)
			}
			if e.FinalStateUnknown {
				t.Errorf("event %d was seen happening, and its final state is unknown", i)
			}
		}
	})
}

func TestTheStoreIsChangedBeforeAnyWatcherIsCalled(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		inf := newInformer(t, src, options{Queue: queue})
		r := recorder{Hook: func(_ context.Context, e event) error {
			obj, exists, err := inf.Get(e.Key())
			if err != nil || exists != (e.Type != informer.EventDeleted) || exists && obj != e.New {
				t.Errorf("delivered: %v was %v, but the store has %v, %v, %v", e.Key(), e.Type, obj, exists, err)
			}
			return nil
		}}
		addWatcher(t, inf, &r, informer.WatcherOptions{})
		informertest.Run(t, inf)
		r.Expect(t, "added default/a")
		for _, step := range []func(){
			func() { src.Apply(object("a", "2")) },
			func() { src.Apply(object("b", "1")) },
			func() { _, _ = src.Delete(keyOf("a")) },
		} {
			step()
			synctest.Wait() // otherwise the store would run ahead of the watcher
		}
		r.Expect(t, "updated default/a", "added default/b", "deleted default/a")
	})
}

func TestARelistDeliversMissedChanges(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("same", "1"), object("changed", "1"), object("gone", "1"), object("again", "1"))
		inf, r := watched(t, src, options{Queue: queue})
		r.Expect(t, "added default/same", "added default/changed", "added default/gone", "added default/again")

		synctest.Wait() // otherwise an event may slip through
		src.SetFaults(informertest.Faults{Mute: true})
		src.Apply(object("changed", "2"))
		src.Apply(object("new", "1"))
		_, _ = src.Delete(keyOf("gone"))
		_, _ = src.Delete(keyOf("again"))
		src.Apply(object("again", "2"))
		src.Expire()
		src.SetFaults(informertest.Faults{})
		r.Expect(t, "updated default/changed", "added default/new", "deleted default/gone", "deleted default/again", "added default/again")
		synctest.Wait()
		r.Expect(t)
		checkView(t, r, src)
		checkStore(t, inf, src)
		for _, e := range r.Events()[4:] {
			if e.Origin != informer.OriginRelist {
				t.Errorf("%v %v has origin %v", e.Type, e.Key(), e.Origin)
			}
			if e.FinalStateUnknown != (e.Type == informer.EventDeleted) {
				t.Errorf("%v %v: FinalStateUnknown is %v", e.Type, e.Key(), e.FinalStateUnknown)
			}
		}
		src.Apply(object("same", "2"))
		r.Expect(t, "updated default/same")
		if e := r.Events()[len(r.Events())-1]; e.Origin != informer.OriginWatch {
			t.Errorf("an event after the relist has origin %v", e.Origin)
		}
	})
}

func TestAnEmptySourceSyncsAtOnce(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		inf := newInformer(t, informertest.NewSource[configMap](), options{Queue: queue})
		reg := addWatcher(t, inf, &recorder{}, informer.WatcherOptions{})
		equal(t, "synced before it ran", inf.HasSynced(), false)
		begin := time.Now()
		informertest.Run(t, inf)
		<-reg.Synced()
		<-inf.Synced()
		if took := time.Since(begin); took > 0 || !inf.HasSynced() {
			t.Errorf("syncing took %v; HasSynced is %v", took, inf.HasSynced())
		}
	})
}

func TestAWatcherIsSyncedAfterItsLastInitialCallAlsoIfThatFailed(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"), object("b", "1"))
		var errs errorLog
		inf := newInformer(t, src, options{Queue: queue, ErrorHandler: errs.Handle})
		calls, syncedAfter, release := 0, -1, make(chan struct{})
		r := recorder{Hook: func(context.Context, event) error {
			if calls++; calls == 2 {
				<-release
			}
			return errors.New("cannot")
		}}
		reg := addWatcher(t, inf, &r, informer.WatcherOptions{Name: "mine", OnSynced: func(context.Context) { syncedAfter = calls }})
		start(t, inf)
		<-inf.Synced()
		synctest.Wait()
		equal(t, "synced while the second call is under way", reg.Stats().Synced, false)
		src.Apply(object("a", "2")) // delivered after OnSynced
		close(release)
		<-reg.Synced()
		equal(t, "calls before OnSynced", syncedAfter, 2)
		synctest.Wait()
		got := errs.Take()
		if len(got) != 3 {
			t.Fatalf("3 failing calls reported %v", got)
		}
		var failed *informer.EventError
		if !errors.As(got[2], &failed) || failed.Watcher != "mine" || failed.Key != keyOf("a") || failed.Type != informer.EventUpdated || !failed.GaveUp || failed.Failures != 1 {
			t.Errorf("the third failure is reported as %+v", got[2])
		}
	})
}

func TestAnImpossibleRequestIsAnErrorThatNamesTheInformer(t *testing.T) {
	inf := newInformer(t, informertest.NewSource[configMap](), options{Name: "maps"})
	_, byIndex := inf.ByIndex("unknown", "x")
	for what, err := range map[string]error{
		"ByIndex": byIndex,
		"WaitFor": inf.WaitFor(t.Context(), keyOf("a"), nil),
	} {
		if err == nil || !strings.Contains(err.Error(), "informer maps: "+what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestWaitForSyncNamesTheLateWatcher(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		inf := newInformer(t, src, options{Queue: queue, Name: "maps"})
		err := inf.WaitForSync(within(t, time.Second))
		var late *informer.SyncError
		if !errors.As(err, &late) || !errors.Is(err, context.DeadlineExceeded) || strings.Join(late.Late, "; ") != "Run; the first list" {
			t.Errorf("before Run: %v", err)
		}
		release := make(chan struct{})
		r := recorder{Hook: func(context.Context, event) error { <-release; return nil }}
		addWatcher(t, inf, &r, informer.WatcherOptions{Name: "slow"})
		stop := start(t, inf)
		err = inf.WaitForSync(within(t, time.Second))
		if !errors.As(err, &late) || strings.Join(late.Late, "; ") != `watcher "slow" (called for default/a)` || late.Informer != "maps" {
			t.Errorf("with a slow watcher: %v", err)
		}
		waited := make(chan error)
		go func() { waited <- inf.WaitForSync(t.Context()) }()
		synctest.Wait()
		go stop()
		if err := <-waited; !errors.Is(err, informer.ErrStopped) || !errors.As(err, &late) {
			t.Errorf("stopped while waiting: %v", err)
		}
		close(release)
	})
}

// The watchers that were late when the informer stopped are named afterwards. One that was removed before is not.
func TestWaitForSyncNamesTheLateWatcherAfterTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"))
		src.SetFaults(informertest.Faults{HoldLists: true})
		inf := newInformer(t, src, options{Name: "maps", WatchList: informer.WatchListOff})
		addWatcher(t, inf, &recorder{}, informer.WatcherOptions{Name: "removed"}).Remove()
		addWatcher(t, inf, &recorder{}, informer.WatcherOptions{Name: "late"})
		stop := start(t, inf)
		during := make(chan error, 1)
		go func() { during <- inf.WaitForSync(t.Context()) }()
		synctest.Wait()
		stop()
		for when, err := range map[string]error{"during the stop": <-during, "after the stop": inf.WaitForSync(t.Context())} {
			var late *informer.SyncError
			if !errors.As(err, &late) || !errors.Is(err, informer.ErrStopped) || strings.Join(late.Late, "; ") != `the first list; watcher "late"` {
				t.Errorf("%s: %v", when, err)
			}
		}
	})
}

// The store has an object before the first list, so the watcher is called while the list is under way.
func TestAWatcherCannotWaitForItsOwnSyncDuringTheFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"))
		src.SetFaults(informertest.Faults{HoldLists: true})
		inf := newInformer(t, src, options{Store: newPlainStore(object("a", "1")), WatchList: informer.WatchListOff})
		refused := make(chan error, 1)
		r := recorder{Hook: func(ctx context.Context, _ event) error { refused <- inf.WaitForSync(ctx); return nil }}
		addWatcher(t, inf, &r, informer.WatcherOptions{})
		start(t, inf)
		time.AfterFunc(time.Hour, func() { src.SetFaults(informertest.Faults{}) })
		begun := time.Now()
		says(t, <-refused, "in the callback of a watcher that it waits for")
		equal(t, "the wait took", time.Since(begun), 0)
		sleepBubble(2 * time.Hour)
	})
}

func TestWaitForReturnsWhenTheConditionHasHeld(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		inf, src := startWith(t, queue, object("a", "1"))
		has := func(value string) func(configMap, bool) bool {
			return func(obj configMap, exists bool) bool { return exists && obj.Data["value"] == value }
		}
		absent := func(obj configMap, exists bool) bool { return !exists && obj == nil }
		noError(t, inf.WaitFor(t.Context(), keyOf("a"), has("1")))
		done := make(chan error, 2)
		go func() { done <- inf.WaitFor(t.Context(), keyOf("a"), has("3")) }()
		go func() { done <- inf.WaitFor(t.Context(), keyOf("a"), absent) }()
		synctest.Wait()
		src.Apply(object("b", "3"))
		src.Apply(object("a", "2"))
		synctest.Wait()
		if len(done) > 0 {
			t.Fatalf("returned too early: %v", <-done)
		}
		src.Apply(object("a", "3"))
		noError(t, <-done)
		_, _ = src.Delete(keyOf("a"))
		src.Apply(object("a", "4")) // the absence ends before anything can observe it
		noError(t, <-done)
		err := inf.WaitFor(within(t, time.Second), keyOf("a"), has("never"))
		fails(t, err, context.DeadlineExceeded)
		says(t, err, "default/a")
	})
}

func TestWaitForVersionMeansThatTheStoreHasIt(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		inf, src := startWith(t, queue, object("a", "1"))
		equal(t, "version after the first list", inf.ResourceVersion(), src.ResourceVersion())
		for i := range 100 {
			obj := src.Apply(object(fmt.Sprint("o", i%7), fmt.Sprint(i)))
			noError(t, inf.WaitForVersion(t.Context(), "", obj.ResourceVersion))
			if got, _, _ := inf.Get(keyOf(obj.Name)); got == nil || got.ResourceVersion != obj.ResourceVersion {
				t.Fatalf("waited for version %s and then read %v", obj.ResourceVersion, got)
			}
		}
		gone, _ := src.Delete(keyOf("a"))
		noError(t, inf.WaitForVersion(t.Context(), "", gone.ResourceVersion))
		_, exists, _ := inf.Get(keyOf("a"))
		equal(t, "the object exists after its delete", exists, false)
		src.Compact() // raises the version, like a write that a selector hides
		src.Bookmark()
		noError(t, inf.WaitForVersion(t.Context(), "", src.ResourceVersion()))
		err := inf.WaitForVersion(within(t, time.Hour), "", "999999")
		fails(t, err, context.DeadlineExceeded)
		says(t, err, "999999")
		says(t, inf.WaitForVersion(t.Context(), "", "x1"), "x1")
	})
}

// The last namespace leaves the set. The wait is woken before the namespace is marked as gone.
func TestAWaitForAVersionDoesNotEndWhenItsNamespaceIsAboutToLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf, err := informer.NewInNamespaces(informertest.NewSource[configMap]().Namespace, []string{"a"}, options{})
		noError(t, err)
		done := make(chan error, 1)
		go func() { done <- inf.WaitForVersion(within(t, time.Second), "a", "1") }()
		synctest.Wait()
		informer.EmptySet(inf)
		fails(t, <-done, context.DeadlineExceeded)
	})
}

func TestErrorsOfTheSourceAreReportedOnceAndNamedWhileWaiting(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		src.Fail("watch", forbidden("configmaps"), -1)
		src.Fail("list", forbidden("configmaps"), -1)
		var errs errorLog
		inf := newInformer(t, src, options{Queue: queue, ErrorHandler: errs.Handle})
		stop := start(t, inf)
		err := inf.WaitForSync(within(t, 10*time.Minute))
		var failed *informer.WatchError
		if !apierrors.IsForbidden(err) || !errors.As(err, &failed) || failed.Resource != "ConfigMap" {
			t.Errorf("waiting ended with %v", err)
		}
		equal(t, "reports in 10 minutes", len(errs.Take()), 1)
		src.Heal()
		noError(t, inf.WaitForSync(within(t, time.Minute)))
		time.Sleep(time.Minute) // another watch follows one that has lasted, and not a stream
		src.Fail("watch", forbidden("configmaps"), 1)
		src.Disconnect()
		time.Sleep(time.Minute)
		equal(t, "reports after it had worked", len(errs.Take()), 1)
		stop()
	})
}

func TestAForbiddenWatchIsReportedOnceAlthoughListsWork(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		src.Fail("watch", forbidden("configmaps"), -1)
		var errs errorLog
		running(t, src, options{Queue: queue, ErrorHandler: errs.Handle})
		sleepBubble(hour)
		testkit.AtLeast(t, "lists in an hour", listsOf(src), 10)
		if got := errs.Take(); len(got) != 1 || !strings.Contains(got[0].Error(), "no such role") {
			t.Errorf("in an hour reported %v", got)
		}
	})
}

// TestObjectsOfOneNameUnderTwoKeysLiveInOneInformer gives the keys below the sink, where no public API
// reaches yet. All such objects have the same UID, too.
func TestObjectsOfOneNameUnderTwoKeysLiveInOneInformer(t *testing.T) {
	const east, west = "east|default/a", "west|default/a"
	twin := func(version string) configMap {
		obj := object("a", version)
		obj.UID, obj.ResourceVersion = "same", version
		return obj
	}
	indexers := informer.Indexers[configMap]{"value": func(obj configMap) ([]string, error) { return []string{obj.Data["value"]}, nil }}
	for kind, more := range map[string]informer.WatcherOptions{"plain": {MaxBacklog: -1}, "merging": {MaxBacklog: 1}, "workers": {Workers: 2}} {
		inBubble(t, kind, func(t *testing.T) {
			run := func(store *informertest.Durable, w informer.WatcherFunc[configMap]) (inf *ci, stop func()) {
				inf = newInformer(t, informertest.NewSource[configMap](), options{Durable: store, Indexers: indexers})
				addWatcher(t, inf, w, more)
				stop = start(t, inf)
				synctest.Wait()
				return inf, stop
			}
			var mu sync.Mutex // workers call at the same time
			note := func(told *[]string) informer.WatcherFunc[configMap] {
				return func(ctx context.Context, e event) error {
					mu.Lock()
					defer mu.Unlock()
					*told = append(*told, fmt.Sprint(e.Type, " ", cmp.Or(e.New, e.Old).ResourceVersion))
					return nil
				}
			}
			var early, late, next []string
			store := informertest.NewDurable()
			inf, stop := run(store, func(ctx context.Context, e event) error {
				_ = note(&early)(ctx, e)
				if e.Type == informer.EventDeleted {
					<-ctx.Done() // so that the tombstone stays
				}
				return ctx.Err()
			})
			for n, key := range []string{east, west, west, east} {
				informer.Enter(inf, key, twin(fmt.Sprint(11+n)), n == 3)
				synctest.Wait()
			}
			addWatcher(t, inf, note(&late), more)
			if found, err := inf.ByIndex("value", "13"); err != nil || len(found) != 1 || inf.Health().Objects != 1 {
				t.Errorf("by index: %v, %v; Health counts %d objects", found, err, inf.Health().Objects)
			}
			synctest.Wait()
			stop()
			store = store.Reopen()
			objs, err := store.Scan(t.Context(), "", 9)
			tombs, wrong := store.Tombstones(t.Context())
			if len(objs) != 1 || len(tombs) != 1 || objs[0].Key != west || tombs[0].Key != east || err != nil || wrong != nil {
				t.Fatalf("the store has %v (%v) and the tombstones %v (%v)", objs, err, tombs, wrong)
			}
			inf, _ = run(store, note(&next)) // its source has no objects
			sleepBubble(time.Minute)
			testkit.CheckKept(t, store, inf.ResourceVersion())
			if n := slices.Index(next, "deleted 11"); n > 0 && more.Workers > 1 { // has another key than the others
				next = slices.Insert(slices.Delete(next, n, n+1), 0, "deleted 11")
			}
			equal(t, "events", fmt.Sprint(early, late, next),
				"[added 11 added 12 updated 13 deleted 11] [added 13] [deleted 11 added 13 deleted 13]")
		})
	}
}
