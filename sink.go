package informer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer/internal/framing"
	"github.com/customcacheinformer/informer/internal/object"
	"github.com/customcacheinformer/informer/internal/source"
)

// sink is the source.Sink of one source. It checks and transforms each object that the source delivers,
// and enters it into the gate.
type sink[T Object] struct {
	*gate[T]
	scope  *scope
	accept func(any) (T, error)
	bare   func(key string, uid types.UID) T // makes an object that has only a key and a UID
	omit   *framing.Omission
	// progress is called when an object of a list has entered the queue.
	progress func()

	// The source calls one method at a time, except Resumed, which does not use these fields.
	lists int          // how many lists have begun
	heard bool         // the store may have something of the source, so a list must be compared with what is known
	part  *source.Part // of a source.Divided, what the next list has; nil for other sources

	list *listing // the list that comes in; nil if there is none
}

// Upsert takes an object that a watch has added or updated, or an object of a list that comes in parts.
func (in *sink[T]) Upsert(obj any, version string) { in.event(itemUpsert, obj, version) }

// Delete takes the last state of an object whose delete the watch has sent. It may also be called during
// a stream of the first state.
func (in *sink[T]) Delete(obj any, version string) { in.event(itemDelete, obj, version) }

func (in *sink[T]) event(kind itemKind, obj any, version string) {
	if in.list != nil {
		in.takeListed(kind, obj)
		return
	}
	if in.foreign(obj) {
		if version != "" {
			in.Bookmark(version)
		}
		return
	}
	it, err := in.item("watch", kind, obj)
	if err != nil {
		in.reports.unusable(in.ctx, err)
		in.enter(in.ctx, in.lost(), gateBound)
		return
	}
	in.heard = true
	it.rv = version
	in.enter(in.ctx, it, gateBound)
}

// Bookmark notes that the source has delivered every change up to a version.
func (in *sink[T]) Bookmark(version string) {
	in.enter(in.ctx, &item[T]{kind: itemBookmark, key: ownPrefix + "bookmark", rv: version}, gateBound)
}

// Resumed notes that the source continues at the version that the store has.
func (in *sink[T]) Resumed(version string) {
	if !in.scope.isLate() { // after a change of the credentials, which adds nothing to what the store is
		in.Bookmark(version)
		return
	}
	in.enter(in.ctx, &item[T]{kind: itemResumed, key: ownPrefix + "resumed", rv: version}, gateBound)
}

// enter puts an item into the queue, see gate.enter.
func (in *sink[T]) enter(patience context.Context, it *item[T], bound int) {
	it.scope = in.scope
	in.gate.enter(patience, it, bound)
}

// Example returns an object that the store had at the start, or nil if there was none. For clusters, an unstructured example has no
// kind, because package kinds reads a different kind from each cluster.
func (in *sink[T]) Example() any {
	u, ok := in.example.(*unstructured.Unstructured)
	if !ok || !in.clusters {
		return in.example
	}
	anyKind := &unstructured.Unstructured{}
	anyKind.SetResourceVersion(u.GetResourceVersion())
	return anyKind
}

// CheckType returns an error if obj is an API object of another type than the informer's, or of another
// namespace than the source's. It returns nil for anything that is not an API object or has no name: item
// rejects that later.
func (in *sink[T]) CheckType(obj any) error {
	if m, noObject := object.Meta(obj); noObject == nil {
		_, err := in.check(m, obj)
		return err
	}
	return nil
}

// check returns an object of the source as a T, or an error if it has the wrong type or namespace. For an
// object that could not be decoded, it checks only the namespace, and returns the zero T.
func (in *sink[T]) check(m metav1.Object, raw any) (obj T, err error) {
	if _, ok := raw.(*framing.Undecodable); !ok {
		obj, err = in.accept(raw)
	}
	if err == nil && in.scope.namespace != "" && m.GetName() != "" && m.GetNamespace() != in.scope.namespace {
		err = fmt.Errorf("the client for namespace %q delivers an object of namespace %q", in.scope.namespace, m.GetNamespace())
	}
	return obj, err
}

type listing struct {
	own      string          // begins the keys of the items that stand for no object
	doubtful bool            // versions may mean something else than they did
	seen     *object.Keys    // of a list in parts: the keys so far; nil if nothing was known before
	patience context.Context // when it ends, the rest of the list enters at once
	end      context.CancelFunc
}

