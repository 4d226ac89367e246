package enqueue_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
)

func ExampleInClusters() {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	east, west := fake.NewClientset(pod), fake.NewClientset(pod)

	pods, err := informer.NewOverClusters(informer.Options[*corev1.Pod]{}, informer.ClusterOptions{})
	if err != nil {
		panic(err)
	}
	err = pods.Engage("east", informer.ClusterSource{Source: informer.ListWatch(east.CoreV1().Pods(""))})
	if err != nil {
		panic(err)
	}
	reconciled := make(chan enqueue.Key)
	reconcile := func(ctx context.Context, key enqueue.Key) (time.Duration, error) {
		pod, exists, err := pods.In(key.Cluster).Get(key.NamespacedName)
		if err != nil || !exists {
			return 0, err
		}
		fmt.Println(key, "is", pod.Name, "in", key.Cluster)
		reconciled <- key
		return 0, nil
	}
	c, err := enqueue.NewController(reconcile, enqueue.Options{Name: "pods", Workers: 8},
		enqueue.InClusters(enqueue.For(pods.CustomCacheInformer)))
	if err != nil {
		panic(err)
	}
	var group informer.Group
	if err := errors.Join(group.Add(pods), group.Add(c)); err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- group.Run(ctx) }()
	<-reconciled
	err = pods.Engage("west", informer.ClusterSource{Source: informer.ListWatch(west.CoreV1().Pods(""))})
	if err != nil {
		panic(err)
	}
	<-reconciled
	stop()
	if err := <-done; err != nil {
		panic(err)
	}
	// Output:
	// east|default/web is web in east
	// west|default/web is web in west
}
