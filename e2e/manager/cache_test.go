package manager_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/customcacheinformer/informer/e2e/manager/api"
)

// cached waits until the cache has the object with the given size, and returns it.
func (w *world) cached(c client.Reader, key client.ObjectKey, size int) *api.Widget {
	w.Helper()
	obj := &api.Widget{}
	w.eventually(fmt.Sprintf("the cache has %s of size %d", key, size), func() error {
		if err := c.Get(w.Context(), key, obj); err != nil {
			return err
		}
		if obj.Spec.Size != size {
			return fmt.Errorf("its size is %d", obj.Spec.Size)
		}
		return nil
	})
	return obj
}

func TestACacheOfNamespacesHasAnInformerForEach(t *testing.T) {
	onAll(t, func(w *world) {
		var made atomic.Int32
		mgr := w.manager(func(o *manager.Options) {
			o.Cache.DefaultNamespaces = map[string]cache.Config{
				"a": {}, "b": {LabelSelector: labels.SelectorFromSet(labels.Set{"keep": "yes"})},
			}
			o.Cache.NewInformer = func(lw toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
				made.Add(1)
				return w.new(lw, example, resync, indexers)
			}
		})
		in := func(namespace, name string) *api.Widget {
			obj := w.widget(name, 1)
			obj.Namespace, obj.Labels = namespace, map[string]string{"keep": "yes"}
			return obj
		}
		dropped := in("b", "dropped")
		dropped.Labels = nil
		for _, obj := range []*api.Widget{in("a", "w"), in("b", "w"), in("c", "w"), dropped} {
			w.OK(w.Create(w.Context(), obj))
		}
		_, err := mgr.GetCache().GetInformer(w.Context(), &api.Widget{})
		w.OK(err)
		w.start(mgr)

		list := &api.WidgetList{}
		w.OK(mgr.GetClient().List(w.Context(), list))
		if got := len(list.Items); got != 2 {
			w.Errorf("the cache lists %d objects, want the selected ones of a and b: %v", got, list.Items)
		}
		w.OK(mgr.GetClient().List(w.Context(), list, client.InNamespace("a")))
		if got := len(list.Items); got != 1 {
			w.Errorf("the cache lists %d objects of a, want 1", got)
		}
		if err := mgr.GetClient().Get(w.Context(), client.ObjectKey{Namespace: "c", Name: "w"}, &api.Widget{}); err == nil {
			w.Error("the cache returns an object of a namespace that it does not cover")
		}
		kept := in("b", "late")
		w.OK(w.Create(w.Context(), kept))
		w.cached(mgr.GetClient(), client.ObjectKeyFromObject(kept), 1)
		kept.Labels = nil
		w.OK(w.Update(w.Context(), kept))
		w.until("an object that is no longer selected leaves the cache", func() bool {
			return apierrors.IsNotFound(mgr.GetClient().Get(w.Context(), client.ObjectKeyFromObject(kept), &api.Widget{}))
		})
		if got := made.Load(); got != 2 {
			w.Errorf("%d informers were made, want one for each namespace", got)
		}
	})
}

