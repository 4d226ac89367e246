package enqueue

import (
	"context"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/customcacheinformer/informer"
)

// Queue receives the keys from the watchers of this package: the queue that [NewQueue]
// returns, or any other of client-go's typed workqueues. Add may be called from several
// goroutines, and should not block.
type Queue[K comparable] interface {
	Add(key K)
}

// Object returns a watcher that puts the key of each object that is added, updated or deleted
// into queue. An update counts if one of changes wants it, or if there are no changes; see
// [Change]. For keys of another type use [Map].
func Object[T informer.Object](queue Queue[types.NamespacedName], changes ...Change) informer.ResourceWatcher[T] {
	check("Object", queue, changes)
	return enqueuer[T, types.NamespacedName]{queue, mapper[T, types.NamespacedName]{changes, keyOf[T]}}
}

// keyOf returns the key of obj.
func keyOf[T informer.Object](_ context.Context, obj T) ([]types.NamespacedName, error) {
	return []types.NamespacedName{{Namespace: obj.GetNamespace(), Name: obj.GetName()}}, nil
}

// Owners says which owners of an object [Owner] puts into the queue.
type Owners struct {
	// Kind is the kind of the owners; owners of other kinds are ignored. The version in an
	// owner reference does not matter. Kind.Kind must be set.
	Kind schema.GroupKind

	// All says whether all owners of the kind count. Defaults to false: only the owner that is
	// the controller counts, and an object has at most one. With All, a client that may write
	// an object decides how many keys each of its events puts into queue: tens of thousands of
	// references fit into one object, and their owners need not exist. Each key is put once per
	// event.
	All bool

	// ClusterScoped says whether the owners have no namespace; an owner reference does not
	// tell. Defaults to false: the owners have the namespace of the object.
	ClusterScoped bool
}

// Owner returns a watcher that puts the keys of an object's owners into queue, when the object
// is added, updated or deleted. For an update it also puts the keys of the owners that the
// object had before. An update counts if one of changes wants it, or if there are no changes;
// see [Change].
//
// If only the key of a deleted object is known (see [informer.Event].FinalStateUnknown), its
// owners are not known, and nothing is put into queue.
//
// It panics if queue or one of changes is nil, or if owners has no kind.
func Owner[T informer.Object](queue Queue[types.NamespacedName], owners Owners, changes ...Change) informer.ResourceWatcher[T] {
	if owners.Kind.Kind == "" {
		panic("enqueue: Owner: Owners.Kind has no kind")
	}
	check("Owner", queue, changes)
	return enqueuer[T, types.NamespacedName]{queue, mapper[T, types.NamespacedName]{changes, ownersOf[T](owners)}}
}

// ownersOf returns a function that returns the keys of an object's owners.
func ownersOf[T informer.Object](owners Owners) func(context.Context, T) ([]types.NamespacedName, error) {
	return func(_ context.Context, obj T) ([]types.NamespacedName, error) { return owners.of(obj), nil }
}

// of returns the keys of those owners of obj that o selects.
func (o Owners) of(obj metav1.Object) (keys []types.NamespacedName) {
	namespace := obj.GetNamespace()
	if o.ClusterScoped {
		namespace = ""
	}
	for _, ref := range obj.GetOwnerReferences() {
		version, err := schema.ParseGroupVersion(ref.APIVersion)
		controls := ref.Controller != nil && *ref.Controller
		if err == nil && version.Group == o.Kind.Group && ref.Kind == o.Kind.Kind && (controls || o.All) {
			keys = append(keys, types.NamespacedName{Namespace: namespace, Name: ref.Name})
		}
	}
	return keys
}

// Map returns a watcher that calls keys for an object that is added, updated or deleted, and
// puts the returned keys into queue. For an update it calls keys for both the new and the old
// state, and puts each key once. An update counts if one of changes wants it, or if there are
// no changes; see [Change].
//
// keys is called from the watcher's goroutine, with the ctx of the watcher's call. It may
// block, and may look things up in an informer. If only the key of a deleted object is known,
// keys gets an object with nothing but that key. If keys fails, nothing of that event is put
// into queue, and the watcher returns the error: WatcherOptions.Retry decides whether the
// event comes again.
//
// It panics if queue, keys or one of changes is nil.
func Map[T informer.Object, K comparable](queue Queue[K], keys func(ctx context.Context, obj T) ([]K, error), changes ...Change) informer.ResourceWatcher[T] {
	if keys == nil {
		panic("enqueue: Map: keys is nil")
	}
	check("Map", queue, changes)
	return enqueuer[T, K]{queue, mapper[T, K]{changes, keys}}
}

func check(function string, queue any, changes []Change) {
	if isNil(queue) {
		panic("enqueue: " + function + ": queue is nil")
	}
	if slices.ContainsFunc(changes, func(c Change) bool { return c == nil }) {
		panic("enqueue: " + function + ": one of changes is nil")
	}
}

// isNil reports whether v is nil, or an interface around a nil pointer.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}

// mapper decides which keys an event leads to.
type mapper[T informer.Object, K comparable] struct {
	changes []Change
	keys    func(ctx context.Context, obj T) ([]K, error)
}

// wants reports whether an update matters. A merged event may hide a state in between, and that
// state may have been reconciled. So it matters even if before and after are alike.
func (m mapper[T, K]) wants(e informer.Event[T]) bool {
	return e.Merged || passes(m.changes, e.Old, e.New)
}

// of returns the keys of all states, or none if keys fails. It returns each key once: a key that
// is added again while a quick worker has it would be reconciled again.
func (m mapper[T, K]) of(ctx context.Context, states ...T) ([]K, error) {
	var all []K
	for _, obj := range states {
		keys, err := m.keys(ctx, obj)
		if err != nil {
			return nil, err
		}
		all = append(all, keys...)
	}
	if len(all) < 2 {
		return all, nil
	}
	seen, distinct := make(sets.Set[K], len(all)), all[:0:0]
	for _, key := range all {
		if !seen.Has(key) {
			seen.Insert(key)
			distinct = append(distinct, key)
		}
	}
	return distinct, nil
}

// enqueuer is a watcher that puts the keys of an event into a queue.
type enqueuer[T informer.Object, K comparable] struct {
	queue  Queue[K]
	mapper mapper[T, K]
}

func (q enqueuer[T, K]) Add(ctx context.Context, e informer.Event[T]) error {
	return q.put(ctx, e.New)
}

func (q enqueuer[T, K]) Delete(ctx context.Context, e informer.Event[T]) error {
	return q.put(ctx, e.Old)
}

func (q enqueuer[T, K]) Update(ctx context.Context, e informer.Event[T]) error {
	if !q.mapper.wants(e) {
		return nil
	}
	return q.put(ctx, e.New, e.Old)
}

// put adds the keys of all states to the queue.
func (q enqueuer[T, K]) put(ctx context.Context, states ...T) error {
	keys, err := q.mapper.of(ctx, states...)
	for _, key := range keys {
		q.queue.Add(key)
	}
	return err
}
