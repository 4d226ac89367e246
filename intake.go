package informer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer/internal/object"
)

// intake is the source.Sink of one source: it checks and transforms each object that the source
// delivers, and enters it into the inlet.
type intake[T Object] struct {
	*inlet[T]
	scope  *scope
	accept func(any) (T, error)

	// These belong to the source's goroutine.
	lists int  // how many lists have come
	heard bool // the source has delivered something, so a list must be compared with what is known
}

// Upsert takes an object that a watch has added or updated.
func (in *intake[T]) Upsert(obj any, version string) { in.event(itemUpsert, obj, version) }

// Delete takes the last state of an object that a watch has deleted.
func (in *intake[T]) Delete(obj any, version string) { in.event(itemDelete, obj, version) }

func (in *intake[T]) event(kind itemKind, obj any, version string) {
	it, err := in.item("watch", kind, obj)
	if err != nil {
		in.report(in.ctx, err)
		in.enter(in.ctx, in.lost(), inletBound)
		return
	}
	in.heard = true
	it.rv = version
	in.enter(in.ctx, it, inletBound)
}

// Bookmark notes that nothing else has changed up to a version.
func (in *intake[T]) Bookmark(version string) {
	in.enter(in.ctx, &item[T]{kind: itemBookmark, key: ownPrefix + "bookmark", rv: version}, inletBound)
}

// Resumed notes that the source goes on at the version of the store.
func (in *intake[T]) Resumed(version string) {
	in.enter(in.ctx, &item[T]{kind: itemResumed, key: ownPrefix + "resumed", rv: version}, inletBound)
}

// enter puts an item into the queue, see inlet.enter.
func (in *intake[T]) enter(patience context.Context, it *item[T], bound int) {
	it.scope = in.scope
	in.inlet.enter(patience, it, bound)
}

// CheckType returns an error if obj is an API object of another type than the informer's, or of
// another namespace than the source's. Nil and nameless objects pass: item drops them later.
func (in *intake[T]) CheckType(obj any) error {
	if m, noObject := object.Meta(obj); noObject == nil {
		_, err := in.check(m, obj)
		return err
	}
	return nil
}

// check returns an object of the source as a T, or an error if it cannot come from the source.
func (in *intake[T]) check(m metav1.Object, raw any) (T, error) {
	obj, err := in.accept(raw)
	if err == nil && in.scope.namespace != "" && m.GetName() != "" && m.GetNamespace() != in.scope.namespace {
		err = fmt.Errorf("the client for namespace %q delivers an object of namespace %q", in.scope.namespace, m.GetNamespace())
	}
	return obj, err
}

// Replace takes a list. wentBack says that the server has gone back in time.
func (in *intake[T]) Replace(list []any, version string, wentBack bool) {
	// The applier finds the deletes of a list when everything before the list is applied.
	// Therefore all earlier items must have left the queue: a DeltaFIFO could put a later item
	// in the place of an older change, ahead of the list.
	if in.waitUntil(in.ctx, func() bool { return in.scope.waiting == 0 }, 0) {
		in.mu.Unlock()
		in.enterList(list, version, wentBack)
	}
}

// enterList enters the objects of a list. The beginning and the end are items of their own,
// because a list may be empty. Their keys are never used again: otherwise a DeltaFIFO
// would put the new items in the place of older ones.
func (in *intake[T]) enterList(list []any, version string, wentBack bool) {
	patience, stop := context.WithTimeout(in.ctx, listPatience)
	defer stop()
	in.lists++
	own := ownPrefix + "list/" + in.scope.namespace + "/" + strconv.Itoa(in.lists)
	begin := &item[T]{kind: itemList, key: own}
	if in.heard || in.knownObjects {
		begin.listing = keysOf(list)
	}
	in.heard = true
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
func (in *intake[T]) lost() *item[T] {
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
func (in *intake[T]) item(op string, kind itemKind, raw any) (*item[T], error) {
	m, err := object.Meta(raw)
	if err != nil {
		return nil, &ObjectError{Op: op, Err: err}
	}
	var key string
	if m.GetName() != "" {
		key = object.Key(m)
	}
	obj, err := in.check(m, raw)
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
