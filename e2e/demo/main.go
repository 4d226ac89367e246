// Command demo runs the three watchers of the quickstart against a real Kubernetes API server
// with a real etcd, inside this process. It keeps changing objects of a custom resource. It
// needs no cluster and leaves nothing behind.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/internal/demo"
)

var widgetKind = schema.GroupVersionKind{Group: "demo.example.com", Version: "v1", Kind: "Widget"}

func main() {
	duration := flag.Duration("duration", 4*time.Second, "how long to watch")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *duration)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, duration time.Duration) error {
	if duration <= 0 {
		return fmt.Errorf("-duration is %v, not more than 0", duration)
	}
	server, err := apiserver.Start(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	resource, err := server.Install(ctx, apiserver.Kind{GroupVersionKind: widgetKind})
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(server.Config())
	if err != nil {
		return err
	}
	fmt.Printf("a Kubernetes API server is running at %s\n", server.Config().Host)

	changing, cancel := context.WithTimeout(ctx, duration)
	var churning sync.WaitGroup
	churning.Go(func() { churn(changing, client.Resource(resource).Namespace("default")) })
	defer churning.Wait()
	defer cancel()

	inf, err := informer.NewFrom(informer.ListWatch(client.Resource(resource)), informer.Options[*unstructured.Unstructured]{
		Name:      resource.Resource,
		Transform: informer.StripManagedFields[*unstructured.Unstructured],
	})
	if err != nil {
		return err
	}
	return demo.Run(ctx, os.Stdout, &informer.Group{}, inf, duration)
}

// churn creates, changes and deletes widgets until ctx ends.
func churn(ctx context.Context, widgets dynamic.ResourceInterface) {
	for n := 0; ctx.Err() == nil; n++ {
		w := &unstructured.Unstructured{}
		w.SetGroupVersionKind(widgetKind)
		w.SetName(fmt.Sprintf("widget-%d", rand.IntN(6)))
		_ = unstructured.SetNestedField(w.Object, int64(n), "spec", "size")
		// Errors are expected: whether the widget exists is left to chance.
		if rand.IntN(4) == 0 {
			_ = widgets.Delete(ctx, w.GetName(), metav1.DeleteOptions{})
		} else {
			_, _ = widgets.Apply(ctx, w.GetName(), w, metav1.ApplyOptions{FieldManager: "demo", Force: true})
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}
