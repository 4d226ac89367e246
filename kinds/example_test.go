package kinds_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/kinds"
)

// cluster returns the clients of a cluster with a CRD, of the kind Shop in the category "managed", and a shop.
func cluster() kinds.Clients {
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "shops.example.com", "uid": "1"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced",
			"names":    map[string]any{"kind": "Shop", "plural": "shops", "categories": []any{"managed"}},
			"versions": []any{map[string]any{"name": "v1", "served": true}},
		},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}},
	}}
	shop := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Shop",
		"metadata": map[string]any{"name": "bakery", "namespace": "default"},
	}}
	discovery := fake.NewClientset()
	discovery.Resources = []*metav1.APIResourceList{{GroupVersion: "apps/v1", APIResources: []metav1.APIResource{
		{Name: "deployments", Kind: "Deployment", Namespaced: true, Verbs: []string{"list", "watch"}},
	}}}
	return kinds.Clients{Discovery: discovery.Discovery(), Dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}: "CustomResourceDefinitionList",
		{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}:             "APIServiceList",
		{Group: "example.com", Version: "v1", Resource: "shops"}:                              "ShopList",
	}, crd, shop)}
}

// A controller over all kinds of a category.
func Example() {
	clients := cluster()
	set, err := kinds.New(clients, kinds.Options[*unstructured.Unstructured]{
		Wanted: func(o kinds.Offer) bool { return slices.Contains(o.Categories, "managed") },
	})
	if err != nil {
		panic(err)
	}
	objects := set.Informer()

	reconciled := make(chan enqueue.Key)
	reconcile := func(ctx context.Context, key enqueue.Key) (time.Duration, error) {
		obj, exists, err := objects.In(key.Cluster).Get(key.NamespacedName)
		if err != nil || !exists {
			return 0, err
		}
		kind, _ := set.Find(key.Cluster)
		fmt.Println(key, "is a", obj.GetKind(), "of", kind.Resource)
		reconciled <- key
		return 0, nil
	}
	c, err := enqueue.NewController(reconcile, enqueue.Options{Name: "managed", Reads: []informer.Member{set}},
		enqueue.InClusters(enqueue.For(objects.CustomCacheInformer)))
	if err != nil {
		panic(err)
	}
	var group informer.Group
	if err := errors.Join(group.Add(objects), group.Add(set), group.Add(c)); err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- group.Run(ctx) }()
	<-reconciled
	stop()
	if err := <-done; err != nil {
		panic(err)
	}
	// Output:
	// Shop.example.com|default/bakery is a Shop of shops
}

// One kind, for as long as a part of a program needs it.
func ExampleSet_Acquire() {
	clients := cluster()
	set, err := kinds.New(clients, kinds.Options[*unstructured.Unstructured]{})
	if err != nil {
		panic(err)
	}
	var group informer.Group
	if err := errors.Join(group.Add(set.Informer()), group.Add(set)); err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- group.Run(ctx) }()

	shops, err := set.Acquire(kinds.Kind{Group: "example.com", Kind: "Shop", Namespace: "default"})
	if err != nil {
		panic(err)
	}
	if err := shops.WaitForSync(ctx); err != nil {
		panic(err) // ctx is done; the error has the reason why the kind is not read
	}
	all, err := shops.List("", nil)
	fmt.Println(len(all), err, shops.Health().State)
	shops.Release()

	stop()
	if err := <-done; err != nil {
		panic(err)
	}
	// Output:
	// 1 <nil> reading
}
