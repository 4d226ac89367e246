// Command quickstart runs three watchers over one informer for a few seconds. It then compares
// the events of each watcher with the contents of the store. Without flags it needs nothing:
// it watches Pods of a fake clientset, and keeps changing them. With -kubeconfig it watches
// the Pods of a real cluster, and only reads. With -http it serves a page that shows the
// informer and its watchers at work, and it serves their metrics:
//
//	go run ./examples/quickstart -http localhost:8080 -duration 10m
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/debug"
	"github.com/customcacheinformer/informer/internal/demo"
	informerprometheus "github.com/customcacheinformer/informer/metrics/prometheus"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "watch the cluster that this file describes (default: a fake clientset)")
	namespace := flag.String("namespace", "", "watch one namespace (default: all)")
	duration := flag.Duration("duration", 4*time.Second, "how long to watch")
	address := flag.String("http", "", "serve /debug/informers and /metrics at this address, such as localhost:8080 (default: serve nothing)")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, *kubeconfig, *namespace, *address, *duration)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, kubeconfig, namespace, address string, duration time.Duration) error {
	if duration <= 0 {
		return fmt.Errorf("-duration is %v, want more than 0", duration)
	}
	var client kubernetes.Interface
	if kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return fmt.Errorf("-kubeconfig: %w", err)
		}
		if client, err = kubernetes.NewForConfig(config); err != nil {
			return fmt.Errorf("-kubeconfig: %w", err)
		}
	} else {
		client = fake.NewClientset(pod(namespace, 0), pod(namespace, 1), pod(namespace, 2))
		changing, cancel := context.WithTimeout(ctx, duration)
		var churning sync.WaitGroup
		churning.Go(func() { churn(changing, client, namespace) })
		defer churning.Wait()
		defer cancel()
	}
	inf, err := informer.New(client.CoreV1().Pods(namespace),
		informer.Options[*corev1.Pod]{Transform: informer.StripManagedFields[*corev1.Pod]},
	)
	if err != nil {
		return err
	}
	var group informer.Group
	if address != "" {
		stop, err := serve(out, address, &group)
		if err != nil {
			return fmt.Errorf("-http: %w", err)
		}
		defer stop()
	}
	return demo.Run(ctx, out, &group, inf, duration)
}

// serve serves the page and the metrics of group at the address until stop is called. Call it
// before the first informer is added.
func serve(out io.Writer, address string, group *informer.Group) (stop func(), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	metrics := informerprometheus.New(group.Health)
	group.Observer = metrics.Observer()
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)

	mux := http.NewServeMux()
	mux.Handle("/debug/informers", debug.Handler(group.Health))
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	fmt.Fprintf(out, "look at http://%s/debug/informers\n\n", listener.Addr())
	return func() { _ = server.Close(); serving.Wait() }, nil
}

// pod returns the n-th Pod of the fake cluster.
func pod(namespace string, n int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: cmp.Or(namespace, "default"),
		Name:      fmt.Sprintf("web-%d", n),
	}}
}

// churn creates, changes and deletes Pods until ctx ends. It pauses after each change, because
// a fake's watch holds 100 events and panics at the next.
func churn(ctx context.Context, client kubernetes.Interface, namespace string) {
	for n := 0; ctx.Err() == nil; n++ {
		changed := pod(namespace, rand.IntN(6))
		changed.Labels = map[string]string{"change": fmt.Sprint(n)}
		pods := client.CoreV1().Pods(changed.Namespace)
		// Random calls may hit a Pod that exists or not, so errors are expected.
		switch rand.IntN(4) {
		case 0:
			_ = pods.Delete(ctx, changed.Name, metav1.DeleteOptions{})
		case 1:
			_, _ = pods.Create(ctx, changed, metav1.CreateOptions{})
		default:
			_, _ = pods.Update(ctx, changed, metav1.UpdateOptions{})
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}
