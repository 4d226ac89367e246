package informer

import (
	"context"
	"errors"
	"fmt"

	"github.com/customcacheinformer/informer/internal/object"
)

// fill takes over what the store holds at the start, before anything is applied. It
// returns the version at which the source may go on from there, "" if there is none,
// and false if ctx ended before that was done.
func (a *applier[T]) fill(ctx context.Context) (version string, ok bool) {
	filled := a.index.begin()
	if a.batch != nil && !a.recover(ctx) {
		return "", false
	}
	for after, more := "", true; more; {
		objs, last, ok := a.page(ctx, after)
		if !ok {
			return "", false
		}
		for _, stored := range objs {
			a.take(ctx, stored)
		}
		// A durable store that has indexes of its own need not be read through.
		more = last != "" && (a.batch == nil || a.index.native == nil)
		if after = last; last != "" && !more {
			a.objects.Store(-1)
		}
	}
	filled()
	close(a.processor.filled)
	if a.batch == nil {
		return "", true
	}
	return a.batch.bookmark, true
}

// take takes over one object.
func (a *applier[T]) take(ctx context.Context, stored any) {
	obj, err := acceptT[T](stored)
	if err != nil {
		a.report(ctx, &ObjectError{Op: "store", Err: err})
		return
	}
	key := object.Key(obj)
	a.noteKnown(key, obj.GetUID())
	a.count(writeAdd)
	a.index.wrote(key, obj, true)
	a.reportIndex(ctx, key, failures(*a.index.funcs.Load(), obj))
	a.processor.seeded = true
}

// recover takes over the bookmark and the tombstones.
func (a *applier[T]) recover(ctx context.Context) bool {
	b := a.batch
	var tombs []any
	if !a.read(ctx, "resume", func() (err error) { b.bookmark, err = b.store.Resume(ctx); return err }) ||
		!a.read(ctx, "tombstones", func() (err error) { tombs, err = b.store.Tombstones(ctx); return err }) {
		return false
	}
	b.place = place{version: b.bookmark, exact: b.bookmark != ""}
	a.resumed, a.doubted = b.place.exact, !b.place.exact
	var ids []tombstoneID
	for _, stored := range tombs {
		obj, err := acceptT[T](stored)
		if err != nil {
			a.report(ctx, &ObjectError{Op: "store", Err: fmt.Errorf("a tombstone: %w", err)})
			continue
		}
		ids = append(ids, tombstoneID{object.Key(obj), obj.GetUID()})
	}
	a.processor.tombstones.add(ids, 0)
	return true
}

// page reads a page of the store, with retry. It returns false if ctx ended before.
func (a *applier[T]) page(ctx context.Context, after string) (objs []any, last string, ok bool) {
	if a.scan.scanner == nil {
		a.call.enter("list", "", a.processor.Now())
		defer a.call.leave()
		return a.store.List(), "", true
	}
	ok = a.read(ctx, "scan", func() (err error) { objs, last, err = a.scan.page(ctx, after); return err })
	return objs, last, ok
}

// storedKeys yields the keys of the store until ctx ends.
func (a *applier[T]) storedKeys(ctx context.Context, yield func(string) bool) {
	for after, more := "", true; more; {
		objs, last, ok := a.page(ctx, after)
		if !ok {
			return
		}
		for _, stored := range objs {
			if m, err := object.Meta(stored); err == nil && !yield(object.Key(m)) {
				return
			}
		}
		after, more = last, last != ""
	}
}

// read insists on an operation that only reads. There is no going on without it, so
// that none is a refusal.
func (a *applier[T]) read(ctx context.Context, op string, try func() error) bool {
	return a.insist(ctx, op, "", func() error {
		err := try()
		if errors.Is(err, ErrPermanent) {
			return unrefused{err}
		}
		return err
	}) == nil
}

// unrefused is an error that does not wrap ErrPermanent.
type unrefused struct{ error }

// mayForget has the apply loop forget tombstones if there are any to forget.
func (a *applier[T]) mayForget() {
	if len(a.processor.tombstones.passed(a.processor.handled())) > 0 {
		a.inlet.forget()
	}
}

// forget removes the tombstones that nobody needs any more.
func (a *applier[T]) forget(ctx context.Context) {
	a.tell(ctx)
	t := a.processor.tombstones
	gone := t.passed(a.processor.handled())
	if len(gone) == 0 {
		return // somebody has registered meanwhile
	}
	if a.insist(ctx, "forget", "", func() error { return a.batch.store.Forget(ctx, gone) }) == nil {
		t.remove(gone)
	}
}

// forgetLast makes one attempt at it when all has stopped. What is left then is told
// again at the next start.
func (a *applier[T]) forgetLast(ctx context.Context) {
	if a.batch == nil {
		return
	}
	gone := a.processor.tombstones.passed(a.processor.handled())
	if len(gone) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hungCall)
	defer cancel()
	if err := a.do("forget", "", a.processor.Now(), 1, func() error { return a.batch.store.Forget(ctx, gone) }); err != nil {
		a.report(ctx, &StoreError{Op: "forget", Failures: 1, GaveUp: true, Err: err})
	}
}
