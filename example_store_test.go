package informer_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/share"
	"github.com/customcacheinformer/informer/store/storetest"
)

// podsOnNodes is a Sink: it counts the Pods of each node.
type podsOnNodes struct {
	node  map[string]string // by the key of the Pod
	count map[string]int
}

func (p *podsOnNodes) Put(_ context.Context, key string, pod *corev1.Pod) error {
	p.forget(key)
	p.node[key] = pod.Spec.NodeName
	p.count[pod.Spec.NodeName]++
	return nil
}

func (p *podsOnNodes) Remove(_ context.Context, key string, _ types.UID) error {
	p.forget(key)
	return nil
}

func (p *podsOnNodes) forget(key string) {
	if node, ok := p.node[key]; ok {
		delete(p.node, key)
		p.count[node]--
	}
}

func ExampleNewSink() {
	on := func(name, node string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{NodeName: node}}
	}
	client := fake.NewClientset(on("a", "n1"), on("b", "n1"), on("c", "n2"))
	sink := &podsOnNodes{map[string]string{}, map[string]int{}}
	inf, err := informer.NewSink(informer.ListWatch(client.CoreV1().Pods("")), sink, informer.Options[*corev1.Pod]{})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- inf.Run(ctx) }()
	if err := inf.WaitForSync(ctx); err != nil {
		panic(err)
	}
	cancel()
	if err := <-ended; err != nil {
		panic(err)
	}
	fmt.Println(sink.count)
	// Output: map[n1:2 n2:1]
}

// TestStore, TestRestart, newPods and matching are quoted in docs/stores.md.

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
	inf, err := informer.NewFrom(src, informer.Options[*corev1.ConfigMap]{Durable: store})
	if err != nil {
		t.Fatal(err)
	}
	stop := informertest.Run(t, inf)
	stop()

	// While no informer runs.
	if _, err := src.Delete(types.NamespacedName{Namespace: "default", Name: "deleted"}); err != nil {
		t.Fatal(err)
	}

	inf, err = informer.NewFrom(src, informer.Options[*corev1.ConfigMap]{Durable: store.Reopen()})
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

// newInformer is like cache.NewSharedIndexInformer, and a factory that is moved to this library uses it in
// its place. In a controller-runtime manager it is cache.Options{NewInformer: newInformer}.
func ExampleClientGo() {
	newInformer := informer.ClientGo{Share: share.New()}.NewSharedIndexInformer

	src := informertest.NewSource(labelled("web-1"), labelled("web-2"))
	pods := newInformer(src, &corev1.Pod{}, 0, cache.Indexers{})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { pods.RunWithContext(ctx) })
	defer running.Wait()
	defer stop()
	cache.WaitFor(ctx, "", pods.HasSyncedChecker())

	labels := func(key string) uintptr {
		obj, _, _ := pods.GetIndexer().GetByKey(key)
		return reflect.ValueOf(obj.(*corev1.Pod).Labels).Pointer()
	}
	fmt.Println("both Pods have the same map:", labels("default/web-1") == labels("default/web-2"))
	// Output: both Pods have the same map: true
}

func labelled(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "web"}}}
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

// matching returns how many objects match, and of how many. With a snapshot, both numbers are of one state.
func matching(r informer.Reader[*corev1.ConfigMap], sel labels.Selector) (n, of int, err error) {
	some, err := r.List("", sel)
	all, failed := r.List("", nil)
	return len(some), len(all), errors.Join(err, failed)
}

func ExampleCustomCacheInformer_Snapshot() {
	src := informertest.NewSource(object("a", "red"), object("b", "blue"))
	inf, _ := informer.NewFrom(src, informer.Options[*corev1.ConfigMap]{Queue: informer.QueueRealFIFO}) // for Version
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = inf.Run(ctx) })
	defer running.Wait()
	defer stop()
	_ = inf.WaitForSync(ctx)

	before, err := inf.Snapshot()
	if err != nil {
		panic(err) // Options.Store or Options.Durable is set
	}
	written := src.Apply(object("c", "red"))
	_ = inf.WaitForVersion(ctx, "", written.ResourceVersion)
	now, _ := inf.Snapshot()
	red := labels.SelectorFromSet(labels.Set{"value": "red"})
	fmt.Println(matching(before, red))
	fmt.Println(matching(now, red))
	fmt.Println("the state after that write:", now.Version() == written.ResourceVersion)
	// Output:
	// 1 2 <nil>
	// 2 3 <nil>
	// the state after that write: true
}