// Replace takes a whole list. doubtful is true if a version may stand for another state than before, see
// source.Sink.
func (in *sink[T]) Replace(list []any, version string, doubtful bool) {
	if in.has() != nil {
		list = slices.DeleteFunc(slices.Clone(list), in.foreign)
	}
	var keys *object.Keys
	if in.heard || in.example != nil {
		keys = &object.Keys{}
		for _, obj := range list {
			in.note(keys, obj)
		}
	}
	in.begin(doubtful, true, keys, version)
	if in.durable {
		list = in.inKeyOrder(list)
	}
	in.mostOfLists(len(list))
	for _, obj := range list {
		in.takeListed(itemUpsert, obj)
	}
	in.End(version)
}

// Begin begins a list that comes in parts. Until End, Upsert and Delete take its objects.
func (in *sink[T]) Begin(doubtful bool) {
	known := in.heard || in.example != nil
	in.begin(doubtful, false, nil, "")
	if known {
		in.list.seen = &object.Keys{}
	}
}

// begin enters an item for the beginning of a list. The beginning and the end have items because a list
// may be empty. The keys of these items are never used again: otherwise a DeltaFIFO would put the new
// items in the place of older ones. whole is true if the whole list is in memory. Then keys has its keys,
// or is nil if nothing can be lacking, and version is its version.
func (in *sink[T]) begin(doubtful, whole bool, keys *object.Keys, version string) {
	in.settle()
	in.giveUp()
	in.lists++
	l := &listing{own: ownPrefix + "list/" + in.scope.name() + "/" + strconv.Itoa(in.lists), doubtful: doubtful}
	if whole {
		l.patience, l.end = context.WithTimeout(in.ctx, listPatience)
	} else {
		l.patience, l.end = context.WithCancel(in.ctx)
	}
	in.list, in.heard = l, true
	it := &item[T]{kind: itemList, key: l.own, restored: doubtful}
	if keys != nil {
		it.listing = &contents{Keys: keys, version: version, has: in.has()}
	}
	in.enter(l.patience, it, gateBound)
}

// giveUp ends the current list before it is complete. It reports whether there was one.
func (in *sink[T]) giveUp() (underWay bool) {
	if in.list == nil {
		return false
	}
	in.list.end()
	in.list = nil
	return true
}

// turn notes that the source continues with another part. No other method may be called at the same time.
func (in *sink[T]) turn(part source.Part) { in.part = &part }

// foreign reports whether an object is outside the part of the source, and counts such objects.
func (in *sink[T]) foreign(obj any) bool {
	has := in.has()
	if has == nil {
		return false
	}
	m, err := object.Meta(obj)
	if err != nil || has(in.keyOf(m)) {
		return false
	}
	in.scope.dropped.Add(1)
	return true
}

// expect notes that an earlier source may have left objects in the store, so that the first list is
// compared with the store.
func (in *sink[T]) expect() { in.heard = true }

// has returns a function that reports whether a list of the source would have a key, or nil if a list has
// all keys.
func (in *sink[T]) has() func(key string) bool {
	if in.part == nil {
		return nil
	}
	return in.part.Has
}

// settle waits until all items of the source are applied. The applier must find the deletes of a whole
// list after it has applied everything before the list. But a DeltaFIFO could put a later item in the
// place of an older change, ahead of the beginning of the list.
func (in *sink[T]) settle() {
	if in.waitUntil(in.ctx, func() bool { return in.scope.gone.Load() || in.scope.waiting == 0 }, 0) {
		in.mu.Unlock()
	}
}

// takeListed takes an object of a list. Fewer than gateBound such objects may wait for the store, or 2*maxPart of a
// first list that the store takes in parts.
func (in *sink[T]) takeListed(kind itemKind, obj any) {
	if in.ctx.Err() != nil || in.scope.gone.Load() {
		return // Transform need not be called for the rest
	}
	if in.foreign(obj) {
		return
	}
	bound := gateBound
	if in.gathers && in.scope.isLate() {
		bound = 2 * maxPart // one part is stored while the next one comes in
	}
	if in.list.seen != nil {
		in.note(in.list.seen, obj)
	}
	it, err := in.item("list", kind, obj)
	if err != nil {
		in.reports.unusable(in.ctx, err)
		it = in.lost()
	}
	it.listed, it.restored = true, in.list.doubtful
	in.enter(in.list.patience, it, bound)
	in.progress()
}

// End ends a list. It need not wait until the objects of the list are applied. A DeltaFIFO may put a
// later change ahead of the end, but only in the place of an object of this list, whose key is in seen.
func (in *sink[T]) End(version string) {
	l := in.list
	defer l.end()
	in.reports.listed(in.ctx, in.scope.covers, in.lists)
	if l.seen != nil {
		in.enter(l.patience, &item[T]{kind: itemLack, key: l.own + "/lack", listing: &contents{Keys: l.seen, version: version, has: in.has()}}, gateBound)
	}
	end := &item[T]{kind: itemListed, key: l.own + "/end", rv: version}
	if in.part != nil {
		end.applied = in.part.Applied
	}
	in.enter(l.patience, end, gateBound)
	in.list = nil
}

