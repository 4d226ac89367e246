package relay_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/e2e/apiserver"
	fronts "github.com/customcacheinformer/informer/e2e/internal/front"
	"github.com/customcacheinformer/informer/e2e/internal/stage"
	"github.com/customcacheinformer/informer/relay"
	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/disk"
)

var leaseKind = schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}

// world is an API server that serves Leases, with a front.
type world struct {
	stage.T
	server *stage.Server
	front  *front
	leases coordinationclient.LeaseInterface // the API server's, without the front
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: stage.T{T: t}}
	w.server = w.Server()
	_, err := w.server.Install(t.Context(), apiserver.Kind{GroupVersionKind: leaseKind})
	w.OK(err)
	w.leases = leasesOf(w, w.server.Config())
	w.front = w.newFront(w.server.Config())
	return w
}

// leasesOf returns a client for the Leases of a server. The API server of the tests has them as JSON.
func leasesOf(t testing.TB, config *rest.Config) coordinationclient.LeaseInterface {
	t.Helper()
	config = rest.CopyConfig(config)
	config.ContentType = "application/json"
	client, err := coordinationclient.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.Leases("default")
}

// create creates Leases with names l0, l1 and so on.
func (w *world) create(n int) {
	w.Helper()
	for i := range n {
		_, err := w.leases.Create(w.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprint("l", i), Labels: map[string]string{"half": fmt.Sprint(i % 2)},
		}}, metav1.CreateOptions{})
		w.OK(err)
	}
}

// relayed is a relay of this process.
type relayed struct {
	*relay.Relay
	config *rest.Config
	stop   func() // returns when Run has returned
}

// relay starts a relay that reads from a server, and waits until it is ready. With a directory, it
// keeps its objects there. change may change the options, and may be nil.
func (w *world) relay(upstream *rest.Config, dir string, change func(*relay.Options)) *relayed {
	w.Helper()
	r := w.start(upstream, dir, change)
	w.Await("the relay does not become ready", func() bool { return r.Ready() == nil })
	return r
}

func (w *world) start(upstream *rest.Config, dir string, change func(*relay.Options)) *relayed {
	w.Helper()
	resource, closeStore, err := leaseResource(dir)
	w.OK(err)
	opts := relay.Options{Upstream: upstream, Resources: []relay.Resource{resource}}
	var config *rest.Config
	opts.Serving, config, err = fronts.Local()
	w.OK(err)
	if change != nil {
		change(&opts)
	}
	r, err := relay.New(opts)
	w.OK(err)
	stop := w.run("the relay", func(ctx context.Context) error { return errors.Join(r.Run(ctx), closeStore()) })
	return &relayed{r, config, stop}
}

// leaseResource returns the Leases, with a store in a directory unless that is "", and the function that
// closes the store.
func leaseResource(dir string) (relay.Resource, func() error, error) {
	resource := relay.Resource{GroupVersionResource: leaseKind.GroupVersion().WithResource("leases"), Kind: "Lease", Namespaced: true}
	if dir == "" {
		return resource, func() error { return nil }, nil
	}
	store, err := disk.Open(filepath.Join(dir, "leases.db"), &coordinationv1.Lease{}, disk.Options{Identity: store.Identity{Cluster: "e2e"}})
	if err != nil {
		return resource, nil, err
	}
	resource.Store = store
	return resource, store.Close, nil
}

type agent struct {
	*informer.CustomCacheInformer[*coordinationv1.Lease]
	stop func()
}

// agent starts an informer that reads from a server.
func (w *world) agent(config *rest.Config, name string) *agent {
	w.Helper()
	inf, err := informer.New(leasesOf(w, config), informer.Options[*coordinationv1.Lease]{
		Name: name, ErrorHandler: func(_ context.Context, err error) { w.Logf("%s: %v", name, err) },
	})
	w.OK(err)
	return &agent{inf, w.run(name, inf.Run)}
}

// run calls f, whose ctx ends with the test, or when stop is called. stop returns when f has returned.
func (w *world) run(name string, f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.Errorf("%s: %v", name, err)
		}
	})
	w.Cleanup(stop)
	return stop
}
