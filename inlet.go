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
	"github.com/customcacheinformer/informer/internal/source"
	"github.com/customcacheinformer/informer/internal/stopwatch"
)

const (
	// inletBound is how many changes may be between the reflector and the store
	// before the reflector is held up. It is twice what RealFIFO hands out at once.
	inletBound = 2000
	// listBound is how many objects of a list, which is in memory already. With more
	// than ten waiting, a DeltaFIFO makes garbage of several times what it holds.
	listBound = 10
	// listPatience is for how long a list is held up. Then all of it is queued, so
	// that the reflector gets back to its watch, which the server ends after minutes.
	listPatience = time.Second
)

// ownPrefix begins the keys of items that stand for no object.
const ownPrefix = "\x00"

// itemKind says what an item in the queue stands for.
type itemKind uint8

const (
	itemUpsert itemKind = iota
	itemDelete
	itemGone     // a list lacks what is known; there is no object
	itemList     // a list follows, of these keys
	itemListed   // everything of a list has gone before
	itemBookmark // nothing has changed up to rv
	itemResumed  // the source goes on where a durable store stands
	itemForget   // a durable store may forget tombstones
)

// item is what the queue carries. It wraps the object so that the key is
// computed once, and so that what has been applied can be told in order.
type item[T Object] struct {
	kind   itemKind
	broken bool // Transform failed: only the key may be used; or the store has refused it
	listed bool // a list says so
	own    bool // made by the applier
	done   bool // applied; protected by inlet.mu
	// restored says that the server has gone back in time: versions may mean something
	// else than they did.
	restored bool
	key      string
	obj      T
	listing  map[string]struct{} // the keys of the list
	rv       string              // reached when this item and all before it are applied
	arrived  time.Duration       // if an observer wants to know
	next     *item[T]            // that has entered after it; protected by inlet.mu
}

// itemKey is the queue's key function.
func itemKey[T Object](obj any) (string, error) {
	if it, ok := obj.(*item[T]); ok {
		return it.key, nil
	}
	return "", fmt.Errorf("%T is no item of the queue", obj)
}

// inlet is what the reflector writes into: a cache.ReflectorStore in front of
// the queue. It checks and transforms what arrives, holds the reflector back
// while the store is behind, and knows up to which resourceVersion everything
// has been applied.
//
// Every change enters the queue as an update, deletes too, the item saying which
// it is: DeltaFIFO drops deletes that it thinks are repeated, and one that never
// comes out again could not be counted. A list enters object by object, like
// everything else: with all of it in a DeltaFIFO the heap of a first sync of 100,000
// objects peaked a fifth higher, and 80 B per object were never given back.
type inlet[T Object] struct {
	queue     cache.Queue
	accept    func(any) (T, error)
	transform func(T) (T, error)
	source    *source.Source
	clock     stopwatch.Stopwatch
	name      string
	report    func(context.Context, error)
	observer  *Observer
	ctx       context.Context // Run's: ends the waiting for room
	// Of the reflector's goroutine.
	lists   int
	durable bool   // the store is a Durable: what waits for it is a batch
	any     bool   // something may be known
	highest string // the version that was seen last
	ordered bool   // events come in the order of their versions: not so the objects that a watch from no version begins with

	queued atomic.Int64 // items in the queue, but for one that is just being put there
	full   atomic.Bool  // an item waits for room

	mu      sync.Mutex // protects the rest
	oldest  *item[T]   // the last that is applied with all before it
	newest  *item[T]
	waiting int // entered and not applied
	room    chan struct{}
	rv      string
	moved   chan struct{} // closed when rv changes; nil if nobody waits

	progress stopwatch.Moment // when something of which rv is known was last applied with all before it
}

func newInlet[T Object](queue cache.Queue, clock stopwatch.Stopwatch, accept func(any) (T, error), opts Options[T]) *inlet[T] {
	start := &item[T]{done: true}
	return &inlet[T]{
		queue: queue, clock: clock, name: opts.Name, report: opts.ErrorHandler, observer: opts.Observer, accept: accept, transform: opts.Transform, durable: opts.durable(),
		oldest: start, newest: start, room: make(chan struct{}, 1),
	}
}

// Add, Update and Delete take one event of a watch. They never return an error,
// because the reflector could only log it.
func (in *inlet[T]) Add(obj any) error    { in.event(itemUpsert, obj, true); return nil }
func (in *inlet[T]) Update(obj any) error { in.event(itemUpsert, obj, false); return nil }
func (in *inlet[T]) Delete(obj any) error { in.event(itemDelete, obj, false); return nil }

func (in *inlet[T]) event(kind itemKind, obj any, added bool) {
	in.ordered = in.ordered || !added
	it, err := in.item("watch", kind, obj)
	if err != nil {
		in.report(in.ctx, err)
		in.enter(in.ctx, in.lost(), inletBound)
		return
	}
	in.any = true
	if in.ordered {
		in.highest = it.rv
	} else {
		it.rv = ""
	}
	in.enter(in.ctx, it, inletBound)
}

// Bookmark takes the news that nothing has changed up to rv.
func (in *inlet[T]) Bookmark(rv string) error {
	in.ordered, in.highest = true, rv
	in.enter(in.ctx, &item[T]{kind: itemBookmark, key: ownPrefix + "bookmark", rv: rv}, inletBound)
	return nil
}

