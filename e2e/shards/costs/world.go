package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	random "math/rand/v2"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/e2e/internal/process"
	"github.com/customcacheinformer/informer/internal/lab"
)

var (
	widgetKind = schema.GroupVersionKind{Group: "shards.example.com", Version: "v1", Kind: "Widget"}
	leaseKind  = schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}
)

// world is the API servers and the objects.
type world struct {
	plan
	server  *apiserver.Server
	beside  *lab.Child   // the API server that does not select
	other   *rest.Config // of it
	widgets dynamic.NamespaceableResourceInterface
	leases  dynamic.ResourceInterface
	widget  schema.GroupVersionResource
	size    int // of an object, in JSON
	random  *random.Rand
	changes int     // made so far
	first   figures // of the first replica of a new set, which divides the memory
}

func newWorld(ctx context.Context, p plan) (w *world, err error) {
	if err := utilfeature.DefaultMutableFeatureGate.Set(string(features.ShardedListAndWatch) + "=true"); err != nil {
		return nil, err
	}
	w = &world{plan: p, random: random.New(random.NewPCG(1, 2))}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.server, err = apiserver.Start(ctx); err != nil {
		return nil, err
	}
	if w.widget, err = w.server.Install(ctx, apiserver.Kind{GroupVersionKind: widgetKind}); err != nil {
		return nil, err
	}
	lease, err := w.server.Install(ctx, apiserver.Kind{GroupVersionKind: leaseKind})
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(w.server.Config())
	if err != nil {
		return nil, err
	}
	w.widgets, w.leases = client.Resource(w.widget), client.Resource(lease).Namespace(leasesIn)
	if err := lab.Divide(p.objects, 16, func(n int) error { return w.create(ctx, n) }); err != nil {
		return nil, err
	}
	return w, w.startBeside(ctx)
}

func (w *world) close() (err error) {
	if w.beside != nil {
		err = w.beside.End()
	}
	if w.server != nil {
		w.server.Stop()
	}
	return err
}

// name returns the namespace and the name of an object.
func (w *world) name(n int) (namespace, name string) {
	return fmt.Sprint("team-", n%w.spaces), fmt.Sprint("widget-", n)
}

// create makes an object.
func (w *world) create(ctx context.Context, n int) error {
	namespace, name := w.name(n)
	text := make([]byte, 350) // random, because lists are compressed
	_, _ = rand.Read(text)
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"text": hex.EncodeToString(text)}}}
	obj.SetGroupVersionKind(widgetKind)
	obj.SetName(name)
	made, err := w.widgets.Namespace(namespace).Create(ctx, obj, metav1.CreateOptions{})
	if n == 0 && err == nil {
		text, _ := made.MarshalJSON()
		w.size = len(text)
	}
	return err
}

// change changes an object.
func (w *world) change(ctx context.Context) error {
	w.changes++ // the same patch again would change nothing
	namespace, name := w.name(w.random.IntN(w.objects))
	_, err := w.widgets.Namespace(namespace).Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"tick":%d}`, w.changes), metav1.PatchOptions{})
	return err
}

// startBeside starts the API server that does not select.
func (w *world) startBeside(ctx context.Context) (err error) {
	if w.beside, w.other, err = process.StartServer(ctx, "apiserver", w.server.Storage()); err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(w.other)
	if err != nil {
		return err
	}
	return lab.Poll(ctx, often, func() (bool, error) {
		for _, kind := range []schema.GroupVersionResource{w.widget, leaseKind.GroupVersion().WithResource("leases")} {
			_, err := client.Resource(kind).List(ctx, metav1.ListOptions{Limit: 1, ResourceVersion: "0"})
			if err != nil {
				return false, nil //nolint:nilerr // the server is still starting
			}
		}
		return true, nil
	})
}
