package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
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
	informerprometheus "github.com/customcacheinformer/informer/metrics/prometheus"
)

// connect returns a client of the cluster that the kubeconfig file describes. Without a file
// it returns a fake clientset, whose Pods keep changing for d, or until stop is called.
func connect(ctx context.Context, kubeconfig, namespace string, d time.Duration) (client kubernetes.Interface, stop func(), err error) {
	if kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err == nil {
			client, err = kubernetes.NewForConfig(config)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("-kubeconfig: %w", err)
		}
		return client, func() {}, nil
	}
	client = fake.NewClientset(pod(namespace, 0), pod(namespace, 1), pod(namespace, 2))
	changing, cancel := context.WithTimeout(ctx, d)
	var churning sync.WaitGroup
	churning.Go(func() { churn(changing, client, namespace) })
	return client, func() { cancel(); churning.Wait() }, nil
}

// serve serves the page and the metrics of group at the address until stop is called. It must be
// called before the first informer is added.
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
	}, Spec: corev1.PodSpec{NodeName: fmt.Sprintf("node-%d", n%2)}}
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
