package manager_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/e2e/internal/stage"
	"github.com/customcacheinformer/informer/e2e/manager/api"
)

const namespace = "default"

type newInformer = func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer

var sides = []struct {
	name string
	new  newInformer
}{
	{"client-go", cache.NewSharedIndexInformer},
	{"informer", informer.ClientGo{}.NewSharedIndexInformer},
	{"informer with DeltaFIFO", informer.ClientGo{Options: func(runtime.Object) (informer.Options[informer.AnyObject], error) {
		return informer.Options[informer.AnyObject]{Queue: informer.QueueDeltaFIFO}, nil
	}}.NewSharedIndexInformer},
}

// world is a group of kinds on the server that one test has to itself. new is the function
// with which its manager makes informers.
type world struct {
	stage.T
	client.WithWatch // writes and reads directly
	group            schema.GroupVersion
	scheme           *runtime.Scheme
	new              newInformer
}

var groups atomic.Int64

// onAll runs a test with every informer.
func onAll(t *testing.T, test func(w *world)) {
	t.Parallel()
	for _, side := range sides {
		t.Run(side.name, func(t *testing.T) {
			t.Parallel()
			test(newWorld(t, side.new))
		})
	}
}

func newWorld(t *testing.T, newInformer newInformer) *world {
	t.Helper()
	w := &world{T: stage.T{T: t}, new: newInformer}
	w.group = schema.GroupVersion{Group: fmt.Sprintf("g%d.example.com", groups.Add(1)), Version: "v1"}
	w.scheme = api.Scheme(w.group)
	for _, kind := range []string{"Widget", "Part"} {
		_, err := server.Install(t.Context(), apiserver.Kind{GroupVersionKind: w.group.WithKind(kind), Status: kind == "Widget"})
		w.OK(err)
	}
	var err error
	w.WithWatch, err = client.NewWithWatch(server.Config(), client.Options{Scheme: w.scheme, Mapper: api.Mapper(w.group)})
	w.OK(err)
	return w
}

// manager returns a manager with the required options only.
func (w *world) manager(configure ...func(*manager.Options)) manager.Manager {
	w.Helper()
	return w.managerAt(server.Config(), configure...)
}

func (w *world) managerAt(server *rest.Config, configure ...func(*manager.Options)) manager.Manager {
	w.Helper()
	options := manager.Options{
		Scheme: w.scheme,
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			return api.Mapper(w.group), nil
		},
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	}
	options.Cache.NewInformer = w.new
	for _, f := range configure {
		f(&options)
	}
	mgr, err := manager.New(server, options)
	w.OK(err)
	return mgr
}

// start runs a manager until the test ends or stop is called. stop returns when the manager
// has stopped.
func (w *world) start(mgr manager.Manager) (stop func()) {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				w.Error(err)
			}
		case <-time.After(stage.Patience):
			w.Error("the manager does not stop")
		}
	})
	w.Cleanup(stop)
	if !mgr.GetCache().WaitForCacheSync(w.Context()) {
		w.Fatal("the manager's cache does not sync")
	}
	return stop
}

func (w *world) widget(name string, size int) *api.Widget {
	return &api.Widget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       api.Spec{Size: size},
	}
}

// create creates a widget on the server.
func (w *world) create(name string, size int) *api.Widget {
	w.Helper()
	obj := w.widget(name, size)
	w.OK(w.Create(w.Context(), obj))
	return obj
}

func (w *world) change(name string, size int) {
	w.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"size":%d}}`, size)
	w.OK(w.Patch(w.Context(), w.widget(name, 0), client.RawPatch(types.MergePatchType, patch)))
}

// eventually waits until wrong returns nil.
func (w *world) eventually(what string, wrong func() error) {
	w.Helper()
	deadline := time.Now().Add(stage.Patience)
	for err := wrong(); err != nil; err = wrong() {
		if time.Now().After(deadline) {
			w.Fatalf("timed out waiting until %s: %v", what, err)
		}
		time.Sleep(2 * time.Millisecond) // between two looks; a real API server does not run in a bubble's time
	}
}

// until is like eventually, for a condition.
func (w *world) until(what string, holds func() bool) {
	w.Helper()
	w.eventually(what, func() error {
		if holds() {
			return nil
		}
		return errors.New("not yet")
	})
}

func key(name string) client.ObjectKey { return client.ObjectKey{Namespace: namespace, Name: name} }
