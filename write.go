package informer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/internal/index"
	"github.com/customcacheinformer/informer/internal/object"
	"github.com/customcacheinformer/informer/internal/retry"
	"github.com/customcacheinformer/informer/internal/stopwatch"
)

// storage is the interface of a store for the applier. A plainStore and a sinkStorage make each change at once. An
// ownStore and a durableStore make all changes of a batch in one step. Only the applier's goroutine calls the methods,
// except where a method documents otherwise.
type storage[T Object] interface {
	// open reads what the store has at the start. It returns the versions at which sources can continue,
	// by the name of their region. It returns false if ctx ended first.
	open(ctx context.Context) (versions map[string]string, ok bool)
	// hasForeign reports whether the store may have objects of regions that the informer does not read.
	hasForeign() bool
	// find returns the object that the store has under the item's key after all writes so far. It retries
	// until it succeeds. It returns an error that wraps ErrPermanent if the store refuses the read, and
	// the error of ctx if ctx ends first.
	find(ctx context.Context, it *item[T], now time.Duration) (found[T], error)
	// write makes a change, or leaves it for the next commit.
	write(ctx context.Context, c *change[T], now time.Duration) outcome
	// pass notes that an item was applied, and spoil that an object of a source could not be stored.
	pass(it *item[T])
	spoil(of *scope)
	// drop forgets a source that is gone. Its objects were deleted before.
	drop(of *scope)
	// version returns the version at which a source was exactly as the store is after all writes so far.
	// It returns "" if there is no such version.
	version(of *scope) string
	// commit makes the changes that write has left for it.
	commit(ctx context.Context) outcome
	// published notes that the log has the committed changes. If version is not "", the store has every change
	// up to that version of the source.
	published(version string)
	// keys yields the keys of the known objects: all that begin with the prefix, and perhaps others. It
	// ends early if ctx ends.
	keys(ctx context.Context, prefix string) iter.Seq[string]
	// stored returns the number of objects in the store, or -1 if that is not known. It may be called from any
	// goroutine.
	stored() int
	// forget removes the tombstones that no watcher needs any more. It is called after each batch.
	forget(ctx context.Context)
	// close ends the use of the store. It is called when all watchers have stopped.
	close(ctx context.Context)
}

// outcome is the result of a write or a commit.
type outcome uint8

const (
	written outcome = iota
	refused         // by the store, with an error that wraps ErrPermanent
	split           // the store has refused a batch: its items must be applied in smaller ones
	kept            // some objects were inserted over others, which stay: these items must be applied again
	stopped         // ctx ended first
)

// pace limits how many changes the applier publishes together. It publishes several because waking the
// watchers costs as much as a few changes.
type pace struct {
	records   int           // no more than this number of records
	time      time.Duration // no more than the changes begun in this time
	immediate bool          // a change is in the store when write returns
}

// access is the common part of all storages. It makes and repeats operations on the store, and updates
// the indexes and figures after a change. The writes themselves are in own.go, plain.go and durable.go.
type access[T Object] struct {
	name     string // Options.Name
	store    any    // the store of the options, for errors
	scan     index.Scan
	index    *index.Index[T]
	clock    stopwatch.Stopwatch
	report   func(context.Context, error)
	reports  *reports
	observer *Observer
	// flush publishes the changes made so far. It is called before a retry, because a retry may take
	// long.
	flush  func(context.Context)
	places places

	call     *stopwatch.Call            // the operation that is under way
	failing  atomic.Pointer[StoreError] // the operation that fails now
	refused  atomic.Int64               // number of refused changes
	objects  atomic.Int64               // number of objects in the store; -1 if that is not known
	example  any                        // an object that open has found; nil if there was none
	keyFound bool                       // checkKey has found an object
	lost     *StoreError                // with which checkKey has ended Run; nil if it has not
	end      func()                     // ends Run
}

func newAccess[T Object](x *index.Index[T], clock stopwatch.Stopwatch, flush func(context.Context), objects *reports, opts Options[T]) *access[T] {
	return &access[T]{
		name: opts.Name, store: opts.store(), scan: x.Scan(), index: x, clock: clock,
		report: opts.ErrorHandler, reports: objects, observer: opts.Observer, flush: flush, places: places{},
		call: stopwatch.NewCall(clock),
	}
}

func (a *access[T]) pass(it *item[T]) {
	p := a.places.of(it.scope)
	switch {
	case it.broken && it.kind != itemDelete:
		p.lack(it.key)
	case it.asks():
		delete(p.lacks, it.key)
	}
	p.pass(it.kind, it.rv)
}

func (a *access[T]) spoil(of *scope) { a.places.of(of).spoil() }

func (a *access[T]) stored() int { return int(a.objects.Load()) }

func (a *access[T]) drop(of *scope) { delete(a.places, of) }

func (a *access[T]) version(of *scope) string { return a.places.of(of).bookmark() }

