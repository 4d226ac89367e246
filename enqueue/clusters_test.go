package enqueue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/shards"
)

// fleet is a program over some clusters.
type fleet struct {
	t       *testing.T
	pods    *informer.Clusters[*corev1.Pod]
	sources map[string]*informertest.Source[*corev1.Pod]

	mu    sync.Mutex
	calls []string
}

func newFleet(t *testing.T, clusters ...string) *fleet {
	pods, err := informer.NewOverClusters(informer.Options[*corev1.Pod]{ErrorHandler: testkit.Ignore}, informer.ClusterOptions{})
	testkit.Must(t, err)
	f := &fleet{t: t, pods: pods, sources: map[string]*informertest.Source[*corev1.Pod]{}}
	for _, name := range clusters {
		f.sources[name] = informertest.NewSource[*corev1.Pod]()
		testkit.Must(t, pods.Engage(name, informer.ClusterSource{Source: f.sources[name]}))
	}
	return f
}

// run runs a controller, and returns it. Without sources, it has the keys of the Pods.
func (f *fleet) run(reconcile func(context.Context, enqueue.Key) (time.Duration, error), opts enqueue.Options, sources ...enqueue.Source[enqueue.Key]) *enqueue.Controller[enqueue.Key] {
	f.t.Helper()
	if sources == nil {
		sources = append(sources, enqueue.InClusters(enqueue.For(f.pods.CustomCacheInformer)))
	}
	opts.Name, opts.ErrorHandler = "fleet", testkit.Ignore
	c, err := enqueue.NewController(reconcile, opts, sources...)
	testkit.Must(f.t, err)
	runGroup(f.t, &informer.Group{}, f.pods, c)
	synctest.Wait()
	return c
}

// apply writes n Pods, p0 and so on, in a cluster.
func (f *fleet) apply(cluster string, n int) {
	for i := range n {
		f.sources[cluster].Apply(pod(fmt.Sprint("p", i)))
	}
}

func (f *fleet) note(_ context.Context, key enqueue.Key) (time.Duration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, key.String())
	return 0, nil
}

// called fails the test unless these calls were made since the last check, in any order.
func (f *fleet) called(want ...string) {
	f.t.Helper()
	time.Sleep(time.Second)
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.Sort(f.calls)
	if fmt.Sprint(f.calls) != fmt.Sprint(want) {
		f.t.Errorf("calls: %v, want %v", f.calls, want)
	}
	f.calls = nil
}

func TestKeysHaveClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, "east", "west")
		elected := make(chan struct{})
		f.run(f.note, enqueue.Options{Elected: elected},
			enqueue.InClusters(enqueue.For(f.pods.CustomCacheInformer, enqueue.Labels)),
			enqueue.InClusters(enqueue.Owns(f.pods.CustomCacheInformer, enqueue.Owners{Kind: schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}})),
			enqueue.WatchesIn(f.pods.CustomCacheInformer, func(_ context.Context, cluster string, pod *corev1.Pod) ([]enqueue.Key, error) {
				return []enqueue.Key{{Cluster: cluster, NamespacedName: key{Name: "node-of-" + pod.Name}}}, nil
			}).With(informer.WatcherOptions{Name: "nodes"}),
		)
		f.sources["east"].Apply(pod("a", ownedBy("owner")))
		f.sources["west"].Apply(pod("a"))
		f.called()
		close(elected) // the keys of all objects, with equal names in two clusters
		f.called("east|/node-of-a", "east|ns/a", "east|ns/owner", "west|/node-of-a", "west|ns/a")
		_, err := f.sources["west"].Delete(key{Namespace: "ns", Name: "a"})
		testkit.Must(t, err)
		f.called("west|/node-of-a", "west|ns/a")
		_, err = f.pods.Disengage("east", informer.LeaveDeleted)
		testkit.Must(t, err)
		f.called("east|/node-of-a", "east|ns/a", "east|ns/owner")
	})
}

// A call that reads a cluster which has left is done. One that reads another informer, which does not read the cluster yet, is tried again.
func TestAKeyOfAClusterThatHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, others := newFleet(t, "east"), newFleet(t)
		c := f.run(func(ctx context.Context, key enqueue.Key) (time.Duration, error) {
			_, _ = f.note(ctx, key)
			_, _, err := f.pods.In(key.Cluster).Get(key.NamespacedName)
			if err == nil {
				_, err = others.pods.In(key.Cluster).List("", nil)
			}
			if err != nil {
				return time.Minute, err // the pause does not count if there is an error, also if the cluster has left
			}
			return 0, nil
		}, enqueue.Options{BaseDelay: 10 * time.Second})
		f.sources["east"].Apply(pod("a"))
		f.called("east|ns/a")
		if h := c.Health(); h.GaveUp != 0 || h.Failing != 1 {
			t.Errorf("while another informer does not read the cluster: %+v", h)
		}
		testkit.Must(t, others.pods.Engage("east", informer.ClusterSource{Source: f.sources["east"]}))
		time.Sleep(time.Minute)
		f.called("east|ns/a")
		_, err := f.pods.Disengage("east", informer.LeaveDeleted)
		testkit.Must(t, err)
		time.Sleep(time.Hour)
		f.called("east|ns/a")
		if h := c.Health(); h.Failed != 1 || h.GaveUp != 0 || h.Failing != 0 {
			t.Errorf("after the cluster has left: %+v", h)
		}
	})
}