// resumed takes the news that the source goes on at a version at which the store is
// already. It comes from the watch's goroutine, before anything else does.
func (in *inlet[T]) resumed(rv string) {
	in.enter(in.ctx, &item[T]{kind: itemResumed, key: ownPrefix + "resumed", rv: rv}, inletBound)
}

// forget has the applier look for tombstones to forget.
func (in *inlet[T]) forget() {
	in.enter(in.ctx, &item[T]{kind: itemForget, key: ownPrefix + "forget"}, inletBound)
}

// Replace takes a list. It refuses the whole of it if it holds an object of
// another type, so that such a list never passes for an empty one. Nil and
// nameless objects are dropped.
func (in *inlet[T]) Replace(list []any, rv string) error {
	if in.source.Resuming() {
		in.ordered = true
		in.source.Worked("list")
		return nil // the store has what the source did not list
	}
	for _, obj := range list {
		if err := in.checkType(obj); err != nil {
			in.source.Failed(in.ctx, "list", err)
			return err
		}
	}
	restored := in.restored(rv, in.source.Complete())
	// What a list lacks is known when everything before it is applied. A DeltaFIFO would
	// put what comes after the list before it, in the place of an older change.
	if in.waitFor(in.ctx, 1) {
		in.mu.Unlock()
		in.enterList(list, rv, restored)
	}
	return nil
}

// restored reports whether a list shows that the server has gone back in time.
func (in *inlet[T]) restored(rv string, wentBack bool) bool {
	before := in.highest
	in.highest = rv
	if !wentBack && !older(rv, before) {
		return false
	}
	in.report(in.ctx, &WatchError{Op: "list", Resource: in.name, Err: fmt.Errorf(
		"the server has gone back in time: its state of resourceVersion %s takes the place of that of %s", rv, before)})
	return true
}

// enterList enters the objects of a list. Its beginning and its end are items of their
// own, because a list may be empty. Their keys are used once, or a DeltaFIFO would put
// them in the place of older ones.
func (in *inlet[T]) enterList(list []any, rv string, restored bool) {
	patience, stop := context.WithTimeout(in.ctx, listPatience)
	defer stop()
	in.lists++
	own := ownPrefix + "list/" + strconv.Itoa(in.lists)
	begin := &item[T]{kind: itemList, key: own}
	if in.any {
		begin.listing = keysOf(list)
	}
	in.any = true
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
		it.listed, it.restored, it.rv = true, restored, ""
		in.enter(patience, it, bound)
	}
	in.ordered = !source.IsAnyVersion(rv)
	in.enter(patience, &item[T]{kind: itemListed, key: own + "/end", rv: rv}, inletBound)
}

// lost returns an item that stands for something of which not even the key is known.
func (in *inlet[T]) lost() *item[T] {
	return &item[T]{kind: itemBookmark, key: ownPrefix + "lost", broken: true}
}

// older reports whether a version comes before another one.
func older(version, other string) bool {
	order, err := resourceversion.CompareResourceVersion(version, other)
	return err == nil && order < 0
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

// inKeyOrder returns a list in the order of its objects' keys. The API server lists in
// that order, but a reflector hands on a streamed list in that of a map, with which each
// batch would touch pages all over a store on disk.
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

// checkType returns an error if obj is an object, but not of the informer's type.
func (in *inlet[T]) checkType(obj any) error {
	if _, noObject := object.Meta(obj); noObject == nil {
		_, err := in.accept(obj)
		return err
	}
	return nil
}

// Resync is never asked for: each listener replays for itself.
func (in *inlet[T]) Resync() error { return nil }

// item makes an item of what the source delivered.
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
	it := &item[T]{kind: kind, key: key, obj: obj, rv: m.GetResourceVersion()}
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
	if kind != itemDelete { // which goes on without the object
		in.report(in.ctx, &ObjectError{Op: "transform", Key: it.key, Err: err})
	}
	return it, nil
}

// enter puts an item into the queue when fewer than bound wait, or patience has ended.
// It does nothing once the informer stops.
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

// waitFor returns with mu held when fewer than bound items wait, or patience has
// ended. It returns false, without, once the informer stops.
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

// applied notes that items have been applied, which come out in any order, and
// returns the resourceVersion up to which all has been.
func (in *inlet[T]) applied(items []*item[T]) string {
	var none T
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, it := range items {
		if !it.own {
			in.waiting--
		}
		it.done = true
		it.obj = none // the chain may hold it for longer than the store does
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

// resourceVersion returns the version up to which everything is in the store,
// and a channel that closes when it changes.
func (in *inlet[T]) resourceVersion() (string, <-chan struct{}) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.moved == nil {
		in.moved = make(chan struct{})
	}
	return in.rv, in.moved
}

// queuedUp returns how many changes are not in the store yet.
func (in *inlet[T]) queuedUp() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.waiting
}

// reached reports whether version now is at or past want.
func reached(now, want string) (bool, error) {
	if now == "" {
		return false, nil
	}
	order, err := resourceversion.CompareResourceVersion(now, want)
	return order >= 0, err
}
