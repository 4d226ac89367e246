// Command fleet is a controller over many clusters. The kubeconfigs of the clusters are files in a directory,
// and may come, change and go while it runs. In each cluster, it labels the ConfigMaps that have no label
// "owner" with "owner=nobody".
//
//	go run ./examples/fleet -kubeconfigs ~/.kube/fleet
package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/signal"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/clusters"
	"github.com/customcacheinformer/informer/enqueue"
)

func main() {
	directory := flag.String("kubeconfigs", "", "directory with a kubeconfig for each cluster, such as east.yaml")
	klog.InitFlags(nil)
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	f, err := newFleet(clusters.Directory{Path: *directory}, func(config *rest.Config) (kubernetes.Interface, error) {
		config.QPS = -1 // the API server limits the rate
		return kubernetes.NewForConfig(config)
	})
	if err == nil {
		err = f.group.Run(ctx)
	}
	stop()
	if err != nil {
		klog.ErrorS(err, "The program cannot go on")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

type fleet struct {
	group   informer.Group
	configs *informer.Clusters[*corev1.ConfigMap]
	clients *clusters.Clients[kubernetes.Interface]
}

func newFleet(kubeconfigs clusters.Source, connect func(*rest.Config) (kubernetes.Interface, error)) (*fleet, error) {
	f := &fleet{clients: clusters.NewClients(connect)}
	var err error
	if f.configs, err = informer.NewOverClusters(informer.Options[*corev1.ConfigMap]{}, informer.ClusterOptions{}); err != nil {
		return nil, err
	}
	provider, err := clusters.New(kubeconfigs, clusters.Options{},
		f.clients, // first, so that reconcile has a client for each event
		clusters.Follow(f.configs, func(config *rest.Config) (cache.ListerWatcher, error) {
			client, err := connect(config)
			if err != nil {
				return nil, err
			}
			return informer.ListWatch(client.CoreV1().ConfigMaps("")), nil
		}))
	if err != nil {
		return nil, err
	}
	controller, err := enqueue.NewController(f.reconcile, enqueue.Options{Name: "owners", Workers: 8, CallTimeout: time.Minute},
		enqueue.InClusters(enqueue.For(f.configs.CustomCacheInformer)))
	if err != nil {
		return nil, err
	}
	return f, errors.Join(f.group.Add(f.configs), f.group.Add(controller), f.group.Add(provider))
}

// reconcile is called for each ConfigMap of each cluster, and again after each change of it. After an error it
// is called again later, unless the error reports that the cluster has left.
func (f *fleet) reconcile(ctx context.Context, key enqueue.Key) (again time.Duration, err error) {
	config, exists, err := f.configs.In(key.Cluster).Get(key.NamespacedName)
	if err != nil || !exists || config.Labels["owner"] != "" {
		return 0, err
	}
	client, err := f.clients.In(key.Cluster)
	if err != nil {
		return 0, err
	}
	patch := []byte(`{"metadata":{"labels":{"owner":"nobody"}}}`)
	_, err = client.CoreV1().ConfigMaps(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		err = nil // it was deleted, and its event comes
	}
	return 0, err
}
