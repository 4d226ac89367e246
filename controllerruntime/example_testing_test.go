package controllerruntime_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// testOptions are options of a manager that never asks an API server: its informer of Pods reads
// from pods instead. Where the program needs more kinds, mapper and newInformer have a line for each.
func testOptions(pods *informertest.Source[*corev1.Pod]) manager.Options {
	// The manager does not ask which kinds there are, because the test lists them.
	mapper := func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
		kinds := meta.NewDefaultRESTMapper(nil)
		kinds.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
		return kinds, nil
	}
	newInformer := func(_ toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		switch example.(type) {
		case *corev1.Pod:
			return informer.ClientGo{}.NewSharedIndexInformer(pods, example, resync, indexers)
		default:
			panic(fmt.Sprintf("the test has no source of %T", example))
		}
	}
	return manager.Options{
		MapperProvider: mapper,
		Cache:          cache.Options{NewInformer: newInformer},
		Metrics:        metricsserver.Options{BindAddress: "0"},
		Controller:     config.Controller{SkipNameValidation: ptr.To(true)}, // tests may run more than once
	}
}

// This is the test of a manager without a cluster. The manager, its cache, its client and its
// controllers are those of the program. Only the source of its informers is another: an
// informertest.Source, to which the test writes, and which it can make fail.
//
// The client of the manager reads from the source, through the cache. If the controllers write,
// the test sets manager.Options.NewClient, too. A cache that has informers for several namespaces
// calls NewInformer for each of them, without the namespace, and is tested with a cluster.
func Example_testWithoutACluster() {
	pods := informertest.NewSource(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}})
	mgr, err := manager.New(&rest.Config{}, testOptions(pods))
	if err != nil {
		fmt.Println(err)
		return
	}
	phases := make(chan string)
	err = builder.ControllerManagedBy(mgr).For(&corev1.Pod{}).Complete(reconcile.Func(
		func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			var pod corev1.Pod
			err := mgr.GetClient().Get(ctx, r.NamespacedName, &pod)
			phase := fmt.Sprintf("%s is %q", r.Name, pod.Status.Phase)
			if err != nil {
				phase = r.Name + " is gone"
			}
			select {
			case phases <- phase:
			case <-ctx.Done():
			}
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- mgr.Start(ctx) }()
	fmt.Println(<-phases)

	web := pods.Objects()[0]
	web.Status.Phase = corev1.PodRunning
	pods.Apply(web)
	fmt.Println(<-phases)

	pods.Disconnect() // the watch ends, and the informer continues without it
	if _, err := pods.Delete(client.ObjectKeyFromObject(web)); err != nil {
		fmt.Println(err)
	}
	fmt.Println(<-phases)

	stop()
	fmt.Println(<-ended)
	// Output:
	// web is ""
	// web is "Running"
	// web is gone
	// <nil>
}
