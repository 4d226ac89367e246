package informer

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// What is applied is told in batches, because waking the watchers costs as much as a
// few changes. A change waits for no more than applyBatch others or for applyTime,
// whichever is less, and never for one that has yet to come.
const (
	applyBatch = maxChunk
	applyTime  = time.Millisecond
)

// change is what one delta asks for, and what was decided about it.
type change[T Object] struct {
	item  *item[T] // nil for a delete that a relist found
	key   string
	known bool      // watchers may have been told of the key before
	uid   types.UID // of what was known before

	write  write
	stored T // what write puts into the store, or takes out
}

// asks reports whether anything is asked for: not so by a bookmark, the end of a
// list, or an object for which Transform failed.
func (c *change[T]) asks() bool {
	return c.item == nil || c.item.kind == itemDelete || c.item.kind == itemUpsert && !c.item.broken
}

// applier takes changes from the queue, applies them to the store one by one and
// tells the processor: one goroutine, that holds no lock meanwhile. What happens is
// decided once, from a Get that succeeded; then only the write is retried, until it
// succeeds or the informer stops.
type applier[T Object] struct {
	queue     cache.Queue
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

	popped []change[T]            // what was taken from the queue
	list   *cache.ReplacedAllInfo // a RealFIFO's list, to be taken apart

	// What is still to be told.
	records  []record[T]
	done     int           // how many of records: those of the change at hand come after
	since    time.Duration // when the first of them was begun
	leaving  []*item[T]
	observed []ApplyInfo
	first    bool // the first list is done
	bookmark bool // all of a list is done, or the source says that there is no more
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
		a.queue = cache.NewRealFIFOWithOptions(cache.RealFIFOOptions{
			KeyFunction: itemKey[T], AtomicEvents: true, UnlockWhileProcessing: true,
		})
		return a
	}
	a.queue = cache.NewDeltaFIFOWithOptions(cache.DeltaFIFOOptions{
		KeyFunction: itemKey[T], KnownObjects: &a.known, EmitDeltaTypeReplaced: true,
	})
	return a
}

// run applies until ctx ends and the queue is closed.
func (a *applier[T]) run(ctx context.Context) {
	for ctx.Err() == nil && a.pop() == nil {
		if !a.applyPopped(ctx) {
			return
		}
		a.tell(ctx)
		// Under load, the others get to what makes the next batch a large one: without
		// this, the applier would wait for, and wake watchers for, one change at a
		// time. When nobody else has anything to do, it costs 100 ns.
		runtime.Gosched()
	}
}

// pop waits for changes and takes up to applyBatch out of the queue. The callbacks
// only hand them out, because the queue may hold its lock.
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
	for {
		// The queue does not say whether it is empty, and Pop would wait.
		if _, err := a.queue.Pop(single); err != nil || a.inlet.queued.Load() <= 0 || len(a.popped) >= applyBatch {
			return err
		}
	}
}

// take notes a delta, and in the key set what will be known once it is applied.
// DeltaFIFO asks that set, under its lock, which keys a list lacks: it must
// contain what is in flight, or a delete would be missed.
func (a *applier[T]) take(d cache.Delta) {
	switch obj := d.Object.(type) {
	case *item[T]:
		a.inlet.queued.Add(-1)
		a.popped = append(a.popped, a.known.note(obj))
	case cache.DeletedFinalStateUnknown:
		if !strings.HasPrefix(obj.Key, ownPrefix) {
			a.popped = append(a.popped, a.known.forget(obj.Key))
		}
	case cache.ReplacedAllInfo:
		a.inlet.queued.Add(-int64(len(obj.Objects)))
		a.list = &obj
	}
}

// applyPopped applies what was taken from the queue. It returns false if ctx ended
// before all was done.
func (a *applier[T]) applyPopped(ctx context.Context) bool {
	if a.list != nil {
		return a.replace(ctx)
	}
	for i := range a.popped {
		if !a.apply(ctx, &a.popped[i]) {
			return false
		}
	}
	return true
}

