package controllerruntime_test

import (
	"context"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/controllerruntime"
	"github.com/customcacheinformer/informer/share"
)

func managerBefore(config *rest.Config) (manager.Manager, error) {
	return manager.New(config, manager.Options{})
}

func managerAfter(config *rest.Config) (manager.Manager, error) {
	return manager.New(config, manager.Options{
		Cache: cache.Options{NewInformer: informer.ClientGo{}.NewSharedIndexInformer},
	})
}

// observedManager returns a manager whose informers the Health of group includes.
func observedManager(config *rest.Config, group *informer.Group) (manager.Manager, error) {
	return manager.New(config, manager.Options{
		Cache: cache.Options{NewInformer: informer.ClientGo{Group: group}.NewSharedIndexInformer},
	})
}

// sharingManager returns a manager whose cache holds equal parts of objects once.
func sharingManager(config *rest.Config) (manager.Manager, error) {
	return manager.New(config, manager.Options{
		Cache: cache.Options{NewInformer: informer.ClientGo{Share: share.New()}.NewSharedIndexInformer},
	})
}

// optionsByType puts Secrets into their own store, and sends all errors to one handler.
func optionsByType(secrets toolscache.Store, report func(context.Context, error)) cache.Options {
	return cache.Options{
		NewInformer: informer.ClientGo{Options: func(example runtime.Object) (informer.Options[informer.AnyObject], error) {
			opts := informer.Options[informer.AnyObject]{ErrorHandler: report}
			if _, ok := example.(*corev1.Secret); ok {
				opts.Store = secrets
			}
			return opts, nil
		}}.NewSharedIndexInformer,
	}
}

func controllerBefore(mgr manager.Manager, reconciler reconcile.Reconciler) error {
	return builder.ControllerManagedBy(mgr).For(&corev1.Pod{}).Complete(reconciler)
}

func controllerAfter(mgr manager.Manager, c client.WithWatch, makeReconciler func(informer.Reader[*corev1.Pod]) reconcile.Reconciler) error {
	pods, err := informer.NewFrom(controllerruntime.ListWatch(c, &corev1.PodList{}), informer.Options[*corev1.Pod]{
		Transform: informer.StripManagedFields[*corev1.Pod],
	})
	if err != nil {
		return err
	}
	if err := mgr.Add(controllerruntime.Runnable(pods)); err != nil {
		return err
	}
	src := &source.Informer{Informer: pods.SharedIndexInformer(), Handler: &handler.EnqueueRequestForObject{}}
	return builder.ControllerManagedBy(mgr).Named("pods").
		WatchesRawSource(controllerruntime.Synced(src, pods)).
		Complete(makeReconciler(pods))
}

func TestManagersAreMadeBeforeAndAfter(t *testing.T) {
	for name, start := range map[string]func(*rest.Config) (manager.Manager, error){
		"before": managerBefore, "after": managerAfter, "sharing": sharingManager,
		"observed": func(config *rest.Config) (manager.Manager, error) {
			return observedManager(config, &informer.Group{})
		},
		"by type": func(config *rest.Config) (manager.Manager, error) {
			return manager.New(config, manager.Options{
				Cache: optionsByType(toolscache.NewStore(toolscache.MetaNamespaceKeyFunc), informer.Report),
			})
		},
	} {
		if _, err := start(exampleConfig); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	mgr := nameless(t)
	ok(t, controllerBefore(mgr, reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{}, nil
	})))
}

// nameless returns a manager that does not check whether the names of its controllers are
// unique.
func nameless(t *testing.T) manager.Manager {
	mgr, err := manager.New(exampleConfig, manager.Options{
		Metrics:    server.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	ok(t, err)
	return mgr
}

func TestAControllerReconcilesObjectsOfAnInformerOutsideTheCache(t *testing.T) {
	c := fake.NewClientBuilder().WithObjects(pod("shop", "web", nil), pod("shop", "db", nil)).Build()
	mgr := nameless(t)
	var mu sync.Mutex // protects seen
	seen := map[types.NamespacedName]int{}
	done := make(chan struct{})
	ok(t, controllerAfter(mgr, c, func(pods informer.Reader[*corev1.Pod]) reconcile.Reconciler {
		return reconcile.Func(func(_ context.Context, r reconcile.Request) (reconcile.Result, error) {
			all, err := pods.List("shop", nil)
			if err != nil {
				return reconcile.Result{}, err
			}
			mu.Lock()
			defer mu.Unlock()
			seen[r.NamespacedName] = len(all)
			if len(seen) == 2 {
				close(done)
			}
			return reconcile.Result{}, nil
		})
	}))
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { ok(t, mgr.Start(ctx)) })
	<-done
	stop()
	running.Wait()
	want := map[types.NamespacedName]int{{Namespace: "shop", Name: "web"}: 2, {Namespace: "shop", Name: "db"}: 2}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("Pods in the store when each was reconciled (-want +got):\n%s", diff)
	}
}
