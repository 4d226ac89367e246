package enqueue

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/membership"
)

// worker reconciles one key after another.
type worker[K comparable] struct {
	queue     *planned[K]
	reconcile reconciler[K]
	state     *state[K]
	opts      *Options
	refuses   func(ctx context.Context, key K) bool // reports whether no call may be made for key
	engaged   func(key K) bool                      // reports whether the cluster of key is engaged, or key has none
	// enter begins a call, or returns false if another replica has the key. It is nil if this
	// replica has all keys.
	enter   func(ctx context.Context, key K) (call context.Context, done func(), ok bool)
	running sync.WaitGroup // the goroutines
}

// reconciler is the function of the program, see [NewController].
type reconciler[K comparable] func(ctx context.Context, key K) (again time.Duration, err error)

// grace is how long a controller that stops waits for calls before it logs their keys.
const grace = 10 * time.Second

// work runs Options.Workers goroutines until ctx ends or the lease is lost. It returns when every call has returned.
func (w *worker[K]) work(ctx context.Context) {
	parent := ctx
	if w.opts.DrainTimeout > 0 || w.opts.Elected != nil {
		parent = context.WithoutCancel(ctx)
	}
	calls, cancel := context.WithCancelCause(parent)
	for range max(1, w.opts.Workers) {
		w.running.Go(func() { w.run(ctx, calls) })
	}
	finished := make(chan struct{})
	go func() {
		w.running.Wait()
		close(finished)
	}()

	select {
	case <-w.opts.Lost:
	case <-ctx.Done():
	}
	w.queue.ShutDown()
	if w.opts.mayWork(ctx) {
		await(finished, w.opts.DrainTimeout, w.opts.Lost)
	}
	cause := context.Cause(ctx)
	if w.opts.leaseLost(ctx) && !errors.Is(cause, informer.ErrLeaseLost) {
		cause = errors.Join(informer.ErrLeaseLost, cause)
	}
	cancel(cause)
	w.state.stop()
	if !await(finished, grace, nil) {
		klog.FromContext(ctx).Info("The workers cannot stop until calls return", "keys", w.state.busy())
		<-finished
	}
}

// leaseLost reports whether another replica may be the leader. ctx is the ctx of Run.
func (o *Options) leaseLost(ctx context.Context) bool {
	return channel.Closed(o.Lost) || errors.Is(context.Cause(ctx), informer.ErrLeaseLost) ||
		o.Elected != nil && o.Lost == nil && ctx.Err() != nil
}

// mayWork reports whether calls may still begin. ctx is the ctx of Run.
func (o *Options) mayWork(ctx context.Context) bool {
	return !o.leaseLost(ctx) && (ctx.Err() == nil || o.DrainTimeout > 0)
}

// await waits until done or lost is closed, but at most d. It reports whether done is closed.
func await(done <-chan struct{}, d time.Duration, lost <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-lost:
	case <-time.After(d):
	}
	return false
}

// run makes calls until the queue is shut down and empty. When calls may no longer begin, it drops the keys that are left.
// It also returns after a call that has lasted longer than patience, because another goroutine has taken its place. After a
// shutdown it does not, because the other one may have ended before the key of the call came back.
// running is the ctx of Run, and ctx the ctx of the calls.
func (w *worker[K]) run(running, ctx context.Context) {
	logger := klog.FromContext(ctx)
	for replaced := false; !replaced || w.queue.ShuttingDown(); {
		key, shutdown := w.queue.Get()
		if shutdown {
			return
		}
		if ctx.Err() == nil && w.opts.mayWork(running) {
			replaced = w.replacing(key, func() { w.run(running, ctx) }, func() {
				w.handle(klog.NewContext(ctx, klog.LoggerWithValues(logger, "key", key)), key)
			})
		}
		w.queue.Done(key)
	}
}

