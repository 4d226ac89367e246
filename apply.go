package informer

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// applyBatch is how many changes of a list are told at once. It bounds the time
// until the first of them is seen, and the memory of the decisions.
const applyBatch = maxChunk

// change is what one delta asks for, and what was decided about it.
type change[T Object] struct {
	item  *item[T] // nil for a delete that a relist found
	key   string
	known bool      // watchers may have been told of the key before
	uid   types.UID // of what was known before

	write   write
	stored  T   // what write puts into the store, or takes out
	records int // how many records of the batch belong to the change
}

// asks reports whether anything is asked for: not so by a bookmark, the end of a
// list, or an object for which Transform failed.
func (c *change[T]) asks() bool {
	return c.item == nil || c.item.kind == itemDelete || c.item.kind == itemUpsert && !c.item.broken
}

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
	observer  Observer
	name      string                     // Options.Name
	failing   atomic.Pointer[StoreError] // the operation that fails now
	call      *storeCall                 // the one that is under way
	refused   atomic.Int64               // changes
	keyFound  bool                       // the store finds objects by our keys, or was reported
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
		observer:  *opts.Observer,
		name:      opts.Name,
		call:      &storeCall{clock: processor.stopwatch},
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
		case c.asks():
			old, exists, err := a.get(ctx, c.key)
			switch {
			case err == nil:
				a.decide(c, old, exists)
			case errors.Is(err, ErrPermanent):
				a.refuse(c)
			default:
				return false
			}
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
		klog.FromContext(ctx).V(2).Info("The informer has synced", "resourceVersion", rv)
		close(a.synced)
	}
	a.processor.distribute(untold)
	a.observeApplied(batch)
	if bookmark && rv != "" {
		a.call.enter("bookmark", "")
		a.store.Bookmark(rv)
		a.call.leave()
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

// refuse takes a change back that the store refuses. Watchers are not told of it.
func (a *applier[T]) refuse(c *change[T]) {
	a.refused.Add(1)
	for i := range a.popped {
		if &a.popped[i] != c {
			continue
		}
		// The next change of the key was noted as if this one had been made.
		for j := range a.popped[i+1:] {
			if next := &a.popped[i+1+j]; next.key == c.key && next.asks() {
				next.known, next.uid = c.known, c.uid
				return
			}
		}
	}
	a.known.restore(c)
}

// observeApplied tells the observer of what was told.
func (a *applier[T]) observeApplied(batch []change[T]) {
	if a.observer.Apply == nil {
		return
	}
	records := a.records
	for _, c := range batch {
		var lag time.Duration
		if c.item != nil {
			lag = time.Since(c.item.arrived)
		}
		for _, r := range records[:c.records] {
			if r.isEvent() {
				a.observer.Apply(ApplyInfo{Informer: a.name, Key: r.key, Type: r.event.Type, Origin: r.event.Origin, Lag: lag})
			}
		}
		records = records[c.records:]
	}
}

// fill takes over what the store holds at the start, before anything is applied.
func (a *applier[T]) fill(ctx context.Context, accept func(any) (T, error)) {
	a.call.enter("list", "")
	all := a.store.List()
	a.call.leave()
	for _, stored := range all {
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
