package informer

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"
)

// index finds objects by a value: by the store's own indexes if it is a
// cache.Indexer, else by one in memory that holds keys and values only.
type index[T Object] struct {
	native cache.Indexer // the store, or nil
	own    cache.ThreadSafeStore
	filled atomic.Bool // own has what the store held at the start
	user   cache.TypedIndexers[T]
	all    cache.TypedIndexers[T] // user's and the one by namespace
}

// values are what own keeps of an object: its values by the name of the index.
type values map[string][]string

// newIndex adds indexers, and one by namespace, to store if it is an Indexer.
func newIndex[T Object](store cache.Store, indexers cache.TypedIndexers[T]) (*index[T], error) {
	x := &index[T]{user: maps.Clone(indexers), all: cache.TypedIndexers[T]{
		cache.NamespaceIndex: byNamespace[T](),
	}}
	maps.Copy(x.all, indexers)
	guarded := cache.Indexers{}
	if native, ok := store.(cache.Indexer); ok {
		x.native = native
		has := native.GetIndexers()
		for name, f := range x.all {
			if _, taken := has[name]; !taken || name != cache.NamespaceIndex {
				guarded[name] = func(obj any) ([]string, error) { return evaluate(f, obj), nil }
			}
		}
		return x, native.AddIndexers(guarded)
	}
	for name := range x.all {
		guarded[name] = func(obj any) ([]string, error) { return obj.(values)[name], nil }
	}
	x.own = cache.NewThreadSafeStore(guarded, cache.Indices{})
	return x, nil
}

// byNamespace returns the index function. It makes no new slice for an object that
// is in the namespace of the one before: it is called twice per update.
func byNamespace[T Object]() cache.TypedIndexFunc[T] {
	var last atomic.Pointer[[]string]
	return func(obj T) ([]string, error) {
		ns := obj.GetNamespace()
		if vals := last.Load(); vals != nil && (*vals)[0] == ns {
			return *vals, nil
		}
		vals := []string{ns}
		last.Store(&vals)
		return vals, nil
	}
}

// evaluate calls an index function. An object for which it fails has no values:
// client-go's indexer would panic on the error, while it is locked. See check.
func evaluate[T Object](f func(T) ([]string, error), raw any) []string {
	obj, ok := raw.(T)
	if !ok {
		return nil
	}
	vals, err := f(obj)
	if err != nil {
		return nil
	}
	return vals
}

// check returns what the user's functions fail with for obj.
func (x *index[T]) check(obj T) []error {
	var errs []error
	for name, f := range x.user {
		if _, err := f(obj); err != nil {
			errs = append(errs, fmt.Errorf("index %q: %w", name, err))
		}
	}
	return errs
}

// wrote follows a write of the store, if the store does not index by itself.
func (x *index[T]) wrote(key string, obj T, exists bool) {
	if x.native != nil {
		return
	}
	if !exists {
		x.own.Delete(key)
		return
	}
	vals := values{}
	for name, f := range x.all {
		vals[name] = evaluate(f, obj)
	}
	x.own.Update(key, vals)
}

// find returns the objects with that value.
func (x *index[T]) find(store cache.Store, name, value string) ([]T, error) {
	switch {
	case x.native != nil:
		found, err := x.native.ByIndex(name, value)
		if err != nil {
			return nil, err
		}
		return typed[T](found)
	case x.all[name] == nil:
		return nil, fmt.Errorf("there is no index %q", name)
	case !x.filled.Load():
		found, err := typed[T](store.List())
		return slices.DeleteFunc(found, func(obj T) bool { return !x.has(obj, name, value) }), err
	}
	keys, err := x.own.IndexKeys(name, value)
	if err != nil {
		return nil, err
	}
	objs := make([]T, 0, len(keys))
	for _, key := range keys {
		obj, exists, err := storeGet[T](store, key)
		if err != nil {
			return nil, err
		}
		if exists && x.has(obj, name, value) { // or it has changed since
			objs = append(objs, obj)
		}
	}
	return objs, nil
}

func (x *index[T]) has(obj T, name, value string) bool {
	return slices.Contains(evaluate(x.all[name], obj), value)
}
