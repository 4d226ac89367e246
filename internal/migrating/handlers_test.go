package migrating_test

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
)

// A reconciler is called with a nil Pod if the Pod is gone.
type reconciler func(ctx context.Context, key types.NamespacedName, pod *corev1.Pod) error

func controllerBefore(ctx context.Context, client kubernetes.Interface, reconcile reconciler) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	defer factory.Shutdown()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	queue := workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](time.Second, time.Minute))
	enqueue := func(obj any) {
		name, err := cache.DeletionHandlingObjectToName(obj) // which may be a tombstone
		if err == nil {
			queue.Add(name.AsNamespacedName())
		}
	}
	handle, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, obj any) { enqueue(obj) },
		DeleteFunc: enqueue,
	})
	if err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	if !cache.WaitFor(ctx, "pods", handle.HasSyncedChecker()) {
		return context.Cause(ctx)
	}

	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for work(ctx, queue, factory.Core().V1().Pods().Lister(), reconcile) {
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	workers.Wait()
	return nil
}

func work(ctx context.Context, queue workqueue.TypedRateLimitingInterface[types.NamespacedName], pods corelisters.PodLister, reconcile reconciler) bool {
	key, shutdown := queue.Get()
	if shutdown {
		return false
	}
	defer queue.Done(key)
	pod, err := pods.Pods(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		pod, err = nil, nil
	}
	if err == nil {
		err = reconcile(ctx, key, pod)
	}
	if err != nil {
		queue.AddRateLimited(key)
		return true
	}
	queue.Forget(key)
	return true
}

func controllerQueued(ctx context.Context, client kubernetes.Interface, reconcile reconciler) error {
	pods, err := informer.New(client.CoreV1().Pods(""), informer.Options[*corev1.Pod]{})
	if err != nil {
		return err
	}
	var group informer.Group
	c, err := enqueue.NewController(func(ctx context.Context, key types.NamespacedName) (again time.Duration, err error) {
		pod, _, err := pods.Get(key) // nil if there is none
		if err == nil {
			err = reconcile(ctx, key, pod)
		}
		return 0, err
	}, enqueue.Options{Name: "pods", Workers: 4, BaseDelay: time.Second, MaxDelay: time.Minute}, enqueue.For(pods))
	if err := errors.Join(err, group.Add(pods), group.Add(c)); err != nil {
		return err
	}
	return group.Run(ctx)
}

func controllerAfter(ctx context.Context, client kubernetes.Interface, reconcile reconciler) error {
	pods, err := informer.New(client.CoreV1().Pods(""), informer.Options[*corev1.Pod]{})
	if err != nil {
		return err
	}
	watcher := informer.WatcherFunc[*corev1.Pod](func(ctx context.Context, e informer.Event[*corev1.Pod]) error {
		return reconcile(ctx, e.Key(), e.New) // New is nil in a delete
	})
	_, err = pods.AddWatcher(watcher, informer.WatcherOptions{
		Name:    "reconcile",
		Workers: 4,
		Retry:   informer.Backoff(time.Second, time.Minute, 0),
	})
	if err != nil {
		return err
	}
	return pods.Run(ctx)
}

func sharedBefore(lw cache.ListerWatcher) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 10*time.Minute, cache.Indexers{})
}

func sharedAfter(lw cache.ListerWatcher) cache.SharedIndexInformer {
	return informer.ClientGo{}.NewSharedIndexInformer(lw, &corev1.Pod{}, 10*time.Minute, cache.Indexers{})
}
