// Command demo runs three watchers against a real Kubernetes API server with a real etcd, inside
// this process, as the quickstart does with a fake. It keeps changing objects of a custom
// resource. It needs no cluster and leaves nothing behind.
package main

import (
	"context"
	"errors"
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
	return show(ctx, inf, duration)
}

// show runs inf for the duration with three watchers, the last of which joins halfway, and
// compares them with the store.
func show(ctx context.Context, inf *informer.CustomCacheInformer[*unstructured.Unstructured], duration time.Duration) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- inf.Run(ctx) }()
	defer func() {
		cancel()
		err = errors.Join(err, <-stopped)
	}()
	screen := demo.NewScreen(os.Stdout)
	var views []*demo.View[*unstructured.Unstructured]
	for _, w := range []struct {
		name         string
		pause, after time.Duration // after each event; before it joins
	}{{"quick", 0, 0}, {"slow", 250 * time.Millisecond, 0}, {"late", 0, duration / 2}} {
		sleep(ctx, w.after)
		view := demo.NewView[*unstructured.Unstructured](w.name)
		views = append(views, view)
		_, err := inf.AddWatcher(informer.WatcherFunc[*unstructured.Unstructured](func(_ context.Context, e informer.Event[*unstructured.Unstructured]) error {
			view.See(e)
			screen.Line("%-5s  %-7s  %s, %s", w.name, e.Type, e.Key(), e.Origin)
			sleep(ctx, w.pause)
			return nil
		}), informer.WatcherOptions{Name: w.name})
		if err != nil {
			return err
		}
	}
	first, stopWaiting := context.WithTimeout(ctx, 30*time.Second)
	defer stopWaiting()
	if err := inf.WaitForSync(first); err != nil { // an empty store would be equal to an empty view
		return err
	}
	sleep(ctx, duration-duration/2)
	return demo.Compare(ctx, screen, inf, views...)
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
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
