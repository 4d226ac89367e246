package enqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// grace is how long Run waits for calls, after it was stopped, before it names them.
const grace = 10 * time.Second

// Options are those of [Run]. The zero value is fine.
type Options struct {
	// Name is what is reconciled, such as "website". It is in each line of the log, as
	// "queue", and in each [*Error]. The name that [NewQueue] was given lets one find both
	// log and metrics. Defaults to "reconcile".
	Name string

	// Workers is for how many keys reconcile is called at once. Defaults to 1.
	Workers int

	// RecoverPanics makes a panic of reconcile an error that wraps
	// [*informer.PanicError], so that its key is tried again as after any error.
	// Defaults to false: it ends the process, because what it left behind is not known.
	RecoverPanics bool

	// DrainTimeout is how long, after ctx has ended, the ctx of the calls stays alive,
	// and keys that are in the queue by then are still taken from it. Those that wait
	// for another attempt, or for their time, are not. To let calls read what happens
	// meanwhile, give the informers a ctx that ends when Run has returned. Defaults to 0:
	// calls are cancelled at once, and no other is made.
	DrainTimeout time.Duration

	// ErrorHandler is called with an [*Error] for each call of reconcile that fails, by
	// the worker, which waits for it, and with the ctx of the call. It is not told of a
	// call that returns the error of its ctx, which has ended, nor of a conflict
	// (apierrors.IsConflict) that is the first failure of its key in a row: something was
	// written from a state that is not the newest, which happens every day and is over
	// with the next attempt. Defaults to logging the error.
	ErrorHandler func(ctx context.Context, err error)
}

func (o *Options) check() error {
	switch {
	case o.Workers < 0:
		return fmt.Errorf("Options.Workers is %d, less than 0", o.Workers)
	case o.DrainTimeout < 0:
		return fmt.Errorf("Options.DrainTimeout is %v, less than 0", o.DrainTimeout)
	}
	return nil
}

// Informers is what feeds a queue: an [informer.CustomCacheInformer], or an
// [informer.Group].
type Informers interface {
	WaitForSync(ctx context.Context) error
}

// Run waits until informers have synced, and with them the watchers that put keys into
// queue, and then calls reconcile for each key that is in it, with Options.Workers
// goroutines. For one key reconcile is never called twice at once: what is put into the
// queue meanwhile, however often, leads to one more call after it.
//
// Run blocks until ctx ends, or somebody shuts queue down, which it notices once the
// informers have synced, and then until every call has returned. It returns nil; an
// [*informer.SyncError] if the informers stop before they have synced, and ctx has not
// ended. It shuts queue down, which is of no use to another Run then; several queues may
// be fed by the same informers. Who calls Run runs the informers, too. If an argument is
// nil, an option is out of range or queue is shut down already, Run returns an error at
// once.
//
// reconcile makes true what the object of the key asks for. It is told nothing but the
// key, and reads the rest from an informer: if there is no such object, it has been
// deleted. What it returns decides when it is called for the key again:
//
//   - An error: after the time that the queue's rate limiter says, see [NewQueue]. The
//     workers go on with other keys. NotFound and conflicts are errors like others: the
//     next attempt reads again.
//   - An error that wraps [informer.ErrPermanent]: when an event puts it into the queue.
//   - No error, and again more than 0: after that time, and when an event puts it into
//     the queue before. Less than 0, which time.Until says of what is past, is at once.
//   - No error, and 0: when an event puts it into the queue.
//
// A time that was asked for earlier is not taken back: the queue keeps the earliest of a
// key until it is over.
//
// The ctx of a call ends with Run's, or up to DrainTimeout later, and not because
// somebody else has shut queue down. It has a logger (klog.FromContext) with the key. A
// call that does not return when its ctx has ended holds up Run, and its key is logged
// after 10 s. It must not end its goroutine, as runtime.Goexit and a test's FailNow do.
func Run[K comparable](
	ctx context.Context,
	informers Informers,
	queue workqueue.TypedRateLimitingInterface[K],
	reconcile func(ctx context.Context, key K) (again time.Duration, err error),
	opts Options,
) error {
	switch {
	case isNil(informers):
		return errors.New("enqueue: Run: informers is nil")
	case isNil(queue):
		return errors.New("enqueue: Run: queue is nil")
	case reconcile == nil:
		return errors.New("enqueue: Run: reconcile is nil")
	case queue.ShuttingDown():
		return errors.New("enqueue: Run: queue has been shut down")
	}
	if err := opts.check(); err != nil {
		return fmt.Errorf("enqueue: Run: %w", err)
	}
	defer queue.ShutDown()
	opts.Name = cmp.Or(opts.Name, "reconcile")
	if opts.ErrorHandler == nil {
		opts.ErrorHandler = logError
	}
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "queue", opts.Name)
	ctx = klog.NewContext(ctx, logger)
	if err := informers.WaitForSync(ctx); err != nil {
		if ctx.Err() != nil {
			logger.Info("Stopped before the informers have synced", "reason", err)
			return nil
		}
		return fmt.Errorf("enqueue: Run: %s: %w", opts.Name, err)
	}

	calls, cancel := context.WithCancel(ctx)
	if opts.DrainTimeout > 0 {
		calls, cancel = context.WithCancel(context.WithoutCancel(ctx))
	}
	defer cancel()
	workers := make([]worker[K], max(1, opts.Workers))
	var running sync.WaitGroup
	for i := range workers {
		workers[i] = worker[K]{queue: queue, reconcile: reconcile, opts: &opts}
		running.Go(func() { workers[i].run(calls) })
	}
	finished := make(chan struct{})
	go func() {
		running.Wait()
		close(finished)
	}()

	select {
	case <-finished: // somebody has shut the queue down
		return nil
	case <-ctx.Done():
	}
	queue.ShutDown()
	if opts.DrainTimeout > 0 {
		await(finished, opts.DrainTimeout)
	}
	cancel()
	if !await(finished, grace) {
		logger.Info("The workers cannot stop until calls return", "keys", busy(workers))
		<-finished
	}
	return nil
}

// await waits until done is closed, but no longer than d, and reports whether it is.
func await(done <-chan struct{}, d time.Duration) bool {
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}
