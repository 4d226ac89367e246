package clusters_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func TestClustersThatCannotBeEngaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, options{Name: "maps"})
		w.start(0)
		w.engage("east", testkit.Object("x", "1"))
		src := informer.ClusterSource{Source: w.cluster("east"), UID: "1"}
		for name, says := range map[string]string{
			"":                       "the name is empty",
			"east":                   `informer maps: Engage of cluster "east": the cluster is engaged already`,
			"a|b":                    `"|"`,
			"a b":                    "a space",
			"a\nb":                   "cannot be printed",
			"a\x00":                  "cannot be printed",
			"a\xff":                  "cannot be printed",
			strings.Repeat("a", 254): "longer than 253 bytes",
		} {
			errorSays(t, w.Engage(name, src), says)
			if name != "east" {
				errorSays(t, w.Replace(name, src), "cluster")
			}
		}
		for _, name := range []string{"team/east", "east#1", "ost.example.com", strings.Repeat("ä", 126)} {
			noError(t, w.Engage(name, src))
			w.sources[name] = w.cluster("east")
		}
		w.checkAfter(time.Second, w.Engaged())
		errorSays(t, w.Engage("west", informer.ClusterSource{}), "the source (lw) is nil")
		errorSays(t, w.Replace("east", informer.ClusterSource{}), "the source (lw) is nil")
		errorSays(t, w.Replace("west", src), "not engaged")
		for _, leave := range []informer.Leave{0, 3} {
			_, err := w.Disengage("east", leave)
			errorSays(t, err, "leave is ")
		}
		_, err := w.Disengage("west", informer.LeaveDeleted)
		errorIs(t, err, informer.ErrNotEngaged)
		w.stop()
		errorIs(t, w.Replace("team/east", src), informer.ErrStopped)
		for _, name := range []string{"late", "east"} {
			errorIs(t, w.Engage(name, src), informer.ErrStopped)
		}
		_, err = w.Disengage("east", informer.LeaveDeleted)
		errorIs(t, err, informer.ErrStopped)
	})
}

// A method that would have to know the cluster returns an error.
func TestAKeyNeedsACluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, options{})
		w.start(0)
		w.engage("east", testkit.Object("x", "1"))
		time.Sleep(time.Second)
		_, _, err := w.Get(key("x"))
		errorSays(t, err, "see In")
		s, err := w.Snapshot()
		must(t, err)
		_, _, err = s.Get(key("x"))
		errorSays(t, err, "see In")
		errorSays(t, w.WaitFor(t.Context(), key("x"), func(configMap, bool) bool { return true }), "see In")
		errorSays(t, w.WaitForVersion(t.Context(), "", "1"), "WaitForVersionIn")
		_, err = w.ServerVersion(t.Context(), "")
		errorSays(t, err, "does not read")
		errorSays(t, w.SetNamespaces(nil), "NewInNamespaces")
		errorSays(t, w.WaitForSyncIn(t.Context(), "west"), "not engaged")
		errorSays(t, w.WaitForVersionIn(t.Context(), "west", "1"), "not engaged")
		_, err = w.In("west").List("", nil)
		errorIs(t, err, informer.ErrNotEngaged)
		_, err = w.In("west").ByIndex(cache.NamespaceIndex, "default")
		errorIs(t, err, informer.ErrNotEngaged)
		for range w.In("west").All() {
			t.Error("west has an object")
		}
		equal(t, "objects of no cluster", testkit.Count(s.In("west").List("", nil)), 0)
		func() {
			defer func() {
				if fmt.Sprint(recover()) != "informer ConfigMap: SharedIndexInformer: client-go's keys have no clusters" {
					t.Error("SharedIndexInformer has not panicked")
				}
			}()
			w.SharedIndexInformer()
		}()
		_, err = informer.NewOverClusters(options{Store: cache.NewStore(cache.MetaNamespaceKeyFunc)}, informer.ClusterOptions{})
		errorSays(t, err, "Options.Store is set")
		// An informer over one cluster has no clusters.
		one := testkit.NewInformer(t, w.cluster("east"), options{Name: "one"})
		v := newViews()
		testkit.AddWatcher(t, one, v, informer.WatcherOptions{})
		testkit.Start(t, one)
		time.Sleep(time.Second)
		equal(t, "events", v.take(), []string{"initial added |x"})
		if s, err = one.Snapshot(); err != nil || s.In("east") != s {
			t.Errorf("a snapshot of an informer over one cluster has clusters: %v", err)
		}
	})
}