// lost returns an item that stands for an object that cannot be used.
func (in *sink[T]) lost() *item[T] {
	return &item[T]{kind: itemBookmark, key: ownPrefix + "lost", broken: true}
}

func (in *sink[T]) note(keys *object.Keys, obj any) {
	if m, err := object.Meta(obj); err == nil {
		keys.Add(in.keyOf(m))
	}
}

// inKeyOrder returns the objects of a list, sorted by key. The API server lists in that order, but a
// reflector passes on a streamed list in the random order of a map. In random order, each batch would
// change pages all over a store on disk.
func (in *sink[T]) inKeyOrder(list []any) []any {
	type keyed struct {
		key string
		obj any
	}
	byKey := make([]keyed, len(list))
	for i, obj := range list {
		byKey[i].obj = obj
		if m, err := object.Meta(obj); err == nil {
			byKey[i].key = in.keyOf(m)
		}
	}
	slices.SortStableFunc(byKey, func(a, b keyed) int { return strings.Compare(a.key, b.key) })
	ordered := make([]any, len(list))
	for i := range byKey {
		ordered[i] = byKey[i].obj
	}
	return ordered
}

// keyOf returns the key of an object that a source delivers. The key is computed only once, when the
// object enters the informer. From then on it goes with the object.
func (in *sink[T]) keyOf(m metav1.Object) string {
	return in.scope.cluster.prefix() + object.Key(m)
}

// item checks and transforms an object of the source, and returns an item for it without a version. It
// returns an error if raw is not an object of the informer.
func (in *sink[T]) item(op string, kind itemKind, raw any) (*item[T], *ObjectError) {
	m, err := object.Meta(raw)
	if err != nil {
		return nil, &ObjectError{Op: op, Err: err}
	}
	var key string
	if m.GetName() != "" {
		key = in.keyOf(m)
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
	if u, ok := raw.(*framing.Undecodable); ok {
		it.obj = in.bare("", u.UID)
		in.noteResult("decode", it, u.Err)
		if kind == itemDelete {
			in.reports.ended(in.ctx, "transform", it.key, false)
		}
		return it, nil
	}
	in.noteResult("decode", it, nil)
	in.omit.From(obj)
	if in.transform == nil {
		return it, nil
	}
	transformed, err := in.transform(obj)
	if err = in.checkTransformed(transformed, it.key, err); err == nil {
		it.obj = transformed
	}
	in.noteResult("transform", it, err)
	return it, nil
}

// checkTransformed returns err if it is not nil. Otherwise it returns an error if Transform has returned nil
// or an object with another key.
func (in *sink[T]) checkTransformed(obj T, key string, err error) error {
	switch {
	case err != nil:
		return err
	case object.IsNil(obj):
		return errors.New("Transform returned nil and no error")
	case in.keyOf(obj) != key:
		return fmt.Errorf("Transform changed the key to %s", in.keyOf(obj))
	}
	return nil
}

// noteResult notes whether an operation has worked for the object of an item. A failure for a deleted
// object is not reported, because a delete needs only the key.
func (in *sink[T]) noteResult(op string, it *item[T], err error) {
	it.broken = err != nil
	if in.scope.gone.Load() {
		return // nothing would note the end of a failure
	}
	if err != nil && it.kind != itemDelete {
		in.reports.failed(in.ctx, op, it.key, in.lists, err)
	} else {
		in.reports.ended(in.ctx, op, it.key, it.kind != itemDelete)
	}
}

// omission returns an Omission that removes the fields in Omit from objects of the type of example.
func (o Options[T]) omission(example T) (*framing.Omission, error) {
	t := reflect.TypeOf(example)
	if reflect.TypeFor[T]() == reflect.TypeFor[AnyObject]() && t == reflect.TypeFor[*metav1.PartialObjectMetadata]() {
		t = nil // the objects may be of any type
	}
	omit, err := framing.NewOmission(t, o.Omit)
	if err != nil {
		return nil, fmt.Errorf("Options.Omit: %w", err)
	}
	return omit, nil
}

// StripManagedFields is an Options.Transform that removes metadata.managedFields from an object, in place. Few programs
// read this field, and it is often the largest part of an object. It never returns an error. Options.Omit can do the
// same, and with [Transport] the field is not even decoded.
func StripManagedFields[T Object](obj T) (T, error) {
	if obj.GetManagedFields() != nil {
		obj.SetManagedFields(nil)
	}
	return obj, nil
}
