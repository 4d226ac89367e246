package informer

import (
	"context"
	"errors"
	"maps"
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/index"
	"github.com/customcacheinformer/informer/internal/memory"
)

// applier takes items from the queue, applies them to the store one by one, and then publishes their events. It works
// in one goroutine, without a lock. It decides only once what a change is, after a read of the store that succeeded.
// After that it retries only the write, until the write succeeds or the informer stops.
type applier[T Object] struct {
	gate      *gate[T]
	storage   storage[T]
	access    *access[T] // used by storage
	pace      pace
	part      int // how many changes of a first list are published together
	processor *informerProcessor[T]
	observer  *Observer
	name      string // Options.Name
	decider   decider[T]
	detector  cache.MutationDetector // does nothing unless KUBE_CACHE_MUTATION_DETECTOR is set
	synced    chan struct{}          // closed once the first list is applied
	decoding  func() DecodingHealth  // for the log
	weighing  weighing

	someLeft bool       // a source has left, and may still seem to wait for room
	popped   []*item[T] // the items that were taken from the queue
	current  change[T]  // the change in progress; a field, so that it is not allocated for each item

	// These fields are about changes that are not published yet.
	records    []record[T]
	done       int           // records[:done] belong to finished items, the rest to the item in progress
	since      time.Duration // when the first of these changes was begun
	finished   []*item[T]
	infos      []applied // for Observer.Apply
	justSynced bool      // the first list is applied, and synced is still open
	bookmark   bool      // a list or a bookmark of a source is applied, and the store must get its version

	publishedVersion string      // version after the published items
	followed         atomic.Bool // a watcher is a version.Follower
}

func newApplier[T Object](in *gate[T], p *informerProcessor[T], store cache.Store, own *memory.Store, source func(key string) string, x *index.Index[T], bareObject func(key string, uid types.UID) T, opts Options[T]) *applier[T] {
	a := &applier[T]{
		gate:      in,
		processor: p,
		observer:  opts.Observer,
		name:      opts.Name,
		decider:   decider[T]{bareObject: bareObject},
		detector:  cache.NewCacheMutationDetector(opts.Name),
		synced:    make(chan struct{}),
	}
	a.access = newAccess(x, p.Stopwatch, func(ctx context.Context) { a.publish(ctx) }, in.reports, opts)
	switch {
	case opts.durable():
		a.storage, a.pace = newDurableStore(a.access, opts.Durable, p.begun.Load, in.several, in.known, p.tombstones), durablePace
	case own != nil:
		a.storage, a.pace = &ownStore[T]{
			access: a.access, store: own, source: source, next: map[string]int{},
			moment: func() moment { return moment{p.begun.Load(), a.exactVersions(opts.Queue)} }, bookmark: store.Bookmark,
		}, ownPace
	default:
		a.storage, a.pace = newPlainStore(a.access, store), plainPace
		if s, ok := store.(sinkStore[T]); ok {
			a.storage = newSinkStorage(a.access, s.sink, bareObject("", ""))
		}
	}
	a.part, a.weighing.table, a.weighing.stored = a.pace.records, opts.Share, a.storage.stored
	switch a.storage.(type) {
	case *ownStore[T]:
		a.weighing.holds, a.weighing.beside = true, perObject
	case *plainStore[T]:
		a.weighing.holds = true
	}
	return a
}

func (a *applier[T]) memory() MemoryHealth { return a.weighing.memory(a.gate.mostOfLists(0)) }

// open reads the store at the start, before any item is applied, and finds out at which version each source continues. It
// returns false if ctx ended first.
func (a *applier[T]) open(ctx context.Context) bool {
	known, ok := a.storage.open(ctx)
	if !ok {
		return false
	}
	for _, s := range a.gate.scopes() {
		if !s.lists {
			s.resume = known[s.name()]
		}
		s.watchOnly = s.resume != ""
		s.changed.Raise(s.resume)
	}
	a.publishedVersion = a.version()
	a.processor.fill(a.access.example != nil, a.publishedVersion)
	return true
}

