package migrating_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/informers/policy"
	"k8s.io/client-go/informers/scheduling"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
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

// factory makes this library's informers of the types that source knows, and client-go's of the others.
type factory struct {
	informers.SharedInformerFactory
	client      kubernetes.Interface
	namespace   string // "" for all
	newInformer func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer
}

func newFactory(client kubernetes.Interface, resync time.Duration, namespace string, opts ...informers.SharedInformerOption) informers.SharedInformerFactory {
	opts = append(opts, informers.WithNamespace(namespace))
	return &factory{informers.NewSharedInformerFactoryWithOptions(client, resync, opts...), client, namespace, informer.ClientGo{}.NewSharedIndexInformer}
}

// source has a case for each type, also for types that the program may not list or does not always use.
func (f *factory) source(obj runtime.Object) cache.ListerWatcher {
	switch obj.(type) {
	case *corev1.Pod:
		return informer.ListWatch(f.client.CoreV1().Pods(f.namespace))
	case *corev1.Service:
		return informer.ListWatch(f.client.CoreV1().Services(f.namespace))
	case *corev1.ConfigMap:
		return informer.ListWatch(f.client.CoreV1().ConfigMaps(f.namespace))
	case *corev1.Secret:
		return informer.ListWatch(f.client.CoreV1().Secrets(f.namespace))
	case *corev1.Namespace:
		return informer.ListWatch(f.client.CoreV1().Namespaces())
	case *corev1.Node:
		return informer.ListWatch(f.client.CoreV1().Nodes())
	case *policyv1.PodDisruptionBudget:
		return informer.ListWatch(f.client.PolicyV1().PodDisruptionBudgets(f.namespace))
	case *schedulingv1.PriorityClass:
		return informer.ListWatch(f.client.SchedulingV1().PriorityClasses())
	}
	return nil
}

// InformerFor is called when a type is asked for, also through Core, Policy and Scheduling.
func (f *factory) InformerFor(obj runtime.Object, newFunc internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	if lw := f.source(obj); lw != nil {
		newFunc = func(_ kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
			return f.newInformer(lw, obj, resync, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		}
	}
	return f.SharedInformerFactory.InformerFor(obj, newFunc)
}

// There is a method for each API group in source.
func (f *factory) Core() core.Interface             { return core.New(f, f.namespace, nil) }
func (f *factory) Policy() policy.Interface         { return policy.New(f, f.namespace, nil) }
func (f *factory) Scheduling() scheduling.Interface { return scheduling.New(f, f.namespace, nil) }

// ForResource is needed only by a program that calls it.
func (f *factory) ForResource(resource schema.GroupVersionResource) (informers.GenericInformer, error) {
	for kind, t := range scheme.Scheme.KnownTypes(resource.GroupVersion()) {
		plural, _ := meta.UnsafeGuessKindToResource(resource.GroupVersion().WithKind(kind))
		if obj, ok := reflect.New(t).Interface().(runtime.Object); ok && plural == resource && f.source(obj) != nil {
			f.InformerFor(obj, nil) // the embedded factory then has it
		}
	}
	return f.SharedInformerFactory.ForResource(resource)
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
		return nil, err // names the informer that is late, and the reason
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
