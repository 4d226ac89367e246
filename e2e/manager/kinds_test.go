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
		w.ok(w.Delete(w.Context(), w.widget(name(i), 0)))
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

func TestAReconcilerOfATypedKind(t *testing.T) {
	onAll(t, func(w *world) {
		mgr, g := w.manager(), &gone{}
		c := mgr.GetClient()
		w.ok(builder.ControllerManagedBy(mgr).For(&api.Widget{}).Complete(reconcile.Func(
			func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
				obj := &api.Widget{}
				if err := c.Get(ctx, r.NamespacedName, obj); apierrors.IsNotFound(err) {
					g.Store(r.Name, true)
					return reconcile.Result{}, nil
				} else if err != nil {
					return reconcile.Result{}, err
				}
				if obj.Status.Size == obj.Spec.Size {
					return reconcile.Result{}, nil
				}
				obj.Status.Size = obj.Spec.Size
				return reconcile.Result{}, client.IgnoreNotFound(c.Status().Update(ctx, obj)) // after a conflict, reconcile is called again
			})))
		w.reconcilesAll(mgr, g, func(obj *api.Widget) int { return obj.Status.Size })
	})
}

func TestAReconcilerOfAnUnstructuredKind(t *testing.T) {
	onAll(t, func(w *world) {
		mgr := w.manager(func(o *manager.Options) { o.Client.Cache = &client.CacheOptions{Unstructured: true} })
		c, g, kind := mgr.GetClient(), &gone{}, w.group.WithKind("Widget")
		watched := &unstructured.Unstructured{}
		watched.SetGroupVersionKind(kind)
		w.ok(builder.ControllerManagedBy(mgr).For(watched).Complete(reconcile.Func(
			func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
				obj := watched.NewEmptyInstance().(*unstructured.Unstructured)
				obj.SetGroupVersionKind(kind)
				if err := c.Get(ctx, r.NamespacedName, obj); apierrors.IsNotFound(err) {
					g.Store(r.Name, true)
					return reconcile.Result{}, nil
				} else if err != nil {
					return reconcile.Result{}, err
				}
				want, _, _ := unstructured.NestedInt64(obj.Object, "spec", "size")
				if got, _, _ := unstructured.NestedInt64(obj.Object, "status", "size"); got == want {
					return reconcile.Result{}, nil
				}
				if err := unstructured.SetNestedField(obj.Object, want, "status", "size"); err != nil {
					return reconcile.Result{}, err
				}
				return reconcile.Result{}, client.IgnoreNotFound(c.Status().Update(ctx, obj))
			})))
		w.reconcilesAll(mgr, g, func(obj *api.Widget) int { return obj.Status.Size })
	})
}

func TestAReconcilerOfMetadata(t *testing.T) {
	onAll(t, func(w *world) {
		mgr, g := w.manager(), &gone{}
		c, kind := mgr.GetClient(), w.group.WithKind("Widget")
		// Metadata does not contain the size, so the reconciler copies the generation, which
		// counts the changes of the spec.
		w.ok(builder.ControllerManagedBy(mgr).For(&api.Widget{}, builder.OnlyMetadata).Complete(reconcile.Func(
			func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
				obj := &metav1.PartialObjectMetadata{}
				obj.SetGroupVersionKind(kind)
				if err := c.Get(ctx, r.NamespacedName, obj); apierrors.IsNotFound(err) {
					g.Store(r.Name, true)
					return reconcile.Result{}, nil
				} else if err != nil {
					return reconcile.Result{}, err
				}
				if obj.GroupVersionKind() != kind {
					w.Errorf("the cache returns a %v, want %v", obj.GroupVersionKind(), kind)
				}
				generation := fmt.Sprint(obj.Generation)
				if obj.Annotations["generation"] == generation {
					return reconcile.Result{}, nil
				}
				patch := client.MergeFrom(obj.DeepCopy())
				metav1.SetMetaDataAnnotation(&obj.ObjectMeta, "generation", generation)
				return reconcile.Result{}, client.IgnoreNotFound(c.Patch(ctx, obj, patch))
			})))
		w.reconcilesAll(mgr, g, func(obj *api.Widget) int {
			if obj.Annotations["generation"] != fmt.Sprint(obj.Generation) {
				return -1
			}
			return obj.Spec.Size
		})
	})
}