func TestTransformsHoldForTheCacheAndForEvents(t *testing.T) {
	onAll(t, func(w *world) {
		mgr := w.manager(func(o *manager.Options) {
			o.Cache.DefaultTransform = cache.TransformStripManagedFields()
			o.Cache.ByObject = map[client.Object]cache.ByObject{&api.Widget{}: {Transform: func(obj any) (any, error) {
				if obj, ok := obj.(*api.Widget); ok {
					obj.Spec.Notes = ""
					metav1.SetMetaDataAnnotation(&obj.ObjectMeta, "size", fmt.Sprint(obj.Spec.Size))
				}
				return obj, nil
			}}}
		})
		obj := w.widget("w", 1)
		obj.Spec.Notes = "long"
		w.OK(w.Create(w.Context(), obj))
		w.OK(w.Create(w.Context(), &api.Part{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"}}))
		var told, untold atomic.Int32
		inf, err := mgr.GetCache().GetInformer(w.Context(), &api.Widget{})
		w.OK(err)
		see := func(obj any) {
			if o := obj.(*api.Widget); o.Spec.Notes == "" && o.Annotations["size"] == fmt.Sprint(o.Spec.Size) {
				told.Add(1)
			} else {
				untold.Add(1)
			}
		}
		_, err = inf.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: see, UpdateFunc: func(before, after any) { see(before); see(after) }, DeleteFunc: see,
		})
		w.OK(err)
		w.start(mgr)

		check := func(size int) {
			w.Helper()
			got := w.cached(mgr.GetClient(), key("w"), size)
			if got.Spec.Notes != "" || got.Annotations["size"] != fmt.Sprint(size) || len(got.ManagedFields) == 0 {
				w.Errorf("the cache has %+v, want the transform of its kind and not the default", got)
			}
		}
		check(1)
		w.change("w", 2)
		check(2)
		w.OK(w.Delete(w.Context(), obj))
		w.until("the handler gets all", func() bool { return told.Load()+untold.Load() == 4 })
		if n := untold.Load(); n > 0 {
			w.Errorf("the handler got %d objects that were not transformed", n)
		}
		part := &api.Part{}
		w.OK(mgr.GetClient().Get(w.Context(), key("p"), part))
		if len(part.ManagedFields) > 0 {
			w.Error("the default transform was not applied to the other kind")
		}
	})
}

func TestAnInformerThatWasRemovedCanBeHadAgain(t *testing.T) {
	onAll(t, func(w *world) {
		mgr := w.manager()
		w.create("w", 1)
		w.start(mgr)
		c := mgr.GetCache()
		first, err := c.GetInformer(w.Context(), &api.Widget{})
		w.OK(err)
		var told atomic.Int32
		_, err = first.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { told.Add(1) }, UpdateFunc: func(any, any) { told.Add(1) }, DeleteFunc: func(any) { told.Add(1) },
		})
		w.OK(err)
		w.until("its handler is called", func() bool { return told.Load() == 1 })
		w.OK(c.RemoveInformer(w.Context(), &api.Widget{}))
		w.until("it has stopped", first.IsStopped)

		w.change("w", 2)
		w.create("w2", 1)
		second, err := c.GetInformer(w.Context(), &api.Widget{})
		w.OK(err)
		if first == second {
			w.Error("GetInformer returned the removed informer again")
		}
		w.cached(c, key("w"), 2)
		w.cached(c, key("w2"), 1)
		w.change("w", 3)
		w.cached(c, key("w"), 3)
		if got := told.Load(); got != 1 {
			w.Errorf("the handler of the first informer was called %d times, want once", got)
		}
		if second.IsStopped() || !second.HasSynced() {
			w.Errorf("the second informer is stopped: %t, has synced: %t", second.IsStopped(), second.HasSynced())
		}
		if _, err := first.AddEventHandler(toolscache.ResourceEventHandlerFuncs{}); err == nil {
			w.Error("a stopped informer accepts a handler")
		}
	})
}

func TestOneKindIsCachedInThreeForms(t *testing.T) {
	onAll(t, func(w *world) {
		mgr := w.manager(func(o *manager.Options) { o.Client.Cache = &client.CacheOptions{Unstructured: true} })
		w.create("w", 1)
		w.start(mgr)
		u, m := &unstructured.Unstructured{}, &metav1.PartialObjectMetadata{}
		u.SetGroupVersionKind(w.group.WithKind("Widget"))
		m.SetGroupVersionKind(w.group.WithKind("Widget"))
		typed := &api.Widget{}
		for _, obj := range []client.Object{typed, u, m} {
			w.OK(mgr.GetClient().Get(w.Context(), key("w"), obj))
			if got := obj.GetObjectKind().GroupVersionKind().Kind; obj.GetUID() == "" || got != "Widget" {
				w.Errorf("%T: kind %q, UID %q", obj, got, obj.GetUID())
			}
		}
		list, partial := &unstructured.UnstructuredList{}, &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(w.group.WithKind("WidgetList"))
		partial.SetGroupVersionKind(w.group.WithKind("WidgetList"))
		for _, l := range []client.ObjectList{&api.WidgetList{}, list, partial} {
			w.OK(mgr.GetClient().List(w.Context(), l, client.InNamespace(namespace)))
		}
		if len(list.Items) != 1 || list.Items[0].GetKind() != "Widget" || len(partial.Items) != 1 || partial.Items[0].Kind != "Widget" {
			w.Errorf("lists: %v, %v, want one Widget each", list.Items, partial.Items)
		}
	})
}