// replacing makes a call for a key. If keys have clusters and the call lasts longer than patience, replacing starts
// another worker during the call, and returns true. If the last call of the cluster was slow, it starts the worker at
// once.
func (w *worker[K]) replacing(key K, other, call func()) (replaced bool) {
	ready := w.queue.ready
	if ready.shares == nil {
		call()
		return false
	}
	if replaced = ready.isSlow(key); replaced {
		w.running.Go(other)
	}
	var (
		mu   sync.Mutex
		over bool
	)
	w.running.Add(1)
	timer := time.AfterFunc(patience, func() {
		defer w.running.Done()
		mu.Lock()
		defer mu.Unlock()
		if over {
			return
		}
		ready.noteSlow(key)
		if !replaced {
			replaced = true
			w.running.Go(other)
		}
	})
	call()
	if timer.Stop() {
		w.running.Done()
	}
	mu.Lock()
	defer mu.Unlock()
	over = true
	return replaced
}

// handle makes one call for key, and sets when the queue returns the key again.
func (w *worker[K]) handle(ctx context.Context, key K) {
	if w.refuses(ctx, key) {
		w.state.drop(key)
		return
	}
	if w.enter != nil {
		call, done, ours := w.enter(ctx, key)
		if !ours { // the replica that gets the bucket reconciles all of its keys
			w.leave(key)
			return
		}
		defer func(running context.Context) {
			if call.Err() != nil && running.Err() == nil { // the bucket moves, so no call here tells whether the key still fails
				w.leave(key)
			}
			done()
		}(ctx)
		ctx = call
	}
	w.state.begin(key)
	w.queue.drop(key) // this call decides when the next one comes
	again, err := w.call(ctx, key)
	if cause := context.Cause(ctx); errors.Is(cause, informer.ErrLeaseLost) {
		w.state.cancelled(key) // also without an error: another replica may have begun meanwhile
		return
	}
	if errors.Is(err, informer.ErrNotEngaged) && !w.engaged(key) {
		again, err = 0, nil // the cluster has left, and its objects need no work any more
	}
	if err != nil {
		w.fail(ctx, key, err)
		return
	}
	w.state.success(key, again != 0)
	w.queue.failures.Forget(key)
	switch {
	case again == 0:
		w.queue.soon.Forget(key)
	case again >= soon:
		w.queue.soon.Forget(key)
		w.queue.plan(key, again)
	default:
		first := w.queue.soon.NumRequeues(key) == 0
		pause := w.queue.soon.When(key)
		if first {
			pause = 0
		}
		w.queue.plan(key, max(again, pause))
	}
}

// leave forgets the failures of a key that another replica gets, and its plan.
func (w *worker[K]) leave(key K) {
	w.state.leave(key)
	w.queue.forget(key)
}

// soon is the shortest pause that reconcile can ask for again and again. Shorter ones are stretched.
const soon = 5 * time.Millisecond

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

// timedContext is a ctx with a time limit whose Err first calls Err of its parent. The parent may be the ctx of a bucket,
// whose Err looks at the clock.
type timedContext struct {
	context.Context
	parent context.Context
}

func (c timedContext) Err() error {
	_ = c.parent.Err()
	return c.Context.Err()
}

// fail plans another attempt for key, unless the key is given up, and reports the failure. It does not report
// the first conflict in a row.
func (w *worker[K]) fail(ctx context.Context, key K, err error) {
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		w.state.cancelled(key) // which is not a failure
		return
	}
	permanent, stopping := isPermanent(key, err), w.queue.ShuttingDown()
	e := &Error{Name: w.opts.Name, Key: key, Err: err}
	e.Failures, e.GaveUp = w.state.failure(key, err, permanent, func(failures int) bool {
		return permanent || stopping || w.opts.MaxAttempts > 0 && failures >= w.opts.MaxAttempts
	})
	if e.GaveUp {
		w.queue.forget(key)
	} else {
		w.queue.plan(key, w.queue.failures.When(key))
	}
	if e.Failures > 1 || e.GaveUp || !apierrors.IsConflict(err) {
		w.opts.ErrorHandler(ctx, e)
	}
}

// isPermanent reports whether no other attempt can succeed before an event. ErrNotEngaged is not permanent for a key with
// a cluster, although it wraps ErrPermanent: an informer that does not read the cluster yet may read it soon.
func isPermanent(key any, err error) bool {
	if _, in := key.(Key); in && errors.Is(err, informer.ErrNotEngaged) {
		return false
	}
	return errors.Is(err, informer.ErrPermanent)
}

func report(ctx context.Context, err error) { membership.Report(ctx, err, logError) }

// logError logs err. If a call has failed, the logger of ctx has the name and the key.
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
