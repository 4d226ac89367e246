package informer

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
)

// applyBatch is how many changes of a list are told at once. It bounds the time
// until the first of them is seen, and the memory of the decisions.
const applyBatch = maxChunk

// storeBackoff paces the retries of a failing store: up to 5 s, as the jitter comes
// on top of Cap.
var storeBackoff = wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 10 * time.Second / 3}

// change is what one delta asks for, and what was decided about it.
type change[T Object] struct {
	item  *item[T] // nil for a delete that a relist found
	key   string
	known bool      // watchers may have been told of the key
	uid   types.UID // of what was known

	write   write
	stored  T   // what write puts into the store, or takes out
	records int // how many records of the batch belong to the change
}

// write is what is to be done to the store.
type write uint8

const (
	writeNothing write = iota
	writeAdd
	writeUpdate
	writeDelete
)

// applier takes changes from the queue, applies them to the store and tells the
// processor: one goroutine, that holds no lock meanwhile. What happens is decided
// once, from a Get that succeeded; then only the write is retried, until it
// succeeds or the informer stops.
type applier[T Object] struct {
	queue     cache.Queue
	atOnce    int // how many of the changes that the queue hands out go together
	inlet     *inlet[T]
	store     cache.Store
	index     *index[T]
	processor *informerProcessor[T]
	known     keySet[T]
	report    func(context.Context, error)
	failing   atomic.Pointer[StoreError] // the operation that fails now
	synced    chan struct{}              // closed once the first list is applied

	// Of the batch at hand.
	popped  []change[T]
	list    *cache.ReplacedAllInfo // a RealFIFO's list, to be taken apart
	records []record[T]
	leaving []*item[T]
}

// newApplier returns an applier with a queue of the kind that opts ask for. The
// inlet, which writes into that queue, is still to be set.
func newApplier[T Object](store cache.Store, index *index[T], processor *informerProcessor[T], opts Options[T]) *applier[T] {
	a := &applier[T]{
		store:     store,
		index:     index,
		processor: processor,
		known:     keySet[T]{uids: map[string]types.UID{}},
		report:    opts.ErrorHandler,
		synced:    make(chan struct{}),
	}
	if opts.Queue == RealFIFO {
		a.atOnce = applyBatch // RealFIFO hands out changes of different objects
		a.queue = cache.NewRealFIFOWithOptions(cache.RealFIFOOptions{
			KeyFunction: itemKey[T], AtomicEvents: true, UnlockWhileProcessing: true,
		})
		return a
	}
	a.atOnce = 1 // DeltaFIFO hands out changes of one object, each of which must see the one before
	a.queue = cache.NewDeltaFIFOWithOptions(cache.DeltaFIFOOptions{
		KeyFunction: itemKey[T], KnownObjects: &a.known, EmitDeltaTypeReplaced: true,
	})
	return a
}

// run applies until ctx ends and the queue is closed.
func (a *applier[T]) run(ctx context.Context) {
	for ctx.Err() == nil && a.pop() == nil {
		if a.list != nil {
			if !a.replace(ctx) {
				return
			}
			continue
		}
		for rest := a.popped; len(rest) > 0; {
			n := a.together(rest)
			if !a.apply(ctx, rest[:n]) {
				return
			}
			rest = rest[n:]
		}
	}
}

// together returns how many of the changes make the next batch. The end of a list
// is one of its own, so that nothing behind it can delay Synced.
func (a *applier[T]) together(changes []change[T]) int {
	for n, c := range changes[:min(len(changes), a.atOnce)] {
		if c.item != nil && c.item.kind == itemListed {
			return max(n, 1)
		}
	}
	return min(len(changes), a.atOnce)
}

// pop waits for changes and takes them out of the queue. The callbacks only hand
// them out, because the queue may hold its lock.
func (a *applier[T]) pop() error {
	clear(a.popped)
	a.popped, a.list = a.popped[:0], nil
	single := func(obj any, _ bool) error {
		for _, d := range obj.(cache.Deltas) {
			a.take(d)
		}
		return nil
	}
	if q, ok := a.queue.(*cache.RealFIFO); ok {
		return q.PopBatch(func(deltas []cache.Delta, _ bool) error {
			for _, d := range deltas {
				a.take(d)
			}
			return nil
		}, single)
	}
	_, err := a.queue.Pop(single)
	return err
}

