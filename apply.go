package informer

import (
	"context"
	"errors"
	"iter"
	"maps"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
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

// change is what an item asks for, and what was decided about it.
type change[T Object] struct {
	*item[T]
	known bool      // watchers may have been told of the key before
	uid   types.UID // of what was known before

	write  write
	stored T    // what write puts into the store, or takes out
	old    T    // what the store has
	ends   bool // that object is no more
}

// asks reports whether the item asks for a change: not so an object for which
// Transform failed.
func (it *item[T]) asks() bool {
	switch it.kind {
	case itemUpsert:
		return !it.broken
	case itemDelete, itemGone:
		return true
	}
	return false
}

// applier takes changes from the queue, applies them to the store one by one and
// tells the processor: one goroutine, that holds no lock meanwhile. What happens is
// decided once, from a Get that succeeded; then only the write is retried, until it
// succeeds or the informer stops. A durable store is written to once for all that is
// told at once.
type applier[T Object] struct {
	queue     cache.Queue
	inlet     *inlet[T]
	store     cache.Store
	scan      scan
	batch     *batch[T] // nil unless the store is durable
	index     *index[T]
	processor *informerProcessor[T]
	known     map[string]types.UID // what exists, by key; nil if the store is relied upon for that
	report    func(context.Context, error)
	observer  *Observer
	name      string // Options.Name
	tombstone func(key string, uid types.UID) T
	detector  cache.MutationDetector     // does nothing unless KUBE_CACHE_MUTATION_DETECTOR is set
	final     atomic.Bool                // the last state of a deleted object is to be told too
	failing   atomic.Pointer[StoreError] // the operation that fails now
	call      *storeCall                 // the one that is under way
	refused   atomic.Int64               // changes
	objects   atomic.Int64               // in the store; -1 if that is not known
	keyFound  bool                       // the store finds objects by our keys, or was reported
	synced    chan struct{}              // closed once the first list is applied

	popped []*item[T] // what was taken from the queue

	// What is still to be told.
	records  []record[T]
	done     int           // how many of records: those of the change at hand come after
	since    time.Duration // when the first of them was begun
	leaving  []*item[T]
	observed []ApplyInfo
	first    bool // the first list is done
	bookmark bool // all of a list is done, or the source says that there is no more

	resumed bool // all since the start was of a watch
	doubted bool // what a durable store has may have been undone, until it has a bookmark
}

// newApplier returns an applier with a queue of the kind that opts ask for. The
// inlet, which writes into that queue, is still to be set.
func newApplier[T Object](store cache.Store, index *index[T], processor *informerProcessor[T], tombstone func(string, types.UID) T, opts Options[T]) *applier[T] {
	a := &applier[T]{
		store:     store,
		scan:      newScan(store),
		batch:     newBatch[T](store),
		tombstone: tombstone,
		detector:  cache.NewCacheMutationDetector(opts.Name),
		index:     index,
		processor: processor,
		report:    opts.ErrorHandler,
		observer:  opts.Observer,
		name:      opts.Name,
		call:      &storeCall{clock: processor.Stopwatch},
		synced:    make(chan struct{}),
	}
	if opts.Store != nil && a.batch == nil {
		a.known = map[string]types.UID{}
	}
	if opts.Queue == RealFIFO {
		a.queue = cache.NewRealFIFOWithOptions(cache.RealFIFOOptions{KeyFunction: itemKey[T], AtomicEvents: true})
		return a
	}
	a.queue = cache.NewDeltaFIFOWithOptions(cache.DeltaFIFOOptions{KeyFunction: itemKey[T]})
	return a
}

// run applies until ctx ends and the queue is closed.
func (a *applier[T]) run(ctx context.Context) {
	for ctx.Err() == nil && a.pop() == nil {
		for _, it := range a.popped {
			if ctx.Err() != nil || !a.apply(ctx, it) {
				break
			}
		}
		if a.inlet.full.Load() && a.batch == nil { // then another comes as soon as there is room
			a.release()
		} else {
			a.tell(ctx)
		}
		// Under load, the others get to what makes the next batch a large one: without
		// this, the applier would wait for, and wake watchers for, one change at a
		// time. When nobody else has anything to do, it costs 100 ns.
		runtime.Gosched()
	}
	a.tell(ctx)
}

// pop waits for changes and takes some out of the queue. The callbacks only hand
// them out, because the queue holds its lock.
func (a *applier[T]) pop() error {
	clear(a.popped)
	a.popped = a.popped[:0]
	take := func(deltas []cache.Delta) {
		for _, d := range deltas {
			a.popped = append(a.popped, d.Object.(*item[T]))
		}
		a.inlet.queued.Add(-int64(len(deltas)))
	}
	batch := func(deltas []cache.Delta, _ bool) error { take(deltas); return nil }
	single := func(obj any, _ bool) error { take(obj.(cache.Deltas)); return nil }
	ordered, ok := a.queue.(*cache.RealFIFO)
	if ok && a.batch == nil {
		return ordered.PopBatch(batch, single)
	}
	// The queue does not say whether it is empty, and Pop would wait.
	for more := true; more; {
		var err error
		if ok {
			err = ordered.PopBatch(batch, single) // which gives no object twice
			more = len(a.popped) < batchSize
		} else {
			_, err = a.queue.Pop(single)
			more = len(a.popped) < applyBatch
		}
		if err != nil {
			return err
		}
		more = more && a.inlet.queued.Load() > 0
	}
	return nil
}

// apply decides on what an item asks for, writes it, and tells the changes before
// it if they have waited for long enough. It returns false if ctx ended before it
// was done.
func (a *applier[T]) apply(ctx context.Context, it *item[T]) bool {
	now := a.processor.Now()
	if len(a.records) == 0 {
		a.since = now
	} else if a.full(now) {
		a.tell(ctx)
		a.since = now
	}
	if it.asks() && !a.change(ctx, it, now) {
		return false
	}
	if it.kind == itemForget {
		a.forget(ctx)
	}
	a.leave(ctx, it)
	return it.kind != itemList || a.endLacking(ctx, it)
}

// full reports whether what is done has waited for long enough.
func (a *applier[T]) full(now time.Duration) bool {
	if a.batch != nil {
		return len(a.records) >= batchSize
	}
	return len(a.records) >= applyBatch || now-a.since >= applyTime
}

// change makes the change that an item asks for. It returns false if ctx ended before
// that was done.
func (a *applier[T]) change(ctx context.Context, it *item[T], now time.Duration) bool {
	c := change[T]{item: it}
	c.uid, c.known = a.known[it.key]
	old, exists, err := a.get(ctx, it.key, now)
	switch {
	case err == nil:
		a.doubted = a.doubted || it.restored && a.batch != nil
		if a.resumed && exists && !it.listed && !newer(it.rv, old.GetResourceVersion()) {
			return true
		}
		a.decide(&c, old, exists)
		return a.write(ctx, &c, now)
	case errors.Is(err, ErrPermanent):
		a.refused.Add(1)
		if a.batch != nil {
			a.batch.place.spoil()
		}
		return true
	}
	return false
}

// newer reports whether a version comes after one that is stored. The watch of a store
// that has kept its bookmark may begin before what is in it.
func newer(version, stored string) bool {
	order, err := resourceversion.CompareResourceVersion(version, stored)
	return err != nil || order > 0
}

// endLacking makes the changes that a list asks for by what it lacks.
func (a *applier[T]) endLacking(ctx context.Context, list *item[T]) bool {
	a.resumed = false
	listed := list.listing
	list.listing = nil // should it be applied again
	if listed == nil {
		return true
	}
	for key := range a.knownKeys(ctx) {
		if _, there := listed[key]; there {
			continue
		}
		if !a.apply(ctx, &item[T]{kind: itemGone, key: key, listed: true, own: true}) {
			return false
		}
	}
	return ctx.Err() == nil
}

// leave notes that an item is applied.
func (a *applier[T]) leave(ctx context.Context, it *item[T]) {
	a.observe(it)
	a.done = len(a.records)
	ends := it.kind == itemListed || it.kind == itemResumed
	if ends && !a.processor.hasSynced() {
		a.tell(ctx) // who joins once Synced is closed finds all of the list told
		if a.batch == nil {
			a.processor.begun.Add(1)
		}
		a.processor.willSync()
		a.records = append(a.records, record[T]{kind: recordMarker})
		a.done, a.first = 1, true
	}
	if a.batch != nil {
		a.batch.place.pass(it.kind, it.broken && it.kind != itemDelete, it.rv)
	}
	a.leaving = append(a.leaving, it)
	a.bookmark = a.bookmark || it.kind == itemBookmark || it.kind == itemListed
	if ends {
		a.tell(ctx) // nothing that comes behind a list may delay Synced
	}
}

// observe notes what the observer is to be told of an item.
func (a *applier[T]) observe(it *item[T]) {
	if a.observer.Apply == nil {
		return
	}
	var lag time.Duration
	if it.kind != itemGone {
		lag = a.processor.Now() - it.arrived
	}
	for _, r := range a.records[a.done:] {
		if r.isEvent() {
			a.observed = append(a.observed, ApplyInfo{Informer: a.name, Key: r.key, Type: r.event.Type, Origin: r.event.Origin, Lag: lag})
		}
	}
}

// tell makes known what is done: to a durable store, to those who wait for a version or
// for Synced, to the watchers, to the observer, and to the store that all of it is done.
func (a *applier[T]) tell(ctx context.Context) {
	if a.batch != nil && !a.commit(ctx) {
		return
	}
	rv := a.release()
	if a.first {
		klog.FromContext(ctx).V(2).Info("The informer has synced", "resourceVersion", rv, "resumed", a.resumed)
		close(a.synced)
		a.first = false
	}
	for i := range a.records[:a.done] {
		if r := &a.records[i]; r.isEvent() && r.event.Type != EventDeleted {
			a.detector.AddObject(r.event.New)
		}
	}
	a.distribute()
	if a.bookmark && rv != "" && a.batch == nil {
		a.call.enter("bookmark", "", a.processor.Now())
		a.store.Bookmark(rv)
		a.call.leave()
	}
	a.bookmark = false
}

// distribute tells the watchers and the observer what is done.
func (a *applier[T]) distribute() {
	a.processor.distribute(a.records[:a.done])
	a.records, a.done = slices.Delete(a.records, 0, a.done), 0
	for _, info := range a.observed {
		a.observer.Apply(info)
	}
	a.observed = a.observed[:0]
	if a.batch != nil {
		a.processor.tombstones.add(a.batch.left, a.processor.log.End())
		a.batch.left = a.batch.left[:0]
	}
}

// release makes room in the inlet for as many items as are applied. It returns the
// resourceVersion that is reached.
func (a *applier[T]) release() string {
	rv := a.inlet.applied(a.leaving)
	clear(a.leaving)
	a.leaving = a.leaving[:0]
	return rv
}

// decide turns a change into a write and the records of what will have happened.
func (a *applier[T]) decide(c *change[T], old T, exists bool) {
	var none T
	origin := a.origin(c)
	c.old = old
	if c.kind != itemUpsert {
		c.ends = exists
		// The end of one that was created again, and that the store does not have, is not
		// the end that the stored one had.
		unknown := c.kind == itemGone || exists && c.obj != none && recreated(old, c.obj)
		switch {
		case exists:
			c.write, c.stored = writeDelete, old
			if c.kind == itemDelete && !c.broken {
				c.stored = c.obj // whose version is the one of the delete
			}
		case !c.known:
			return
		default: // the store has lost what watchers know
			unknown = true
			old = a.tombstone(c.key, c.uid)
			if c.kind == itemDelete && !c.broken {
				old, unknown = c.obj, false
			}
		}
		if !unknown && !c.broken && a.final.Load() {
			a.records = append(a.records, record[T]{kind: recordFinal, event: Event[T]{New: c.obj}})
		}
		a.record(c.key, Event[T]{Old: old, Type: EventDeleted, Origin: origin, FinalStateUnknown: unknown})
		return
	}
	obj := c.obj
	if !exists {
		c.write, c.stored = writeAdd, obj
		a.record(c.key, Event[T]{New: obj, Type: EventAdded, Origin: origin})
		return
	}
	if c.listed && a.unchanged(c, old) {
		a.record(c.key, Event[T]{Old: old, New: old, Type: EventUpdated, Origin: origin})
		a.records[len(a.records)-1].unchanged = true
		return
	}
	c.write, c.stored = writeUpdate, obj
	if recreated(old, obj) {
		// Deleted and created again while nobody was looking.
		c.ends = true
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
	case c.listed:
		return OriginRelist
	}
	return OriginWatch
}

// unchanged reports whether a list brought what is stored already. A version says so,
// unless it may be of a past that a server which was restored from a backup has undone.
func (a *applier[T]) unchanged(c *change[T], old T) bool {
	return sameVersion(old, c.obj) && (!c.restored && !a.doubted || equality.Semantic.DeepEqual(old, c.obj))
}

// recreated reports whether two objects of one key are not the same object.
func recreated[T Object](a, b T) bool {
	return a.GetUID() != "" && b.GetUID() != "" && a.GetUID() != b.GetUID()
}

// sameVersion reports whether two objects are one in one state.
func sameVersion[T Object](a, b T) bool {
	return a.GetUID() != "" && a.GetUID() == b.GetUID() &&
		a.GetResourceVersion() != "" && a.GetResourceVersion() == b.GetResourceVersion()
}

// knownKeys yields the keys of what the informer knows to exist, and ends early if ctx
// does. A store that cannot say so when it fails is not asked: it may be slow, or have
// lost something that watchers were told of.
func (a *applier[T]) knownKeys(ctx context.Context) iter.Seq[string] {
	switch {
	case a.batch != nil:
		return func(yield func(string) bool) { a.storedKeys(ctx, yield) }
	case a.known != nil:
		return maps.Keys(a.known)
	}
	return slices.Values(a.store.ListKeys())
}

func (a *applier[T]) noteKnown(key string, uid types.UID) {
	if a.known != nil {
		a.known[key] = uid
	}
}
