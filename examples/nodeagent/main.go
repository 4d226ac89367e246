// Command nodeagent knows the Pods of one node by their IP addresses, and answers lookups over
// HTTP. It is an example of a program that a DaemonSet runs on every node, as network plugins
// and collectors of logs and metrics do:
//
//	go run ./examples/nodeagent -kubeconfig ~/.kube/config -node worker-1 -http localhost:8080
//	curl localhost:8080/pods/10.0.0.7
//
// In a DaemonSet, the environment variable NODE_NAME (fieldRef: spec.nodeName) takes the place
// of -node. The service account needs the verbs list and watch on Pods, in a ClusterRole.
//
// It also serves probes (/livez, /readyz), metrics for Prometheus (/metrics) and a page that
// shows the informer at work (/debug/informers). It logs which Pod takes or frees an address.
package main

import (
	"context"
	"errors"
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
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/debug"
	informerprometheus "github.com/customcacheinformer/informer/metrics/prometheus"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file of the cluster (default: the cluster that this process runs in)")
	node := flag.String("node", os.Getenv("NODE_NAME"), "name of the node whose Pods to know (default: $NODE_NAME)")
	address := flag.String("http", ":8080", "serve lookups, probes, metrics and the page of the informer at this address")
	klog.InitFlags(nil)
	flag.Parse()

	// A kubelet stops a container with SIGTERM.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := connect(ctx, *kubeconfig, *node, *address)
	stop()
	if err != nil {
		klog.ErrorS(err, "The node agent cannot go on")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

func connect(ctx context.Context, kubeconfig, node, address string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("-http: %w", err)
	}
	klog.InfoS("Serving", "address", listener.Addr().String(), "node", node)
	return run(ctx, client, node, listener)
}

// stopTimeout is how long the informer may still deliver waiting events when the agent stops, and
// after that how long the HTTP server may still answer requests. Both must fit into the Pod's
// terminationGracePeriodSeconds, which is 30 by default.
const stopTimeout = 5 * time.Second

// run answers requests from listener until ctx ends, and closes listener.
func run(ctx context.Context, client kubernetes.Interface, node string, listener net.Listener) error {
	var group informer.Group
	metrics := informerprometheus.New(group.Health)
	group.Observer = metrics.Observer() // must be set before Add
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)

	a, err := newAgent(client, node)
	if err == nil {
		err = group.Add(a.pods)
	}
	if err != nil {
		return errors.Join(err, listener.Close())
	}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /pods/{ip}", a.lookup)
	mux.Handle("/livez", informer.ProbeHandler(group.Live))
	// Ready after the first list, and also while the API server is away: old answers are better
	// than none.
	mux.Handle("/readyz", informer.ProbeHandler(group.Ready))
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("/debug/informers", debug.Handler(group.Health))

	// The server starts before the informer, so that probes are answered during the first list.
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var served error
	var serving sync.WaitGroup
	serving.Go(func() {
		defer cancel() // an agent that cannot be asked should end
		served = server.Serve(listener)
	})

	err = group.Run(ctx) // until ctx is done and the watcher has drained

	// Lookups are answered until here. Shutdown waits for those under way.
	ending, done := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer done()
	if late := server.Shutdown(ending); late != nil {
		err = errors.Join(err, fmt.Errorf("requests were cut off: %w", late), server.Close())
	}
	serving.Wait()
	if !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
