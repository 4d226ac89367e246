package migrating_test

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/dynamic/dynamiclister"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

func phaseBefore(ctx context.Context, client dynamic.Interface, gvr schema.GroupVersionResource, key types.NamespacedName) (string, error) {
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	defer factory.Shutdown()
	lister := factory.ForResource(gvr).Lister()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	factory.Start(ctx.Done())
	if !factory.WaitForCacheSync(ctx.Done())[gvr] {
		return "", context.Cause(ctx)
	}

	obj, err := lister.ByNamespace(key.Namespace).Get(key.Name)
	if err != nil {
		return "", err
	}
	phase, _, err := unstructured.NestedString(obj.(*unstructured.Unstructured).Object, "status", "phase")
	return phase, err
}

func dynamicInformer(client dynamic.Interface, gvr schema.GroupVersionResource) (cache.SharedIndexInformer, dynamiclister.Lister) {
	inf := informer.ClientGo{}.NewSharedIndexInformer(informer.ListWatch(client.Resource(gvr)), &unstructured.Unstructured{}, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	return inf, dynamiclister.New(inf.GetIndexer(), gvr)
}

func phaseAfter(ctx context.Context, client dynamic.Interface, gvr schema.GroupVersionResource, key types.NamespacedName) (string, error) {
	objects, err := informer.NewFrom(informer.ListWatch(client.Resource(gvr)), informer.Options[*unstructured.Unstructured]{
		Name: gvr.GroupResource().String(),
	})
	if err != nil {
		return "", err
	}
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = objects.Run(ctx) })
	defer running.Wait()
	defer stop()
	if err := objects.WaitForSync(ctx); err != nil {
		return "", err
	}

	obj, exists, err := objects.Get(key)
	if err != nil || !exists {
		return "", err
	}
	phase, _, err := unstructured.NestedString(obj.Object, "status", "phase")
	return phase, err
}

// sharedByResource returns the informer of a resource that all parts of the program
// have in common; the group runs it.
func sharedByResource(group *informer.Group, client dynamic.Interface, gvr schema.GroupVersionResource) (*informer.CustomCacheInformer[*unstructured.Unstructured], error) {
	return informer.GetOrAdd(group, gvr.String(), func() (*informer.CustomCacheInformer[*unstructured.Unstructured], error) {
		return informer.NewFrom(informer.ListWatch(client.Resource(gvr)), informer.Options[*unstructured.Unstructured]{
			Name: gvr.GroupResource().String(),
		})
	})
}
