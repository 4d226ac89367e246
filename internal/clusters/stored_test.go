package clusters_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// stored returns a world over a store that knows these clusters, each with the UID 1.
func stored(t *testing.T, names ...string) *world {
	t.Helper()
	w := overStore(t, informertest.NewDurable(), nil)
	for _, name := range names {
		w.cluster(name, testkit.Object("x", "1"), testkit.Object("y", "1"))
		w.engageAs(name, "1")
	}
	w.start(time.Minute)
	w.stop()
	return w.next()
}

// A cluster that is engaged and disengaged while the store is read leaves, and does not resume without its objects.
func TestAClusterLeavesWhileTheStoreIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := stored(t, "east")
		v := w.watch(informer.WatcherOptions{})
		release := w.store.Hang()
		w.start(0)
		synctest.Wait()
		w.engageAs("east", "1")
		left := w.disengage("east", informer.LeaveDeleted)
		release()
		<-left
		w.check(nil, v)
		w.engageAs("east", "1")
		w.checkAfter(time.Minute, []string{"east"}, v)
	})
}

// The store refuses an object of the first list of another cluster. The other objects are compared nevertheless.
func TestARefusedBatchKeepsTheDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := stored(t, "east", "west").store
		held, release := make(chan struct{}), make(chan struct{})
		hold := func(i informer.ApplyInfo) {
			if i.Key == "west|default/hold" { // the whole list becomes one batch
				close(held)
				<-release
			}
		}
		w := newWorld(t, options{Durable: store, WatchList: informer.WatchListOff, ErrorHandler: testkit.Ignore, Observer: &informer.Observer{Apply: hold}})
		w.cluster("east", testkit.Object("x", "2"), testkit.Object("a", "1")) // x has the UID and the version of the stored x
		w.cluster("west", testkit.Object("x", "1"), testkit.Object("y", "1"))
		w.engageAs("west", "1")
		w.start(time.Second)
		refuse(store, "east|default/a")
		w.cluster("west").Apply(testkit.Object("hold", "1"))
		<-held
		w.engageAs("east", "2")
		time.Sleep(time.Second)
		close(release)
		time.Sleep(time.Minute)
		equal(t, "x", testkit.Value(w.In("east").Get(key("x"))), "2")
	})
}

// A name leaves with deletes, comes back, leaves silently, and the process crashes: the objects are those of the first leave.
func TestACrashWhileANameLeavesTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := overStore(t, informertest.NewDurable(), testkit.Ignore)
		for n := range 1500 { // more than a batch
			w.cluster("east").Apply(testkit.Object(fmt.Sprint("x", n), "1"))
		}
		w.engageAs("east", "1")
		deleted := map[string]bool{}
		run := func() (stop func()) {
			v := w.watch(informer.WatcherOptions{})
			w.start(time.Minute)
			return func() {
				time.Sleep(time.Minute)
				w.stop()
				for _, e := range v.take() {
					if _, name, ok := strings.Cut(e, "deleted "); ok {
						deleted[name] = true
					}
				}
			}
		}
		stop := run()
		store, applies := w.store, 0
		store.Fail(func(op, _ string) error {
			if op != "apply" {
				return nil
			}
			if applies++; applies > 2 {
				store.Crash()
				return errors.New("crashed")
			}
			return nil
		})
		release := w.store.Hang()
		w.disengage("east", informer.LeaveDeleted)
		w.engageAs("east", "1")
		w.disengage("east", informer.LeaveSilently) // nothing of this one is in the store
		release()
		stop()
		w = w.next()
		run()()
		equal(t, "objects with a delete", len(deleted), 1500)
	})
}

// A read and a wait that are under way when something engages a stored cluster go on.
func TestAStoredClusterIsEngagedDuringARead(t *testing.T) {
	for _, uid := range []types.UID{"1", "2", ""} {
		inBubble(t, "UID "+string(uid), func(t *testing.T) {
			w := stored(t, "east")
			w.start(time.Second)
			release := w.store.Hang()
			results := make(chan error, 2)
			go func() { _, _, err := w.In("east").Get(key("x")); results <- err }()
			go func() { results <- w.WaitForSyncIn(t.Context(), "east") }()
			synctest.Wait()
			w.engageAs("east", uid)
			release()
			for range 2 {
				noError(t, <-results)
			}
		})
	}
}

// A read that is under way when the cluster gets another source continues. One of a cluster that leaves does not.
func TestAClusterIsReplacedDuringARead(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *world, other informer.ClusterSource)
		err    error
	}{
		"another cluster": {func(w *world, other informer.ClusterSource) { must(w.t, w.Replace("east", other)) }, nil},
		"leaves and returns": {func(w *world, other informer.ClusterSource) {
			w.disengage("east", informer.LeaveDeleted)
			must(w.t, w.Engage("east", other))
		}, nil},
		"leaves": {func(w *world, _ informer.ClusterSource) { w.disengage("east", informer.LeaveDeleted) }, informer.ErrNotEngaged},
	} {
		inBubble(t, name, func(t *testing.T) {
			w := overStore(t, informertest.NewDurable(), nil)
			w.engage("east", testkit.Object("x", "1"))
			w.start(time.Second)
			release := w.store.Hang()
			results := make(chan error, 3)
			go func() { _, _, err := w.In("east").Get(key("x")); results <- err }()
			go func() { _, err := w.In("east").List("", nil); results <- err }()
			go func() { _, err := w.In("east").ByIndex(cache.NamespaceIndex, "default"); results <- err }()
			synctest.Wait()
			c.change(w, informer.ClusterSource{Source: w.cluster("other", testkit.Object("y", "1"))})
			release()
			for range cap(results) {
				errorIs(t, <-results, c.err)
			}
		})
	}
}

func TestAReplacedClusterKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, options{})
		for _, name := range []string{"north", "east", "south"} {
			w.engage(name, testkit.Object("x", "1"))
		}
		w.start(time.Second)
		must(t, w.Replace("east", informer.ClusterSource{Source: w.cluster("other", testkit.Object("y", "1"))}))
		equal(t, "engaged", w.Engaged(), []string{"north", "east", "south"})
		w.disengage("north", informer.LeaveDeleted)
		w.engage("north")
		equal(t, "engaged", w.Engaged(), []string{"east", "south", "north"})
	})
}

// An informer that stops has not synced, and its clusters have not become unknown.
func TestAnInformerOverClustersThatStopsHasNotSynced(t *testing.T) {
	each(t, func(t *testing.T, opts options) {
		held, release := make(chan struct{}, 10), make(chan struct{})
		opts.ErrorHandler = testkit.Ignore
		opts.Observer = &informer.Observer{Apply: func(informer.ApplyInfo) { held <- struct{}{}; <-release }}
		w := newWorldWith(t, opts, informer.ClusterOptions{SyncWait: -1})
		w.cluster("east", testkit.Object("x", "1"))
		testkit.Unreachable(w.cluster("west"))
		w.engage("west")
		w.engage("east")
		w.start(0)
		<-held
		go w.stop()
		synctest.Wait()
		close(release)
		w.stop()
		if err := w.WaitForSync(t.Context()); err == nil || w.HasSynced() {
			t.Error("the informer has synced, although west was never listed")
		}
		for _, c := range w.Health().Clusters {
			if strings.Contains(fmt.Sprint(c.SourceError), "engaged") {
				t.Errorf("%s: %v", c.Cluster, c.SourceError)
			}
		}
		errorIs(t, w.DisengageStored(informer.LeaveDeleted), informer.ErrStopped)
	})
}
