package indexes_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/indexes"
	"github.com/customcacheinformer/informer/informertest"
)

func newPod(name, node, owner string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "web"}, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: owner, UID: types.UID(owner), Controller: ptr.To(true)},
		}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "web", Image: "web:1.0"}}},
	}
}

// Pods are found by their node, by an image, and by the controller that owns them.
func Example() {
	pods, err := informer.NewFrom(informertest.NewSource(newPod("a", "node-1", ""), newPod("b", "node-2", "")), informer.Options[*corev1.Pod]{
		Fields: map[string]string{"node": "spec.nodeName", "image": "spec.containers.image"},
		Indexers: informer.Indexers[*corev1.Pod]{
			"app":        indexes.ByLabel[*corev1.Pod]("app"),
			"controller": indexes.ByController[*corev1.Pod],
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- pods.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			fmt.Println(err)
		}
	}()
	if err := pods.WaitForSync(ctx); err != nil {
		fmt.Println(err)
		return
	}
	onNode, err := pods.ByIndex("node", "node-1")
	fmt.Println(len(onNode), onNode[0].Name, err)
	withImage, err := pods.ByIndex("image", "web:1.0")
	fmt.Println(len(withImage), err)
	// Output:
	// 1 a <nil>
	// 2 <nil>
}

// A path that the type cannot have is an error.
func ExampleByField() {
	_, err := indexes.ByField[*corev1.Pod]("status.podIPs.address")
	fmt.Println(err)
	// Output: indexes: path "status.podIPs.address": status.podIPs (v1.PodIP) has no field "address", only ip
}

func TestAnInformerFindsPodsByNodeAndOwner(t *testing.T) {
	first, second, third := newPod("a", "node-1", "x"), newPod("b", "node-2", "x"), newPod("c", "node-1", "y")
	client := fake.NewClientset(first, second, third)
	pods, err := informer.New(client.CoreV1().Pods(""), informer.Options[*corev1.Pod]{
		Fields:   map[string]string{"node": "spec.nodeName"},
		Indexers: informer.Indexers[*corev1.Pod]{"owner": indexes.ByOwner[*corev1.Pod], "controller": indexes.ByController[*corev1.Pod]},
	})
	if err != nil {
		t.Fatal(err)
	}
	informertest.Run(t, pods)
	for _, want := range []struct{ index, value, names string }{
		{"node", "node-1", "a c"}, {"node", "node-2", "b"}, {"node", "", ""}, {"owner", "x", "a b"}, {"controller", "y", "c"},
	} {
		objs, err := pods.ByIndex(want.index, want.value)
		var names []string
		for _, obj := range objs {
			names = append(names, obj.Name)
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); err != nil || got != want.names {
			t.Errorf("%s %q: %q, %v, want %q", want.index, want.value, got, err, want.names)
		}
	}
	_, err = informer.New(client.CoreV1().Pods(""), informer.Options[*corev1.Pod]{Fields: map[string]string{"node": "spec.node"}})
	if err == nil || !strings.Contains(err.Error(), `informer: Options.Fields["node"]: path "spec.node": spec (v1.PodSpec) has no field "node"`) {
		t.Errorf("New: %v", err)
	}
}

func BenchmarkPodByNode(b *testing.B) {
	byField, err := indexes.ByField[*corev1.Pod]("spec.nodeName")
	if err != nil {
		b.Fatal(err)
	}
	byAny, _ := indexes.ByField[informer.AnyObject]("spec.nodeName")
	images, _ := indexes.ByField[*corev1.Pod]("spec.containers.image")
	pod := newPod("a", "node-1", "")
	for _, way := range []struct {
		name string
		f    func() ([]string, error)
	}{
		{"handwritten", func() ([]string, error) { return []string{pod.Spec.NodeName}, nil }},
		{"typed", func() ([]string, error) { return byField(pod) }},
		{"any", func() ([]string, error) { return byAny(pod) }},
		{"images", func() ([]string, error) { return images(pod) }},
	} {
		b.Run(way.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if values, err := way.f(); len(values) != 1 || err != nil {
					b.Fatal(values, err)
				}
			}
		})
	}
}
