package index

import (
	"maps"
	"slices"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/object"
)

// Indexer returns the store as a cache.Indexer. Its methods block as long as the store does. If
// the store has no indexes of its own, a result is not a snapshot, because it comes from several
// reads. The Indexer calls failed with errors that its method cannot return. For a store that is
// given keys, writes return an error.
func (x *Index[T]) Indexer(failed func(error)) cache.Indexer {
	if indexer, ok := x.scan.plain.(cache.Indexer); ok {
		return nativeIndexer[T]{indexer, x}
	}
	store := x.scan.plain
	if store == nil {
		store = view{x.scan, failed}
	}
	return storeIndexer[T]{store, x}
}

// nativeIndexer is the store itself, except that index functions that are added may return an
// error without a panic.
type nativeIndexer[T object.Object] struct {
	cache.Indexer
	index *Index[T]
}

func (n nativeIndexer[T]) AddIndexers(indexers cache.Indexers) error { return n.index.Add(indexers) }

type storeIndexer[T object.Object] struct {
	cache.Store
	index *Index[T]
}

func (s storeIndexer[T]) Add(obj any) error    { return s.write(s.Store.Add, obj, true) }
func (s storeIndexer[T]) Update(obj any) error { return s.write(s.Store.Update, obj, true) }
func (s storeIndexer[T]) Delete(obj any) error { return s.write(s.Store.Delete, obj, false) }

func (s storeIndexer[T]) Replace(list []any, version string) error {
	var none T
	before := s.ListKeys()
	if err := s.Store.Replace(list, version); err != nil {
		return err
	}
	for _, key := range before {
		s.index.Wrote(key, none, false)
	}
	for _, raw := range list {
		if obj, ok := raw.(T); ok {
			s.index.Wrote(object.Entry{Object: obj}.Key(), obj, true)
		}
	}
	return nil
}

func (s storeIndexer[T]) write(write func(any) error, raw any, exists bool) error {
	if gone, ok := raw.(cache.DeletedFinalStateUnknown); ok {
		raw = gone.Obj
	}
	obj, err := object.As[T](raw)
	if err != nil {
		return err
	}
	if err := write(obj); err != nil {
		return err
	}
	s.index.Wrote(object.Entry{Object: obj}.Key(), obj, exists)
	return nil
}

func (s storeIndexer[T]) Index(name string, raw any) ([]any, error) {
	f, err := s.index.function(name)
	if err != nil {
		return nil, err
	}
	vals, err := f(raw)
	if err != nil {
		return nil, err
	}
	found := map[string]any{}
	for _, value := range vals {
		if err := s.index.each(name, value, func(e object.Entry, obj T) { found[e.Key()] = obj }); err != nil {
			return nil, err
		}
	}
	return slices.Collect(maps.Values(found)), nil
}

func (s storeIndexer[T]) IndexKeys(name, value string) ([]string, error) {
	keys := []string{}
	err := s.index.each(name, value, func(e object.Entry, _ T) { keys = append(keys, e.Key()) })
	if err != nil {
		return nil, err
	}
	return keys, nil
}

func (s storeIndexer[T]) ListIndexFuncValues(name string) []string {
	f, err := s.index.function(name)
	if err != nil {
		return nil
	}
	if o, err := s.index.overlayOf(name); err == nil {
		return o.values(name)
	}
	found := map[string]bool{}
	for _, obj := range s.List() {
		vals, _ := f(obj) // an object for which the function fails has none
		for _, value := range vals {
			found[value] = true
		}
	}
	return slices.Collect(maps.Keys(found))
}

func (s storeIndexer[T]) ByIndex(name, value string) ([]any, error) {
	objs, err := s.index.Find(name, value)
	if err != nil {
		return nil, err
	}
	untyped := make([]any, 0, len(objs))
	for _, obj := range objs {
		untyped = append(untyped, obj)
	}
	return untyped, nil
}

func (s storeIndexer[T]) GetIndexers() cache.Indexers {
	return maps.Clone(s.index.functions())
}

func (s storeIndexer[T]) AddIndexers(indexers cache.Indexers) error {
	return s.index.Add(indexers)
}
