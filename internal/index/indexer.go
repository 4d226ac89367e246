package index

import (
	"maps"
	"slices"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/object"
)

// Indexer returns the store as a cache.Indexer. Its methods block as long as the store
// does. If the store has no indexes of its own, an answer is not a snapshot: it is made of
// several reads.
func (x *Index[T]) Indexer() cache.Indexer {
	if x.native != nil {
		return nativeIndexer[T]{x.native, x}
	}
	return storeIndexer[T]{x.store, x}
}

// nativeIndexer is the store itself, except that an index function which is added to it may
// fail without a panic.
type nativeIndexer[T object.Object] struct {
	cache.Indexer
	index *Index[T]
}

func (n nativeIndexer[T]) AddIndexers(indexers cache.Indexers) error { return n.index.Add(indexers) }

// storeIndexer is a store that has no indexes, together with its overlays.
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
			s.index.Wrote(object.Key(obj), obj, true)
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
	s.index.Wrote(object.Key(obj), obj, exists)
	return nil
}

func (s storeIndexer[T]) Index(name string, raw any) ([]any, error) {
	o, err := s.index.overlayOf(name)
	if err != nil {
		return nil, err
	}
	vals, err := o.funcs[name](raw)
	if err != nil {
		return nil, err
	}
	found := map[string]any{}
	for _, value := range vals {
		objs, err := s.index.Find(name, value)
		if err != nil {
			return nil, err
		}
		for _, obj := range objs {
			found[object.Key(obj)] = obj
		}
	}
	return slices.Collect(maps.Values(found)), nil
}

func (s storeIndexer[T]) IndexKeys(name, value string) ([]string, error) {
	objs, err := s.index.Find(name, value)
	if err != nil {
		return nil, err
	}
	keys := make([]string, 0, len(objs))
	for _, obj := range objs {
		keys = append(keys, object.Key(obj))
	}
	return keys, nil
}

func (s storeIndexer[T]) ListIndexFuncValues(name string) []string {
	o, err := s.index.overlayOf(name)
	if err != nil {
		return nil
	}
	return o.values(name)
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
	return maps.Clone(*s.index.funcs.Load())
}

func (s storeIndexer[T]) AddIndexers(indexers cache.Indexers) error {
	return s.index.Add(indexers)
}