// run applies items until ctx ends and the queue is closed.
func (a *applier[T]) run(ctx context.Context) {
	if a.gate.several && a.storage.hasForeign() && !a.deleteForeign(ctx) {
		return
	}
	a.syncNow(ctx) // if there is no source
	for ctx.Err() == nil && a.pop() {
		for _, it := range a.popped {
			if ctx.Err() != nil || !a.apply(ctx, it) {
				break
			}
		}
		if a.pace.immediate && a.gate.full.Load() > 0 && !a.someLeft {
			a.release() // the next item comes at once, and these are published with it
		} else if a.publish(ctx) {
			a.syncNow(ctx) // if nothing is awaited any more, see ClusterOptions.SyncWait
		}
		a.someLeft = false
		a.storage.forget(ctx)
		// Under load, this lets the other goroutines queue more items, so that the next batch
		// is large. Without it, the applier would take one change at a time and wake the
		// watchers for each. If no other goroutine has anything to do, it costs 100 ns.
		runtime.Gosched()
	}
	a.publish(ctx)
}

// pop waits until the queue has an item, and takes all items out of it. It returns false if the queue is closed.
func (a *applier[T]) pop() (ok bool) {
	clear(a.popped)
	popped, err := a.gate.pop(a.popped[:0])
	a.popped = popped
	return err == nil
}

// apply applies one item. First it publishes the earlier items if there are enough of them or they have
// waited long enough. It returns false if ctx ended first.
func (a *applier[T]) apply(ctx context.Context, it *item[T]) bool {
	now := a.processor.Now()
	if len(a.records) == 0 {
		a.since = now
	} else if !a.gathers(it) && (len(a.records) >= a.pace.records || now-a.since >= a.pace.time) {
		a.publish(ctx)
		a.since = now
	}
	if it.looks() && !a.change(ctx, it, now) {
		return false
	}
	if it.kind == itemList {
		it.scope.watchOnly = false
		if it.restored {
			it.restored = false // the item may be applied a second time, see splitUp
			it.scope.changed.Reset()
		}
	}
	a.finish(ctx, it)
	if it.kind == itemLeave {
		it.kind = itemWake // the item may be applied a second time, see splitUp
		return a.leave(ctx, it.scope)
	}
	return it.listing == nil || a.deleteUnlisted(ctx, it)
}

// gathers reports whether an item may join the unpublished items before it although the pace allows no more. An item of
// a first list may, until there are a.part of them, if the store takes the objects of a first list in parts.
func (a *applier[T]) gathers(it *item[T]) bool {
	return a.gate.gathers && it.listed && it.scope.isLate() && len(a.records) < a.part
}

// resize halves the next part of a first list if the store took more than twice partTime for the last part, and doubles it
// after less than partTime, because index functions may be slow.
func (a *applier[T]) resize(took time.Duration) {
	switch {
	case took > 2*partTime:
		a.part = max(a.part/2, a.pace.records)
	case took < partTime && a.done >= a.part:
		a.part = min(2*a.part, maxPart)
	}
}

// change applies the change of an item to the store. It returns false if ctx ended first.
func (a *applier[T]) change(ctx context.Context, it *item[T], now time.Duration) bool {
	it.scope.changed.Raise(it.version())
	stored, err := a.storage.find(ctx, it, now)
	switch {
	case errors.Is(err, ErrPermanent):
		a.storage.spoil(it.scope)
		return true
	case err != nil:
		return false
	case it.scope.watchOnly && stored.exists && !it.listed && it.precedes(stored.obj.GetResourceVersion()):
		return true // the watch began before this state, which the store already has
	}
	if it = it.after(stored); it == nil {
		return true
	}
	c := &a.current
	*c = change[T]{item: it, stored: stored}
	a.records = a.decider.decide(c, a.records)
	if it.kind == itemUpsert && c.write != writeNothing {
		a.weighing.share(stored.obj, it.obj, stored.exists, channel.Closed(a.synced), now)
	}
	if a.pace.immediate {
		a.processor.begun.Add(int64(len(a.records) - a.done))
	}
	switch a.storage.write(ctx, c, now) {
	case stopped:
		return false
	case refused:
		c.write = writeNothing
		void(a.records[a.done:])
		a.storage.spoil(it.scope)
	}
	return true
}

// deleteUnlisted deletes the known objects of a list's region that the list does not have. It returns false if ctx ended first.
func (a *applier[T]) deleteUnlisted(ctx context.Context, list *item[T]) bool {
	listed := list.listing
	list.listing = nil // the item may be applied a second time, see splitUp
	return a.deleteUnless(ctx, list.scope, listed, func(key string) bool {
		return listed.Has(key) || !list.scope.covers(key)
	})
}

// deleteForeign deletes the objects that an earlier informer has left in the store and that belong to
// none of this informer's regions. It returns false if ctx ended first.
func (a *applier[T]) deleteForeign(ctx context.Context) bool {
	return a.deleteUnless(ctx, a.gate.own, &contents{}, a.gate.covers) && a.publish(ctx) &&
		a.apply(ctx, &item[T]{kind: itemCleaned, own: true, scope: a.gate.own})
}

