package informer_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/share"
	"github.com/customcacheinformer/informer/store/storetest"
)

// TestStore, TestRestart and newPods are quoted in docs/stores.md.

func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) cache.Store {
		return cache.NewStore(cache.MetaNamespaceKeyFunc)
	}, storetest.Options{})
}

func namedConfigMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

func TestRestart(t *testing.T) {
	src := informertest.NewSource(namedConfigMap("kept"), namedConfigMap("deleted"))
	store := informertest.NewDurable()
	inf, err := informer.NewFrom(src, informer.Options[*corev1.ConfigMap]{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	stop := informertest.Run(t, inf)
	stop()

	// While no informer runs.
	if _, err := src.Delete(types.NamespacedName{Namespace: "default", Name: "deleted"}); err != nil {
		t.Fatal(err)
	}

	inf, err = informer.NewFrom(src, informer.Options[*corev1.ConfigMap]{Store: store.Reopen()})
	if err != nil {
		t.Fatal(err)
	}
	var seen informertest.Recorder[*corev1.ConfigMap]
	if _, err := inf.AddWatcher(&seen, informer.WatcherOptions{}); err != nil {
		t.Fatal(err)
	}
	informertest.Run(t, inf)
	seen.Expect(t, "added default/kept", "added default/deleted", "deleted default/deleted")
}

var table = share.New() // for all informers of the program

func newPods(client kubernetes.Interface) (*informer.CustomCacheInformer[*corev1.Pod], error) {
	return informer.New(client.CoreV1().Pods(""), informer.Options[*corev1.Pod]{Share: table})
}

func TestSharedParts(t *testing.T) {
	newPod := func(name string) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		pod.Spec.Containers = []corev1.Container{{Name: "web", Image: "registry.example/web:1.0"}}
		return pod
	}
	client := fake.NewClientset(newPod("web-1"), newPod("web-2"))
	inf, err := newPods(client)
	if err != nil {
		t.Fatal(err)
	}
	informertest.Run(t, inf)
	first, _, _ := inf.Get(types.NamespacedName{Namespace: "default", Name: "web-1"})
	second, _, _ := inf.Get(types.NamespacedName{Namespace: "default", Name: "web-2"})
	if &first.Spec.Containers[0] != &second.Spec.Containers[0] {
		t.Error("the Pods have containers of their own")
	}
}