// A wait ends when its cluster leaves.
func TestAWaitForAClusterThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, options{WatchList: informer.WatchListOff})
		w.cluster("east", testkit.Object("x", "1")).SetFaults(informertest.Faults{HoldLists: true})
		w.engage("east")
		w.start(0)
		waits := make(chan error, 2)
		go func() { waits <- w.WaitForSyncIn(t.Context(), "east") }()
		go func() { waits <- w.WaitForVersionIn(t.Context(), "east", "1") }()
		synctest.Wait()
		left := w.disengage("east", informer.LeaveDeleted)
		for range 2 {
			errorIs(t, <-waits, informer.ErrNotEngaged)
		}
		<-left
		synctest.Wait()
		equal(t, "synced without a cluster that has left", w.HasSynced(), true)
	})
}

// Any callback may change the set, and while it is called a name may leave and return several times.
func TestACallbackEngagesAndDisengages(t *testing.T) {
	for name, arrange := range testkit.Callbacks {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, opts options) {
				var w *world
				var once sync.Once
				extra := arrange(&opts, func() {
					once.Do(func() {
						for range 5 {
							w.engage("west")
							w.disengage("west", informer.LeaveDeleted)
							w.engage("quiet")
							w.disengage("quiet", informer.LeaveSilently)
						}
						w.disengage("east", informer.LeaveDeleted)
						w.engage("east")
						w.engage("west")
						noError(t, w.Replace("west", informer.ClusterSource{Source: w.sources["west"]}))
						_ = w.Engaged()
						_, _ = w.In("east").List("", nil)
					})
				})
				w = newWorld(t, opts)
				v := w.watch(informer.WatcherOptions{})
				v.silent = "quiet"
				if extra != nil {
					testkit.AddWatcher(t, w.CustomCacheInformer, extra, informer.WatcherOptions{Name: name})
				}
				w.cluster("west", testkit.Object("x", "1"), testkit.Object("y", "1"))
				w.cluster("quiet", testkit.Object("x", "1"))
				w.engage("east", testkit.Object("x", "1"), testkit.Object("z", "1"))
				w.start(time.Minute)
				v.forget("quiet") // which may have been listed before it left
				w.check([]string{"east", "west"}, v)
			})
		})
	}
}

// A set that changes leaves nothing behind.
func TestTenThousandClusters(t *testing.T) {
	testkit.EachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		w := newWorld(t, options{Queue: queue, WatchList: informer.WatchListOff})
		w.engage("keep", testkit.Object("x", "1"))
		w.start(0)
		obj, n := testkit.Object("x", "1"), 0
		obj.UID, obj.ResourceVersion = "1", "1"
		src := &cache.ListWatch{ // a simulated API server would keep the requests
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (k8sruntime.Object, error) {
				return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []corev1.ConfigMap{*obj}}, nil
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
		}
		change := func(times int) (goroutines int, heap uint64) {
			for range times {
				n++
				name := fmt.Sprint("n", n)
				must(t, w.Engage(name, informer.ClusterSource{Source: src}))
				if n%2 == 0 {
					synctest.Wait()
				}
				w.disengage(name, informer.Leave(1+n%3/2))
			}
			time.Sleep(time.Hour)
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return runtime.NumGoroutine(), m.HeapAlloc
		}
		times := testkit.LongOrShort(5000, 500)
		goroutines, heap := change(times)
		after, heapAfter := change(times)
		if after > goroutines || heapAfter > heap+heap/10+100<<10 {
			t.Errorf("%d goroutines and %d bytes after %d changes, %d and %d after as many more", goroutines, heap, times, after, heapAfter)
		}
		w.check([]string{"keep"})
	})
}

// A watcher finds the cluster of each event, also of the first one after Engage.
func TestAWatcherFindsTheClusterOfItsEvent(t *testing.T) {
	w := newWorld(t, options{WatchList: informer.WatchListOff, ErrorHandler: testkit.Ignore})
	told := make(chan error)
	testkit.AddWatcher(t, w.CustomCacheInformer, informer.WatcherFunc[configMap](func(_ context.Context, e event) error {
		_, _, err := w.In(e.Cluster()).Get(e.Key())
		told <- err
		return nil
	}), informer.WatcherOptions{})
	w.start(0)
	<-w.Synced()
	for n := range 300 { // the event races with Engage
		w.engage(fmt.Sprint("east", n), testkit.Object("x", "1"))
		must(t, <-told)
	}
}
