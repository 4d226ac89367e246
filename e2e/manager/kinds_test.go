package manager_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/customcacheinformer/informer/e2e/manager/api"
)

// gone holds the names of the objects that a reconciler no longer found.
type gone struct{ sync.Map }

func (g *gone) has(name string) bool { _, ok := g.Load(name); return ok }

// reconcilesAll takes a controller through the life of some objects: some exist before the
// manager starts, others come later, and they are changed and deleted. The reconciler's work
// must appear on the server, in the size that the function returns.
func (w *world) reconcilesAll(mgr manager.Manager, g *gone, size func(*api.Widget) int) {
	w.Helper()
	const n = 10
	name := func(i int) string { return fmt.Sprint("w", i) }
	for i := range n {
		w.create(name(i), i+1)
	}
	w.start(mgr)
	reached := func(when string, sizes map[string]int) {
		w.Helper()
		w.eventually(when, func() error {
			for name, want := range sizes {
				obj := &api.Widget{}
				if err := w.Get(w.Context(), key(name), obj); err != nil {
					return err
				}
				if got := size(obj); got != want {
					return fmt.Errorf("%s has %d, want %d", name, got, want)
				}
			}
			return nil
		})
	}
	sizes := map[string]int{}
	for i := range n {
		sizes[name(i)] = i + 1
	}
	reached("the first objects are reconciled", sizes)
	for i := range n {
		w.create(name(n+i), 100+i)
		w.change(name(i), 200+i)
		sizes[name(n+i)], sizes[name(i)] = 100+i, 200+i
	}
	reached("new and changed objects are reconciled", sizes)
	for i := range n {
		w.OK(w.Delete(w.Context(), w.widget(name(i), 0)))
	}
	w.until("the reconciler no longer finds the deleted objects", func() bool {
		for i := range n {
			if !g.has(name(i)) {
				return false
			}
		}
		return true
	})
}

// forms are the forms in which a manager can have objects.
var forms = []struct {
	name   string
	typed  bool // the scheme knows the kind of the object
	object client.Object
	opts   []builder.ForOption
	// reconcile has the size, or the generation, of an object appear on the server.
	reconcile func(ctx context.Context, c client.Client, obj client.Object) error
	size      func(*api.Widget) int // that has appeared
}{
	{"typed", true, &api.Widget{}, nil, func(ctx context.Context, c client.Client, obj client.Object) error {
		o := obj.(*api.Widget)
		if o.Status.Size == o.Spec.Size {
			return nil
		}
		o.Status.Size = o.Spec.Size
		return c.Status().Update(ctx, o) // after a conflict, reconcile is called again
	}, func(obj *api.Widget) int { return obj.Status.Size }},
	{"unstructured", false, &unstructured.Unstructured{}, nil, func(ctx context.Context, c client.Client, obj client.Object) error {
		o := obj.(*unstructured.Unstructured)
		want, _, _ := unstructured.NestedInt64(o.Object, "spec", "size")
		if got, _, _ := unstructured.NestedInt64(o.Object, "status", "size"); got == want {
			return nil
		}
		if err := unstructured.SetNestedField(o.Object, want, "status", "size"); err != nil {
			return err
		}
		return c.Status().Update(ctx, o)
	}, func(obj *api.Widget) int { return obj.Status.Size }},
	// Metadata does not contain the size, so the reconciler copies the generation, which counts the changes of the spec.
	{"metadata", false, &metav1.PartialObjectMetadata{}, []builder.ForOption{builder.OnlyMetadata}, func(ctx context.Context, c client.Client, obj client.Object) error {
		o := obj.(*metav1.PartialObjectMetadata)
		generation := fmt.Sprint(o.Generation)
		if o.Annotations["generation"] == generation {
			return nil
		}
		patch := client.MergeFrom(o.DeepCopy())
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, "generation", generation)
		return c.Patch(ctx, o, patch)
	}, func(obj *api.Widget) int {
		if obj.Annotations["generation"] != fmt.Sprint(obj.Generation) {
			return -1
		}
		return obj.Spec.Size
	}},
}

func TestReconcilersOfEachForm(t *testing.T) {
	t.Parallel()
	for _, form := range forms {
		t.Run(form.name, func(t *testing.T) {
			onAll(t, func(w *world) {
				mgr := w.manager(func(o *manager.Options) { o.Client.Cache = &client.CacheOptions{Unstructured: true} })
				c, g, kind := mgr.GetClient(), &gone{}, w.group.WithKind("Widget")
				object := func() client.Object {
					obj := form.object.DeepCopyObject().(client.Object)
					if !form.typed {
						obj.GetObjectKind().SetGroupVersionKind(kind)
					}
					return obj
				}
				watched := object()
				if form.opts != nil {
					watched = &api.Widget{} // the builder has only its metadata
				}
				w.OK(builder.ControllerManagedBy(mgr).For(watched, form.opts...).Complete(reconcile.Func(
					func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
						obj := object()
						if err := c.Get(ctx, r.NamespacedName, obj); apierrors.IsNotFound(err) {
							g.Store(r.Name, true)
							return reconcile.Result{}, nil
						} else if err != nil {
							return reconcile.Result{}, err
						}
						if got := obj.GetObjectKind().GroupVersionKind(); !form.typed && got != kind {
							w.Errorf("the cache returns a %v, want %v", got, kind)
						}
						return reconcile.Result{}, client.IgnoreNotFound(form.reconcile(ctx, c, obj))
					})))
				w.reconcilesAll(mgr, g, form.size)
			})
		})
	}
}
