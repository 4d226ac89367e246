package shards_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/shards"
)

// docs/sharding.md quotes functions and types of this file.

// runShared runs one replica of a program that handles ConfigMaps, until ctx ends. All replicas
// divide the ConfigMaps, because their sets have the same name and the same namespace.
func runShared(ctx context.Context, client kubernetes.Interface, handle func(context.Context, *corev1.ConfigMap) error) error {
	configs, err := informer.New(client.CoreV1().ConfigMaps(""), informer.Options[*corev1.ConfigMap]{})
	if err != nil {
		return err
	}
	set, err := shards.New(client.CoordinationV1().Leases("default"), shards.Options{Name: "configs"})
	if err != nil {
		return err
	}
	controller, err := enqueue.NewController(func(ctx context.Context, key types.NamespacedName) (again time.Duration, err error) {
		config, exists, err := configs.Get(key)
		if err != nil || !exists {
			return 0, err
		}
		return 0, handle(ctx, config)
	}, enqueue.Options{Name: "config", Shards: set}, enqueue.For(configs))
	if err != nil {
		return err
	}
	var group informer.Group
	if err := errors.Join(group.Add(configs), group.Add(controller), group.Add(set)); err != nil {
		return err
	}
	return group.Run(ctx)
}

// newClient returns a clientset with one ConfigMap. Its Leases are like those of an API server.
func newClient() kubernetes.Interface {
	client := fake.NewClientset(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "settings"}, Data: map[string]string{"color": "blue"},
	})
	informertest.NewSource[*coordinationv1.Lease]().Serve(&client.Fake, "leases", &coordinationv1.LeaseList{})
	return client
}

// A controller whose ConfigMaps are divided over all replicas of the program. Here is only one, so
// that it gets all buckets.
func ExampleNew() {
	ctx, stop := context.WithCancel(context.Background())
	err := runShared(ctx, newClient(), func(_ context.Context, config *corev1.ConfigMap) error {
		fmt.Println("handling", config.Name)
		stop() // a real program runs until it gets a signal
		return nil
	})
	if err != nil {
		panic(err)
	}
	// Output: handling settings
}

// newOwnConfigs returns an informer over the ConfigMaps in the namespaces of this replica.
func newOwnConfigs(set *shards.Set, client kubernetes.Interface) (*informer.CustomCacheInformer[*corev1.ConfigMap], error) {
	own, err := set.Source(informer.ListWatch(client.CoreV1().ConfigMaps("")))
	if err != nil {
		return nil, err
	}
	return informer.NewFrom(own, informer.Options[*corev1.ConfigMap]{})
}

// Each replica caches the ConfigMaps in its own namespaces. Here is only one replica, so that it gets
// all.
func ExampleSet_Source() {
	client := newClient()
	set, err := shards.New(client.CoordinationV1().Leases("default"), shards.Options{Name: "configs", ByNamespace: true})
	if err != nil {
		panic(err)
	}
	configs, err := newOwnConfigs(set, client)
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	controller, err := enqueue.NewController(func(_ context.Context, key types.NamespacedName) (time.Duration, error) {
		_, exists, err := configs.Get(key)
		fmt.Println("handling", key, exists)
		stop()
		return 0, err
	}, enqueue.Options{Name: "config", Shards: set}, enqueue.For(configs))
	if err != nil {
		panic(err)
	}
	var group informer.Group
	if err := errors.Join(group.Add(configs), group.Add(controller), group.Add(set), group.Run(ctx)); err != nil {
		panic(err)
	}
	// Output: handling default/settings true
}

// database is a system that knows nothing of Kubernetes. With the highest token of each bucket, it
// refuses writes of a replica that has lost the bucket and does not know it yet.
type database struct {
	mu     sync.Mutex // a real database compares and writes in one transaction
	tokens map[int]int64
	values map[string]string
}

var errOutdated = errors.New("another replica has the bucket")

func (d *database) put(bucket int, token int64, key, value string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if token < d.tokens[bucket] {
		return errOutdated
	}
	d.tokens[bucket], d.values[key] = token, value
	return nil
}

// putShared is called in reconcile, with its ctx.
func putShared(ctx context.Context, d *database, key, value string) error {
	bucket, token, ok := shards.Token(ctx)
	if !ok {
		return errors.New("this is not the ctx of a call of a controller with shards")
	}
	return d.put(bucket, token, key, value)
}

// A system outside the cluster refuses the writes of a replica that was paused for a long time, in
// the middle of a call, and has lost the bucket in the meantime.
func ExampleToken() {
	d := &database{tokens: map[int]int64{}, values: map[string]string{}}
	ctx, stop := context.WithCancel(context.Background())
	err := runShared(ctx, newClient(), func(ctx context.Context, config *corev1.ConfigMap) error {
		defer stop()
		fmt.Println("first write:", putShared(ctx, d, config.Name, config.Data["color"]))

		// While this replica is paused, another one gets the bucket and writes.
		bucket, token, _ := shards.Token(ctx)
		fmt.Println("write of the next holder:", d.put(bucket, token+1, config.Name, "red"))

		fmt.Println("late write:", putShared(ctx, d, config.Name, config.Data["color"]))
		return nil
	})
	if err != nil {
		panic(err)
	}
	fmt.Println("the value is", d.values["settings"])
	// Output:
	// first write: <nil>
	// write of the next holder: <nil>
	// late write: another replica has the bucket
	// the value is red
}
