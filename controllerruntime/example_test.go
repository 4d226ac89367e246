package controllerruntime_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/controllerruntime"
	"github.com/customcacheinformer/informer/enqueue"
)

// exampleConfig points nowhere: nothing in these tests sends a request to an API server.
var exampleConfig = &rest.Config{Host: "https://127.0.0.1:1"}

// This manager uses informers of this library for all of its caches.
func Example_manager() {
	mgr, err := manager.New(exampleConfig, manager.Options{
		Cache: cache.Options{NewInformer: informer.ClientGo{}.NewSharedIndexInformer},
	})
	fmt.Println(mgr != nil, err)
	// Output: true <nil>
}

// The informer of each kind has its own options: Secrets are kept without their data, and the
// events of Pods come in the order of their versions.
func Example_optionsPerType() {
	newInformer := informer.ClientGo{Options: func(example runtime.Object) (opts informer.Options[informer.AnyObject], err error) {
		switch example.(type) {
		case *corev1.Secret:
			opts.Transform = func(obj informer.AnyObject) (informer.AnyObject, error) {
				obj.(*corev1.Secret).Data = nil
				return obj, nil
			}
		case *corev1.Pod:
			opts.Queue = informer.QueueRealFIFO
		}
		return opts, nil
	}}.NewSharedIndexInformer
	mgr, err := manager.New(exampleConfig, manager.Options{Cache: cache.Options{NewInformer: newInformer}})
	fmt.Println(mgr != nil, err)
	// Output: true <nil>
}

// This example makes an informer from a controller-runtime client. In a program, c is
//
//	client.NewWithWatch(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
//
// and the manager runs the informer, see Runnable.
func ExampleListWatch() {
	c := fake.NewClientBuilder().WithObjects(
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Labels: map[string]string{"app": "web"}}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"}},
	).Build()
	pods, err := informer.NewFrom(
		controllerruntime.ListWatch(c, &corev1.PodList{}, client.InNamespace("default"), client.MatchingLabels{"app": "web"}),
		informer.Options[*corev1.Pod]{},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- pods.Run(ctx) }()
	if err := pods.WaitForSync(ctx); err != nil {
		fmt.Println(err)
	}
	for key := range pods.All() {
		fmt.Println(key)
	}
	stop()
	fmt.Println(<-ended)
	// Output:
	// default/web
	// <nil>
}

// The manager runs an informer, and a controller uses the informer as its source.
func ExampleRunnable() {
	c := fake.NewClientBuilder().WithObjects(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}).Build()
	ctx, stop := context.WithCancel(context.Background())
	if err := runPods(ctx, exampleConfig, c, func(pod *corev1.Pod) {
		fmt.Println("reconciling", pod.Name)
		stop()
	}); err != nil {
		fmt.Println(err)
	}
	// Output: reconciling web
}

// runPods runs a manager until ctx ends, and calls do for each Pod that is reconciled.
func runPods(ctx context.Context, server *rest.Config, c client.WithWatch, do func(*corev1.Pod)) error {
	mgr, err := manager.New(server, manager.Options{
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)}, // tests may run more than once
	})
	if err != nil {
		return err
	}
	pods, err := informer.NewFrom(controllerruntime.ListWatch(c, &corev1.PodList{}), informer.Options[*corev1.Pod]{})
	if err != nil {
		return err
	}
	if err := mgr.Add(controllerruntime.Runnable(pods)); err != nil {
		return err
	}
	src := &source.Informer{Informer: pods.SharedIndexInformer(), Handler: &handler.EnqueueRequestForObject{}}
	err = builder.ControllerManagedBy(mgr).Named("pods").WatchesRawSource(controllerruntime.Synced(src, pods)).Complete(reconcile.Func(
		func(_ context.Context, r reconcile.Request) (reconcile.Result, error) {
			pod, exists, err := pods.Get(r.NamespacedName)
			if exists {
				do(pod) // shared: copy it before you change it
			}
			return reconcile.Result{}, err
		}))
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// addPods adds a controller that works while this replica is the leader.
func addPods(mgr manager.Manager, pods *informer.CustomCacheInformer[*corev1.Pod], reconcile reconciler) error {
	controller, err := enqueue.NewController(reconcile, enqueue.Options{Name: "pod", Elected: mgr.Elected()}, enqueue.For(pods))
	if err != nil {
		return err
	}
	group := &informer.Group{}
	if err := errors.Join(group.Add(pods), group.Add(controller)); err != nil {
		return err
	}
	return mgr.Add(controllerruntime.Runnable(group))
}

type reconciler = func(ctx context.Context, key types.NamespacedName) (again time.Duration, err error)
