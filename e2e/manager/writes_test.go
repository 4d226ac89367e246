package manager_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/customcacheinformer/informer/e2e/internal/stage"
	"github.com/customcacheinformer/informer/e2e/manager/api"
)

// consistent makes the manager's client read its own writes from the cache.
func consistent(o *manager.Options) {
	o.Client.Cache = &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}
}

// TestWritesAreReadAtOnce reads once after each write, without polling.
func TestWritesAreReadAtOnce(t *testing.T) {
	onAll(t, func(w *world) {
		mgr := w.manager(consistent)
		w.start(mgr)
		ctx, stop := context.WithTimeout(w.Context(), stage.Patience) // a version that never comes would block forever
		defer stop()
		var writers sync.WaitGroup
		for n := range 5 {
			writers.Go(func() {
				for round := range 3 {
					if err := w.lifeOf(ctx, mgr.GetClient(), fmt.Sprint("w", n)); err != nil {
						w.Errorf("object %d, round %d: %v", n, round, err)
						return
					}
				}
			})
		}
		writers.Wait()
	})
}

// lifeOf creates, updates, patches and deletes an object, and reads after each step.
func (w *world) lifeOf(ctx context.Context, c client.Client, name string) error {
	obj := w.widget(name, 1)
	reads := func(size int) error {
		got := &api.Widget{}
		if err := c.Get(ctx, key(name), got); err != nil {
			return err
		}
		if got.Spec.Size != size || got.ResourceVersion != obj.ResourceVersion {
			return fmt.Errorf("got size %d at %s, want %d at %s", got.Spec.Size, got.ResourceVersion, size, obj.ResourceVersion)
		}
		listed, err := w.lists(ctx, c, name)
		if err == nil && listed.Spec.Size != size {
			err = fmt.Errorf("listed with size %d, want %d", listed.Spec.Size, size)
		}
		return err
	}
	if err := c.Create(ctx, obj); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if err := reads(1); err != nil {
		return fmt.Errorf("after create: %w", err)
	}
	obj.Spec.Size, obj.Finalizers = 2, []string{"example.com/hold"}
	if err := c.Update(ctx, obj); err != nil {
		return fmt.Errorf("update: %w", err)
	}
	if err := reads(2); err != nil {
		return fmt.Errorf("after update: %w", err)
	}
	// The object stays, as one that is being deleted, until its finalizer is removed.
	if err := c.Delete(ctx, obj.DeepCopyObject().(client.Object)); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	if err := c.Get(ctx, key(name), obj); err != nil || obj.DeletionTimestamp == nil {
		return fmt.Errorf("after delete: being deleted since %v, %w", obj.DeletionTimestamp, err)
	}
	before := obj.DeepCopyObject().(client.Object)
	obj.Finalizers = nil
	// Do not use c: after a patch that ends an object there is no later version to wait for.
	if err := w.Patch(ctx, obj, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("patch: %w", err)
	}
	w.until("it is gone", func() bool { return apierrors.IsNotFound(c.Get(ctx, key(name), &api.Widget{})) })

	// Create a second object of that name, without a finalizer, so that a delete ends it at
	// once.
	obj = w.widget(name, 3)
	if err := c.Create(ctx, obj); err != nil {
		return fmt.Errorf("second create: %w", err)
	}
	patched := obj.DeepCopyObject().(*api.Widget)
	patched.Spec.Size = 4
	if err := c.Patch(ctx, patched, client.MergeFrom(obj)); err != nil {
		return fmt.Errorf("second patch: %w", err)
	}
	obj = patched
	if err := reads(4); err != nil {
		return fmt.Errorf("after the second patch: %w", err)
	}
	if err := c.Delete(ctx, obj); err != nil {
		return fmt.Errorf("second delete: %w", err)
	}
	if err := c.Get(ctx, key(name), &api.Widget{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("get after the second delete: %w, want not found", err)
	}
	if _, err := w.lists(ctx, c, name); !apierrors.IsNotFound(err) {
		return fmt.Errorf("list after the second delete: %w, want not found", err)
	}
	return nil
}

// lists returns the object of that name from a list.
func (w *world) lists(ctx context.Context, c client.Client, name string) (*api.Widget, error) {
	list := &api.WidgetList{}
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if list.Items[i].Name == name {
			return &list.Items[i], nil
		}
	}
	return nil, apierrors.NewNotFound(w.group.WithResource("widgets").GroupResource(), name)
}

// TestWritesOfMetadataAreReadAtOnce has no counterpart for unstructured objects:
// controller-runtime v0.25 waits for writes of unstructured objects when typed objects are
// read.
func TestWritesOfMetadataAreReadAtOnce(t *testing.T) {
	onAll(t, func(w *world) {
		mgr := w.manager(consistent)
		w.start(mgr)
		ctx, stop := context.WithTimeout(w.Context(), stage.Patience)
		defer stop()
		c := mgr.GetClient()
		for n := range 5 {
			m := &metav1.PartialObjectMetadata{ObjectMeta: w.create(fmt.Sprint("w", n), n).ObjectMeta}
			m.SetGroupVersionKind(w.group.WithKind("Widget"))
			w.OK(c.Patch(ctx, m, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))))
			read := &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta}
			w.OK(c.Get(ctx, key(m.Name), read))
			if read.Labels["a"] != "b" {
				w.Errorf("the labels of %s are %v", m.Name, read.Labels)
			}
			w.OK(c.Delete(ctx, m))
			if err := c.Get(ctx, key(m.Name), read); !apierrors.IsNotFound(err) {
				w.Errorf("after delete: %v, want not found", err)
			}
		}
	})
}
