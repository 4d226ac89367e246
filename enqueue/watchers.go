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

// Queue is what the watchers of this package put keys into: what [NewQueue] returns, or
// any other of client-go's typed workqueues. Add may be called from several goroutines, and should not block.
type Queue[K comparable] interface {
	Add(key K)
}

// Object returns a watcher that puts the key of each object that is added, updated or
// deleted into queue. Of updates, those pass that one of changes wants, or all if there
// are none; see [Change]. For keys of another type there is [Map].
//
// It panics if queue or one of changes is nil.
func Object[T informer.Object](queue Queue[types.NamespacedName], changes ...Change) informer.ResourceWatcher[T] {
	check("Object", queue, changes)
	return enqueuer[T, types.NamespacedName]{queue, changes, func(_ context.Context, obj T) ([]types.NamespacedName, error) {
		return []types.NamespacedName{{Namespace: obj.GetNamespace(), Name: obj.GetName()}}, nil
	}}
}

// Owners says which owners of an object [Owner] is about.
type Owners struct {
	// Kind is what the owners are; those of other kinds are left out. Which version an
	// owner reference has does not matter. Its Kind must be set.
	Kind schema.GroupKind

	// All is whether all owners of the kind count. Defaults to false: only the one that
	// is the controller, of which an object has no more than one.
	All bool

	// ClusterScoped is whether the owners have no namespace. Defaults to false: theirs
	// is that of the object. An owner reference does not say.
	ClusterScoped bool
}

// Owner returns a watcher that puts the keys of an object's owners into queue, when the
// object is added, updated or deleted. An update puts those there, too, that the object
// had before. Of updates, those pass that one of changes wants, or all if there are
// none; see [Change].
//
// If nothing but the key of a deleted object is known, which
// [informer.Event].FinalStateUnknown tells of, its owners are not known either, and
// nothing is put into queue.
//
// It panics if queue or one of changes is nil, or if owners has no kind.
func Owner[T informer.Object](queue Queue[types.NamespacedName], owners Owners, changes ...Change) informer.ResourceWatcher[T] {
	if owners.Kind.Kind == "" {
		panic("enqueue: Owner: Owners.Kind has no kind")
	}
	check("Owner", queue, changes)
	return enqueuer[T, types.NamespacedName]{queue, changes, func(_ context.Context, obj T) ([]types.NamespacedName, error) {
		return owners.of(obj), nil
	}}
}

// of returns the keys of those owners of obj that o is about.
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

// Map returns a watcher that puts what keys returns for an object into queue, when the
// object is added, updated or deleted; when it is updated, for what it is now and for
// what it was before, each key once. Of updates, those pass that one of changes wants,
// or all if there are none; see [Change].
//
// keys is called from the watcher's goroutine, with the ctx of its calls. It may block,
// and may look things up in an informer. If nothing but the key of a deleted object is
// known, that is all that it is given. If it fails, nothing of that event is put into
// queue, and the watcher returns the error: WatcherOptions.Retry says whether the event
// comes again.
//
// It panics if queue, keys or one of changes is nil.
func Map[T informer.Object, K comparable](queue Queue[K], keys func(ctx context.Context, obj T) ([]K, error), changes ...Change) informer.ResourceWatcher[T] {
	if keys == nil {
		panic("enqueue: Map: keys is nil")
	}
	check("Map", queue, changes)
	return enqueuer[T, K]{queue, changes, keys}
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

// enqueuer puts into a queue what an event is about.
type enqueuer[T informer.Object, K comparable] struct {
	queue   Queue[K]
	changes []Change
	keys    func(ctx context.Context, obj T) ([]K, error)
}

func (q enqueuer[T, K]) Add(ctx context.Context, e informer.Event[T]) error {
	return q.put(ctx, e.New)
}

func (q enqueuer[T, K]) Delete(ctx context.Context, e informer.Event[T]) error {
	return q.put(ctx, e.Old)
}

func (q enqueuer[T, K]) Update(ctx context.Context, e informer.Event[T]) error {
	// What is alike before and after a merged event may have been something else, and
	// reconciled as that, in between.
	if !e.Merged && !passes(q.changes, e.Old, e.New) {
		return nil
	}
	return q.put(ctx, e.New, e.Old)
}

// put adds the keys of all states to the queue, or none if that fails. Each is added
// once: a key that is added again while a quick worker has it is reconciled again.
func (q enqueuer[T, K]) put(ctx context.Context, states ...T) error {
	var all []K
	for _, obj := range states {
		keys, err := q.keys(ctx, obj)
		if err != nil {
			return err
		}
		all = append(all, keys...)
	}
	added := make(sets.Set[K], len(all))
	for _, key := range all {
		if !added.Has(key) {
			added.Insert(key)
			q.queue.Add(key)
		}
	}
	return nil
}
