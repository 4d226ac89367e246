package shards_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/sharding"
	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/shards"
)

// alone is a set of one replica with a controller, which no group runs. The functions of the controller
// call the set, which holds no lock while it waits for them.
type alone struct {
	t          *testing.T
	set        *shards.Set
	informer   *informer.CustomCacheInformer[*corev1.ConfigMap]
	controller *enqueue.Controller[types.NamespacedName]
	joined     sharding.Option // what its controllers join: the set, unless a test sets it

	mu       sync.Mutex
	reported []error
}

func newAlone(t *testing.T, objects *informertest.Source[*corev1.ConfigMap], leases coordinationclient.LeaseInterface) *alone {
	a := &alone{t: t}
	opts := options("a")
	opts.ErrorHandler = func(_ context.Context, err error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.reported = append(a.reported, err)
	}
	var err error
	if a.set, err = shards.New(leases, opts); err != nil {
		t.Fatal(err)
	}
	a.joined = a.set
	if a.informer, err = informer.NewFrom(objects, informer.Options[*corev1.ConfigMap]{}); err != nil {
		t.Fatal(err)
	}
	informertest.Run(t, a.informer)
	return a
}

// join adds a controller to the set.
func (a *alone) join(name string) error {
	c, err := enqueue.NewController(func(context.Context, types.NamespacedName) (time.Duration, error) {
		a.set.Health()
		return 0, nil
	}, enqueue.Options{Name: name, Shards: a.joined}, enqueue.Watches(a.informer, func(_ context.Context, obj *corev1.ConfigMap) ([]types.NamespacedName, error) {
		a.set.Health()
		return []types.NamespacedName{{Namespace: obj.Namespace, Name: obj.Name}}, nil
	}))
	if err == nil {
		a.controller = c
	}
	return err
}

// run runs the set and the controller until stop is called, which checks that both end.
func (a *alone) run() (stop func()) {
	ctx, cancel := context.WithCancel(a.t.Context())
	done := make(chan error, 2)
	go func() { done <- a.set.Run(ctx) }()
	go func() { done <- a.controller.Run(ctx) }()
	return func() {
		cancel()
		testkit.Must(a.t, errors.Join(<-done, <-done))
	}
}

func (a *alone) refused(err error, want string) {
	a.t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		a.t.Errorf("got %v, want %s", err, want)
	}
}

// A replica leaves the set when one of its controllers stops.
func TestASetEndsWithItsController(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		a := newAlone(t, w.objects, w.api)
		testkit.Must(t, a.join("worker"))
		stop := a.run()
		time.Sleep(time.Second)
		if n, calls := a.set.Health().Owned, a.controller.Health().Succeeded; n != 16 || calls == 0 {
			t.Errorf("it has %d buckets, and has made %d calls", n, calls)
		}
		a.controller.Removed()
		time.Sleep(time.Second)
		if n := a.set.Health().Owned; n != 0 {
			t.Errorf("it has %d buckets when its controller has stopped", n)
		}
		stop()
	})
}

// stumbling is a set whose workers fail to catch up, as often as failures has it.
type stumbling struct {
	sharding.Set
	failures *atomic.Int64
}

func (s stumbling) Join(name string, w sharding.Worker) error {
	return s.Set.Join(name, stumblingWorker{w, s.failures})
}

type stumblingWorker struct {
	sharding.Worker
	failures *atomic.Int64
}

func (w stumblingWorker) CatchUp(ctx context.Context, seen sharding.Versions) error {
	if w.failures.Add(-1) >= 0 {
		return errors.New("the source's versions cannot be compared")
	}
	return w.Worker.CatchUp(ctx, seen)
}

func TestABucketIsServedAfterItsCachesHaveFailedToCatchUp(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		a := newAlone(t, w.objects, w.api)
		var failures atomic.Int64
		failures.Store(20) // more than there are buckets
		a.joined = struct{ sharding.Handle }{sharding.NewHandle(stumbling{sharding.Of(a.set), &failures})}
		testkit.Must(t, a.join("worker"))
		stop := a.run()
		time.Sleep(5 * time.Second)
		stop()
		if n := a.controller.Health().Succeeded; n < 64 || len(a.reported) == 0 || len(a.reported) > 16 {
			t.Errorf("%d of 64 objects are reconciled; reported, at most once for each bucket, are %v", n, a.reported)
		}
	})
}

func TestASetRefusesControllersThatCannotJoin(t *testing.T) {
	inWorld(t, 0, func(t *testing.T, w *world) {
		empty := newAlone(t, w.objects, w.api)
		empty.refused(empty.set.Run(t.Context()), "set test: no controller has joined")
		if err := empty.set.WaitForSync(t.Context()); !errors.Is(err, informer.ErrStopped) || !empty.set.Health().Stopped {
			t.Errorf("WaitForSync after a Run that has failed: %v; Health: %+v", err, empty.set.Health())
		}
		a := newAlone(t, w.objects, w.api)
		testkit.Must(t, a.join("worker"))
		a.refused(a.join("worker"), `another controller has the name "worker"`)
		short, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		var late *informer.SyncError
		if err := a.set.WaitForSync(short); !errors.As(err, &late) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("WaitForSync before Run: %v", err)
		}
		stop := a.run()
		if err := a.set.WaitForSync(t.Context()); err != nil {
			t.Errorf("WaitForSync: %v", err)
		}
		a.refused(a.join("other"), informer.ErrAlreadyRun.Error())
		if err := a.set.Run(t.Context()); !errors.Is(err, informer.ErrAlreadyRun) {
			t.Errorf("the second Run: %v", err)
		}
		stop()
		if err := a.set.WaitForSync(short); err != nil {
			t.Errorf("WaitForSync of a set that had joined: %v", err)
		}
	})
}

// A set that ends before it has joined reports that to all waiting callers.
func TestWaitForSyncEndsWithTheSet(t *testing.T) {
	inWorld(t, 0, func(t *testing.T, w *world) {
		a := newAlone(t, w.objects, &link{LeaseInterface: w.api, world: w, isCut: true})
		testkit.Must(t, a.join("worker"))
		waited := make(chan error)
		stop := a.run()
		go func() { waited <- a.set.WaitForSync(t.Context()) }()
		time.Sleep(time.Minute)
		stop()
		if err := <-waited; !errors.Is(err, informer.ErrStopped) {
			t.Errorf("WaitForSync returned %v", err)
		}
	})
}

func TestAControllerThatIsRemovedBeforeRunStopsNoOther(t *testing.T) {
	inWorld(t, 0, func(t *testing.T, w *world) {
		inf, err := informer.NewFrom(informertest.NewSource(configMap("a", "1")), informer.Options[*corev1.ConfigMap]{})
		testkit.Must(t, err)
		var group informer.Group
		set, err := shards.New(w.api, shards.Options{Name: "test", Identity: "a", Buckets: 16})
		testkit.Must(t, errors.Join(err, group.Add(inf), group.Add(set)))
		var calls atomic.Int64
		add := func(name string) *enqueue.Controller[types.NamespacedName] {
			c, err := enqueue.NewController(func(context.Context, types.NamespacedName) (time.Duration, error) { calls.Add(1); return 0, nil },
				enqueue.Options{Name: name, Shards: set}, enqueue.For(inf))
			testkit.Must(t, errors.Join(err, group.Add(c)))
			return c
		}
		add("kept")
		testkit.Must(t, group.Remove(add("unused")))
		running(t, &group)
		time.Sleep(time.Hour)
		if n := calls.Load(); n != 1 {
			t.Errorf("%d calls; set: %v; %+v", n, set.Health().Ready(), set.Health())
		}
	})
}
