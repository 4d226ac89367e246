package informer

import (
	"sync"

	"k8s.io/client-go/tools/cache"
)

// index finds objects by a value: by the store's own indexes if it is a
// cache.Indexer, else by one in memory that holds keys and values only.
type index[T Object] struct {
	native cache.Indexer // the store, or nil
	own    cache.ThreadSafeStore
	funcs  cache.TypedIndexers[T]

	mu     sync.Mutex // protects failed
	failed []indexFailure[T]
}

type indexFailure[T Object] struct {
	obj T
	err error
}

// values are what own keeps of an object: its values by the name of the index.
type values map[string][]string

// newIndex adds indexers, and one by namespace, to store if it is an Indexer.
func newIndex[T Object](store cache.Store, indexers cache.TypedIndexers[T]) (*index[T], error) {
	x := &index[T]{funcs: cache.TypedIndexers[T]{
		cache.NamespaceIndex: func(obj T) ([]string, error) { return []string{obj.GetNamespace()}, nil },
	}}
	for name, f := range indexers {
		x.funcs[name] = f
	}
	guarded := cache.Indexers{}
	if native, ok := store.(cache.Indexer); ok {
		x.native = native
		has := native.GetIndexers()
		for name := range x.funcs {
			if _, taken := has[name]; !taken || name != cache.NamespaceIndex {
				guarded[name] = func(obj any) ([]string, error) { return x.evaluate(name, obj), nil }
			}
		}
		return x, native.AddIndexers(guarded)
	}
	for name := range x.funcs {
		guarded[name] = func(obj any) ([]string, error) { return obj.(values)[name], nil }
	}
	x.own = cache.NewThreadSafeStore(guarded, cache.Indices{})
	return x, nil
}

// evaluate calls the user's function. Its error is put aside, because client-go's
// indexer panics on one, while it is locked.
func (x *index[T]) evaluate(name string, raw any) []string {
	obj, ok := raw.(T)
	if !ok {
		return nil
	}
	vals, err := x.funcs[name](obj)
	if err != nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.failed = append(x.failed, indexFailure[T]{obj, err})
		return nil
	}
	return vals
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
	for name := range x.funcs {
		vals[name] = x.evaluate(name, obj)
	}
	x.own.Update(key, vals)
}

// failures returns what went wrong for obj. Errors for the object that it takes
// the place of were returned before and are dropped.
func (x *index[T]) failures(obj T) []error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.failed) == 0 {
		return nil
	}
	var errs []error
	for _, f := range x.failed {
		if f.obj == obj {
			errs = append(errs, f.err)
		}
	}
	x.failed = nil
	return errs
}

// find returns the objects with that value.
func (x *index[T]) find(store cache.Store, name, value string) ([]T, error) {
	if x.native != nil {
		found, err := x.native.ByIndex(name, value)
		if err != nil {
			return nil, err
		}
		return typed[T](found)
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
		if exists {
			objs = append(objs, obj)
		}
	}
	return objs, nil
}
