package informer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/internal/stopwatch"
)

// storeBackoff paces the retries of a failing store: up to 5 s, as the jitter comes
// on top of Cap.
var storeBackoff = wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 10 * time.Second / 3}

// write is what is to be done to the store.
type write uint8

const (
	writeNothing write = iota
	writeAdd
	writeUpdate
	writeDelete
)

// write does to the store what was decided on, and takes the records back if the
// store refuses it. It returns false if ctx ended before it was done.
func (a *applier[T]) write(ctx context.Context, c *change[T], now time.Duration) bool {
	if a.batch != nil {
		a.batch.add(c)
		return true
	}
	a.processor.begun.Add(int64(len(a.records) - a.done))
	var err error
	if op := c.write.String(); c.write != writeNothing {
		err = a.do(op, c.key, now, 1, func() error { return a.tryWrite(c.write, c.stored) })
		if err != nil {
			a.tell(ctx)
			err = a.retry(ctx, op, c.key, err, func() error { return a.tryAgain(c) })
		}
	}
	switch {
	case err == nil:
		a.wrote(ctx, c)
	case errors.Is(err, ErrPermanent):
		a.refused.Add(1)
		for i := a.done; i < len(a.records); i++ {
			a.records[i] = record[T]{kind: recordVoid}
		}
	default:
		return false
	}
	return true
}

// wrote follows a write that has succeeded, or was not necessary.
func (a *applier[T]) wrote(ctx context.Context, c *change[T]) {
	switch {
	case c.kind != itemUpsert:
		delete(a.known, c.key)
	case !c.known || c.uid != c.obj.GetUID():
		a.noteKnown(c.key, c.obj.GetUID())
	}
	a.count(c.write)
	switch c.write {
	case writeNothing:
	case writeDelete:
		a.index.wrote(c.key, c.stored, false)
	default:
		a.index.wrote(c.key, c.stored, true)
		a.reportIndex(ctx, c.key, a.index.check(c.stored))
		if c.write == writeAdd && !a.keyFound && a.batch.leaves(c.key) {
			a.checkKey(ctx, c.key)
		}
	}
}

// count follows a write with the number of objects. What is known is counted where it
// is kept: a store may lose some.
func (a *applier[T]) count(w write) {
	switch {
	case a.known != nil:
		a.objects.Store(int64(len(a.known)))
	case a.objects.Load() < 0:
	case w == writeAdd:
		a.objects.Add(1)
	case w == writeDelete:
		a.objects.Add(-1)
	}
}

// checkKey reports, once, if the store does not find under key what was just
// added: every relist would add all of it again.
func (a *applier[T]) checkKey(ctx context.Context, key string) {
	a.call.enter("get", key, a.processor.Now())
	_, exists, err := a.store.GetByKey(key)
	a.call.leave()
	if err != nil {
		return // the next add will show
	}
	a.keyFound = true
	if !exists {
		a.report(ctx, &StoreError{Op: "get", Key: key, Failures: 1, Err: errLostKey})
	}
}

var errLostKey = errors.New("the store does not find what was just added: it must key objects as cache.MetaNamespaceKeyFunc does")

// reportIndex reports what index functions have failed with.
func (a *applier[T]) reportIndex(ctx context.Context, key string, errs []error) {
	for _, err := range errs {
		a.report(ctx, &ObjectError{Op: "index", Key: key, Err: err})
	}
}

// tryWrite makes one attempt at a write.
func (a *applier[T]) tryWrite(w write, obj T) error {
	switch w {
	case writeAdd:
		return a.store.Add(obj)
	case writeUpdate:
		return a.store.Update(obj)
	default:
		return a.store.Delete(obj)
	}
}

// tryAgain makes a further attempt. The one that failed may have taken effect all
// the same, and a store need not add what is there, nor update or delete what is
// not: so it looks first. A look that is refused says nothing about the write,
// which then has to speak for itself.
func (a *applier[T]) tryAgain(c *change[T]) error {
	stored, exists, err := a.store.GetByKey(c.key)
	switch {
	case errors.Is(err, ErrPermanent):
		return a.tryWrite(c.write, c.stored)
	case err != nil:
		return err
	case c.write != writeDelete && exists:
		err := a.tryWrite(writeUpdate, c.stored)
		if errors.Is(err, ErrPermanent) && c.madeOf(stored) {
			return nil // refused again, and there all the same
		}
		return err
	case c.write != writeDelete:
		return a.tryWrite(writeAdd, c.stored)
	case exists:
		return a.tryWrite(writeDelete, c.stored)
	}
	return nil
}

// madeOf reports whether stored, which was found after a write has failed, is what
// that put there. Of an add anything is: there was nothing before.
func (c *change[T]) madeOf(stored any) bool {
	obj, ok := stored.(T)
	return ok && (c.write == writeAdd || sameVersion(obj, c.stored) || reflect.DeepEqual(obj, c.stored))
}

