package index

import (
	"fmt"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/object"
)

// Untyped returns indexers as functions of any value. For a value that is not a T, they return no
// index values: a lister of client-go asks for a namespace with a value of another type.
func Untyped[T object.Object](indexers map[string]func(obj T) ([]string, error)) cache.Indexers {
	untyped := cache.Indexers{}
	for name, f := range indexers {
		untyped[name] = func(raw any) ([]string, error) {
			if obj, ok := raw.(T); ok {
				return f(obj)
			}
			return nil, nil
		}
	}
	return untyped
}

// ByNamespace returns an index function for cache.NamespaceIndex. The function allocates nothing
// for an object in the same namespace as the last one: a store of client-go calls it twice per
// update.
func ByNamespace() cache.IndexFunc {
	var last atomic.Pointer[[]string]
	return func(raw any) ([]string, error) {
		obj, ok := raw.(metav1.Object)
		if !ok {
			return cache.MetaNamespaceIndexFunc(raw)
		}
		ns := obj.GetNamespace()
		if vals := last.Load(); vals != nil && (*vals)[0] == ns {
			return *vals, nil
		}
		vals := []string{ns}
		last.Store(&vals)
		return vals, nil
	}
}

// Failures calls each function for obj, and returns the errors with the names of the indexes.
func Failures(funcs cache.Indexers, obj any) []error {
	var errs []error
	for name, f := range funcs {
		if _, err := f(obj); err != nil {
			errs = append(errs, fmt.Errorf("index %q: %w", name, err))
		}
	}
	return errs
}
