package informer

import (
	"context"
	"fmt"
	"iter"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/object"
)

// Reader reads what an informer knows. [CustomCacheInformer] is one; functions
// that only read should ask for this. Objects are shared and must not be changed.
//
// All methods may be called at any time from any goroutine, before Run too, and
// take as long as the store takes to answer. They see the store as it is: before
// Synced that is less than the whole state.
type Reader[T Object] interface {
	// Get returns the object of that key. That there is none is no error.
	Get(key types.NamespacedName) (obj T, exists bool, err error)
	// List returns the objects of a namespace ("" for all) that have the labels
	// (nil for any), in no order.
	List(namespace string, sel labels.Selector) ([]T, error)
	// ByIndex returns the objects for which the index function of that name
	// returned value, in no order. There is always one by the name of
	// cache.NamespaceIndex; a name that is not in Options.Indexers is an error.
	ByIndex(name, value string) ([]T, error)
	// All yields every object with its key, in no order.
	All() iter.Seq2[types.NamespacedName, T]
}

// Get returns the object of that key, see [Reader].
func (i *CustomCacheInformer[T]) Get(key types.NamespacedName) (obj T, exists bool, err error) {
	obj, exists, err = storeGet[T](i.store, object.KeyOf(key))
	if err != nil {
		var none T
		return none, false, &StoreError{Op: "get", Key: object.KeyOf(key), Failures: 1, Err: err}
	}
	return obj, exists, nil
}

// List returns the objects of a namespace that have the labels, see [Reader].
func (i *CustomCacheInformer[T]) List(namespace string, sel labels.Selector) ([]T, error) {
	objs, err := i.inNamespace(namespace)
	if err != nil || sel == nil || sel.Empty() {
		return objs, err
	}
	var selected []T
	for _, obj := range objs {
		if sel.Matches(labels.Set(obj.GetLabels())) {
			selected = append(selected, obj)
		}
	}
	return selected, nil
}

func (i *CustomCacheInformer[T]) inNamespace(namespace string) ([]T, error) {
	if namespace != "" {
		return i.index.find(cache.NamespaceIndex, namespace)
	}
	return all[T](context.Background(), i.processor.scan)
}

// ByIndex returns the objects with that value of an index, see [Reader].
func (i *CustomCacheInformer[T]) ByIndex(name, value string) ([]T, error) {
	objs, err := i.index.find(name, value)
	if err != nil {
		return nil, fmt.Errorf("informer %s: ByIndex: %w", i.opts.Name, err)
	}
	return objs, nil
}

// All yields every object, see [Reader]. Objects of another type that somebody
// else has put into the store are passed over. If a store that is a Scanner fails, the
// error goes to Options.ErrorHandler, and no further object is yielded.
func (i *CustomCacheInformer[T]) All() iter.Seq2[types.NamespacedName, T] {
	return func(yield func(types.NamespacedName, T) bool) {
		err := i.processor.scan.each(context.Background(), func(stored any) bool {
			obj, ok := stored.(T)
			return !ok || yield(types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}, obj)
		})
		if err != nil {
			i.report(context.Background(), &StoreError{Op: "scan", Failures: 1, GaveUp: true, Err: err})
		}
	}
}

// storeGet looks a key up. Something of another type is an error.
func storeGet[T Object](store cache.Store, key string) (obj T, exists bool, err error) {
	stored, exists, err := store.GetByKey(key)
	if err != nil || !exists {
		return obj, false, err
	}
	obj, ok := stored.(T)
	if !ok {
		return obj, false, fmt.Errorf("the store holds under %s a %T, which %w", key, stored, errWrongType)
	}
	return obj, true, nil
}

// typed returns what a store has listed. Something of another type is an error.
func typed[T Object](stored []any) ([]T, error) {
	objs := make([]T, 0, len(stored))
	for _, s := range stored {
		obj, ok := s.(T)
		if !ok {
			return nil, fmt.Errorf("the store holds a %T", s)
		}
		objs = append(objs, obj)
	}
	return objs, nil
}