func (w write) String() string {
	return [...]string{writeNothing: "nothing", writeAdd: "add", writeUpdate: "update", writeDelete: "delete"}[w]
}

// get looks a key up. An error is not an absence: it is retried. Something of
// another type is one: fill has reported it, and it is written over. The error that
// get returns in the end wraps ErrPermanent, or is that of ctx.
func (a *applier[T]) get(ctx context.Context, key string, now time.Duration) (old T, exists bool, err error) {
	if a.batch != nil {
		if obj, exists, changed := a.batch.get(key); changed {
			return obj, exists, nil
		}
	}
	try := func() (err error) {
		old, exists, err = storeGet[T](a.store, key)
		if errors.Is(err, errWrongType) {
			return nil
		}
		return err
	}
	if err := a.do("get", key, now, 1, try); err != nil {
		a.tell(ctx)
		return old, exists, a.retry(ctx, "get", key, err, try)
	}
	return old, exists, nil
}

// insist does an operation on the store, again and again if it fails, as retry does.
func (a *applier[T]) insist(ctx context.Context, op, key string, try func() error) error {
	if err := a.do(op, key, a.processor.Now(), 1, try); err != nil {
		return a.retry(ctx, op, key, err, try)
	}
	return nil
}

// do makes one attempt at an operation on the store, now. failures counts it, should
// it fail.
func (a *applier[T]) do(op, key string, now time.Duration, failures int, try func() error) error {
	a.call.enter(op, key, now)
	if a.observer.Store == nil {
		err := try()
		a.call.leave()
		return err
	}
	begun := time.Now()
	err := try()
	a.call.leave()
	if err == nil {
		failures = 0
	}
	a.observer.Store(StoreInfo{Informer: a.name, Op: op, Key: key, Took: time.Since(begun), Err: err, Failures: failures})
	return err
}

// retry repeats an operation that has failed once with err until it succeeds. What was
// done before should have been told. It returns an error that wraps ErrPermanent if the
// store refuses it, and that of ctx if that ends first.
func (a *applier[T]) retry(ctx context.Context, op, key string, err error, try func() error) error {
	backoff, begun := storeBackoff, time.Now()
	for failures := 1; ; failures++ {
		if interrupted(ctx, err) {
			return err
		}
		refused := errors.Is(err, ErrPermanent)
		failed := &StoreError{Op: op, Key: key, Failures: failures, GaveUp: refused, Err: err}
		a.failing.Store(failed)
		if failures == 1 || refused {
			a.report(ctx, failed)
		}
		if refused {
			a.failing.Store(nil)
			return failed
		}
		timer := time.NewTimer(backoff.Step())
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			a.report(ctx, &StoreError{Op: op, Key: key, Failures: failures, GaveUp: true, Err: err})
			return ctx.Err()
		}
		if err = a.do(op, key, a.processor.Now(), failures+1, try); err == nil {
			a.failing.Store(nil)
			if lasted := time.Since(begun); lasted >= hungCall { // a hiccup is not worth a second line
				klog.FromContext(ctx).Info("The store works again", "operation", op, "key", key, "failures", failures, "after", lasted)
			}
			return nil
		}
	}
}

// trouble returns the operation on the store that fails now, or does not return,
// or nil.
func (a *applier[T]) trouble() *StoreError {
	failing, hung := a.failing.Load(), a.call.hung()
	if hung == nil {
		return failing
	}
	if failing != nil {
		hung.Failures = failing.Failures
	}
	return hung
}

// storeCall is the operation on the store that is under way. It is only to be
// looked at, so that a store which hangs can be named.
type storeCall struct {
	clock stopwatch.Stopwatch

	since atomic.Int64 // 0 if there is none

	mu      sync.Mutex // protects the rest
	op, key string
}

func (c *storeCall) enter(op, key string, now time.Duration) {
	c.mu.Lock()
	c.op, c.key = op, key
	c.mu.Unlock()
	c.since.Store(int64(now))
}

func (c *storeCall) leave() { c.since.Store(0) }

// lasts returns for how long the operation has been under way, 0 if there is none.
func (c *storeCall) lasts() time.Duration {
	since := c.since.Load()
	if since == 0 {
		return 0
	}
	return max(0, c.clock.Now()-time.Duration(since))
}

// now returns the operation that is under way; op is empty if there is none.
func (c *storeCall) now() (op, key string) {
	if c.since.Load() == 0 {
		return "", ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.op, c.key
}

// hung returns the operation that should have returned long ago, or nil.
func (c *storeCall) hung() *StoreError {
	lasts := c.lasts()
	if lasts < hungCall {
		return nil
	}
	op, key := c.now()
	if op == "" {
		return nil // by now it has returned
	}
	return &StoreError{Op: op, Key: key, Err: fmt.Errorf("has not returned for %v", lasts.Truncate(time.Second))}
}