// A key that has no cluster is not one of a cluster that has left.
func TestAKeyWithoutAClusterFailsForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		others := newFleet(t)
		informertest.Run(t, others.pods)
		r := start(t, enqueue.Options{}, func(context.Context, string) (time.Duration, error) {
			_, err := others.pods.In("west").List("", nil)
			return 0, err
		})
		r.add("a")
		time.Sleep(time.Hour)
		r.expect("a@0")
		if h := r.Health(); h.GaveUp != 1 {
			t.Errorf("%+v", h)
		}
	})
}

func TestSourcesThatDoNotFitTheInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		one := newPods(t, "one", informertest.NewSource[*corev1.Pod]())
		many := f.pods.CustomCacheInformer
		keys := func(context.Context, *corev1.Pod) ([]key, error) { return nil, nil }
		try := func(says string, opts enqueue.Options, sources ...enqueue.Source[enqueue.Key]) {
			t.Helper()
			opts.Name = "x"
			if _, err := enqueue.NewController(f.note, opts, sources...); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("got %v, want it to contain %q", err, says)
			}
		}
		try("the informer is over one cluster", enqueue.Options{}, enqueue.InClusters(enqueue.For(one)))
		try("use WatchesIn", enqueue.Options{}, enqueue.InClusters(enqueue.Watches(many, keys)))
		try("the informer is nil", enqueue.Options{}, enqueue.InClusters(enqueue.For[*corev1.Pod](nil)))
		try("keys is nil", enqueue.Options{}, enqueue.WatchesIn[*corev1.Pod, enqueue.Key](many, nil))
		set, err := shards.New(fake.NewClientset().CoordinationV1().Leases("default"), shards.Options{Name: "set", Identity: "replica", ByNamespace: true})
		testkit.Must(t, err)
		try("divides by namespace, which keys of type enqueue.Key do not allow", enqueue.Options{Shards: set}, enqueue.InClusters(enqueue.For(many)))
		for _, s := range []enqueue.Source[key]{enqueue.For(many), enqueue.Watches(many, keys)} {
			if _, err := enqueue.NewController(nothing, enqueue.Options{Name: "x"}, s); err == nil || !strings.Contains(err.Error(), "use InClusters or WatchesIn") {
				t.Errorf("got %v", err)
			}
		}
	})
}

// Clusters whose calls hang take no worker from the others.
func TestHungClustersTakeNoWorkerFromTheOthers(t *testing.T) {
	wait := func(t *testing.T, hung int) (p99 time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			var names []string
			for n := range 50 {
				names = append(names, fmt.Sprint("c", n))
			}
			f := newFleet(t, names...)
			var mu sync.Mutex
			begun, waits := map[string]time.Time{}, []time.Duration{}
			f.run(func(ctx context.Context, key enqueue.Key) (time.Duration, error) {
				if slices.Index(names, key.Cluster) < hung {
					<-ctx.Done()
					return 0, ctx.Err()
				}
				mu.Lock()
				waits = append(waits, time.Since(begun[key.String()]))
				mu.Unlock()
				time.Sleep(20 * time.Millisecond)
				return 0, nil
			}, enqueue.Options{Workers: 8, CallTimeout: 20 * time.Second})
			for n := range hung {
				f.apply(names[n], 100)
			}
			time.Sleep(10 * time.Second)
			mu.Lock()
			waits = nil
			mu.Unlock()
			random := rand.New(rand.NewPCG(1, 2))
			for n := range 10_000 { // some 6 of 8 workers are busy
				cluster := names[5+random.IntN(45)]
				name := fmt.Sprint("p", n)
				mu.Lock()
				begun[cluster+"|ns/"+name] = time.Now()
				mu.Unlock()
				f.sources[cluster].Apply(pod(name))
				time.Sleep(time.Duration(random.IntN(7000)) * time.Microsecond)
			}
			time.Sleep(time.Minute)
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(waits)
			if len(waits) != 10_000 {
				t.Errorf("%d calls", len(waits))
			}
			p99 = waits[len(waits)*99/100]
		})
		return p99
	}
	well, beside := wait(t, 0), wait(t, 5)
	if beside > well*13/10 {
		t.Errorf("p99 of the wait is %v, and beside 5 clusters whose calls hang %v", well, beside)
	}
}

// A cluster with very many keys holds up no other.
func TestAClusterThatFloodsHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, "east", "west")
		begun := make(chan time.Time, 1)
		f.run(func(_ context.Context, key enqueue.Key) (time.Duration, error) {
			if key.Cluster == "west" {
				begun <- time.Now()
			}
			time.Sleep(20 * time.Millisecond)
			return 0, nil
		}, enqueue.Options{Workers: 4})
		f.apply("east", 1000)
		time.Sleep(time.Second)
		came := time.Now()
		f.sources["west"].Apply(pod("a"))
		if wait := (<-begun).Sub(came); wait > 20*time.Millisecond {
			t.Errorf("the key of west has waited for %v", wait)
		}
		time.Sleep(time.Minute)
	})
}

