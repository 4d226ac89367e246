package informer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/eventlog"
	"github.com/customcacheinformer/informer/internal/stopwatch"
)

const (
	// gateBound is how many changes may be between the reflector and the store before the
	// reflector must wait. It is twice the number that RealFIFO hands out at once.
	gateBound = 2000
	// crowd is how many items may wait in entries of their own. If more wait, a DeltaFIFO makes
	// several times as much garbage as it holds memory.
	crowd = 10
	// perEntry is how many items an entry of the queue stands for at most.
	perEntry = eventlog.MaxChunk
	// maxPart is how many objects of a first list are stored at once at most.
	maxPart = 16_384
	// listPatience is how long a list may wait for room. Then the rest of it is queued at once,
	// so that the reflector gets back to its watch, which the server ends after minutes.
	listPatience = time.Second
)

// gate is in front of the queue. It makes the sources wait while the store is behind, and knows
// up to which resourceVersion of each source everything is applied. Each source has a sink in
// front of it.
//
// Every change enters the queue as an update, also a delete; the kind of the item sets them
// apart. DeltaFIFO drops a delete that it takes for a repetition, and the gate could not count
// an item that never leaves the queue.
//
// Under load and in a list, an entry of the queue stands for up to 256 items, which then pay once
// for the queue. The first of them is the head of the entry; the others follow it in the chain of
// items. No head has the key of its object: a DeltaFIFO would put it in the place of an older entry
// of that key, ahead of the items between. While an entry has room, no item gets one of its own.
type gate[T Object] struct {
	queue    cache.Queue
	clock    stopwatch.Stopwatch
	reports  *reports
	observer *Observer
	durable  bool                     // the store is a Durable and takes items in batches
	gathers  bool                     // the store takes up to maxPart objects of a first list at once
	several  bool                     // each source reads a region; otherwise there is one, which reads all
	clusters bool                     // the regions are clusters
	share    int                      // how many changes of one of several sources may wait: a batch
	own      *scope                   // of items that come from no source
	set      atomic.Pointer[[]*scope] // the sources that the informer reads; changed by become

	// Set by begin, and only read afterwards.
	ctx       context.Context // Run's; after its end, no item waits for room
	transform func(T) (T, error)
	example   any // an object that the store holds at the start; nil if there is none

	queued  atomic.Int64 // entries in the queue, except those that are just entering
	entries []*item[T]   // taken from the queue, to be unpacked; belongs to pop
	full    atomic.Int32 // how many sources wait for room, except those that wait until all is applied
	waited  atomic.Bool  // the first list of one source is enough

	mu         sync.Mutex    // protects the rest, and the state of a scope
	oldest     *item[T]      // this item and all before it are applied, the next one is not
	newest     *item[T]      // the item that entered last
	head       *item[T]      // of the last entry, if further items may join it; otherwise nil
	heads      uint64        // how many items were heads
	leaves     int           // how many sources have left while the informer ran
	waiting    int           // items that have entered and are not applied
	inLists    int           // those of them that are objects of a list
	crowded    int           // sources with changes that have entered and are not applied
	mostListed int           // the most objects of a list that were in memory and not applied
	room       chan struct{} // closed when items were applied; nil if no source waits for that
	moved      chan struct{} // closed when a version or the set changes; nil if no caller waits for that
	leaving    []*scope      // they have left the set, and their objects are in the store still

	progress stopwatch.Moment // when a version was last reached or confirmed
}

func newGate[T Object](queue cache.Queue, clock stopwatch.Stopwatch, what reading, gathers bool, objects *reports, opts Options[T]) *gate[T] {
	start := &item[T]{done: true}
	in := &gate[T]{
		queue: queue, clock: clock, reports: objects, observer: opts.Observer, durable: opts.durable(), several: what.several(), clusters: what.clusters, gathers: gathers, share: maxChunk,
		oldest: start, newest: start, own: &scope{},
	}
	if in.durable {
		in.share = durablePace.records
	}
	in.set.Store(&[]*scope{})
	return in
}