// get looks up a key, with retry. A stored value of another type counts as absent: open has reported it,
// and the next write replaces it. get returns an error that wraps ErrPermanent, or the error of ctx.
func (a *access[T]) get(ctx context.Context, key string, now time.Duration) (obj T, exists bool, err error) {
	try := func() (err error) {
		obj, exists, err = index.Get[T](ctx, a.scan, key)
		if errors.Is(err, object.ErrWrongType) {
			return nil
		}
		return err
	}
	if err = a.attempt("get", key, now, 1, try); err != nil {
		a.flush(ctx)
		err = a.repeat(ctx, "get", key, err, try)
	}
	if errors.Is(err, ErrPermanent) {
		a.refused.Add(1)
	}
	return obj, exists, err
}

// attempt makes one attempt at an operation on the store, and returns its error. failures is the number
// of failures in a row, including this attempt if it fails.
func (a *access[T]) attempt(op, key string, now time.Duration, failures int, try func() error) error {
	a.call.Begin(op, key, now)
	if a.observer.Store == nil {
		err := try()
		a.call.End()
		return err
	}
	begun := time.Now()
	err := try()
	a.call.End()
	if err == nil {
		failures = 0
	}
	a.observer.Store(StoreInfo{Informer: a.name, Op: op, Key: key, Took: time.Since(begun), Err: err, Failures: failures})
	return err
}

// insist performs an operation on the store, and repeats it as repeat does if it fails.
func (a *access[T]) insist(ctx context.Context, op, key string, try func() error) error {
	if err := a.attempt(op, key, a.clock.Now(), 1, try); err != nil {
		return a.repeat(ctx, op, key, err, try)
	}
	return nil
}

// repeat repeats an operation whose first attempt has failed with err, until it succeeds. It returns an
// error that wraps ErrPermanent if the store refuses the operation, and the error of ctx if ctx ends
// first. The caller should first publish all earlier changes, because repeat may take long.
func (a *access[T]) repeat(ctx context.Context, op, key string, err error, try func() error) error {
	begun, failures, last := time.Now(), 0, error(nil)
	rest := func(f retry.Failure) error {
		if interrupted(ctx, f.Err) {
			if failures > 0 { // the first failure is reported
				a.report(ctx, &StoreError{Op: op, Key: key, Failures: failures, GaveUp: true, Err: last})
			}
			return f.Err
		}
		failures, last = f.Count, f.Err
		permanent := errors.Is(f.Err, ErrPermanent)
		failed := &StoreError{Op: op, Key: key, Failures: f.Count, GaveUp: permanent, Err: f.Err}
		a.failing.Store(failed)
		if f.Count == 1 || permanent {
			a.report(ctx, failed)
		}
		if permanent {
			a.failing.Store(nil)
			return failed
		}
		if err := retry.Sleep(ctx, f.Pause); err != nil {
			a.report(ctx, &StoreError{Op: op, Key: key, Failures: f.Count, GaveUp: true, Err: f.Err})
			return err
		}
		return nil
	}
	again := func() error { return a.attempt(op, key, a.clock.Now(), failures+1, try) }
	if err := retry.After(err, again, rest); err != nil {
		return err
	}
	a.failing.Store(nil)
	if lasted := time.Since(begun); lasted >= stopwatch.HungCall { // a short failure is not worth a second log line
		klog.FromContext(ctx).Info("The store works again", "operation", op, "key", key, "failures", failures, "after", lasted)
	}
	return nil
}

// insistOnReading repeats a read until it succeeds. It returns false if ctx ended first. The informer
// cannot continue without the result, so it repeats even a read that the store refuses.
func (a *access[T]) insistOnReading(ctx context.Context, op string, read func() error) bool {
	return a.insist(ctx, op, "", func() error {
		err := read()
		if errors.Is(err, ErrPermanent) {
			return temporary{err}
		}
		return err
	}) == nil
}

// temporary hides that an error wraps ErrPermanent.
type temporary struct{ error }

// page returns the page of the store after a key, and the last key of the page, with retry. It returns
// false if ctx ended first.
func (a *access[T]) page(ctx context.Context, after string) (page object.Entries, last string, ok bool) {
	op := "scan"
	if !a.scan.Paged() { // List returns no error
		a.call.Begin("list", "", a.clock.Now())
		defer a.call.End()
		page, last, _ = a.scan.Page(ctx, after)
		return page, last, true
	}
	ok = a.insistOnReading(ctx, op, func() (err error) { page, last, err = a.scan.Page(ctx, after); return err })
	return page, last, ok
}

// load counts and indexes the objects that the store has at the start, and calls visit for each. If
// firstPage is true, it reads only the first page. It returns false if ctx ended first, or if the store
// does not find an object.
func (a *access[T]) load(ctx context.Context, firstPage bool, visit func(key string, obj T)) bool {
	loaded := a.index.Begin()
	for after, more := "", true; more; {
		page, last, ok := a.page(ctx, after)
		if !ok {
			return false
		}
		for n := range page.Len() {
			a.take(ctx, page.At(n), visit)
		}
		more = last != "" && !firstPage
		if after = last; last != "" && !more {
			a.objects.Store(-1)
		}
	}
	loaded()
	return a.lost == nil
}

