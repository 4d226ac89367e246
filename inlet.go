package informer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// inletBound is how many changes may be between the reflector and the store
// before the reflector is held up. It is twice what RealFIFO hands out at once.
const inletBound = 2000

// ownPrefix begins the keys of items that stand for no object.
const ownPrefix = "\x00"

// itemKind says what an item in the queue stands for.
type itemKind uint8

const (
	itemUpsert itemKind = iota
	itemDelete
	itemBookmark // nothing has changed up to rv
	itemListed   // everything of a list has gone before
)

// item is what the queue carries. It wraps the object so that the key is
// computed once, and so that what has been applied can be told in order.
type item[T Object] struct {
	kind    itemKind
	broken  bool // Transform failed: only the key may be used
	listed  bool // part of a list
	done    bool
	size    int32 // items that leave with this one
	key     string
	obj     T
	rv      string        // reached when this item and all before it are applied
	arrived time.Duration // if an observer wants to know

	// The items that did not come with a list form a chain in the order in
	// which they entered; protected, as done is, by inlet.mu.
	next *item[T]
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
// comes out again could not be counted.
type inlet[T Object] struct {
	queue     cache.Queue
	accept    func(any) (T, error)
	transform func(T) (T, error)
	source    *source
	timed     bool            // items say when they arrived
	ctx       context.Context // Run's: ends the waiting for room
	// Of the reflector's goroutine.
	lists   int
	ordered bool // events come in the order of their versions: not so the objects that a watch from no version begins with

	queued atomic.Int64 // items in the queue, but for those that are just being put there

	mu      sync.Mutex // protects the rest
	oldest  *item[T]   // the last that is applied with all before it
	newest  *item[T]
	waiting int // entered and not applied
	room    chan struct{}
	rv      string
	moved   chan struct{} // closed when rv changes; nil if nobody waits
}

func newInlet[T Object](queue cache.Queue, s *source, accept func(any) (T, error), opts Options[T]) *inlet[T] {
	start := &item[T]{done: true}
	return &inlet[T]{
		queue: queue, source: s, accept: accept, transform: opts.Transform, timed: opts.Observer.Apply != nil,
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
		in.source.report(in.ctx, err)
		return
	}
	it.size = 1
	if !in.ordered {
		it.rv = ""
	}
	in.enter(it, func() error { return in.queue.Update(it) })
}

// Bookmark takes the news that nothing has changed up to rv.
func (in *inlet[T]) Bookmark(rv string) error {
	in.ordered = true
	it := &item[T]{kind: itemBookmark, key: ownPrefix + "bookmark", rv: rv, size: 1}
	in.enter(it, func() error { return in.queue.Update(it) })
	return nil
}

// Replace takes a list. It refuses the whole of it if it holds an object of
// another type, so that such a list never passes for an empty one. Nil and
// nameless objects are dropped.
func (in *inlet[T]) Replace(list []any, rv string) error {
	items := make([]any, 0, len(list))
	for _, obj := range list {
		if err := in.checkType(obj); err != nil {
			in.source.failed(in.ctx, "list", err)
			return err
		}
	}
	for _, obj := range list {
		it, err := in.item("list", itemUpsert, obj)
		if err != nil {
			in.source.report(in.ctx, err)
			continue
		}
		it.listed = true
		items = append(items, it)
	}
	in.source.lastList.set(in.source.stopwatch)
	in.source.worked("list")
	// The end of the list is an item of its own, because a list may be empty
	// and because DeltaFIFO counts as synced before the last item is applied.
	// Its key is used once, or it would take the place of an older one.
	in.lists++
	in.ordered = rv != "" && rv != "0"
	end := &item[T]{kind: itemListed, key: ownPrefix + "list/" + strconv.Itoa(in.lists), rv: rv, size: int32(len(items) + 1)}
	in.enter(end, func() error {
		if err := in.queue.Replace(items, rv); err != nil {
			return err
		}
		return in.queue.Update(end)
	})
	return nil
}

// checkType returns an error if obj is an object, but not of the informer's type.
func (in *inlet[T]) checkType(obj any) error {
	if _, noObject := checkMeta(obj); noObject == nil {
		_, err := in.accept(obj)
		return err
	}
	return nil
}

// Resync is never asked for: each listener replays for itself.
func (in *inlet[T]) Resync() error { return nil }

var errWrongType = errors.New("is not of the informer's type")

// item makes an item of what the source delivered.
func (in *inlet[T]) item(op string, kind itemKind, raw any) (*item[T], error) {
	m, err := checkMeta(raw)
	if err != nil {
		return nil, &ObjectError{Op: op, Err: err}
	}
	var key string
	if m.GetName() != "" {
		key = objectKey(m)
	}
	obj, err := in.accept(raw)
	if err != nil {
		return nil, &ObjectError{Op: op, Key: key, Err: err}
	}
	if key == "" {
		return nil, &ObjectError{Op: op, Err: fmt.Errorf("%T has no name", raw)}
	}
	it := &item[T]{kind: kind, key: key, obj: obj, rv: m.GetResourceVersion()}
	if in.timed {
		it.arrived = in.source.now()
	}
	if in.transform == nil {
		return it, nil
	}
	transformed, err := in.transform(obj)
	switch {
	case err != nil:
	case isNil(transformed):
		err = errors.New("Transform returned nil and no error")
	case objectKey(transformed) != it.key:
		err = fmt.Errorf("Transform changed the key to %s", objectKey(transformed))
	default:
		it.obj = transformed
		return it, nil
	}
	it.broken = true
	if kind != itemDelete { // which goes on without the object
		in.source.report(in.ctx, &ObjectError{Op: "transform", Key: it.key, Err: err})
	}
	return it, nil
}

// enter waits for room and lets put bring it into the queue. It does nothing
// once the informer stops.
func (in *inlet[T]) enter(it *item[T], put func() error) {
	for {
		in.mu.Lock()
		if in.waiting < inletBound {
			break
		}
		in.mu.Unlock()
		select {
		case <-in.room:
		case <-in.ctx.Done():
			return
		}
	}
	in.newest.next = it
	in.newest = it
	in.waiting += int(it.size)
	in.mu.Unlock()
	if err := put(); err != nil {
		panic(fmt.Sprintf("informer: %T refuses an item whose key it can read: %v", in.queue, err))
	}
	in.queued.Add(int64(it.size))
}

// applied notes that items have been applied, which come out in any order, and
// returns the resourceVersion up to which all has been.
func (in *inlet[T]) applied(items []*item[T]) string {
	var none T
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, it := range items {
		it.done = true
		it.obj = none // the chain may hold it for longer than the store does
		in.waiting -= int(it.size)
	}
	before := in.rv
	for in.oldest.next != nil && in.oldest.next.done {
		in.oldest = in.oldest.next
		if in.oldest.rv != "" {
			in.rv = in.oldest.rv
		}
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

// reached reports whether version now is at or past want.
func reached(now, want string) (bool, error) {
	if now == "" {
		return false, nil
	}
	order, err := resourceversion.CompareResourceVersion(now, want)
	return order >= 0, err
}

// objectKey returns the key of obj as cache.MetaNamespaceKeyFunc makes it.
func objectKey(obj metav1.Object) string {
	return storeKey(types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()})
}

func storeKey(key types.NamespacedName) string {
	if key.Namespace == "" {
		return key.Name
	}
	return key.Namespace + "/" + key.Name
}
