package controllerruntime_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/controllerruntime"
)

func newManager(t *testing.T, options config.Controller) manager.Manager {
	t.Helper()
	options.SkipNameValidation = ptr.To(true) // tests may run more than once
	mgr, err := manager.New(exampleConfig, manager.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, Controller: options, GracefulShutdownTimeout: ptr.To(patience),
	})
	ok(t, err)
	return mgr
}

func newPods(t *testing.T, lw cache.ListerWatcher) *informer.CustomCacheInformer[*corev1.Pod] {
	t.Helper()
	pods, err := informer.NewFrom(lw, informer.Options[*corev1.Pod]{ErrorHandler: func(context.Context, error) {}})
	ok(t, err)
	return pods
}

func TestARunnableRunsWithTheManager(t *testing.T) {
	c := fake.NewClientBuilder().WithObjects(pod("default", "web", nil)).Build()
	pods, others := newPods(t, controllerruntime.ListWatch(c, &corev1.PodList{})), newPods(t, controllerruntime.ListWatch(c, &corev1.PodList{}))
	var group informer.Group
	ok(t, group.Add(others))
	mgr := newManager(t, config.Controller{})
	for _, m := range []interface{ Run(context.Context) error }{pods, &group} {
		ok(t, mgr.Add(controllerruntime.Runnable(m)))
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- mgr.Start(ctx) }()
	ok(t, pods.WaitForSync(ctx))
	ok(t, group.WaitForSync(ctx))
	stop()
	ok(t, <-ended)
	if err := pods.Run(t.Context()); !errors.Is(err, informer.ErrAlreadyRun) {
		t.Errorf("Run after the manager: %v, want %v", err, informer.ErrAlreadyRun)
	}
}

// A reconcile that is running when the manager stops can still use the informer, whether or
// not its controller needs a leader.
func TestARunnableOutlivesTheReconciles(t *testing.T) {
	for _, leader := range []bool{true, false} {
		c := fake.NewClientBuilder().WithObjects(pod("default", "web", nil)).Build()
		pods := newPods(t, controllerruntime.ListWatch(c, &corev1.PodList{}))
		mgr := newManager(t, config.Controller{NeedLeaderElection: ptr.To(leader)})
		ctx, stop := context.WithCancel(t.Context())
		begun, seen := make(chan struct{}), make(chan error, 1)
		controls(t, mgr, pods, func(reconciling context.Context, r reconcile.Request) (reconcile.Result, error) {
			if r.Name != "web" {
				return reconcile.Result{}, nil
			}
			close(begun)
			<-ctx.Done()
			<-reconciling.Done() // the manager is stopping now
			if err := c.Create(context.Background(), pod("default", "late", nil)); err != nil {
				seen <- err
			}
			waiting, cancel := context.WithTimeout(context.WithoutCancel(reconciling), patience/2)
			defer cancel()
			late := types.NamespacedName{Namespace: "default", Name: "late"}
			seen <- pods.WaitFor(waiting, late, func(_ *corev1.Pod, exists bool) bool { return exists })
			return reconcile.Result{}, nil
		})
		ended := make(chan error)
		go func() { ended <- mgr.Start(ctx) }()
		<-begun
		stop()
		ok(t, <-ended)
		if err := <-seen; err != nil {
			t.Errorf("a reconcile in the manager's last moments, leader %t: %v", leader, err)
		}
		if !pods.Health().Stopped {
			t.Error("the informer is still running after the manager has stopped")
		}
	}
}

// A manager without leader election is its own leader.
func TestAControllerOfAGroupBeginsWhenItsManagerIsElected(t *testing.T) {
	c := fake.NewClientBuilder().WithObjects(pod("default", "web", nil)).Build()
	mgr, reconciled := newManager(t, config.Controller{}), make(chan string, 1)
	ok(t, addPods(mgr, newPods(t, controllerruntime.ListWatch(c, &corev1.PodList{})), func(_ context.Context, key types.NamespacedName) (time.Duration, error) {
		select {
		case <-mgr.Elected():
		default:
			t.Error("a call was made before the election")
		}
		reconciled <- key.Name
		return 0, nil
	}))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- mgr.Start(ctx) }()
	select {
	case got := <-reconciled:
		if got != "web" {
			t.Errorf("reconciled %s, want web", got)
		}
	case <-time.After(patience):
		t.Error("nothing is reconciled")
	}
	stop()
	ok(t, <-ended)
}

