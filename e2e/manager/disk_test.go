package manager_test

import (
	"errors"
	"net/http"
	"path/filepath"
	"reflect"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/e2e/internal/front"
	"github.com/customcacheinformer/informer/e2e/manager/api"
	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/disk"
)

// files holds the stores of a manager's informers. The manager does not know the stores, so
// the code that opened them must close them.
type files struct {
	dir  string
	mu   sync.Mutex // protects open: each controller requests its informer when it starts
	open []*disk.Store
}

func (f *files) options(example runtime.Object) (informer.Options[informer.AnyObject], error) {
	kind := reflect.TypeOf(example).Elem().Name()
	store, err := disk.Open(filepath.Join(f.dir, kind+".db"), example, disk.Options{
		Identity: store.Identity{Cluster: "e2e", Resource: kind},
	})
	if err != nil {
		return informer.Options[informer.AnyObject]{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = append(f.open, store)
	return informer.Options[informer.AnyObject]{Durable: store}, nil
}

// close must be called after the manager's Start has returned, with an error or not: until
// then informers and controllers use the stores. For the next manager, a file that was not
// closed is in use.
func (f *files) close() (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, store := range f.open {
		err = errors.Join(err, store.Close())
	}
	return err
}

// readings counts the requests that go through a transport, by front.KindOf.
type readings struct {
	http.RoundTripper
	mu    sync.Mutex // protects the rest
	kinds map[string]int
}

func (r *readings) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.kinds[front.KindOf(req.URL.Query())]++
	r.mu.Unlock()
	return r.RoundTripper.RoundTrip(req)
}

func TestAManagerContinuesAtTheBookmarksOfItsFiles(t *testing.T) {
	t.Parallel() // TestMain checks that no goroutine is left
	f := &files{dir: t.TempDir()}
	w := newWorld(t, informer.ClientGo{Options: f.options}.NewSharedIndexInformer)
	byColor := func(obj client.Object) []string { return []string{obj.(*api.Widget).Spec.Color} }
	names := []string{"kept", "changed", "gone"}
	// live runs a manager until both controllers have got all objects and found has
	// looked into the cache.
	live := func(want [2]int, found func(cached client.Client)) {
		config, asked := server.Config(), &readings{kinds: map[string]int{}}
		config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
			asked.RoundTripper = rt
			return asked
		})
		mgr, widgets, parts := w.managerAt(config), &tally{}, &tally{}
		w.OK(mgr.GetFieldIndexer().IndexField(w.Context(), &api.Widget{}, "color", byColor))
		w.OK(builder.ControllerManagedBy(mgr).Named("widgets").For(&api.Widget{}).Complete(widgets))
		w.OK(builder.ControllerManagedBy(mgr).Named("parts").For(&api.Part{}).Complete(parts))
		stop := w.start(mgr)
		w.until("all widgets are reconciled", widgets.has(names...))
		w.until("all parts are reconciled", parts.has(names...))
		found(mgr.GetClient())
		stop()
		w.OK(f.close())
		// Watches are not counted: one may end and be replaced by another.
		if got := [2]int{asked.kinds["list"] + asked.kinds["stream"], asked.kinds["probe"]}; got != want {
			t.Errorf("%v full lists and probes, want %v", got, want)
		}
	}
	part := func(name string) *api.Part { return &api.Part{ObjectMeta: w.widget(name, 0).ObjectMeta} }
	for _, name := range names {
		w.create(name, 1)
		w.OK(w.Create(w.Context(), part(name)))
	}
	live([2]int{2, 0}, func(client.Client) {})

	red := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"color":"red"}}`))
	w.OK(w.Patch(w.Context(), w.widget("changed", 0), red))
	w.OK(errors.Join(w.Delete(w.Context(), w.widget("gone", 0)), w.Delete(w.Context(), part("gone"))))
	live([2]int{0, 2}, func(cached client.Client) {
		w.until("the index of the file follows", func() bool {
			list := &api.WidgetList{}
			w.OK(cached.List(w.Context(), list, client.MatchingFields{"color": "red"}))
			return len(list.Items) == 1 && list.Items[0].Name == "changed"
		})
	})
}