// scopes returns the sources that the informer has now. The caller must not change the slice.
func (in *gate[T]) scopes() []*scope { return *in.set.Load() }

// become replaces the set of sources. If the informer runs, an item follows for each source that is gone, behind which nothing of
// it comes. These items do not wait for room, because become may be called in any callback.
func (in *gate[T]) become(set, gone []*scope, running bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.set.Store(&set)
	for _, s := range gone {
		s.gone.Store(true)
		if !running || s.passes {
			close(s.left) // it has no objects
		} else {
			in.leaving = append(in.leaving, s)
			in.leaves++
			in.link(&item[T]{kind: itemLeave, key: ownPrefix + "leave/" + strconv.Itoa(in.leaves), scope: s})
		}
	}
	wake(&in.room) // a source that is gone waits no more
	wake(&in.moved)
}

// left notes that the objects of a source that is gone are deleted.
func (in *gate[T]) left(s *scope) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.leaving = slices.DeleteFunc(in.leaving, func(l *scope) bool { return l == s })
}

// known returns the sources whose objects may be in the store.
func (in *gate[T]) known() []*scope {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Concat(in.scopes(), in.leaving)
}

// setOf returns the set of sources that read these namespaces: those that the informer has, and otherwise those that were made.
// missing has the names for which there is neither.
func setOf(has []*scope, namespaces []string, made map[string]*scope) (set []*scope, missing []string) {
	read := maps.Clone(made)
	for _, s := range has {
		read[s.namespace] = s
	}
	for _, namespace := range namespaces {
		if s := read[namespace]; s != nil {
			set = append(set, s)
		} else {
			missing = append(missing, namespace)
		}
	}
	return set, missing
}

// changes returns the sources that a new set has and the old one has not, and those of the old one that the new one has not.
func changes(before, after []*scope) (come, gone []*scope) {
	stays := map[*scope]bool{}
	for _, s := range after {
		stays[s] = true
	}
	for _, s := range before {
		if !stays[s] {
			gone = append(gone, s)
		}
		delete(stays, s)
	}
	for _, s := range after {
		if stays[s] {
			come = append(come, s)
		}
	}
	return come, gone
}

// newQueue returns client-go's queue for a kind. A new kind also needs a case in pop, and its
// name and checks in options.go.
func newQueue[T Object](kind QueueKind) cache.Queue {
	if kind == QueueRealFIFO {
		return cache.NewRealFIFOWithOptions(cache.RealFIFOOptions{KeyFunction: itemKey[T], AtomicEvents: true})
	}
	return cache.NewDeltaFIFOWithOptions(cache.DeltaFIFOOptions{KeyFunction: itemKey[T]})
}

// begin prepares the gate for the source. It must be called once, before the first item.
// example is an object that the store already holds, nil if there is none. A nil transform changes
// nothing.
func (in *gate[T]) begin(ctx context.Context, example any, transform func(T) (T, error)) {
	in.ctx, in.example, in.transform = ctx, example, transform
}

// wakeApplier ends the applier's wait for an item. Only an item can: client-go's queue has no other
// way to end a Pop.
func (in *gate[T]) wakeApplier() {
	in.enter(in.ctx, &item[T]{kind: itemWake, key: ownPrefix + "wake", scope: in.own}, gateBound)
}

// covers reports whether the object of that key is in one of the informer's regions, or in one that leaves.
func (in *gate[T]) covers(key string) bool {
	return slices.ContainsFunc(in.known(), func(s *scope) bool { return s.covers(key) })
}

// scopeOf returns the source that reads a namespace, and nil if none does.
func (in *gate[T]) scopeOf(namespace string) *scope {
	for _, s := range in.scopes() {
		if s.namespace == namespace || s.namespace == "" {
			return s
		}
	}
	return nil
}

// listed reports whether the first list of every scope is applied, or of one of them if the informer has waited for long enough.
func (in *gate[T]) listed() bool {
	set := in.scopes()
	if in.waited.Load() && slices.ContainsFunc(set, func(s *scope) bool { return s.listed.Load() }) {
		return true
	}
	return !slices.ContainsFunc(set, (*scope).isLate)
}

