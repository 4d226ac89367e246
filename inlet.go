package informer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/object"
	"github.com/customcacheinformer/informer/internal/stopwatch"
)

const (
	// inletBound is how many changes may be between the reflector and the store before the
	// reflector must wait. It is twice the number that RealFIFO hands out at once.
	inletBound = 2000
	// listBound is the same for the objects of a list, which is in memory already. If more than
	// ten items wait, a DeltaFIFO makes several times as much garbage as it holds memory.
	listBound = 10
	// listPatience is how long a list may wait for room. Then the rest of it is queued at once,
	// so that the reflector gets back to its watch, which the server ends after minutes.
	listPatience = time.Second
)

// ownPrefix begins the keys of items that stand for no object.
const ownPrefix = "\x00"

// itemKind says what an item in the queue stands for.
type itemKind uint8

const (
	itemUpsert   itemKind = iota // an object was added or updated
	itemDelete                   // an object was deleted
	itemGone                     // a list lacks a known key; there is no object
	itemList                     // a list begins, with the keys in listing
	itemListed                   // a list ends; all of its objects come before
	itemBookmark                 // nothing else has changed up to rv
	itemResumed                  // the source resumes at the version of a durable store
	itemForget                   // a durable store may forget tombstones
)

// item is an entry of the queue. It carries the object with its key, so that the key is
// computed once, and a link to the next item, so that the version reached is known although
// items are applied in any order.
type item[T Object] struct {
	kind     itemKind
	broken   bool // the object is unusable because Transform or the store refused it; the key is valid
	listed   bool // the item comes from a list
	own      bool // the applier has made the item
	done     bool // the item is applied; protected by inlet.mu
	restored bool // the server has gone back in time: a version may stand for another state than before
	key      string
	obj      T
	listing  map[string]struct{} // of itemList: the keys of the list; nil if nothing was known before
	rv       string              // the version reached when this item and all before it are applied
	arrived  time.Duration       // when the item was made; 0 unless an observer needs it
	next     *item[T]            // the item that entered next; protected by inlet.mu
}

// asks reports whether the item asks for a change. An object for which Transform has
// failed does not.
func (it *item[T]) asks() bool {
	switch it.kind {
	case itemUpsert:
		return !it.broken
	case itemDelete, itemGone:
		return true
	}
	return false
}

// itemKey is the queue's key function.
func itemKey[T Object](obj any) (string, error) {
	if it, ok := obj.(*item[T]); ok {
		return it.key, nil
	}
	return "", fmt.Errorf("%T is no item of the queue", obj)
}

// inlet is the source.Sink in front of the queue. It checks and transforms each object, makes
// the source wait while the store is behind, and knows up to which resourceVersion everything
// is applied.
//
// Every change enters the queue as an update, also a delete; the kind of the item tells them
// apart. DeltaFIFO drops a delete that it takes for a repetition, and the inlet could not count
// an item that never leaves the queue.
//
// A list enters object by object. With a whole list in a DeltaFIFO, the heap of a first sync
// of 100,000 objects peaked a fifth higher, and 80 B per object were never freed.
type inlet[T Object] struct {
	queue    cache.Queue
	accept   func(any) (T, error)
	clock    stopwatch.Stopwatch
	report   func(context.Context, error)
	observer *Observer
	durable  bool // the store is a Durable and takes items in batches

	// Set by begin, and only read afterwards.
	ctx       context.Context // Run's; after its end, no item waits for room
	transform func(T) (T, error)

	// These belong to the source's goroutine.
	lists        int  // how many lists have come
	knownObjects bool // the store or a watcher may know objects, so a list must be compared with them

	queued atomic.Int64 // items in the queue, except one that is just entering
	full   atomic.Bool  // an item waits for room

	mu      sync.Mutex // protects the rest
	oldest  *item[T]   // this item and all before it are applied, the next one is not
	newest  *item[T]   // the item that entered last
	waiting int        // items that have entered and are not applied
	room    chan struct{}
	rv      string
	moved   chan struct{} // closed when rv changes; nil if no caller waits for that

	progress stopwatch.Moment // when rv was last reached or confirmed
}

func newInlet[T Object](queue cache.Queue, clock stopwatch.Stopwatch, accept func(any) (T, error), opts Options[T]) *inlet[T] {
	start := &item[T]{done: true}
	return &inlet[T]{
		queue: queue, clock: clock, report: opts.ErrorHandler, observer: opts.Observer, accept: accept, durable: opts.durable(),
		oldest: start, newest: start, room: make(chan struct{}, 1),
	}
}

