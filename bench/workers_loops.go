package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/customcacheinformer/informer"
)

// runCustom returns the loop of a watcher of ours with workers.
func runCustom(s side, lw cache.ListerWatcher, workers int, handle func(pod) error) (func(context.Context) error, error) {
	inf, err := informer.NewFrom(lw, informer.Options[pod]{
		Queue:        s.queue,
		ErrorHandler: func(context.Context, error) {}, // the other side does not log either
	})
	if err != nil {
		return nil, err
	}
	w := informer.WatcherFunc[pod](func(_ context.Context, e informer.Event[pod]) error { return handle(e.New) })
	_, err = inf.AddWatcher(w, informer.WatcherOptions{Workers: workers, Retry: informer.Backoff(backoff, maxBackoff, 0)})
	return inf.Run, err
}

// runShared returns the loop that a program writes around client-go's informer.
func runShared(_ side, lw cache.ListerWatcher, workers int, handle func(pod) error) (func(context.Context) error, error) {
	inf := newShared[pod](lw)
	queue := workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](backoff, maxBackoff))
	enqueue := func(obj any) {
		key, err := cache.MetaNamespaceKeyFunc(obj)
		if err != nil {
			utilruntime.HandleError(err)
			return
		}
		queue.Add(key)
	}
	_, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) }})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		var all sync.WaitGroup
		errs := make([]error, workers)
		for i := range workers {
			all.Go(func() { errs[i] = workOff(queue, inf.GetIndexer(), handle) })
		}
		err := inf.run(ctx)
		queue.ShutDown()
		all.Wait()
		return errors.Join(append(errs, err)...)
	}, nil
}

// workOff handles the objects whose keys are in the queue, until the queue is shut down.
func workOff(queue workqueue.TypedRateLimitingInterface[string], indexer cache.Indexer, handle func(pod) error) error {
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return nil
		}
		obj, exists, err := indexer.GetByKey(key)
		if err != nil || !exists {
			return fmt.Errorf("%s is not in the indexer: %w", key, errors.Join(err, errNotThere))
		}
		if err := handle(obj.(pod)); err != nil {
			queue.AddRateLimited(key)
		} else {
			queue.Forget(key)
		}
		queue.Done(key)
	}
}

var errNotThere = errors.New("no such object")