// watchOnly reports whether no source has listed.
func (in *gate[T]) watchOnly() bool {
	return !slices.ContainsFunc(in.scopes(), func(s *scope) bool { return !s.watchOnly })
}

// behind names the regions that have not reached a version.
func (in *gate[T]) behind(version string) string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.names(func(s *scope) bool { ok, err := reached(s.rv, version); return !ok && err == nil })
}

// late names the regions whose first list is not applied.
func (in *gate[T]) late() string { return in.names((*scope).isLate) }

// endWait has the first list of one source count for all, if the informer has waited for long enough.
func (in *gate[T]) endWait(wait time.Duration, synced <-chan struct{}) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		in.waited.Store(true)
		in.wakeApplier()
	case <-synced:
	case <-in.ctx.Done():
	}
}

// names returns " of " and the regions that are so, and "" if none is.
func (in *gate[T]) names(are func(*scope) bool) string {
	var names []string
	for _, s := range in.scopes() {
		if s.name() != "" && are(s) {
			names = append(names, s.name())
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " of " + strings.Join(names, ", ")
}

// enter puts an item into the queue as soon as fewer than bound items wait, or patience has
// ended. Changes do not wait for the objects of a list, which may be that of another namespace. enter
// does nothing once the informer stops, and for a source that is gone.
func (in *gate[T]) enter(patience context.Context, it *item[T], bound int) {
	free := func() bool { return it.scope.gone.Load() || in.roomFor(it.scope, bound) }
	if it.listed {
		free = func() bool { return it.scope.gone.Load() || in.inLists < bound }
	}
	if !in.waitUntil(patience, free, 1) {
		return
	}
	defer in.mu.Unlock()
	if !it.scope.gone.Load() {
		in.link(it)
	}
}

// roomFor reports whether a change of a source may enter. Several sources share the room, so that one that floods does not hold
// up the others. The caller holds mu.
func (in *gate[T]) roomFor(s *scope, bound int) bool {
	if changes := s.changes(); in.several && changes > 0 && changes >= min(in.share, bound/in.crowded) {
		return false
	}
	return in.waiting-in.inLists < bound
}

// link puts an item behind all others. The caller holds mu.
func (in *gate[T]) link(it *item[T]) {
	in.newest.next = it
	in.newest = it
	in.count(it, 1)
	if in.head != nil && in.head.followers < perEntry-1 {
		in.head.followers++
		return
	}
	in.head = nil
	if it.listed || in.waiting > crowd {
		in.heads++
		it.entry, in.head = in.heads, it
	}
	if err := in.queue.Update(it); err != nil {
		panic(fmt.Sprintf("informer: %T refuses an item whose key it can read: %v", in.queue, err))
	}
	in.queued.Add(1)
}

// pop waits for items and takes all out of the queue. The queue holds its lock while it
// calls back, so the callbacks only collect its entries.
func (in *gate[T]) pop(items []*item[T]) ([]*item[T], error) {
	take := func(deltas []cache.Delta) {
		for _, d := range deltas {
			in.entries = append(in.entries, d.Object.(*item[T]))
		}
	}
	batch := func(deltas []cache.Delta, _ bool) error { take(deltas); return nil }
	single := func(obj any, _ bool) error { take(obj.(cache.Deltas)); return nil }
	fifo, ordered := in.queue.(*cache.RealFIFO)
	// The queue does not report whether it is empty, and a pop of an empty queue blocks.
	for more := true; more; more = in.queued.Load() > 0 {
		var err error
		if ordered {
			err = fifo.PopBatch(batch, single) // a batch has each key once
		} else {
			_, err = in.queue.Pop(single)
		}
		if err != nil {
			return items, err
		}
		for _, entry := range in.entries {
			items = in.unpack(entry, items)
		}
		in.queued.Add(-int64(len(in.entries)))
		clear(in.entries)
		in.entries = in.entries[:0]
	}
	return items, nil
}

// unpack appends the items of an entry that was taken from the queue. No further item can join it.
func (in *gate[T]) unpack(head *item[T], items []*item[T]) []*item[T] {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.head == head {
		in.head = nil
	}
	items = append(items, head)
	it := head
	for range head.followers {
		it = it.next
		items = append(items, it)
	}
	return items
}

// waitUntil waits until free, which is called with mu held, returns true, or patience has ended.
// While it waits, full is more by the given number. It returns true with mu held. Once the informer
// stops, it returns false and does not hold mu.
func (in *gate[T]) waitUntil(patience context.Context, free func() bool, full int32) bool {
	for {
		in.mu.Lock()
		if free() || patience.Err() != nil {
			if in.ctx.Err() == nil {
				return true
			}
			in.mu.Unlock()
			return false
		}
		if in.room == nil {
			in.room = make(chan struct{})
		}
		room := in.room
		in.mu.Unlock()
		in.full.Add(full)
		select {
		case <-room:
		case <-patience.Done():
		}
		in.full.Add(-full)
	}
}

// count adds n to the items that wait, after it has entered or was applied.
func (in *gate[T]) count(it *item[T], n int) {
	before := it.scope.changes()
	in.waiting += n
	if it.listed {
		in.inLists += n
		it.scope.inLists += n
		in.mostListed = max(in.mostListed, in.inLists)
	}
	it.scope.waiting += n
	switch after := it.scope.changes(); {
	case before == 0 && after > 0:
		in.crowded++
	case before > 0 && after == 0:
		in.crowded--
	}
}

// mostOfLists returns the most objects of a list that were in memory and not applied, and at least n.
func (in *gate[T]) mostOfLists(n int) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.mostListed = max(in.mostListed, n)
	return in.mostListed
}

// applied notes that items have been applied, in any order.
func (in *gate[T]) applied(items []*item[T]) {
	var none T
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, it := range items {
		if !it.own {
			in.count(it, -1)
		}
		it.done = true
		it.obj = none // the chain may keep the item longer than the store keeps the object
	}
	known, changed := false, false
	for in.oldest.next != nil && in.oldest.next.done {
		in.oldest = in.oldest.next
		if rv := in.oldest.rv; rv != "" {
			changed = changed || rv != in.oldest.scope.rv
			in.oldest.scope.rv, known = rv, true
			if k := in.oldest.kind; k == itemListed || k == itemResumed {
				in.oldest.scope.base = rv
			}
		}
	}
	if known {
		in.progress.Set(in.clock)
	}
	wake(&in.room)
	if changed {
		wake(&in.moved)
	}
}

// wake closes a channel if a goroutine waits for that.
func wake(ch *chan struct{}) {
	if *ch != nil {
		close(*ch)
		*ch = nil
	}
}

// resourceVersion returns the version up to which everything is in the store, and a channel
// that closes when a version changes. That is the lowest version of all scopes, or that of
// one.
func (in *gate[T]) resourceVersion(only *scope) (string, <-chan struct{}) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.moved == nil {
		in.moved = make(chan struct{})
	}
	if only != nil {
		return only.rv, in.moved
	}
	return in.lowest(), in.moved
}

// lowest returns the lowest version of all scopes. It returns "" if a scope has no version yet, or if they are clusters, and
// otherwise one that cannot be compared if there is one. The caller holds mu.
func (in *gate[T]) lowest() string {
	version := ""
	if in.clusters {
		return ""
	}
	for n, s := range in.scopes() {
		if n == 0 {
			version = s.rv
		}
		order, err := resourceversion.CompareResourceVersion(s.rv, version)
		_, odd := resourceversion.CompareResourceVersion(version, version)
		if s.rv == "" || order < 0 || err != nil && odd == nil {
			version = s.rv
		}
	}
	return version
}

// base returns the version of a scope's last list, or at which its source has resumed.
func (in *gate[T]) base(s *scope) string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return s.base
}

// queuedUp returns the number of changes that are not in the store yet.
func (in *gate[T]) queuedUp() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.waiting
}