// begin prepares the inlet for the source. It must be called once, before the first item.
// knownObjects says that the store already holds objects. A nil transform changes
// nothing.
func (in *inlet[T]) begin(ctx context.Context, knownObjects bool, transform func(T) (T, error)) {
	in.ctx, in.knownObjects, in.transform = ctx, knownObjects, transform
}

// Upsert takes an object that a watch has added or updated.
func (in *inlet[T]) Upsert(obj any, version string) { in.event(itemUpsert, obj, version) }

// Delete takes the last state of an object that a watch has deleted.
func (in *inlet[T]) Delete(obj any, version string) { in.event(itemDelete, obj, version) }

func (in *inlet[T]) event(kind itemKind, obj any, version string) {
	it, err := in.item("watch", kind, obj)
	if err != nil {
		in.report(in.ctx, err)
		in.enter(in.ctx, in.lost(), inletBound)
		return
	}
	in.knownObjects = true
	it.rv = version
	in.enter(in.ctx, it, inletBound)
}

// Bookmark notes that nothing else has changed up to a version.
func (in *inlet[T]) Bookmark(version string) {
	in.enter(in.ctx, &item[T]{kind: itemBookmark, key: ownPrefix + "bookmark", rv: version}, inletBound)
}

// Resumed notes that the source goes on at the version of the store.
func (in *inlet[T]) Resumed(version string) {
	in.enter(in.ctx, &item[T]{kind: itemResumed, key: ownPrefix + "resumed", rv: version}, inletBound)
}

// forget tells the applier to look for tombstones to forget.
func (in *inlet[T]) forget() {
	in.enter(in.ctx, &item[T]{kind: itemForget, key: ownPrefix + "forget"}, inletBound)
}

// CheckType returns an error if obj is an API object of another type than the informer's.
// Nil and nameless objects pass: item drops them later.
func (in *inlet[T]) CheckType(obj any) error {
	if _, noObject := object.Meta(obj); noObject == nil {
		_, err := in.accept(obj)
		return err
	}
	return nil
}

// Replace takes a list. wentBack says that the server has gone back in time.
func (in *inlet[T]) Replace(list []any, version string, wentBack bool) {
	// The applier finds the deletes of a list when everything before the list is applied.
	// Therefore all earlier items must have left the queue: a DeltaFIFO could put a later item
	// in the place of an older change, ahead of the list.
	if in.waitFor(in.ctx, 1) {
		in.mu.Unlock()
		in.enterList(list, version, wentBack)
	}
}

// enterList enters the objects of a list. The beginning and the end are items of their own,
// because a list may be empty. Their keys are never used again: otherwise a DeltaFIFO
// would put the new items in the place of older ones.
func (in *inlet[T]) enterList(list []any, version string, wentBack bool) {
	patience, stop := context.WithTimeout(in.ctx, listPatience)
	defer stop()
	in.lists++
	own := ownPrefix + "list/" + strconv.Itoa(in.lists)
	begin := &item[T]{kind: itemList, key: own}
	if in.knownObjects {
		begin.listing = keysOf(list)
	}
	in.knownObjects = true
	in.enter(patience, begin, inletBound)
	bound := listBound
	if in.durable {
		bound, list = inletBound, inKeyOrder(list)
	}
	for _, obj := range list {
		it, err := in.item("list", itemUpsert, obj)
		if err != nil {
			in.report(in.ctx, err)
			it = in.lost()
		}
		it.listed, it.restored = true, wentBack
		in.enter(patience, it, bound)
	}
	in.enter(patience, &item[T]{kind: itemListed, key: own + "/end", rv: version}, inletBound)
}

// lost returns an item in the place of an object that cannot be used.
func (in *inlet[T]) lost() *item[T] {
	return &item[T]{kind: itemBookmark, key: ownPrefix + "lost", broken: true}
}

// keysOf returns the keys of the objects in a list.
func keysOf(list []any) map[string]struct{} {
	keys := make(map[string]struct{}, len(list))
	for _, obj := range list {
		if m, err := object.Meta(obj); err == nil {
			keys[object.Key(m)] = struct{}{}
		}
	}
	return keys
}

