package enqueue

import (
	"context"
	"errors"
	"runtime/debug"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer"
)

// worker reconciles one key after another.
type worker[K comparable] struct {
	queue     workqueue.TypedRateLimitingInterface[K]
	reconcile func(context.Context, K) (time.Duration, error)
	opts      *Options
	busy      atomic.Pointer[K] // the key of the call under way, nil if there is none
}

// run returns when the queue is shut down and empty. Keys that are still in the queue when ctx
// has ended are taken out and dropped.
func (w *worker[K]) run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	for {
		key, shutdown := w.queue.Get()
		if shutdown {
			return
		}
		if ctx.Err() == nil {
			w.busy.Store(&key)
			w.handle(klog.NewContext(ctx, klog.LoggerWithValues(logger, "key", key)), key)
			w.busy.Store(nil)
		}
		w.queue.Done(key)
	}
}

// handle makes one attempt at key, and tells the queue when to hand the key out again.
func (w *worker[K]) handle(ctx context.Context, key K) {
	again, err := w.call(ctx, key)
	switch {
	case err != nil:
		w.fail(ctx, key, err)
		return
	case again > 0:
		w.queue.AddAfter(key, again)
	case again < 0: // that time has passed already
		w.queue.Add(key)
	}
	w.queue.Forget(key)
}

func (w *worker[K]) call(ctx context.Context, key K) (again time.Duration, err error) {
	if w.opts.RecoverPanics {
		defer func() {
			if v := recover(); v != nil {
				err = &informer.PanicError{Value: v, Stack: debug.Stack()}
			}
		}()
	}
	return w.reconcile(ctx, key)
}

// fail reports a failure, and has key retried if that may help.
func (w *worker[K]) fail(ctx context.Context, key K, err error) {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return // a cancelled call is no failure
	}
	e := &Error{Name: w.opts.Name, Key: key, Failures: w.queue.NumRequeues(key) + 1, Err: err}
	e.GaveUp = errors.Is(err, informer.ErrPermanent) || w.queue.ShuttingDown()
	if e.GaveUp {
		w.queue.Forget(key)
	} else {
		w.queue.AddRateLimited(key)
	}
	// Not every rate limiter counts. With one that does not, every conflict is reported.
	first := w.queue.NumRequeues(key) == 1
	if !first || !apierrors.IsConflict(err) {
		w.opts.ErrorHandler(ctx, e)
	}
}

// logError is the default of Options.ErrorHandler. The logger of ctx has name and key.
func logError(ctx context.Context, err error) {
	var failed *Error
	errors.As(err, &failed)
	values := []any{"failures", failed.Failures, "gaveUp", failed.GaveUp}
	var panicked *informer.PanicError
	if errors.As(err, &panicked) {
		values = append(values, "stack", string(panicked.Stack))
	}
	klog.FromContext(ctx).Error(failed.Err, "Reconciling has failed", values...)
}

// busy returns the keys of the calls under way.
func busy[K comparable](workers []worker[K]) (keys []K) {
	for i := range workers {
		if key := workers[i].busy.Load(); key != nil {
			keys = append(keys, *key)
		}
	}
	return keys
}
