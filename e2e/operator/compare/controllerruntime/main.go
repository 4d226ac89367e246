// Command controllerruntime is the example operator written with controller-runtime. It has
// the same flags, the same reads and writes, and the same result.
package main

import (
	"context"
	"flag"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	netv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/customcacheinformer/informer/e2e/operator/compare/probe"
	"github.com/customcacheinformer/informer/examples/operator/website"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file of the cluster")
	workers := flag.Int("workers", 4, "how many Websites to reconcile at once")
	priority := flag.Bool("priority-queue", true, "handle objects that exist at the start after objects that change")
	klog.InitFlags(nil)
	flag.Parse()
	log.SetLogger(klog.Background())

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := connect(ctx, *kubeconfig, *workers, *priority)
	stop()
	if err != nil {
		klog.ErrorS(err, "The operator cannot go on")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

func connect(ctx context.Context, kubeconfig string, workers int, priority bool) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	scheme := runtime.NewScheme()
	website.AddToScheme(scheme)
	if err := netv1.AddToScheme(scheme); err != nil {
		return err
	}
	mgr, err := manager.New(config, manager.Options{
		Scheme:         scheme,
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper(), nil },
		Metrics:        metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	o := &operator{mgr.GetClient()}
	err = builder.ControllerManagedBy(mgr).
		For(&website.Website{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&netv1.Ingress{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, UsePriorityQueue: &priority}).
		Complete(reconcile.Func(probe.Count(o.reconcile)))
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// mapper knows the resources of both kinds. The API server of the comparison has no discovery.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []schema.GroupVersionKind{website.Kind, netv1.SchemeGroupVersion.WithKind("Ingress")} {
		m.Add(kind, meta.RESTScopeNamespace)
	}
	return m
}
