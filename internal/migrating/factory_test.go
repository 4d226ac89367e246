package migrating_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

func podsBefore(ctx context.Context, client kubernetes.Interface, service types.NamespacedName) ([]*corev1.Pod, error) {
	factory := informers.NewSharedInformerFactory(client, 0)
	defer factory.Shutdown()
	services, pods := factory.Core().V1().Services().Lister(), factory.Core().V1().Pods().Lister()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	factory.StartWithContext(ctx)
	if err := factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		return nil, err
	}

	svc, err := services.Services(service.Namespace).Get(service.Name)
	if err != nil {
		return nil, err
	}
	return pods.Pods(svc.Namespace).List(labels.SelectorFromSet(svc.Spec.Selector))
}

func newFactory(client kubernetes.Interface) informers.SharedInformerFactory {
	factory := informers.NewSharedInformerFactory(client, 0)
	factory.InformerFor(&corev1.Pod{}, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return informer.NewSharedIndexInformer(informer.ListWatch(client.CoreV1().Pods("")), &corev1.Pod{}, resync,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	})
	return factory
}

func podsAfter(ctx context.Context, client kubernetes.Interface, service types.NamespacedName) ([]*corev1.Pod, error) {
	services, err := informer.New(client.CoreV1().Services(""), informer.Options[*corev1.Service]{})
	if err != nil {
		return nil, err
	}
	pods, err := informer.New(client.CoreV1().Pods(""), informer.Options[*corev1.Pod]{})
	if err != nil {
		return nil, err
	}
	var group informer.Group
	if err := errors.Join(group.Add(services), group.Add(pods)); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = group.Run(ctx) })
	defer running.Wait()
	defer stop()
	if err := group.WaitForSync(ctx); err != nil {
		return nil, err // says which informer is late, and why
	}

	svc, exists, err := services.Get(service)
	if err != nil {
		return nil, err
	}
	if !exists {
		return nil, fmt.Errorf("there is no service %v", service)
	}
	return pods.List(svc.Namespace, labels.SelectorFromSet(svc.Spec.Selector))
}

func podLister(pods *informer.CustomCacheInformer[*corev1.Pod]) corelisters.PodLister {
	return corelisters.NewPodLister(pods.SharedIndexInformer().GetIndexer())
}

func podsOf(client kubernetes.Interface, namespaces []string) (*informer.CustomCacheInformer[*corev1.Pod], error) {
	return informer.NewInNamespaces(client.CoreV1().Pods, namespaces, informer.Options[*corev1.Pod]{})
}