// A key that waits for the slow call of its cluster is taken when that returns, also if another call hangs.
func TestAHeldKeyIsTakenAfterASlowCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, "east", "west")
		c := f.run(func(ctx context.Context, key enqueue.Key) (time.Duration, error) {
			switch _, _ = f.note(ctx, key); {
			case key.Cluster == "west":
				<-ctx.Done()
			case key.Name == "a":
				time.Sleep(2 * time.Second)
			}
			return 0, nil
		}, enqueue.Options{Workers: 1})
		f.sources["west"].Apply(pod("v"))
		f.sources["west"].Apply(pod("w")) // is held
		time.Sleep(2 * time.Second)
		f.sources["east"].Apply(pod("a"))
		time.Sleep(1500 * time.Millisecond)
		f.sources["east"].Apply(pod("b"))
		f.called("east|ns/a", "east|ns/b", "west|ns/v")
		time.Sleep(2 * time.Hour)
		if h := c.Health(); h.Queued != 1 || h.Live() != nil {
			t.Errorf("%d keys are queued, Live: %v", h.Queued, h.Live())
		}
	})
}

// A drain makes the calls for keys that are held, too.
func TestADrainTakesHeldKeys(t *testing.T) {
	var f *fleet
	synctest.Test(t, func(t *testing.T) {
		f = newFleet(t, "east")
		f.run(func(ctx context.Context, key enqueue.Key) (time.Duration, error) {
			_, _ = f.note(ctx, key)
			time.Sleep(1500 * time.Millisecond)
			return 0, nil
		}, enqueue.Options{Workers: 2, DrainTimeout: time.Hour})
		f.apply("east", 10)
		time.Sleep(5 * time.Second)
	})
	if len(f.calls) != 10 {
		t.Errorf("%d of 10 keys were reconciled", len(f.calls))
	}
}

// A cluster whose calls are quick again gets all workers.
func TestAClusterQuickAgainGetsAllWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, "east")
		begun, busy, most := time.Now(), 0, 0
		f.run(func(context.Context, enqueue.Key) (time.Duration, error) {
			f.mu.Lock()
			late := time.Since(begun) > 3*time.Second
			if busy++; late {
				most = max(most, busy)
			}
			f.mu.Unlock()
			if time.Sleep(100 * time.Millisecond); !late {
				time.Sleep(4 * time.Second)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			busy--
			return 0, nil
		}, enqueue.Options{Workers: 8})
		f.apply("east", 200)
		time.Sleep(time.Minute)
		f.mu.Lock()
		defer f.mu.Unlock()
		if most < 8 {
			t.Errorf("at most %d calls were under way", most)
		}
	})
}

// The call is slow, so another worker has taken the place of its worker.
func TestADrainTakesAKeyThatWasQueuedDuringItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, "east")
		f.apply("east", 1)
		calls := 0
		c, err := enqueue.NewController(func(context.Context, enqueue.Key) (time.Duration, error) {
			calls++
			time.Sleep(3 * time.Second)
			return 0, nil
		}, enqueue.Options{Name: "many", DrainTimeout: time.Minute}, enqueue.InClusters(enqueue.For(f.pods.CustomCacheInformer)))
		testkit.Must(t, err)
		informertest.Run(t, f.pods)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(2 * time.Second)
		f.sources["east"].Apply(pod("p0", ownedBy("x")))
		synctest.Wait()
		if h := c.Health(); h.Busy != 1 {
			t.Fatalf("%+v", h)
		}
		cancel()
		testkit.Must(t, <-done)
		if calls != 2 {
			t.Errorf("%d calls, want 2", calls)
		}
	})
}

// The keys of the cluster's objects could not be found, and the informer drops the attempts that were to come.
func TestAReplayEndsAfterItsClusterHasLeftSilently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, "east", "west")
		f.apply("east", 3)
		f.apply("west", 1)
		elected := make(chan struct{})
		close(elected)
		source := enqueue.WatchesIn(f.pods.CustomCacheInformer, func(_ context.Context, cluster string, pod *corev1.Pod) ([]enqueue.Key, error) {
			if cluster == "east" {
				return nil, errors.New("no luck")
			}
			return []enqueue.Key{{Cluster: cluster, NamespacedName: key{Namespace: pod.Namespace, Name: pod.Name}}}, nil
		})
		f.run(f.note, enqueue.Options{Elected: elected}, source)
		watchers := func(want int) {
			t.Helper()
			if all := f.pods.Health().Watchers; len(all) != want {
				t.Errorf("the informer has %d watchers, want %d", len(all), want)
			}
		}
		f.called("west|ns/p0")
		watchers(2)
		f.apply("west", 2)
		f.called("west|ns/p1")
		watchers(2)
		_, err := f.pods.Disengage("east", informer.LeaveSilently)
		testkit.Must(t, err)
		testkit.SleepBubble(time.Minute)
		f.apply("west", 3)
		f.called("west|ns/p2")
		watchers(1)
	})
}
