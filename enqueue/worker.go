package enqueue

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/shards"
)

// worker reconciles one key after another.
type worker[K comparable] struct {
	queue     workqueue.TypedRateLimitingInterface[K]
	reconcile func(context.Context, K) (time.Duration, error)
	state     *state[K]
	opts      *Options
	// enter begins a call, or returns false if another replica has the key. Nil if this one has all
	// keys.
	enter func(ctx context.Context, key K) (call context.Context, done func(), ok bool)
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
			w.handle(klog.NewContext(ctx, klog.LoggerWithValues(logger, "key", key)), key)
		}
		w.queue.Done(key)
	}
}

// handle makes one attempt at key, and tells the queue when to hand the key out again.
func (w *worker[K]) handle(ctx context.Context, key K) {
	if w.enter != nil {
		call, done, ours := w.enter(ctx, key)
		if !ours { // the replica that gets the bucket reconciles all of its keys
			w.state.leave(key)
			w.queue.Forget(key)
			return
		}
		defer done()
		ctx = call
	}
	w.state.begin(key)
	again, err := w.call(ctx, key)
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), shards.ErrSessionLost) {
		w.state.cancelled(key) // also without an error: another replica may have begun meanwhile
		return
	}
	if err != nil {
		w.fail(ctx, key, err)
		return
	}
	took := w.state.success(key, again != 0)
	switch {
	case again > 0:
		w.queue.AddAfter(key, again)
	case again < 0: // that time has passed already
		w.queue.Add(key)
	}
	w.queue.Forget(key)
	w.observe(informer.ReconciledInfo{Key: key, Took: took, Again: again != 0})
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
		w.state.cancelled(key) // which is no failure
		return
	}
	permanent, stopping := errors.Is(err, informer.ErrPermanent), w.queue.ShuttingDown()
	e := &Error{Name: w.opts.Name, Key: key, Err: err}
	var took time.Duration
	e.Failures, e.GaveUp, took = w.state.failure(key, err, permanent, func(failures int) bool {
		return permanent || stopping || w.opts.MaxAttempts > 0 && failures >= w.opts.MaxAttempts
	})
	if e.GaveUp {
		w.queue.Forget(key)
	} else {
		w.queue.AddRateLimited(key)
	}
	w.observe(informer.ReconciledInfo{Key: key, Took: took, Err: err, Failures: e.Failures, GaveUp: e.GaveUp})
	if e.Failures > 1 || e.GaveUp || !apierrors.IsConflict(err) {
		w.opts.ErrorHandler(ctx, e)
	}
}

// observe reports a call to Options.Reconciled.
func (w *worker[K]) observe(info informer.ReconciledInfo) {
	if w.opts.Reconciled != nil {
		info.Controller = w.opts.Name
		w.opts.Reconciled(info)
	}
}

// logError is the default of Options.ErrorHandler. If a call has failed, the logger of ctx has name
// and key.
func logError(ctx context.Context, err error) {
	var failed *Error
	if !errors.As(err, &failed) {
		klog.FromContext(ctx).Error(err, "Controller reports an error")
		return
	}
	values := []any{"failures", failed.Failures, "gaveUp", failed.GaveUp}
	var panicked *informer.PanicError
	if errors.As(err, &panicked) {
		values = append(values, "stack", string(panicked.Stack))
	}
	klog.FromContext(ctx).Error(failed.Err, "Reconciling has failed", values...)
}
