package clusters_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func TestAListThatTheStoreNeverTookIsNotSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := overStore(t, informertest.NewDurable(), testkit.Ignore)
		w.store.Fail(func(op, key string) error {
			if op == "apply" && key != "" {
				return errors.New("disk full")
			}
			return nil
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
		w := newWorld(t, options{Durable: store, WatchList: informer.WatchListOff, ErrorHandler: testkit.Ignore, Transform: func(obj configMap) (configMap, error) {
			if obj.Data["value"] == "bad" {
				return nil, errors.New("a bug in Transform")
			}
			return obj, nil
		}})
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
		next := w.next() // the bug in Transform is fixed
		next.engageAs("east", "1")
		next.start(time.Hour)
		_, exists, err := next.In("east").Get(key("y"))
		equal(t, "y exists after a restart", fmt.Sprint(exists, err), "true <nil>")
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

// hanging is a source whose lists may get no answer.
type hanging struct {
	*source
	hangs atomic.Bool
}

func (h *hanging) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if h.hangs.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.source.ListWithContext(ctx, opts)
}

func TestAQuestionWithoutAnAnswerHoldsUpNoReplace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, options{WatchList: informer.WatchListOff, ErrorHandler: testkit.Ignore})
		first := &hanging{source: w.cluster("east", testkit.Object("x", "1"))}
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
		obj, _, err := w.In("east").Get(key("x"))
		noError(t, err)
		equal(t, "x an hour after Replace", obj.Data["value"], "2")
	})
}

// noList is a source that may answer with an empty list without a version, such as the Status of a proxy that is decoded as a list.
type noList struct {
	*source
	odd atomic.Bool
}

func (n *noList) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if n.odd.Load() {
		return &metav1.List{}, nil
	}
	return n.source.ListWithContext(ctx, opts)
}

func TestNewCredentialsInARelistKeepWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w *world
		var relist atomic.Bool
		east := informertest.NewSource(testkit.Object("u", "1"), testkit.Object("v", "1"), testkit.Object("w", "1"))
		second := &noList{source: east}
		second.odd.Store(true)
		opts := options{Intake: informer.IntakeEarly, PageSize: 2, WatchList: informer.WatchListOff, ErrorHandler: testkit.Ignore, Transform: func(obj configMap) (configMap, error) {
			if obj.Name == "v" && relist.CompareAndSwap(true, false) {
				noError(t, w.Replace("east", informer.ClusterSource{Source: second, UID: "1"}))
			}
			return obj, nil
		}}
		w = newWorld(t, opts)
		v := w.watch(informer.WatcherOptions{})
		w.sources["east"] = east
		must(t, w.Engage("east", informer.ClusterSource{Source: east, UID: "1"}))
		w.start(time.Second)
		v.take()
		relist.Store(true)
		east.Expire()
		time.Sleep(2 * time.Second)
		equal(t, "events", fmt.Sprint(v.take()), "[]")
		objs, _ := w.In("east").List("", nil)
		equal(t, "objects", len(objs), 3)
	})
}

// The server has gone back in time, so the list is compared by contents.
func TestNewCredentialsInARelistKeepTheDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w *world
		var relist atomic.Bool
		east := informertest.NewSource(testkit.Object("u", "1"), testkit.Object("v", "1"), testkit.Object("w", "1"))
		opts := options{Intake: informer.IntakeEarly, PageSize: 2, WatchList: informer.WatchListOff, ErrorHandler: testkit.Ignore, Transform: func(obj configMap) (configMap, error) {
			if obj.Name == "v" && relist.CompareAndSwap(true, false) {
				east.Apply(testkit.Object("w", "new")) // gets the version of the lost state
				noError(t, w.Replace("east", informer.ClusterSource{Source: &credentials{source: east}, UID: "1"}))
			}
			return obj, nil
		}}
		w = newWorld(t, opts)
		w.sources["east"] = east
		must(t, w.Engage("east", informer.ClusterSource{Source: east, UID: "1"}))
		w.start(time.Second)
		before := east.ResourceVersion()
		east.Apply(testkit.Object("w", "lost"))
		time.Sleep(time.Second)
		relist.Store(true)
		must(t, east.Restore(before))
		east.Fail("watch", errors.New("the server restarts"), 1)
		east.Disconnect()
		time.Sleep(time.Hour)
		equal(t, "the list was interrupted", relist.Load(), false)
		obj, _, err := w.In("east").Get(key("w"))
		noError(t, err)
		server, _ := east.Get(key("w"))
		equal(t, "w", obj.Data["value"], server.Data["value"])
	})
}

func TestTheListAfterNewCredentialsIsNotOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w *world
		var relist atomic.Bool
		var at atomic.Int64
		east := informertest.NewSource(testkit.Object("u", "1"), testkit.Object("v", "1"), testkit.Object("w", "1"))
		opts := options{Intake: informer.IntakeEarly, PageSize: -1, WatchList: informer.WatchListOff, ErrorHandler: testkit.Ignore, Transform: func(obj configMap) (configMap, error) {
			if obj.Name == "v" && relist.CompareAndSwap(true, false) {
				at.Store(int64(len(east.Requests())))
				noError(t, w.Replace("east", informer.ClusterSource{Source: &credentials{source: east}, UID: "1"}))
				time.Sleep(time.Second)
			}
			return obj, nil
		}}
		w = newWorld(t, opts)
		w.sources["east"] = east
		must(t, w.Engage("east", informer.ClusterSource{Source: east, UID: "1"}))
		w.start(time.Second)
		relist.Store(true)
		east.Expire()
		time.Sleep(time.Minute)
		for _, r := range east.Requests()[at.Load():] {
			if r.Verb == "list" && r.Options.ResourceVersion == "0" {
				t.Error("the list may be answered with any old state")
			}
		}
	})
}