// inKeyOrder returns the objects of a list in the order of their keys. The API server lists in
// that order, but a reflector passes a streamed list on in the order of a map. In that order,
// each batch would touch pages all over a store on disk.
func inKeyOrder(list []any) []any {
	type keyed struct {
		key string
		obj any
	}
	byKey := make([]keyed, len(list))
	for i, obj := range list {
		byKey[i].obj = obj
		if m, err := object.Meta(obj); err == nil {
			byKey[i].key = object.Key(m)
		}
	}
	slices.SortStableFunc(byKey, func(a, b keyed) int { return strings.Compare(a.key, b.key) })
	ordered := make([]any, len(list))
	for i := range byKey {
		ordered[i] = byKey[i].obj
	}
	return ordered
}

// item checks and transforms an object of the source, and returns an item without a version.
func (in *inlet[T]) item(op string, kind itemKind, raw any) (*item[T], error) {
	m, err := object.Meta(raw)
	if err != nil {
		return nil, &ObjectError{Op: op, Err: err}
	}
	var key string
	if m.GetName() != "" {
		key = object.Key(m)
	}
	obj, err := in.accept(raw)
	if err != nil {
		return nil, &ObjectError{Op: op, Key: key, Err: err}
	}
	if key == "" {
		return nil, &ObjectError{Op: op, Err: fmt.Errorf("%T has no name", raw)}
	}
	it := &item[T]{kind: kind, key: key, obj: obj}
	if in.observer.Apply != nil {
		it.arrived = in.clock.Now()
	}
	if in.transform == nil {
		return it, nil
	}
	transformed, err := in.transform(obj)
	switch {
	case err != nil:
	case object.IsNil(transformed):
		err = errors.New("Transform returned nil and no error")
	case object.Key(transformed) != it.key:
		err = fmt.Errorf("Transform changed the key to %s", object.Key(transformed))
	default:
		it.obj = transformed
		return it, nil
	}
	it.broken = true
	if kind != itemDelete { // a delete needs only the key
		in.report(in.ctx, &ObjectError{Op: "transform", Key: it.key, Err: err})
	}
	return it, nil
}

// enter puts an item into the queue as soon as fewer than bound items wait, or patience has
// ended. It does nothing once the informer stops.
func (in *inlet[T]) enter(patience context.Context, it *item[T], bound int) {
	if !in.waitFor(patience, bound) {
		return
	}
	in.newest.next = it
	in.newest = it
	in.waiting++
	in.mu.Unlock()
	if err := in.queue.Update(it); err != nil {
		panic(fmt.Sprintf("informer: %T refuses an item whose key it can read: %v", in.queue, err))
	}
	in.queued.Add(1)
}

// waitFor waits until fewer than bound items wait, or patience has ended. It returns true with
// mu held. Once the informer stops, it returns false and does not hold mu.
func (in *inlet[T]) waitFor(patience context.Context, bound int) bool {
	for {
		in.mu.Lock()
		if in.waiting < bound || patience.Err() != nil {
			if in.ctx.Err() == nil {
				return true
			}
			in.mu.Unlock()
			return false
		}
		in.mu.Unlock()
		in.full.Store(bound > 1)
		select {
		case <-in.room:
		case <-patience.Done():
		}
		in.full.Store(false)
	}
}

// applied notes that items have been applied, in any order. It returns the resourceVersion up
// to which everything is applied.
func (in *inlet[T]) applied(items []*item[T]) string {
	var none T
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, it := range items {
		if !it.own {
			in.waiting--
		}
		it.done = true
		it.obj = none // the chain may keep the item longer than the store keeps the object
	}
	before, known := in.rv, false
	for in.oldest.next != nil && in.oldest.next.done {
		in.oldest = in.oldest.next
		if in.oldest.rv != "" {
			in.rv, known = in.oldest.rv, true
		}
	}
	if known {
		in.progress.Set(in.clock)
	}
	if in.waiting < inletBound {
		select {
		case in.room <- struct{}{}:
		default:
		}
	}
	if in.rv != before && in.moved != nil {
		close(in.moved)
		in.moved = nil
	}
	return in.rv
}

// resourceVersion returns the version up to which everything is in the store, and a channel
// that closes when that version changes.
func (in *inlet[T]) resourceVersion() (string, <-chan struct{}) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.moved == nil {
		in.moved = make(chan struct{})
	}
	return in.rv, in.moved
}

// queuedUp returns the number of changes that are not in the store yet.
func (in *inlet[T]) queuedUp() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.waiting
}

// reached reports whether version now is at or past version want.
func reached(now, want string) (bool, error) {
	if now == "" {
		return false, nil
	}
	order, err := resourceversion.CompareResourceVersion(now, want)
	return order >= 0, err
}
