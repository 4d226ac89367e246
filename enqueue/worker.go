package enqueue

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/membership"
	"github.com/customcacheinformer/informer/shards"
)

// worker reconciles one key after another.
type worker[K comparable] struct {
	queue     workqueue.TypedRateLimitingInterface[K]
	planned   *planned[K] // is queue, or nil if the program has made queue with package workqueue
	reconcile func(context.Context, K) (time.Duration, error)
	state     *state[K]
	opts      *Options
	soon      workqueue.TypedRateLimiter[K] // sets the pauses of keys for which calls ask at once, again and again
	// refuses reports whether no call may be made for key. Nil if there is none that it refuses.
	refuses func(ctx context.Context, key K) bool
	// enter begins a call, or returns false if another replica has the key. Nil if this one has all
	// keys.
	enter func(ctx context.Context, key K) (call context.Context, done func(), ok bool)
}

func newWorker[K comparable](queue workqueue.TypedRateLimitingInterface[K], reconcile func(context.Context, K) (time.Duration, error), state *state[K], opts *Options) *worker[K] {
	planned, _ := queue.(*planned[K])
	base, most := opts.delays()
	return &worker[K]{
		queue: queue, planned: planned, reconcile: reconcile, state: state, opts: opts,
		soon: workqueue.NewTypedItemExponentialFailureRateLimiter[K](base, most),
	}
}

// run returns when the queue is shut down and empty. Keys that are still in the queue when no call
// may begin any more are taken out and dropped. running is the ctx of Run, and ctx that of the calls.
func (w *worker[K]) run(running, ctx context.Context) {
	logger := klog.FromContext(ctx)
	for {
		key, shutdown := w.queue.Get()
		if shutdown {
			return
		}
		if ctx.Err() == nil && w.opts.mayWork(running) {
			w.handle(klog.NewContext(ctx, klog.LoggerWithValues(logger, "key", key)), key)
		}
		w.queue.Done(key)
	}
}

// handle makes one attempt at key, and tells the queue when to hand the key out again.
func (w *worker[K]) handle(ctx context.Context, key K) {
	if w.refuses != nil && w.refuses(ctx, key) {
		w.state.drop(key)
		return
	}
	if w.enter != nil {
		call, done, ours := w.enter(ctx, key)
		if !ours { // the replica that gets the bucket reconciles all of its keys
			w.state.leave(key)
			w.forget(key)
			return
		}
		defer done()
		ctx = call
	}
	w.state.begin(key)
	if w.planned != nil {
		w.planned.drop(key) // this call decides when the next one comes
	}
	again, err := w.call(ctx, key)
	if cause := context.Cause(ctx); errors.Is(cause, shards.ErrSessionLost) || errors.Is(cause, informer.ErrLeaseLost) {
		w.state.cancelled(key) // also without an error: another replica may have begun meanwhile
		return
	}
	if err != nil {
		w.fail(ctx, key, err)
		return
	}
	w.state.success(key, again != 0)
	w.queue.Forget(key)
	switch {
	case again == 0:
		w.soon.Forget(key)
	case again >= soon:
		w.soon.Forget(key)
		w.addAfter(key, again)
	default:
		first := w.soon.NumRequeues(key) == 0
		pause := w.soon.When(key)
		if first {
			pause = 0
		}
		w.addAfter(key, max(again, pause))
	}
}

// soon is the shortest again that is never stretched.
const soon = 5 * time.Millisecond

// addAfter adds key after a time, in place of the time of an earlier call if the queue can do that.
func (w *worker[K]) addAfter(key K, after time.Duration) {
	switch {
	case w.planned == nil || after <= 0:
		w.queue.AddAfter(key, after)
	default:
		w.planned.plan(key, after)
	}
}

// forget forgets the pauses of key.
func (w *worker[K]) forget(key K) {
	w.queue.Forget(key)
	w.soon.Forget(key)
	if w.planned != nil {
		w.planned.drop(key)
	}
}

// call makes a call that takes no longer than Options.CallTimeout, if it heeds its ctx.
func (w *worker[K]) call(ctx context.Context, key K) (again time.Duration, err error) {
	if limit := w.opts.CallTimeout; limit > 0 {
		over := fmt.Errorf("Options.CallTimeout, %v, is over", limit)
		inner, cancel := context.WithTimeoutCause(ctx, limit, over)
		defer cancel()
		timed := timedContext{inner, ctx}
		defer func() {
			if errors.Is(err, context.DeadlineExceeded) && errors.Is(context.Cause(timed), over) {
				err = fmt.Errorf("%w: %w", over, err)
			}
		}()
		ctx = timed
	}
	if w.opts.RecoverPanics {
		defer func() {
			if v := recover(); v != nil {
				err = &informer.PanicError{Value: v, Stack: debug.Stack()}
			}
		}()
	}
	return w.reconcile(ctx, key)
}

// timedContext is a ctx with a time limit whose Err asks its parent, because that of a bucket looks at
// the clock.
type timedContext struct {
	context.Context
	parent context.Context
}

func (c timedContext) Err() error {
	_ = c.parent.Err()
	return c.Context.Err()
}

// fail reports a failure, and has key retried if that may help.
func (w *worker[K]) fail(ctx context.Context, key K, err error) {
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		w.state.cancelled(key) // which is no failure
		return
	}
	permanent, stopping := errors.Is(err, informer.ErrPermanent), w.queue.ShuttingDown()
	e := &Error{Name: w.opts.Name, Key: key, Err: err}
	e.Failures, e.GaveUp = w.state.failure(key, err, permanent, func(failures int) bool {
		return permanent || stopping || w.opts.MaxAttempts > 0 && failures >= w.opts.MaxAttempts
	})
	switch {
	case e.GaveUp:
		w.forget(key)
	case w.planned != nil:
		w.planned.plan(key, w.planned.failures.When(key))
	default:
		w.queue.AddRateLimited(key)
	}
	if e.Failures > 1 || e.GaveUp || !apierrors.IsConflict(err) {
		w.opts.ErrorHandler(ctx, e)
	}
}

// report is the default of Options.ErrorHandler.
func report(ctx context.Context, err error) { membership.Report(ctx, err, logError) }

// logError logs err. If a call has failed, the logger of ctx has name
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
