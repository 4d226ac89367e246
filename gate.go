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
	// gateBound is how many changes may wait for the store before a reflector must wait. It is twice the
	// number of items that RealFIFO hands out at once.
	gateBound = 2000
	// crowd is how many items may wait in entries of their own. With more entries, a DeltaFIFO makes
	// several times as much garbage as the memory that it holds.
	crowd = 10
	// perEntry is the largest number of items in an entry of the queue.
	perEntry = eventlog.MaxChunk
	// maxPart is the largest number of objects of a first list that are stored at once.
	maxPart = 16_384
	// listPatience is how long a list may wait for room. Then the rest of the list enters the queue at
	// once, so that the reflector can open its watch before the version of the list expires.
	listPatience = time.Second
)

// gate is in front of the queue. It makes the sources wait while the store is behind, and knows up to which
// resourceVersion of each source everything is applied. Each source has a sink, which enters items into the gate.
//
// Every change enters the queue as an update, even a delete; the kind of the item distinguishes them. DeltaFIFO drops
// a delete that it takes for a repetition, and the gate could not count an item that never leaves the queue.
//
// Under load and in a list, an entry of the queue has up to 256 items, which reduces the cost of the
// queue. The first item is the head of the entry; the others follow it in the chain of items. A head does
// not use the key of its object, because a DeltaFIFO would put it in the place of an older entry with
// that key, ahead of the items between. While the last entry has room, no item gets an entry of its own.
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

	// These are set by begin, and only read afterwards.
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

// scopes returns the sources that the informer reads now. The caller must not change the slice.
func (in *gate[T]) scopes() []*scope { return *in.set.Load() }

// become replaces the set of sources. If the informer runs, become enters an item for each source in gone, as the last item of
// that source. These items do not wait for room, because become may be called in any callback.
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

// left notes that the objects of a source that is gone are no longer in the store.
func (in *gate[T]) left(s *scope) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.leaving = slices.DeleteFunc(in.leaving, func(l *scope) bool { return l == s })
}

// known returns the sources whose objects may be in the store: those that the informer reads, and those
// that are leaving.
func (in *gate[T]) known() []*scope {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Concat(in.scopes(), in.leaving)
}

// setOf returns the sources for these namespaces, from has or otherwise from made. missing has the namespaces that are in
// neither.
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

// changes returns the sources that are only in after (come), and those that are only in before (gone).
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

// newQueue returns client-go's queue of a kind. If you add a kind, add a case to pop, and its name and
// checks to options.go.
func newQueue[T Object](kind QueueKind) cache.Queue {
	if kind == QueueRealFIFO {
		return cache.NewRealFIFOWithOptions(cache.RealFIFOOptions{KeyFunction: itemKey[T], AtomicEvents: true})
	}
	return cache.NewDeltaFIFOWithOptions(cache.DeltaFIFOOptions{KeyFunction: itemKey[T]})
}

// begin prepares the gate for items. It must be called once, before the first item. example is an object
// that the store already has, or nil if there is none. A nil transform changes nothing.
func (in *gate[T]) begin(ctx context.Context, example any, transform func(T) (T, error)) {
	in.ctx, in.example, in.transform = ctx, example, transform
}

// wakeApplier ends the applier's wait for an item. It enters an item, because client-go's queue has no
// other way to end a Pop.
func (in *gate[T]) wakeApplier() {
	in.enter(in.ctx, &item[T]{kind: itemWake, key: ownPrefix + "wake", scope: in.own}, gateBound)
}

// covers reports whether key belongs to a region that the informer reads, or to one that is leaving.
func (in *gate[T]) covers(key string) bool {
	return slices.ContainsFunc(in.known(), func(s *scope) bool { return s.covers(key) })
}

// scopeOf returns the source that reads a namespace, or nil if there is none.
func (in *gate[T]) scopeOf(namespace string) *scope {
	for _, s := range in.scopes() {
		if s.namespace == namespace || s.namespace == "" {
			return s
		}
	}
	return nil
}

// listed reports whether the first lists of all scopes are applied. If endWait has waited long enough, one of them is enough.
func (in *gate[T]) listed() bool {
	set := in.scopes()
	if in.waited.Load() && slices.ContainsFunc(set, func(s *scope) bool { return s.listed.Load() }) {
		return true
	}
	return !slices.ContainsFunc(set, (*scope).isLate)
}

// watchOnly reports whether no source has begun a list since the start.
func (in *gate[T]) watchOnly() bool {
	return !slices.ContainsFunc(in.scopes(), func(s *scope) bool { return !s.watchOnly })
}

// behind returns a text with the names of the regions that have not reached a version.
func (in *gate[T]) behind(version string) string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.names(func(s *scope) bool { ok, err := reached(s.rv, version); return !ok && err == nil })
}

// late returns a text with the names of the regions whose first list is not applied.
func (in *gate[T]) late() string { return in.names((*scope).isLate) }

// endWait waits until the informer has synced, or for the time wait. In the latter case, one first list
// is then enough to sync.
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

// names returns " of " and the names of the regions for which are returns true, or "" if there are none.
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

// enter puts an item into the queue. It first waits until fewer than bound items wait, or patience has
// ended. Changes do not wait for objects of lists, which may come from another namespace. enter does
// nothing if the informer has stopped or the source is gone.
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

// roomFor reports whether a change of a source may enter: fewer than bound changes wait. Several sources divide the room, and
// none gets more than in.share, so that one with many changes does not delay the others. The caller holds mu.
func (in *gate[T]) roomFor(s *scope, bound int) bool {
	if changes := s.changes(); in.several && changes > 0 && changes >= min(in.share, bound/in.crowded) {
		return false
	}
	return in.waiting-in.inLists < bound
}

// link appends an item to the chain and to the queue. The caller holds mu.
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

// pop waits for items, takes all of them out of the queue, and appends them to items. The queue holds its lock while
// it calls back, so the callbacks only collect its entries. pop returns an error if the queue is closed.
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

// unpack appends the items of an entry that was taken from the queue to items. No further item can join
// the entry.
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

// waitUntil waits until free returns true or patience has ended. It then locks mu and returns true. If
// the informer has stopped, it returns false and does not hold mu. It calls free with mu held. While it
// waits, in.full is increased by full.
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

// count adds n to the numbers of waiting items: 1 when it enters, -1 when it is applied.
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

// mostOfLists returns the largest number of listed objects that were in memory and not applied. It raises
// this number to n first.
func (in *gate[T]) mostOfLists(n int) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.mostListed = max(in.mostListed, n)
	return in.mostListed
}

// applied notes that items were applied, in any order, and wakes those who wait for room or for a
// version.
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

// wake closes a channel and sets it to nil, if it is not nil already.
func wake(ch *chan struct{}) {
	if *ch != nil {
		close(*ch)
		*ch = nil
	}
}

// resourceVersion returns the version up to which everything is in the store: that of the scope only, or the lowest
// of all scopes if only is nil. The channel is closed when a version or the set of sources changes.
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

// lowest returns the lowest version of all scopes. It returns "" if a scope has no version yet, or if the regions are
// clusters. If a version cannot be compared, it returns that version. The caller holds mu.
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

// base returns the version of a scope's last list, or the version at which its source has resumed.
func (in *gate[T]) base(s *scope) string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return s.base
}

// queuedUp returns the number of items that are not applied to the store yet.
func (in *gate[T]) queuedUp() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.waiting
}
