package store_test

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/store"
)

// Watchers see the whole of an object when it changes. For all other objects, memory holds
// only the labels.
func ExampleNewProjection() {
	settings := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "settings", Labels: map[string]string{"app": "web"}},
		Data:       map[string]string{"colour": "red"},
	}
	src := informertest.NewSource(settings)
	inf, err := informer.NewFrom(src, informer.Options[*corev1.ConfigMap]{
		Store: store.NewProjection(func(obj *corev1.ConfigMap) *corev1.ConfigMap {
			kept := &corev1.ConfigMap{}
			kept.Namespace, kept.Name, kept.UID, kept.ResourceVersion = obj.Namespace, obj.Name, obj.UID, obj.ResourceVersion
			kept.Labels = obj.Labels
			return kept
		}),
	})
	if err != nil {
		panic(err)
	}
	done := make(chan struct{})
	reg, err := inf.AddWatcher(informer.WatcherFunc[*corev1.ConfigMap](func(_ context.Context, e informer.Event[*corev1.ConfigMap]) error {
		fmt.Println(e.Type, "new:", e.New.Labels["app"], e.New.Data["colour"])
		if e.Old != nil {
			fmt.Println(e.Type, "old:", e.Old.Labels["app"], len(e.Old.Data), "data")
			close(done)
		}
		return nil
	}), informer.WatcherOptions{})
	if err != nil {
		panic(err)
	}

	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = inf.Run(ctx) })
	<-reg.Synced()
	changed := settings.DeepCopy()
	changed.Data["colour"] = "blue"
	src.Apply(changed)
	<-done
	stored, _, _ := inf.Get(types.NamespacedName{Namespace: "default", Name: "settings"})
	fmt.Println("stored:", stored.Labels["app"], len(stored.Data), "data")
	stop()
	running.Wait()
	// Output:
	// added new: web red
	// updated new: web blue
	// updated old: web 0 data
	// stored: web 0 data
}

func ExampleClusterUID() {
	client := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "kube-system", UID: "2c1f8b1e-7a0c-4a53-9f5a-0d8a4bb0f3c7",
	}})
	cluster, err := store.ClusterUID(context.Background(), client.CoreV1().Namespaces())
	if err != nil {
		panic(err) // it names the missing permission
	}
	fmt.Println(store.Identity{Cluster: cluster, Resource: "pods"}.Cluster)
	// Output: 2c1f8b1e-7a0c-4a53-9f5a-0d8a4bb0f3c7
}