// take notes a delta, and in the key set what will be known once it is applied.
// DeltaFIFO asks that set, under its lock, which keys a list lacks: it must
// contain what is in flight, or a delete would be missed.
func (a *applier[T]) take(d cache.Delta) {
	switch obj := d.Object.(type) {
	case *item[T]:
		a.popped = append(a.popped, a.known.note(obj))
	case cache.DeletedFinalStateUnknown:
		if !strings.HasPrefix(obj.Key, ownPrefix) {
			a.popped = append(a.popped, a.known.forget(obj.Key))
		}
	case cache.ReplacedAllInfo:
		a.list = &obj
	}
}

// replace applies a list that RealFIFO hands out whole: first the deletes of what
// it lacks, then what it holds.
func (a *applier[T]) replace(ctx context.Context) bool {
	listed := make(map[string]bool, len(a.list.Objects))
	for _, obj := range a.list.Objects {
		listed[obj.(*item[T]).key] = true
	}
	batch := make([]change[T], 0, applyBatch)
	next := func(c change[T]) bool {
		batch = append(batch, c)
		if len(batch) < applyBatch {
			return true
		}
		ok := a.apply(ctx, batch)
		batch = batch[:0]
		return ok
	}
	for _, key := range a.known.ListKeys() {
		if !listed[key] && !next(a.known.forget(key)) {
			return false
		}
	}
	for _, obj := range a.list.Objects {
		it := obj.(*item[T])
		if !listed[it.key] { // twice in the list: the second must see the first
			if !a.apply(ctx, batch) {
				return false
			}
			batch = batch[:0]
		}
		delete(listed, it.key)
		if !next(a.known.note(it)) {
			return false
		}
	}
	return a.apply(ctx, batch)
}

// apply decides on a batch of changes of different objects, writes them, and
// appends their records to the log. It returns false if ctx ended before all was
// done.
func (a *applier[T]) apply(ctx context.Context, batch []change[T]) bool {
	a.records, a.leaving = a.records[:0], a.leaving[:0]
	bookmark, synced := false, false
	for i := range batch {
		c := &batch[i]
		before := len(a.records)
		switch {
		case c.item == nil, c.item.kind == itemDelete, c.item.kind == itemUpsert && !c.item.broken:
			old, exists, ok := a.get(ctx, c.key)
			if !ok {
				return false
			}
			a.decide(c, old, exists)
		case c.item.kind == itemListed && !a.processor.hasSynced():
			a.processor.willSync(len(a.records))
			a.records = append(a.records, record[T]{kind: recordMarker})
			synced = true
		}
		c.records = len(a.records) - before
		if c.item != nil && c.item.size > 0 {
			a.leaving = append(a.leaving, c.item)
			bookmark = bookmark || c.item.kind == itemBookmark || c.item.kind == itemListed
		}
	}
	untold, ok := a.write(ctx, batch)
	if !ok {
		return false
	}
	rv := a.inlet.applied(a.leaving)
	if synced {
		close(a.synced)
	}
	a.processor.distribute(untold)
	if bookmark && rv != "" {
		a.store.Bookmark(rv)
	}
	clear(a.records)
	clear(a.leaving)
	return true
}

// decide turns a change into a write and the records of what will have happened.
func (a *applier[T]) decide(c *change[T], old T, exists bool) {
	var none T
	origin := a.origin(c)
	if c.item == nil || c.item.kind == itemDelete {
		unknown := c.item == nil
		switch {
		case exists:
			c.write, c.stored = writeDelete, old
		case !c.known:
			return
		default: // the store has lost what watchers know
			unknown = true
			old = tombstone[T](c.key, c.uid)
			if c.item != nil && !c.item.broken {
				old, unknown = c.item.obj, false
			}
		}
		a.record(c.key, Event[T]{Old: old, Type: EventDeleted, Origin: origin, FinalStateUnknown: unknown})
		return
	}
	obj := c.item.obj
	if !exists {
		c.write, c.stored = writeAdd, obj
		a.record(c.key, Event[T]{New: obj, Type: EventAdded, Origin: origin})
		return
	}
	if c.item.listed && sameVersion(old, obj) {
		a.record(c.key, Event[T]{Old: old, New: old, Type: EventUpdated, Origin: origin})
		a.records[len(a.records)-1].unchanged = true
		return
	}
	c.write, c.stored = writeUpdate, obj
	if old.GetUID() != "" && obj.GetUID() != "" && old.GetUID() != obj.GetUID() {
		// Deleted and created again while nobody was looking.
		a.record(c.key, Event[T]{Old: old, Type: EventDeleted, Origin: origin, FinalStateUnknown: true})
		old = none
	}
	if old == none {
		a.record(c.key, Event[T]{New: obj, Type: EventAdded, Origin: origin})
		return
	}
	a.record(c.key, Event[T]{Old: old, New: obj, Type: EventUpdated, Origin: origin})
}