// deleteUnless deletes every known object for whose key stays returns false. listed is the list from
// which the deletes follow. It returns false if ctx ended first.
func (a *applier[T]) deleteUnless(ctx context.Context, of *scope, listed *contents, stays func(key string) bool) bool {
	left := map[string]struct{}{}
	for key := range a.storage.keys(ctx, of.prefix()) {
		if stays(key) {
			continue
		}
		it := &item[T]{kind: listed.lacks(key), key: key, listed: true, own: true, scope: of}
		if it.kind == itemGone {
			of.changed.Raise(listed.version)
		}
		if !a.apply(ctx, it) {
			return false
		}
		if it.kind == itemLeft && a.current.item == it && a.current.write == writeDelete {
			left[key] = struct{}{}
		}
	}
	if len(left) > 0 {
		if !a.publish(ctx) {
			return false
		}
		a.processor.leave(left)
	}
	return ctx.Err() == nil
}

// leave deletes the objects of a source that is gone, after its last item. It returns false if ctx ended first.
func (a *applier[T]) leave(ctx context.Context, of *scope) bool {
	if !a.publish(ctx) || !a.deleteUnless(ctx, of, unread(of), func(key string) bool { return !of.covers(key) }) || !a.publish(ctx) {
		return false
	}
	a.gate.left(of)
	a.someLeft = true
	a.storage.drop(of)
	a.gate.reports.listed(ctx, of.covers, math.MaxInt)
	close(of.left)
	a.syncNow(ctx)
	return ctx.Err() == nil
}

// allListed reports whether the informer has not synced yet but no longer waits for a first list.
func (a *applier[T]) allListed() bool { return !channel.Closed(a.synced) && a.gate.listed() }

// syncNow publishes that the informer has synced, if it no longer waits for a first list.
func (a *applier[T]) syncNow(ctx context.Context) {
	if a.allListed() {
		a.mark()
		a.publish(ctx)
	}
}

func (a *applier[T]) finish(ctx context.Context, it *item[T]) {
	a.observe(it)
	a.done = len(a.records)
	endsList := it.kind == itemListed || it.kind == itemResumed
	if endsList && !it.scope.listed.Load() {
		if !a.publish(ctx) { // a watcher that joins once Synced is closed finds the whole list delivered
			return // the store does not have the list
		}
		it.scope.listed.Store(true)
		close(it.scope.synced)
		if a.allListed() {
			a.mark()
		}
	}
	a.storage.pass(it)
	a.finished = append(a.finished, it)
	a.bookmark = a.bookmark || it.kind == itemBookmark || it.kind == itemListed
	if endsList {
		published := a.publish(ctx) // no later item may delay Synced
		a.trim()
		if published && it.applied != nil {
			it.applied()
		}
	} else if a.followed.Load() && a.publishedVersion != "" && a.version() == "" {
		a.publish(ctx) // a watcher learns that the state is not exact before it gets later items
	}
}

// version returns the version at which the source was exactly as the store is after the finished items.
// It returns "" if there is none, or if there are several sources.
func (a *applier[T]) version() string {
	if a.gate.several {
		return ""
	}
	return a.storage.version(a.gate.scopes()[0])
}

// exactVersions returns the versions field of a moment.
func (a *applier[T]) exactVersions(queue QueueKind) (versions []string) {
	if queue != QueueRealFIFO {
		return nil
	}
	for _, s := range a.gate.scopes() {
		versions = append(versions, a.storage.version(s))
	}
	return versions
}

// noteVersion appends a record with the version of the published state if a watcher follows the versions.
// It does so only after a list or a bookmark, or if the state is no longer exact, or exact again.
func (a *applier[T]) noteVersion() {
	at := a.version()
	ceased := a.publishedVersion != "" && at == ""
	reached := at != "" && (a.bookmark || a.publishedVersion == "")
	a.publishedVersion = at
	if !a.followed.Load() || !ceased && !reached {
		return
	}
	a.processor.begun.Add(1)
	a.records = slices.Insert(a.records, a.done, record[T]{kind: recordVersion, key: at})
	a.done++
}

// mark appends the synced marker: all objects of the first lists come before it.
func (a *applier[T]) mark() {
	if a.pace.immediate {
		a.processor.begun.Add(1)
	}
	a.processor.willSync()
	a.records = append(a.records, record[T]{kind: recordMarker})
	a.done, a.justSynced = 1, true
}

