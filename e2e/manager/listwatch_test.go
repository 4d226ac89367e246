package manager_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/controllerruntime"
	"github.com/customcacheinformer/informer/e2e/manager/api"
)

// aWorld returns a world for a test of something that only this library has.
func aWorld(t *testing.T) *world {
	t.Parallel()
	return newWorld(t, cache.NewSharedIndexInformer)
}

// run starts a manager that runs an informer of its own, until the test ends.
func run[T informer.Object](w *world, lw cache.ListerWatcher, opts informer.Options[T]) *informer.CustomCacheInformer[T] {
	w.Helper()
	opts.ErrorHandler = func(_ context.Context, err error) { w.Errorf("reported: %v", err) }
	inf, err := informer.NewFrom(lw, opts)
	w.OK(err)
	mgr := w.manager()
	w.OK(mgr.Add(controllerruntime.Runnable(inf)))
	w.start(mgr)
	w.OK(inf.WaitForSync(w.Context()))
	return inf
}

// follows fails the test unless an informer follows the server through the life of some
// objects. If kind is not "", the objects must name it as their kind.
func follows[T informer.Object](w *world, list client.ObjectList, kind string) {
	w.Helper()
	w.create("old", 1)
	inf := run(w, controllerruntime.ListWatch(w.WithWatch, list), informer.Options[T]{})
	has(w, inf, "default/old")
	obj := w.create("new", 1)
	w.OK(inf.WaitForVersion(w.Context(), "", obj.ResourceVersion))
	has(w, inf, "default/new", "default/old")
	for key, obj := range inf.All() {
		if k := obj.GetObjectKind().GroupVersionKind().Kind; kind != "" && k != kind {
			w.Errorf("%s is a %s, want %s", key, k, kind)
		}
	}
	w.OK(w.Delete(w.Context(), w.widget("old", 0)))
	has(w, inf, "default/new")
}

// has waits until an informer has the objects with these keys, which are sorted.
func has[T informer.Object](w *world, inf informer.Reader[T], keys ...string) {
	w.Helper()
	w.until(fmt.Sprint("the informer has ", keys), func() bool {
		var got []string
		for key := range inf.All() {
			got = append(got, key.String())
		}
		slices.Sort(got)
		return slices.Equal(got, keys)
	})
}

func TestAClientIsASource(t *testing.T) {
	t.Run("of typed objects", func(t *testing.T) { follows[*api.Widget](aWorld(t), &api.WidgetList{}, "") })
	t.Run("of unstructured objects", func(t *testing.T) {
		w, list := aWorld(t), &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(w.group.WithKind("WidgetList"))
		follows[*unstructured.Unstructured](w, list, "Widget")
	})
	t.Run("of metadata", func(t *testing.T) {
		w, list := aWorld(t), &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(w.group.WithKind("WidgetList"))
		follows[*metav1.PartialObjectMetadata](w, list, "Widget")
	})
}

func TestTheFirstStateIsStreamed(t *testing.T) {
	w := aWorld(t)
	w.create("w", 1)
	var lists atomic.Int32
	inf := run(w, controllerruntime.ListWatch(w.WithWatch, &api.WidgetList{}), informer.Options[*api.Widget]{
		Observer: &informer.Observer{List: func(informer.ListInfo) { lists.Add(1) }},
	})
	if _, exists, err := inf.Get(key("w")); !exists || err != nil {
		t.Errorf("the object exists: %t, %v", exists, err)
	}
	if lists.Load() > 0 {
		t.Errorf("%d lists, want a stream", lists.Load())
	}
}

func TestASourceListsInPages(t *testing.T) {
	w := aWorld(t)
	for i := range 5 {
		w.create(fmt.Sprint("w", i), i)
	}
	lw := cache.ToListerWatcherWithContext(controllerruntime.ListWatch(w.WithWatch, &api.WidgetList{}))
	var pages []int
	for opts := (metav1.ListOptions{Limit: 2}); ; {
		list, err := lw.ListWithContext(w.Context(), opts)
		w.OK(err)
		pages = append(pages, len(list.(*api.WidgetList).Items))
		if opts.Continue = list.(*api.WidgetList).Continue; opts.Continue == "" {
			break
		}
	}
	if want := []int{2, 2, 1}; !slices.Equal(pages, want) {
		t.Errorf("pages of %v objects, want %v", pages, want)
	}
}

func TestASourceHasTheUsersSelectorsAndNamespace(t *testing.T) {
	w := aWorld(t)
	put := func(namespace, name, color string) *api.Widget {
		obj := w.widget(name, 1)
		obj.Namespace, obj.Labels = namespace, map[string]string{"color": color}
		w.OK(w.Create(w.Context(), obj))
		return obj
	}
	put("a", "blue", "blue")
	put("a", "red", "red")
	put("b", "blue", "blue")
	of := func(opts ...client.ListOption) informer.Reader[*api.Widget] {
		return run(w, controllerruntime.ListWatch(w.WithWatch, &api.WidgetList{}, opts...), informer.Options[*api.Widget]{})
	}
	selected := of(client.InNamespace("a"), client.MatchingLabels{"color": "blue"})
	named := of(client.MatchingFields{"metadata.name": "blue"})
	has(w, selected, "a/blue")
	has(w, named, "a/blue", "b/blue")
	late := put("a", "late", "blue")
	put("b", "late", "blue")
	has(w, selected, "a/blue", "a/late")
	late.Labels["color"] = "red"
	w.OK(w.Update(w.Context(), late))
	has(w, selected, "a/blue")
	put("c", "blue", "blue")
	has(w, named, "a/blue", "b/blue", "c/blue")
}
