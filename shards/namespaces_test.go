package shards_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/shards"
)

// namespaceClient is a client of one namespace. While the link is stale, it is cut off.
type namespaceClient struct {
	link *link
	of   informer.UntypedClient[*metav1.List]
}

func (c namespaceClient) List(ctx context.Context, opts metav1.ListOptions) (*metav1.List, error) {
	if err := (configMaps{c.link}).broken(); err != nil {
		return nil, err
	}
	return c.of.List(ctx, opts)
}

func (c namespaceClient) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if err := (configMaps{c.link}).broken(); err != nil {
		return nil, err
	}
	return c.link.opened(c.of.Watch(ctx, opts))
}

// A bucket waits for a namespace that the program then removes.
func TestARemovedNamespaceHoldsUpNoBucket(t *testing.T) {
	inWorld(t, 0, func(t *testing.T, w *world) {
		objects := informertest.NewSource[*corev1.ConfigMap]()
		write := func(namespace, value string) {
			for n := range 40 {
				obj := configMap(name(n), value)
				obj.Namespace = namespace
				objects.Apply(obj)
			}
		}
		write("x", "1")
		write("y", "1")
		var mu sync.Mutex
		read := map[string]string{} // the value that the last call has read, by key
		start := func(id string) (inf *informer.CustomCacheInformer[*corev1.ConfigMap], set *shards.Set, y *link, stop func()) {
			links := map[string]*link{"x": {world: w}, "y": {world: w}}
			var err error
			inf, err = informer.NewInNamespaces(func(namespace string) namespaceClient {
				return namespaceClient{links[namespace], objects.Namespace(namespace)}
			}, []string{"x", "y"}, informer.Options[*corev1.ConfigMap]{ErrorHandler: func(context.Context, error) {}})
			testkit.Must(t, err)
			set, err = shards.New(w.api, shards.Options{Name: "test", Identity: id, Buckets: 16, ErrorHandler: func(_ context.Context, err error) {
				t.Log(now(), id, "reports", err)
			}})
			testkit.Must(t, err)
			c, err := enqueue.NewController(func(_ context.Context, key types.NamespacedName) (time.Duration, error) {
				obj, exists, err := inf.Get(key)
				if exists {
					mu.Lock()
					defer mu.Unlock()
					read[key.String()] = obj.Data["value"]
				}
				return 0, err
			}, enqueue.Options{Name: "objects", Workers: 4, Shards: set}, enqueue.For(inf))
			var group informer.Group
			testkit.Must(t, errors.Join(err, group.Add(inf), group.Add(c), group.Add(set)))
			return inf, set, links["y"], running(t, &group)
		}
		_, _, _, stop := start("a")
		inf, set, y, _ := start("b")
		time.Sleep(30 * time.Second)
		y.cutObjects()
		write("y", "2")
		time.Sleep(time.Second)
		stop()
		time.Sleep(5 * time.Second)
		t.Logf("%v: catching up %d of %d", now(), set.Health().CatchingUp, set.Health().Owned)
		testkit.Must(t, inf.SetNamespaces([]string{"x"})) // the program no longer reads y
		time.Sleep(time.Hour)
		write("x", "3")
		time.Sleep(time.Hour)
		h := set.Health()
		if h.CatchingUp != 0 {
			t.Errorf("%d of %d buckets still wait, for %v", h.CatchingUp, h.Owned, h.CatchingUpFor)
		}
		mu.Lock()
		defer mu.Unlock()
		late := 0
		for n := range 40 {
			if read[fmt.Sprint("x/", name(n))] != "3" {
				late++
			}
		}
		if late > 0 {
			t.Errorf("%d of 40 objects of the namespace x are not reconciled an hour after their change", late)
		}
	})
}