func (a *applier[T]) observe(it *item[T]) {
	if a.observer.Apply == nil {
		return
	}
	for _, r := range a.records[a.done:] {
		if r.isEvent() {
			info := ApplyInfo{Informer: a.name, Key: r.key, Type: r.event.Type, Origin: r.event.Origin}
			a.infos = append(a.infos, applied{info, it.arrived, it.own})
		}
	}
}

// publish commits the finished items to the store. Then it publishes them to callers that wait for a version
// or for Synced, to the watchers, to the observer and to the storage. If ctx ended before the store had
// the items, it publishes nothing and returns false.
func (a *applier[T]) publish(ctx context.Context) bool {
	if !a.pace.immediate { // if this came earlier, a watcher that joins would wait for the whole batch
		a.processor.begun.Add(int64(a.done))
	}
	var again []*item[T]
	begun := a.processor.Now()
	committed := a.storage.commit(ctx)
	a.resize(a.processor.Now() - begun)
	switch committed {
	case stopped:
		return false
	case refused:
		a.voidFinished()
	case split:
		if !a.splitUp(ctx) {
			return false
		}
	case kept:
		again = a.takeKept()
	}
	a.release()
	version := ""
	if a.bookmark || a.justSynced {
		version, _ = a.gate.resourceVersion(nil)
	}
	if a.justSynced {
		klog.FromContext(ctx).V(2).Info("The informer has synced", "resourceVersion", version, "resumed", a.gate.watchOnly(), "decoding", a.decoding().String(), "memory", a.memory())
		close(a.synced)
		a.justSynced = false
	}
	for i := range a.records[:a.done] {
		if r := &a.records[i]; r.isEvent() && r.event.Type != EventDeleted {
			a.detector.AddObject(r.event.New)
		}
	}
	if !a.bookmark {
		version = ""
	}
	a.noteVersion()
	a.bookmark = false
	a.distribute(version)
	return again == nil || a.applyAgain(ctx, again)
}

// trim releases the memory that a large list needed, once the list is published.
func (a *applier[T]) trim() {
	if cap(a.popped) <= 2*gateBound || len(a.records) > 0 {
		return
	}
	a.records, a.popped, a.finished, a.infos = nil, nil, nil, nil
	if o, ok := a.storage.(*ownStore[T]); ok {
		o.trim()
	}
}

// distribute publishes the finished items to the watchers and the observer. If version is not
// empty, the store has every change up to that version of the source.
func (a *applier[T]) distribute(version string) {
	a.processor.distribute(a.records[:a.done], a.publishedVersion)
	a.records, a.done = slices.Delete(a.records, 0, a.done), 0
	for _, done := range a.infos {
		a.observer.Apply(done.stored(a.processor.Now()))
	}
	a.infos = a.infos[:0]
	a.storage.published(version)
}

// release reports the finished items to the gate, so that other items can enter.
func (a *applier[T]) release() {
	a.gate.applied(a.finished)
	clear(a.finished)
	a.finished = a.finished[:0]
}

// splitUp makes the records of a refused batch void, and applies its items again in two batches. If the
// store refuses one of these, publish splits that one too. So among 1,000 changes, one that the store
// refuses is found in about twenty writes. splitUp returns false if ctx ended first.
func (a *applier[T]) splitUp(ctx context.Context) bool {
	items := slices.Clone(a.finished)
	a.finished = a.finished[:0]
	a.voidFinished()
	a.distribute("")
	for half := range slices.Chunk(items, (len(items)+1)/2) {
		if !a.applyAgain(ctx, half) {
			return false
		}
	}
	return true
}

// voidFinished makes the records of the finished items void, after the store has refused their changes.
func (a *applier[T]) voidFinished() {
	void(a.records[:a.done])
	a.infos = a.infos[:0]
}

// takeKept removes and returns the items whose objects were not inserted because the store had their keys already. It
// makes their records void.
func (a *applier[T]) takeKept() (items []*item[T]) {
	kept := a.storage.(*ownStore[T]).takeKept()
	voidLast(a.records[:a.done], maps.Clone(kept))
	a.infos, _ = takeLast(a.infos, maps.Clone(kept), func(done applied) string { return done.info.Key })
	a.finished, items = takeLast(a.finished, kept, (*item[T]).changedKey)
	return items
}

// applyAgain applies items that were applied before, and publishes them. It returns false if ctx ended first.
func (a *applier[T]) applyAgain(ctx context.Context, items []*item[T]) bool {
	for _, it := range items {
		if !a.apply(ctx, it) {
			return false
		}
	}
	return a.publish(ctx)
}