// replace applies a list that RealFIFO hands out whole: first the deletes of what
// it lacks, then what it holds.
func (a *applier[T]) replace(ctx context.Context) bool {
	listed := make(map[string]struct{}, len(a.list.Objects))
	for _, obj := range a.list.Objects {
		listed[obj.(*item[T]).key] = struct{}{}
	}
	for _, key := range a.known.ListKeys() {
		if _, there := listed[key]; there {
			continue
		}
		if c := a.known.forget(key); !a.apply(ctx, &c) {
			return false
		}
	}
	for _, obj := range a.list.Objects {
		if c := a.known.note(obj.(*item[T])); !a.apply(ctx, &c) {
			return false
		}
	}
	return true
}

// apply decides on a change, writes it, and tells the changes before it if they
// have waited for long enough. It returns false if ctx ended before it was done.
func (a *applier[T]) apply(ctx context.Context, c *change[T]) bool {
	now := a.processor.now()
	if len(a.records) == 0 {
		a.since = now
	} else if len(a.records) >= applyBatch || now-a.since >= applyTime {
		a.tell(ctx)
		a.since = now
	}
	if c.asks() {
		old, exists, err := a.get(ctx, c.key, now)
		switch {
		case err == nil:
			a.decide(c, old, exists)
		case errors.Is(err, ErrPermanent):
			a.refuse(c)
		default:
			return false
		}
		if !a.write(ctx, c) {
			return false
		}
	}
	a.leave(ctx, c)
	return true
}

// leave notes that a change is done.
func (a *applier[T]) leave(ctx context.Context, c *change[T]) {
	a.observe(c)
	a.done = len(a.records)
	if c.item == nil || c.item.size == 0 {
		return
	}
	a.leaving = append(a.leaving, c.item)
	switch c.item.kind {
	case itemBookmark:
		a.bookmark = true
	case itemListed:
		a.bookmark = true
		if !a.processor.hasSynced() {
			a.processor.log.begun.Add(1)
			a.processor.willSync(len(a.records))
			a.records = append(a.records, record[T]{kind: recordMarker})
			a.done, a.first = len(a.records), true
		}
		a.tell(ctx) // nothing that comes behind a list may delay Synced
	}
}

// observe notes what the observer is to be told of a change.
func (a *applier[T]) observe(c *change[T]) {
	if a.observer.Apply == nil {
		return
	}
	var lag time.Duration
	if c.item != nil {
		lag = a.processor.now() - c.item.arrived
	}
	for _, r := range a.records[a.done:] {
		if r.isEvent() {
			a.observed = append(a.observed, ApplyInfo{Informer: a.name, Key: r.key, Type: r.event.Type, Origin: r.event.Origin, Lag: lag})
		}
	}
}

// tell makes known what is done: to those who wait for a version or for Synced, to
// the watchers, to the observer and to the store.
func (a *applier[T]) tell(ctx context.Context) {
	rv := a.inlet.applied(a.leaving)
	if a.first {
		klog.FromContext(ctx).V(2).Info("The informer has synced", "resourceVersion", rv)
		close(a.synced)
		a.first = false
	}
	a.processor.distribute(a.records[:a.done])
	for _, info := range a.observed {
		a.observer.Apply(info)
	}
	if a.bookmark && rv != "" {
		a.call.enter("bookmark", "", a.processor.now())
		a.store.Bookmark(rv)
		a.call.leave()
	}
	a.bookmark = false
	a.records, a.done = slices.Delete(a.records, 0, a.done), 0
	clear(a.leaving)
	a.leaving, a.observed = a.leaving[:0], a.observed[:0]
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

// fill takes over what the store holds at the start, before anything is applied.
func (a *applier[T]) fill(ctx context.Context, accept func(any) (T, error)) {
	a.call.enter("list", "", a.processor.now())
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
