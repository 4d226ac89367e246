package share_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/customcacheinformer/informer/share"
)

// Informers of client-go share equal parts, too.
func ExampleTable_Transform() {
	newPod := func(name string) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		pod.Spec.Containers = []corev1.Container{{Name: "web", Image: "registry.example/web:1.0"}}
		return pod
	}
	client := fake.NewClientset(newPod("web-1"), newPod("web-2"))

	table := share.New()
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(table.Transform))
	pods := factory.Core().V1().Pods().Lister()

	ctx, stop := context.WithCancel(context.Background())
	factory.StartWithContext(ctx)
	factory.WaitForCacheSyncWithContext(ctx)
	first, _ := pods.Pods("default").Get("web-1")
	second, _ := pods.Pods("default").Get("web-2")
	fmt.Println("one memory:", &first.Spec.Containers[0] == &second.Spec.Containers[0])
	stop()
	factory.Shutdown()
	// Output: one memory: true
}
