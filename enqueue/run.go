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

// grace is how long Run, once stopped, waits for calls before it logs their keys.
const grace = 10 * time.Second

// maxWorkers is the largest Options.Workers. All of these goroutines are started at once.
const maxWorkers = 1 << 16

// Options are the options of [Run]. The zero value is ready to use.
type Options struct {
	// Name says what is reconciled, such as "website". It is in each log line, as "queue", and
	// in each [*Error]. Use the name given to [NewQueue] to find both log and metrics by the
	// same name. Defaults to "reconcile".
	Name string

	// Workers is the number of keys that are reconciled at once, at most 65,536. Defaults to 1.
	Workers int

	// RecoverPanics turns a panic of reconcile into an error that wraps
	// [*informer.PanicError], so that the key is retried as after any error. Defaults to
	// false: a panic ends the process, because nobody knows which state the panic left behind.
	RecoverPanics bool

	// DrainTimeout is how long, after ctx has ended, the ctx of the calls stays alive. For
	// that long, workers still take keys from the queue if they are in it when ctx ends; keys
	// that wait for a retry, or for their time, are dropped. If calls must see the changes of
	// that time, give the informers a ctx that ends when Run has returned. Defaults to 0:
	// calls are cancelled at once, and no other call is made.
	DrainTimeout time.Duration

	// ErrorHandler is called with an [*Error] for each call of reconcile that fails. The
	// worker calls it with the ctx of the failed call, and waits for it. It is not called for
	// a call that returns the error of its ended ctx. Nor is it called for a conflict
	// (apierrors.IsConflict) that is the first failure of its key in a row: reconcile then
	// wrote from a state that is not the newest, which happens every day and is over with the
	// next attempt. Defaults to logging the error.
	ErrorHandler func(ctx context.Context, err error)
}

func (o *Options) check() error {
	switch {
	case o.Workers < 0:
		return fmt.Errorf("Options.Workers is %d, less than 0", o.Workers)
	case o.Workers > maxWorkers:
		return fmt.Errorf("Options.Workers is %d, more than %d", o.Workers, maxWorkers)
	case o.DrainTimeout < 0:
		return fmt.Errorf("Options.DrainTimeout is %v, less than 0", o.DrainTimeout)
	}
	return nil
}

// Informers feed a queue: an [informer.CustomCacheInformer], or an [informer.Group].
type Informers interface {
	WaitForSync(ctx context.Context) error
}

// Run waits until informers have synced, and with them the watchers that put keys into queue.
// Then it calls reconcile for each key in queue, with Options.Workers goroutines. It never
// calls reconcile twice at once for one key: if events put a key into the queue during its
// call, however often, one more call follows.
//
// Run blocks until ctx ends or queue is shut down, and then until every call has returned. It
// notices that queue is shut down only once the informers have synced. It returns nil, or an
// [*informer.SyncError] if the informers stop before they have synced and ctx has not ended.
// It shuts queue down, so that no other Run can use it; several queues may be fed by the same
// informers. Run does not run the informers: the caller must. If an argument is nil, an option
// is out of range or queue is shut down already, Run returns an error at once.
//
// reconcile brings about what the object of the key asks for. It gets only the key, and reads
// the rest from an informer: if there is no such object, the object has been deleted. Its
// results decide when it is called for the key again:
//
//   - An error: after the time set by the queue's rate limiter, see [NewQueue]. Meanwhile
//     the workers go on with other keys. NotFound and conflicts are errors like any other:
//     the next attempt reads again.
//   - An error that wraps [informer.ErrPermanent]: when an event puts the key into the queue.
//   - No error, and again more than 0: after that time, or earlier if an event puts the key
//     into the queue. An again less than 0, which time.Until returns for a time that is
//     past, means at once.
//   - No error, and again 0: when an event puts the key into the queue.
//
// An earlier time that was asked for stays valid: the queue keeps the earliest time of a key
// until it has come.
//
// The ctx of a call ends with the ctx of Run, or up to DrainTimeout later. It does not end
// because somebody else has shut queue down. It has a logger (klog.FromContext) with the key.
// A call that does not return after its ctx has ended holds up Run, and its key is logged
// after 10 s. A call must not end its goroutine, as runtime.Goexit and a test's FailNow do.
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
	work(ctx, queue, reconcile, opts)
	return nil
}

// work runs the workers until ctx ends or queue is shut down, and then until every call has
// returned.
func work[K comparable](
	ctx context.Context,
	queue workqueue.TypedRateLimitingInterface[K],
	reconcile func(ctx context.Context, key K) (time.Duration, error),
	opts Options,
) {
	parent := ctx
	if opts.DrainTimeout > 0 {
		parent = context.WithoutCancel(ctx)
	}
	calls, cancel := context.WithCancel(parent)
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
	case <-finished: // the queue was shut down
		return
	case <-ctx.Done():
	}
	queue.ShutDown()
	if opts.DrainTimeout > 0 {
		await(finished, opts.DrainTimeout)
	}
	cancel()
	if !await(finished, grace) {
		klog.FromContext(ctx).Info("The workers cannot stop until calls return", "keys", busy(workers))
		<-finished
	}
}

// await waits until done is closed, but at most d, and reports whether done is closed.
func await(done <-chan struct{}, d time.Duration) bool {
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}
