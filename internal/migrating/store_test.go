package migrating_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

func storeBefore(ctx context.Context, lw cache.ListerWatcher, store cache.Store, handler cache.ResourceEventHandler) {
	process := func(obj any, isInInitialList bool) error {
		for _, d := range obj.(cache.Deltas) {
			if d.Type == cache.Deleted {
				if err := store.Delete(d.Object); err != nil { // or of a tombstone
					return err // which is not seen, and the delete does not come again
				}
				handler.OnDelete(d.Object)
				continue
			}
			old, exists, err := store.Get(d.Object)
			if err != nil {
				return err
			}
			if exists {
				if err := store.Update(d.Object); err != nil {
					return err
				}
				handler.OnUpdate(old, d.Object)
				continue
			}
			if err := store.Add(d.Object); err != nil {
				return err
			}
			handler.OnAdd(d.Object, isInInitialList)
		}
		return nil
	}
	controller := cache.New(&cache.Config{
		Queue: cache.NewDeltaFIFOWithOptions(cache.DeltaFIFOOptions{
			KnownObjects:          store,
			EmitDeltaTypeReplaced: true,
		}),
		ListerWatcher: lw,
		ObjectType:    &corev1.Pod{},
		Process:       process,
	})
	controller.RunWithContext(ctx)
}

func storeDropIn(ctx context.Context, lw cache.ListerWatcher, store cache.Store, handler cache.ResourceEventHandler) error {
	pods, err := informer.NewFrom(lw, informer.Options[*corev1.Pod]{Store: store})
	if err != nil {
		return err
	}
	if _, err := pods.SharedIndexInformer().AddEventHandler(handler); err != nil {
		return err
	}
	return pods.Run(ctx)
}

func storeAfter(ctx context.Context, lw cache.ListerWatcher, store cache.Store, watcher informer.ResourceWatcher[*corev1.Pod]) error {
	pods, err := informer.NewFrom(lw, informer.Options[*corev1.Pod]{Store: store})
	if err != nil {
		return err
	}
	if _, err := pods.AddWatcher(watcher, informer.WatcherOptions{}); err != nil {
		return err
	}
	return pods.Run(ctx)
}

func plainBefore(ctx context.Context, lw cache.ListerWatcher, handler cache.ResourceEventHandler) cache.Store {
	store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: lw,
		ObjectType:    &corev1.Pod{},
		Handler:       handler,
	})
	go controller.RunWithContext(ctx)
	return store
}

// printer is a watcher.
type printer struct{}

func (printer) Add(_ context.Context, e informer.Event[*corev1.Pod]) error {
	fmt.Println(e.Origin, e.Key(), e.New.Status.Phase)
	return nil
}

func (printer) Update(_ context.Context, e informer.Event[*corev1.Pod]) error {
	fmt.Println(e.Origin, e.Key(), e.Old.Status.Phase, "to", e.New.Status.Phase)
	return nil
}

func (printer) Delete(_ context.Context, e informer.Event[*corev1.Pod]) error {
	fmt.Println(e.Origin, e.Key(), "is gone, seen happening:", !e.FinalStateUnknown)
	return nil
}

func reflectorBefore(ctx context.Context, lw cache.ListerWatcher, metrics cache.Store) {
	cache.NewReflectorWithOptions(lw, &corev1.Pod{}, metrics, cache.ReflectorOptions{}).RunWithContext(ctx)
}

func reflectorAfter(ctx context.Context, lw cache.ListerWatcher, metrics cache.Store) error {
	return informer.RunSink(ctx, lw, metricsSink{metrics})
}

// metricsSink fills a store that has what was made of a Pod under its UID.
type metricsSink struct{ store cache.Store }

func (m metricsSink) Put(_ context.Context, _ string, pod *corev1.Pod) error {
	return m.store.Update(pod)
}

func (m metricsSink) Remove(_ context.Context, _ string, uid types.UID) error {
	return m.store.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}})
}
