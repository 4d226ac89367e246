// Command labels sets a label on every object of all kinds in a category, including kinds whose CRDs come while
// it runs. It needs the verbs list, watch and patch on these kinds, and list and watch on CRDs and APIServices.
//
//	go run ./examples/labels -kubeconfig ~/.kube/config -category managed -label example.com/seen=yes
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/kinds"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file of the cluster (default: the cluster that this process runs in)")
	category := flag.String("category", "managed", "category of the kinds, as in kubectl get")
	label := flag.String("label", "example.com/seen=yes", "label of the objects, as key=value")
	klog.InitFlags(nil)
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := connect(ctx, *kubeconfig, *category, *label)
	stop()
	if err != nil {
		klog.ErrorS(err, "The program cannot go on")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

func connect(ctx context.Context, kubeconfig, category, label string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1 // the API server limits the rate: a limit here would delay the first lists
	config.Wrap(informer.Transport)
	var clients kinds.Clients
	if clients.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	if clients.Metadata, err = metadata.NewForConfig(config); err != nil {
		return err
	}
	if clients.Discovery, err = discovery.NewDiscoveryClientForConfig(config); err != nil {
		return err
	}
	group, err := newLabeler(clients, category, label)
	if err != nil {
		return err
	}
	return group.Run(ctx)
}

// newLabeler returns a group that labels the objects of all kinds in a category.
func newLabeler(clients kinds.Clients, category, label string) (*informer.Group, error) {
	key, value, ok := strings.Cut(label, "=")
	if !ok {
		return nil, fmt.Errorf("-label: %q is not of the form key=value", label)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{key: value}}})
	if err != nil {
		return nil, err
	}
	set, err := kinds.NewMetadata(clients, kinds.Options[*metav1.PartialObjectMetadata]{
		Wanted: func(o kinds.Offer) bool { return slices.Contains(o.Categories, category) },
		Informer: informer.Options[*metav1.PartialObjectMetadata]{
			Omit: []string{"metadata.managedFields", "metadata.annotations"},
		},
	})
	if err != nil {
		return nil, err
	}
	objects := set.Informer()
	reconcile := func(ctx context.Context, k enqueue.Key) (time.Duration, error) {
		obj, exists, err := objects.In(k.Cluster).Get(k.NamespacedName)
		if err != nil || !exists || obj.Labels[key] == value || obj.DeletionTimestamp != nil {
			return 0, err
		}
		kind, read := set.Find(k.Cluster)
		if !read || kind.State == kinds.Waiting {
			return 0, nil // its objects are gone
		}
		_, err = clients.Dynamic.Resource(kind.GroupVersionResource()).Namespace(k.Namespace).
			Patch(ctx, k.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "labels"})
		if apierrors.IsNotFound(err) {
			return 0, nil
		}
		return 0, err
	}
	c, err := enqueue.NewController(reconcile, enqueue.Options{Name: "labels", Workers: 4, Reads: []informer.Member{set}},
		enqueue.InClusters(enqueue.For(objects.CustomCacheInformer)))
	if err != nil {
		return nil, err
	}
	group := &informer.Group{}
	return group, errors.Join(group.Add(objects), group.Add(set), group.Add(c))
}
