package clusters_test

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/clusters"
)

// printer is a follower that prints the clusters.
type printer struct{}

func (printer) Engage(name string, config *rest.Config, _ types.UID) error {
	fmt.Println(name, "joins:", config.Host)
	return nil
}
func (printer) Replace(name string, config *rest.Config, _ types.UID) error { return nil }
func (printer) Disengage(name string) error                                 { return nil }

func ExampleFollow() {
	clientset := fake.NewClientset()
	pods, err := informer.NewOverClusters(informer.Options[*corev1.Pod]{}, informer.ClusterOptions{})
	if err != nil {
		panic(err)
	}
	podsOf := func(config *rest.Config) (cache.ListerWatcher, error) {
		client, err := corev1client.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		return informer.ListWatch(client.Pods("")), nil
	}
	provider, err := clusters.New(
		clusters.Secrets{Client: clientset.CoreV1(), Namespace: "fleet", Selector: "example.com/fleet=eu"},
		clusters.Options{}, clusters.Follow(pods, podsOf))
	if err != nil {
		panic(err)
	}
	var group informer.Group
	err = errors.Join(group.Add(pods), group.Add(provider))
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- group.Run(ctx) }()
	if err := group.WaitForSync(ctx); err != nil {
		panic(err)
	}
	fmt.Println(len(pods.Engaged()), "clusters, ready:", group.Ready() == nil)
	stop()
	if err := <-done; err != nil {
		panic(err)
	}
	// Output: 0 clusters, ready: true
}

func ExampleNew() {
	clientset := fake.NewClientset(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "east", Labels: map[string]string{"example.com/fleet": "eu"}},
		Data:       map[string][]byte{"kubeconfig": kubeconfig("east.example.com", "token")},
	})
	fleet, err := clusters.New(
		clusters.Secrets{Client: clientset.CoreV1(), Namespace: "fleet", Selector: "example.com/fleet=eu"},
		clusters.Options{UID: func(context.Context, *rest.Config) (types.UID, error) { return "uid", nil }}, // there is no such cluster
		printer{},
	)
	if err != nil {
		panic(err)
	}
	var group informer.Group
	if err := group.Add(fleet); err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- group.Run(ctx) }()
	if err := group.WaitForSync(ctx); err != nil {
		panic(err)
	}
	fmt.Println("ready:", group.Ready() == nil)
	stop()
	if err := <-done; err != nil {
		panic(err)
	}
	// Output:
	// east joins: https://east.example.com
	// ready: true
}