func (a *applier[T]) record(key string, e Event[T]) {
	a.records = append(a.records, record[T]{key: key, event: e})
}

// origin says where a change comes from.
func (a *applier[T]) origin(c *change[T]) Origin {
	switch {
	case !a.processor.hasSynced():
		return OriginInitial
	case c.item == nil || c.item.listed:
		return OriginRelist
	}
	return OriginWatch
}

// sameVersion reports whether a list brought what is stored already.
func sameVersion[T Object](a, b T) bool {
	return a.GetUID() != "" && a.GetUID() == b.GetUID() &&
		a.GetResourceVersion() != "" && a.GetResourceVersion() == b.GetResourceVersion()
}

// write changes the store and returns the records that are to be told then. If
// the store fails, it tells what has been done so far before it tries again. It
// returns false if ctx ended first.
func (a *applier[T]) write(ctx context.Context, batch []change[T]) (untold []record[T], ok bool) {
	a.processor.log.begun.Add(int64(len(a.records)))
	untold = a.records
	done := 0 // of untold
	for i := range batch {
		c := &batch[i]
		if c.write != writeNothing {
			if err := a.tryWrite(c.write, c.stored); err != nil {
				a.processor.distribute(untold[:done])
				untold, done = untold[done:], 0
				if !a.retry(ctx, c.write.String(), c.key, err, func() error { return a.tryAgain(c) }) {
					return nil, false
				}
			}
			a.index.wrote(c.key, c.stored, c.write != writeDelete)
			if c.write != writeDelete {
				a.reportIndex(ctx, c.key, c.stored)
			}
		}
		done += c.records
	}
	return untold, true
}

// reportIndex reports what the index functions returned for obj.
func (a *applier[T]) reportIndex(ctx context.Context, key string, obj T) {
	for _, err := range a.index.check(obj) {
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
// not: so it looks first.
func (a *applier[T]) tryAgain(c *change[T]) error {
	_, exists, err := a.store.GetByKey(c.key)
	switch {
	case err != nil:
		return err
	case c.write != writeDelete && exists:
		return a.tryWrite(writeUpdate, c.stored)
	case c.write != writeDelete:
		return a.tryWrite(writeAdd, c.stored)
	case exists:
		return a.tryWrite(writeDelete, c.stored)
	}
	return nil
}

func (w write) String() string {
	return [...]string{writeNothing: "nothing", writeAdd: "add", writeUpdate: "update", writeDelete: "delete"}[w]
}

// get looks a key up. An error is not an absence: it is retried. Something of
// another type is one: fill has reported it, and it is written over. get returns
// false in the end if ctx ended first.
func (a *applier[T]) get(ctx context.Context, key string) (old T, exists, ok bool) {
	try := func() (err error) {
		old, exists, err = storeGet[T](a.store, key)
		if errors.Is(err, errWrongType) {
			return nil
		}
		return err
	}
	if err := try(); err != nil {
		return old, exists, a.retry(ctx, "get", key, err, try)
	}
	return old, exists, true
}

// retry repeats an operation that has failed once with err until it succeeds, or
// returns false when ctx ends.
func (a *applier[T]) retry(ctx context.Context, op, key string, err error, try func() error) bool {
	a.failing.Store(&StoreError{Op: op, Key: key, Failures: 1, Err: err})
	a.report(ctx, a.failing.Load())
	backoff := storeBackoff
	for failures := 1; ; {
		timer := time.NewTimer(backoff.Step())
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			a.report(ctx, &StoreError{Op: op, Key: key, Failures: failures, GaveUp: true, Err: err})
			return false
		}
		if err = try(); err == nil {
			a.failing.Store(nil)
			return true
		}
		failures++
		a.failing.Store(&StoreError{Op: op, Key: key, Failures: failures, Err: err})
	}
}

// fill takes over what the store holds at the start, before anything is applied.
func (a *applier[T]) fill(ctx context.Context, accept func(any) (T, error)) {
	for _, stored := range a.store.List() {
		obj, err := accept(stored)
		if err != nil {
			a.report(ctx, &ObjectError{Op: "store", Err: err})
			continue
		}
		key := objectKey(obj)
		a.known.set(key, obj.GetUID())
		a.index.wrote(key, obj, true)
		a.reportIndex(ctx, key, obj)
		a.processor.seeded = true
	}
	a.index.filled.Store(true)
	close(a.processor.filled)
}
