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

	"github.com/customcacheinformer/informer"
)

// grace is how long Run waits for calls, after it was stopped, before it names them.
const grace = 10 * time.Second

// Options are those of [Run]. The zero value is fine.
type Options struct {
	// Name is what is reconciled, such as "website". It is in each line of the log, as
	// "queue", and in each [*Error]. Defaults to "reconcile".
	Name string

	// Workers is for how many keys reconcile is called at once. Defaults to 1.
	Workers int

	// RecoverPanics makes a panic of reconcile an error that wraps
	// [*informer.PanicError], so that its key is tried again as after any error.
	// Defaults to false: it ends the process, because what it left behind is not known.
	RecoverPanics bool

	// DrainTimeout is how long, after ctx has ended, the ctx of the calls stays alive,
	// and keys that are in the queue by then are still taken from it. Those that wait
	// for another attempt, or for their time, are not. Defaults to 0: calls are
	// cancelled at once, and no other is made. Whatever is left, the next start begins
	// with all objects.
	DrainTimeout time.Duration

	// ErrorHandler is called with an [*Error] for each call of reconcile that fails, by
	// the worker, which waits for it, and with the ctx of the call. It is not told of a
	// call that returns the error of its ctx, which has ended, nor of a conflict
	// (apierrors.IsConflict) that is the first failure of its key in a row: something was
	// written from a state that is not the newest, which happens every day and is over
	// with the next attempt. Defaults to [informer.LogError].
	ErrorHandler func(ctx context.Context, err error)
}

// Informers is what feeds a queue: an [informer.CustomCacheInformer], or an
// [informer.Group].
type Informers interface {
	WaitForSync(ctx context.Context) error
}

// Run waits until informers have synced, and with them the watchers that put keys into
// queue, and then calls reconcile for each key that is in it, with Options.Workers
// goroutines. For one key reconcile is never called twice at once: what is put into the
// queue meanwhile, however often, leads to one more call after it. Run blocks until ctx
// ends, or until somebody shuts queue down, and then until every call has returned, and
// returns nil. It is for one queue, which it shuts down; who calls it runs the informers.
//
// reconcile makes true what the object of the key asks for. It is told nothing but the
// key, and reads the rest from an informer: if there is no such object, it has been
// deleted. What it returns decides when it is called for the key again:
//
//   - An error: after the time that the queue's rate limiter says, which by default
//     grows from 5 ms to 1000 s with each failure in a row. Other keys do not wait for it.
//     NotFound and conflicts are errors like others: the next attempt reads again.
//   - An error that wraps [informer.ErrPermanent]: when the key is put into the queue the
//     next time, because of some event.
//   - No error, and again more than 0: after that time, and at every event before it.
//     Less than 0, which time.Until says of what is past, is at once.
//   - No error, and 0: when there is an event.
//
// The ctx of a call ends with Run's, or up to DrainTimeout later, and not because
// somebody else has shut queue down. It has a logger (klog.FromContext) with the key. A
// call that does not return when its ctx has ended holds up Run, and its key is logged
// after 10 s. It must not end its goroutine, as runtime.Goexit and a test's FailNow do.
//
// If the informers do not sync before ctx ends, Run returns their [*informer.SyncError],
// and reconcile is not called. If an argument is nil or an option is out of range, it
// returns an error at once, and leaves the queue alone.
func Run[K comparable](
	ctx context.Context,
	informers Informers,
	queue workqueue.TypedRateLimitingInterface[K],
	reconcile func(ctx context.Context, key K) (again time.Duration, err error),
	opts Options,
) error {
	if err := check(informers == nil, queue == nil, reconcile == nil, &opts); err != nil {
		return fmt.Errorf("enqueue: Run: %w", err)
	}
	defer queue.ShutDown()
	opts.Name = cmp.Or(opts.Name, "reconcile")
	if opts.ErrorHandler == nil {
		opts.ErrorHandler = informer.LogError
	}
	ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "queue", opts.Name))
	if err := informers.WaitForSync(ctx); err != nil {
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
		klog.FromContext(ctx).Info("The workers cannot stop until calls return", "keys", busy(workers))
		<-finished
	}
	return nil
}

func check(noInformers, noQueue, noReconcile bool, opts *Options) error {
	switch {
	case noInformers:
		return errors.New("informers is nil")
	case noQueue:
		return errors.New("queue is nil")
	case noReconcile:
		return errors.New("reconcile is nil")
	case opts.Workers < 0:
		return fmt.Errorf("Options.Workers is %d, less than 0", opts.Workers)
	case opts.DrainTimeout < 0:
		return fmt.Errorf("Options.DrainTimeout is %v, less than 0", opts.DrainTimeout)
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