// take does the work of load for one object.
func (a *access[T]) take(ctx context.Context, e object.Entry, visit func(key string, obj T)) {
	obj, err := object.As[T](e.Object)
	if err != nil {
		a.reports.unusable(ctx, &ObjectError{Op: "store", Err: err})
		return
	}
	key := e.Key()
	visit(key, obj)
	a.objects.Add(1)
	a.index.Wrote(key, obj, true)
	a.reportIndex(ctx, key, a.index.CheckFound(obj))
	a.example = obj
	a.checkKey(ctx, key)
}

// wrote updates the indexes and the number of objects after a change was stored. missing is true if a
// later change that is already stored has deleted the object.
func (a *access[T]) wrote(ctx context.Context, c *change[T], missing bool) {
	switch c.write {
	case writeNothing:
	case writeDelete:
		a.count(-1)
		a.index.Wrote(c.key, c.after, false)
		a.reports.ended(ctx, "index", c.key, false)
	default:
		if c.write == writeAdd {
			a.count(1)
		}
		a.index.Wrote(c.key, c.after, true)
		a.reportIndex(ctx, c.key, a.index.Check(c.after))
		if c.write == writeAdd && !missing {
			a.checkKey(ctx, c.key)
		}
	}
}

func (a *access[T]) count(n int64) {
	if a.objects.Load() >= 0 {
		a.objects.Add(n)
	}
}

// checkKey ends Run if the store does not find the first object that it was given. Such a store would get
// no deletes, and every relist would add all objects again.
func (a *access[T]) checkKey(ctx context.Context, key string) {
	if a.keyFound || a.lost != nil {
		return
	}
	a.call.Begin("get", key, a.clock.Now())
	_, exists, err := a.scan.Get(ctx, key)
	a.call.End()
	if a.keyFound = exists; exists || err != nil {
		return // after an error, the next object is checked instead
	}
	a.lost = &StoreError{Op: "get", Key: key, Failures: 1, GaveUp: true, Err: fmt.Errorf("%T does not find an object that it was given: "+
		"a store must find objects by their keys, Options.Store by those of cache.MetaNamespaceKeyFunc; to fill something else, "+
		"take NewSink", a.store)}
	a.failing.Store(a.lost)
	a.report(ctx, a.lost)
	a.end()
}

// reportIndex reports the errors of the index functions for an object, or notes that the functions work
// for it.
func (a *access[T]) reportIndex(ctx context.Context, key string, errs []error) {
	if len(errs) > 0 {
		a.reports.failed(ctx, "index", key, 0, errs...)
	} else {
		a.reports.ended(ctx, "index", key, true)
	}
}

// trouble returns an error for the operation on the store that fails now or has not returned for too
// long, or nil if there is none. It may be called from any goroutine.
func (a *access[T]) trouble() *StoreError {
	failing := a.failing.Load()
	op, key, lasts := a.call.Hung()
	if op == "" {
		return failing
	}
	hung := &StoreError{Op: op, Key: key, Err: fmt.Errorf("has not returned for %v", lasts.Truncate(time.Second))}
	if failing != nil {
		hung.Failures = failing.Failures
	}
	return hung
}

// places holds the place of each source that has delivered items, and one for the items that come from no
// source.
type places map[*scope]*place

func (p places) of(s *scope) *place {
	if p[s] == nil {
		p[s] = &place{doubtful: s.lists}
	}
	return p[s]
}

// place shows which version of one source the store has.
type place struct {
	version string
	exact   bool // the store is what the source was at the version, except for the keys in lacks
	spoiled bool // since the last list began, an object could not be stored
	// lacks has the keys of objects for which Transform has failed since the last list began, until the object changes
	// again, or is deleted.
	lacks map[string]struct{}
	// doubtful is true if versions in a durable store may belong to states that the server has lost. It
	// is true until the next bookmark.
	doubtful bool
}

// pass notes that an item was applied. While a list is being applied, the store is in a state that the
// server never had.
func (p *place) pass(kind itemKind, version string) {
	switch kind {
	case itemList:
		p.exact, p.spoiled, p.lacks = false, false, nil
	case itemListed:
		p.exact = !p.spoiled && version != "" && version != "0"
	default:
		// An item without a version is part of a list, or its age is unknown. After it, the store matches
		// no version.
		p.exact = p.exact && version != ""
	}
	if version != "" {
		p.version = version
	}
}

// spoil notes that an object could not be stored. It may be missing until the next list.
func (p *place) spoil() { p.exact, p.spoiled = false, true }

// maxLacks limits the keys in place.lacks.
const maxLacks = 1000

// lack notes that Transform has failed for the object of a key. With too many such keys, it spoils the place.
func (p *place) lack(key string) {
	if len(p.lacks) == maxLacks {
		p.spoil()
		return
	}
	if p.lacks == nil {
		p.lacks = map[string]struct{}{}
	}
	p.lacks[key] = struct{}{}
}

// bookmark returns the version at which the source can continue, or "" if it must list.
func (p place) bookmark() string {
	if !p.exact || len(p.lacks) > 0 {
		return ""
	}
	return p.version
}
