// Command operator manages Websites, a custom resource (crd.yaml). It gives each Website an
// Ingress, and a status with the address of the Website. It is an example of an
// operator on this library, which you can adapt to your own resource.
//
//	kubectl apply -f examples/operator/crd.yaml
//	go run ./examples/operator -kubeconfig ~/.kube/config -http localhost:8080
//
// With -http it serves probes (/livez, /readyz), metrics for Prometheus (/metrics) and a page
// that shows its informers at work (/debug/informers).
//
// With -shards, all replicas work at once, each for a part of the Websites. They agree by Leases,
// for which they need the rights in role.yaml.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/debug"
	"github.com/customcacheinformer/informer/examples/operator/website"
	informerprometheus "github.com/customcacheinformer/informer/metrics/prometheus"
	"github.com/customcacheinformer/informer/shards"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file of the cluster (default: the cluster that this process runs in)")
	workers := flag.Int("workers", 4, "how many Websites to reconcile at once")
	address := flag.String("http", "", "serve probes, metrics and the page of the informers at this address (default: serve nothing)")
	divide := flag.Bool("shards", false, "divide the Websites over all replicas that have this flag")
	namespace := flag.String("shards-namespace", "", "namespace of the Leases of -shards (default: that of the Pod or of the kubeconfig)")
	klog.InitFlags(nil)
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := connect(ctx, *kubeconfig, *address, *workers, *divide, *namespace)
	stop()
	if err != nil {
		klog.ErrorS(err, "The operator cannot go on")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

func connect(ctx context.Context, kubeconfig, address string, workers int, divide bool, namespace string) error {
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}, &clientcmd.ConfigOverrides{})
	config, err := loaded.ClientConfig()
	if err != nil {
		return err
	}
	config.QPS = -1 // the API server's priority and fairness limits the rate
	sites, err := website.NewForConfig(config)
	if err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	var set *shards.Set
	if divide {
		if namespace == "" {
			if namespace, _, err = loaded.Namespace(); err != nil {
				return err
			}
		}
		if set, err = newSet(kube, namespace); err != nil {
			return err
		}
	}
	var group informer.Group
	if address != "" {
		stop, err := serve(address, &group)
		if err != nil {
			return fmt.Errorf("-http: %w", err)
		}
		defer stop()
	}
	return run(ctx, &group, sites, kube, workers, set)
}

// serve serves probes, metrics and the page of group at the address until stop is called. Call
// it before the first informer is added.
func serve(address string, group *informer.Group) (stop func(), err error) {
	metrics := informerprometheus.New(group.Health)
	group.Observer = metrics.Observer()
	provider, queues := informerprometheus.NewWorkqueues()
	workqueue.SetProvider(provider)
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics, queues, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	mux := http.NewServeMux()
	mux.Handle("/livez", informer.ProbeHandler(group.Live))
	mux.Handle("/readyz", informer.ProbeHandler(group.Ready))
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("/debug/informers", debug.Handler(group.Health))
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	klog.InfoS("Serving", "address", listener.Addr().String())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	return func() { _ = server.Close(); serving.Wait() }, nil
}
