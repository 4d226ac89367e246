package informer

import (
	"context"
	"fmt"
	"iter"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/index"
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
	obj, exists, err = index.Get[T](i.store, object.KeyOf(key))
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
		return i.index.Find(cache.NamespaceIndex, namespace)
	}
	return index.All[T](context.Background(), i.processor.scan)
}

// ByIndex returns the objects with that value of an index, see [Reader].
func (i *CustomCacheInformer[T]) ByIndex(name, value string) ([]T, error) {
	objs, err := i.index.Find(name, value)
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
		err := i.processor.scan.Each(context.Background(), func(stored any) bool {
			obj, ok := stored.(T)
			return !ok || yield(types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}, obj)
		})
		if err != nil {
			i.report(context.Background(), &StoreError{Op: "scan", Failures: 1, GaveUp: true, Err: err})
		}
	}
}
