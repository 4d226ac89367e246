package informer

import (
	"context"
	"maps"
	"slices"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/object"
)

func (s *sharedIndexInformer[T]) GetStore() cache.Store { return s.GetIndexer() }

func (s *sharedIndexInformer[T]) GetIndexer() cache.Indexer {
	if native := s.core.index.native; native != nil {
		return nativeIndexer[T]{native, s.core.index}
	}
	return storeIndexer[T]{s.core.store, s.core.index}
}

func (s *sharedIndexInformer[T]) AddIndexers(indexers cache.Indexers) error {
	if s.IsStopped() {
		return s.failed("AddIndexers", ErrStopped)
	}
	if err := s.core.index.add(indexers); err != nil {
		return s.failed("AddIndexers", err)
	}
	for _, obj := range s.core.All() {
		for _, err := range failures(indexers, obj) {
			s.core.report(context.Background(), &ObjectError{Op: "index", Key: object.Key(obj), Err: err})
		}
	}
	return nil
}

// nativeIndexer is the store itself, but for new indexes, whose failures must not panic.
type nativeIndexer[T Object] struct {
	cache.Indexer
	index *index[T]
}

func (n nativeIndexer[T]) AddIndexers(indexers cache.Indexers) error { return n.index.add(indexers) }

// storeIndexer makes a cache.Indexer of a store that has no indexes. An answer is not
// a snapshot: it is put together of single reads.
type storeIndexer[T Object] struct {
	cache.Store
	index *index[T]
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
		s.index.wrote(key, none, false)
	}
	for _, raw := range list {
		if obj, ok := raw.(T); ok {
			s.index.wrote(object.Key(obj), obj, true)
		}
	}
	return nil
}

func (s storeIndexer[T]) write(write func(any) error, raw any, exists bool) error {
	if gone, ok := raw.(cache.DeletedFinalStateUnknown); ok {
		raw = gone.Obj
	}
	obj, err := acceptT[T](raw)
	if err != nil {
		return err
	}
	if err := write(obj); err != nil {
		return err
	}
	s.index.wrote(object.Key(obj), obj, exists)
	return nil
}

func (s storeIndexer[T]) Index(name string, raw any) ([]any, error) {
	o, err := s.index.of(name)
	if err != nil {
		return nil, err
	}
	values, err := o.funcs[name](raw)
	if err != nil {
		return nil, err
	}
	found := map[string]any{}
	for _, value := range values {
		objs, err := s.index.find(name, value)
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
	objs, err := s.index.find(name, value)
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
	o, err := s.index.of(name)
	if err != nil {
		return nil
	}
	return o.values(name)
}

func (s storeIndexer[T]) ByIndex(name, value string) ([]any, error) {
	objs, err := s.index.find(name, value)
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
	return s.index.add(indexers)
}
