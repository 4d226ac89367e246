package clusters_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func TestAListThatTheStoreNeverTookIsNotSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := overStore(t, informertest.NewDurable(), testkit.Ignore)
		w.store.Fail(func(op, key string) error {
			return testkit.ErrorIf(op == "apply" && key != "", errors.New("disk full"))
		})
		w.cluster("east", testkit.Object("x", "1"))
		w.engageAs("east", "1")
		w.start(time.Second)
		wait := make(chan error, 1)
		go func() { wait <- w.WaitForSyncIn(t.Context(), "east") }()
		synctest.Wait()
		w.stop()
		w.store.Heal()
		if err := <-wait; err == nil {
			t.Error("the wait that was under way returned nil")
		}
		equal(t, "SyncedIn after the stop", w.SyncedIn("east"), false)
		if err := w.WaitForSyncIn(t.Context(), "east"); err == nil {
			t.Error("WaitForSyncIn returns nil, but x is not in the store")
		}
		equal(t, "Health.Clusters[0].Synced", w.Health().Clusters[0].Synced, false)
	})
}

// The first list is on its way into the store.
func TestNewCredentialsDuringTheFirstListDoNotMakeItExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := informertest.NewDurable()
		w := newWorld(t, options{Durable: store, WatchList: informer.WatchListOff, ErrorHandler: testkit.Ignore, Transform: testkit.NotBad})
		w.store = store
		w.cluster("east", testkit.Object("x", "1"), testkit.Object("y", "bad"))
		held, release := make(chan struct{}, 100), make(chan struct{})
		store.Fail(func(op, key string) error {
			if op == "apply" && key != "" {
				held <- struct{}{}
				<-release
			}
			return nil
		})
		w.engageAs("east", "1")
		w.start(0)
		<-held // a slow write of the first list
		must(t, w.Replace("east", informer.ClusterSource{Source: w.cluster("east"), UID: "1"}))
		time.Sleep(5 * time.Second)
		close(release)
		time.Sleep(5 * time.Second)
		w.stop()
		next := w.next() // without that Transform
		next.engageAs("east", "1")
		next.start(time.Hour)
		equal(t, "y after a restart", testkit.Value(next.In("east").Get(key("y"))), "bad")
	})
}

func TestAWaitForAVersionOfAStoredClusterContinuesWhenItIsEngaged(t *testing.T) {
	for _, uid := range []types.UID{"1", "2", ""} {
		inBubble(t, "UID "+string(uid), func(t *testing.T) {
			w := stored(t, "east")
			w.start(time.Second)
			w.cluster("east").Apply(testkit.Object("z", "1"))
			result := make(chan error, 1)
			go func() {
				result <- w.WaitForVersionIn(testkit.Within(t, time.Hour), "east", w.sources["east"].ResourceVersion())
			}()
			synctest.Wait()
			w.engageAs("east", uid)
			noError(t, <-result)
		})
	}
}

func TestAQuestionWithoutAnAnswerHoldsUpNoReplace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, options{WatchList: informer.WatchListOff, ErrorHandler: testkit.Ignore})
		first := &credentials{source: w.cluster("east", testkit.Object("x", "1"))}
		must(t, w.Engage("east", informer.ClusterSource{Source: first, UID: "1"}))
		w.start(time.Second)
		first.hangs.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _, _ = w.ServerVersionIn(ctx, "east") }()
		synctest.Wait()
		must(t, w.Replace("east", informer.ClusterSource{Source: w.cluster("east"), UID: "1"}))
		time.Sleep(time.Second)
		w.cluster("east").Apply(testkit.Object("x", "2"))
		time.Sleep(time.Hour)
		equal(t, "x an hour after Replace", testkit.Value(w.In("east").Get(key("x"))), "2")
	})
}

// interrupted returns a world that calls change in the middle of a list of its cluster, once relist is set.
func interrupted(t *testing.T, pageSize int64, change func(w *world)) (w *world, relist *atomic.Bool) {
	t.Helper()
	relist = &atomic.Bool{}
	opts := options{Intake: informer.IntakeEarly, PageSize: pageSize, WatchList: informer.WatchListOff, ErrorHandler: testkit.Ignore}
	opts.Transform = func(obj configMap) (configMap, error) {
		if obj.Name == "v" && relist.CompareAndSwap(true, false) {
			change(w)
		}
		return obj, nil
	}
	w = newWorld(t, opts)
	w.cluster("east", testkit.Object("u", "1"), testkit.Object("v", "1"), testkit.Object("w", "1"))
	w.engageAs("east", "1")
	return w, relist
}

func TestNewCredentialsInARelistKeepWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, relist := interrupted(t, 2, func(w *world) {
			second := &credentials{source: w.cluster("east")}
			second.strange.Store(true)
			noError(t, w.Replace("east", informer.ClusterSource{Source: second, UID: "1"}))
		})
		v := w.watch(informer.WatcherOptions{})
		w.start(time.Second)
		v.take()
		relist.Store(true)
		w.cluster("east").Expire()
		time.Sleep(2 * time.Second)
		equal(t, "events", v.take(), "[]")
		equal(t, "objects", testkit.Count(w.In("east").List("", nil)), 3)
	})
}

// The server has gone back in time, so the list is compared by contents.
func TestNewCredentialsInARelistKeepTheDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, relist := interrupted(t, 2, func(w *world) {
			w.cluster("east").Apply(testkit.Object("w", "new")) // gets the version of the lost state
			noError(t, w.Replace("east", informer.ClusterSource{Source: &credentials{source: w.cluster("east")}, UID: "1"}))
		})
		w.start(time.Second)
		east := w.cluster("east")
		before := east.ResourceVersion()
		east.Apply(testkit.Object("w", "lost"))
		time.Sleep(time.Second)
		relist.Store(true)
		must(t, east.Restore(before))
		east.Fail("watch", errors.New("the server restarts"), 1)
		east.Disconnect()
		time.Sleep(time.Hour)
		equal(t, "the list was interrupted", relist.Load(), false)
		server, _ := east.Get(key("w"))
		equal(t, "w", testkit.Value(w.In("east").Get(key("w"))), server.Data["value"])
	})
}

func TestTheListAfterNewCredentialsIsNotOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at atomic.Int64
		w, relist := interrupted(t, -1, func(w *world) {
			at.Store(int64(len(w.cluster("east").Requests())))
			noError(t, w.Replace("east", informer.ClusterSource{Source: &credentials{source: w.cluster("east")}, UID: "1"}))
			time.Sleep(time.Second) // of the bubble's time: the list waits meanwhile
		})
		w.start(time.Second)
		relist.Store(true)
		w.cluster("east").Expire()
		time.Sleep(time.Minute)
		for _, r := range w.cluster("east").Requests()[at.Load():] {
			if r.Verb == "list" && r.Options.ResourceVersion == "0" {
				t.Error("the list may be answered with any old state")
			}
		}
	})
}