func TestTheManagerStopsWithTheErrorOfARunnable(t *testing.T) {
	pods := newPods(t, controllerruntime.ListWatch(fake.NewFakeClient(), &corev1.PodList{}))
	ctx, stop := context.WithCancel(t.Context())
	stop()
	ok(t, pods.Run(ctx))
	mgr := newManager(t, config.Controller{})
	ok(t, mgr.Add(controllerruntime.Runnable(pods)))
	if err := mgr.Start(t.Context()); !errors.Is(err, informer.ErrAlreadyRun) {
		t.Errorf("the manager: %v, want %v", err, informer.ErrAlreadyRun)
	}
	for _, r := range []manager.Runnable{
		controllerruntime.Runnable(nil),
		controllerruntime.Runnable((*informer.CustomCacheInformer[*corev1.Pod])(nil)),
	} {
		if err := r.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "nil") {
			t.Errorf("Start of nil: %v", err)
		}
	}
}

func TestTheManagerStopsIfSyncedIsGivenNil(t *testing.T) {
	pods := newPods(t, controllerruntime.ListWatch(fake.NewFakeClient(), &corev1.PodList{}))
	src := source.Func(func(context.Context, workqueue.TypedRateLimitingInterface[reconcile.Request]) error { return nil })
	for want, synced := range map[string]source.Source{
		"the source given to Synced is nil":     controllerruntime.Synced(nil, pods),
		"the source given to Synced is nil at ": controllerruntime.Synced((*source.Informer)(nil), pods),
		"the informer given to Synced is nil":   controllerruntime.Synced(src, (*informer.CustomCacheInformer[*corev1.Pod])(nil)),
	} {
		mgr := newManager(t, config.Controller{})
		nothing := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil })
		ok(t, builder.ControllerManagedBy(mgr).Named(t.Name()+want).WatchesRawSource(synced).Complete(nothing))
		if err := mgr.Start(t.Context()); err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(want, " at ")) {
			t.Errorf("the manager: %v, want %q", err, want)
		}
	}
}

// manyPods returns a client that calls the function list before each list.
func manyPods(list func() error) client.WithWatch {
	objects := []client.Object{pod("default", "a", nil), pod("default", "b", nil), pod("default", "c", nil)}
	return fake.NewClientBuilder().WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if err := list(); err != nil {
				return err
			}
			return c.List(ctx, l, opts...)
		},
	}).Build()
}

// controls adds the informer to the manager, and a controller that reconciles its Pods.
func controls(t *testing.T, mgr manager.Manager, pods *informer.CustomCacheInformer[*corev1.Pod], r reconcile.Func) {
	t.Helper()
	ok(t, mgr.Add(controllerruntime.Runnable(pods)))
	src := &source.Informer{Informer: pods.SharedIndexInformer(), Handler: &handler.EnqueueRequestForObject{}}
	ok(t, builder.ControllerManagedBy(mgr).Named(t.Name()).WatchesRawSource(controllerruntime.Synced(src, pods)).Complete(r))
}

func TestAControllerWaitsForItsSource(t *testing.T) {
	listed := make(chan struct{})
	pods := newPods(t, controllerruntime.ListWatch(manyPods(func() error { <-listed; return nil }), &corev1.PodList{}))
	mgr := newManager(t, config.Controller{})
	ctx, stop := context.WithCancel(t.Context())
	reconciled := make(chan int, 100)
	controls(t, mgr, pods, func(context.Context, reconcile.Request) (reconcile.Result, error) {
		all, err := pods.List("", nil)
		reconciled <- len(all)
		return reconcile.Result{}, err
	})
	ended := make(chan error)
	go func() { ended <- mgr.Start(ctx) }()
	close(listed)
	for range 3 {
		select {
		case n := <-reconciled:
			if n != 3 {
				t.Errorf("a reconciler finds %d objects, want all 3", n)
			}
		case <-time.After(patience):
			t.Fatal("nothing is reconciled")
		}
	}
	stop()
	ok(t, <-ended)
}

func TestAManagerReportsWhyItsSourceDoesNotSync(t *testing.T) {
	forbidden := errors.New("pods are forbidden")
	pods := newPods(t, controllerruntime.ListWatch(manyPods(func() error { return forbidden }), &corev1.PodList{}))
	mgr := newManager(t, config.Controller{CacheSyncTimeout: 100 * time.Millisecond})
	controls(t, mgr, pods, func(context.Context, reconcile.Request) (reconcile.Result, error) {
		t.Error("something is reconciled")
		return reconcile.Result{}, nil
	})
	err := mgr.Start(t.Context())
	var late *informer.SyncError
	if !errors.As(err, &late) || !strings.Contains(err.Error(), forbidden.Error()) {
		t.Errorf("the manager: %v, want it to contain %q", err, forbidden)
	}
}

func TestARunnableLogsWithTheManager(t *testing.T) {
	pods := newPods(t, controllerruntime.ListWatch(fake.NewFakeClient(), &corev1.PodList{}))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- controllerruntime.Runnable(pods).Start(ctx) }()
	ok(t, pods.WaitForSync(ctx))
	stop()
	ok(t, <-ended)
	if log := managerLog.String(); !strings.Contains(log, "The informer has synced") {
		t.Errorf("the manager's log is %q", log)
	}
}
