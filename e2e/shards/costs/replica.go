package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/e2e/internal/process"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/internal/lab"
	"github.com/customcacheinformer/informer/shards"
)

type object = *unstructured.Unstructured

const (
	buckets  = 64
	leasesIn = "default"
	setName  = "costs"
)

// settings are the settings of a replica.
type settings struct {
	Name   string
	Mode   mode
	Server process.Address
	Widget schema.GroupVersionResource
}

// running is a replica in its own process.
type running struct {
	decoded, leaseWrites atomic.Int64
	objects, owned       func() int
}

// replicate is a replica until the standard input ends.
func replicate(s settings) error {
	r := &running{owned: func() int { return buckets }}
	run, err := r.build(s)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	err = lab.Answer(func(question string) (figures, error) {
		f := figures{decoded: float64(r.decoded.Load()), leaseWrites: float64(r.leaseWrites.Load()), cpu: lab.CPU().Seconds(),
			objects: float64(r.objects()), owned: float64(r.owned())}
		if question == "heap" {
			f[heap], _ = lab.Settled()
		}
		return f, nil
	})
	stop()
	return errors.Join(err, <-ended)
}

// build returns what the replica runs.
func (r *running) build(s settings) (run func(context.Context) error, err error) {
	client, err := dynamic.NewForConfig(s.Server.Config())
	if err != nil {
		return nil, err
	}
	all := counted(informer.ListWatch(client.Resource(s.Widget)), &r.decoded)
	if s.Mode == clientGo {
		shared := cache.NewSharedIndexInformer(all, &unstructured.Unstructured{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		_, err := shared.AddEventHandler(cache.ResourceEventHandlerFuncs{})
		r.objects = func() int { return len(shared.GetStore().ListKeys()) }
		return func(ctx context.Context) error { shared.RunWithContext(ctx); return nil }, err
	}
	leases, err := coordination.NewForConfig(s.Server.Config())
	if err != nil {
		return nil, err
	}
	set, err := shards.New(&countedLeases{leases.Leases(leasesIn), &r.leaseWrites}, shards.Options{
		Name: setName, Identity: s.Name, Buckets: buckets, ByNamespace: s.Mode != whole,
	})
	if err != nil {
		return nil, err
	}
	var inf *informer.CustomCacheInformer[object]
	if s.Mode == whole {
		inf, err = informer.NewFrom(all, informer.Options[object]{Name: "widgets"})
	} else if own, failed := set.Source(all); failed != nil {
		err = failed
	} else {
		inf, err = informer.NewFrom(own, informer.Options[object]{Name: "widgets"})
	}
	if err != nil {
		return nil, err
	}
	reconcile := func(_ context.Context, key types.NamespacedName) (time.Duration, error) {
		_, _, err := inf.Get(key)
		return 0, err
	}
	controller, err := enqueue.NewController(reconcile, enqueue.Options{Name: "reconcile", Workers: 4, Shards: set}, enqueue.For(inf))
	if err != nil {
		return nil, err
	}
	r.objects = func() int { return inf.Health().Objects }
	r.owned = func() int { return set.Health().Owned }
	group := &informer.Group{ErrorHandler: func(_ context.Context, err error) { fmt.Fprintln(os.Stderr, err) }}
	return group.Run, errors.Join(group.Add(inf), group.Add(set), group.Add(controller))
}

// counted returns a source that adds the objects that it decodes to a count.
func counted(source cache.ListerWatcher, decoded *atomic.Int64) cache.ListerWatcher {
	from := cache.ToListerWatcherWithContext(source)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (kruntime.Object, error) {
			obj, err := from.ListWithContext(ctx, opts)
			if list, ok := obj.(*unstructured.UnstructuredList); ok {
				decoded.Add(int64(len(list.Items)))
			}
			return obj, err
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			w, err := from.WatchWithContext(ctx, opts)
			if err != nil {
				return nil, err
			}
			return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
				if e.Type != watch.Bookmark && e.Type != watch.Error {
					decoded.Add(1)
				}
				return e, true
			}), nil
		},
	}
}

// countedLeases counts writes.
type countedLeases struct {
	coordination.LeaseInterface
	writes *atomic.Int64
}

func (c *countedLeases) Create(ctx context.Context, l *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	c.writes.Add(1)
	return c.LeaseInterface.Create(ctx, l, opts)
}

func (c *countedLeases) Update(ctx context.Context, l *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	c.writes.Add(1)
	return c.LeaseInterface.Update(ctx, l, opts)
}

func (c *countedLeases) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	c.writes.Add(1)
	return c.LeaseInterface.Delete(ctx, name, opts)
}
