package multicluster_test

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/multicluster-runtime/providers/single"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/controllerruntime"
	"github.com/customcacheinformer/informer/multicluster"
)

func ExampleFollow() {
	ctx, stop := context.WithCancel(context.Background())
	east, _ := newCluster("web") // from cluster.New of controller-runtime
	provider := single.New("east", east)
	mgr := must(manager.New(&rest.Config{Host: "https://127.0.0.1:1"}, manager.Options{Metrics: metricsserver.Options{BindAddress: "0"}}))
	configMaps := must(informer.NewOverClusters(informer.Options[*corev1.ConfigMap]{}, informer.ClusterOptions{}))
	must(configMaps.AddWatcher(informer.WatcherFunc[*corev1.ConfigMap](func(_ context.Context, e informer.Event[*corev1.ConfigMap]) error {
		fmt.Println(e.Type, e.Key(), "in", e.Cluster())
		stop()
		return nil
	}), informer.WatcherOptions{}))
	follower, err := multicluster.Follow(configMaps, multicluster.ListWatch(&corev1.ConfigMapList{}), informer.LeaveDeleted)
	if err != nil {
		panic(err)
	}
	err = errors.Join(
		mgr.Add(controllerruntime.Runnable(configMaps)), // stops last
		mgr.Add(follower),
		mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return provider.Start(ctx, follower) })),
	)
	if err := errors.Join(err, mgr.Start(ctx)); err != nil {
		panic(err)
	}
	// Output: added default/web in east
}
