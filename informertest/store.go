package informertest

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/object"
)

// Store is a [cache.Store] that fails, hangs or is slow on demand, for use as an informer's store.
// By default every operation works, without a delay. [NewStore] makes a Store.
//
// A Store is always strict. The following calls have no effect and return an error that names the
// operation and the key:
//
//   - an Add of an object that exists, or an Update or Delete of one that does not exist;
//   - a call with a [cache.DeletedFinalStateUnknown], or with a value that is not an object;
//   - a write of an object while another write of the same object is under way.
//
// Err returns the first of these errors, even if a retry has succeeded since.
//
// In [StoreFaults], the operations have these names: "get" (Get and GetByKey), "add", "update",
// "delete", "list", "list keys", "replace", "resync", "bookmark" and "last version"
// (LastStoreSyncResourceVersion). The operations may be called from any goroutine at any time, and
// block only because of Hang and Delay. No lock is held while they wait or call a function of the
// test.
//
// A Store returns the same objects that were stored, not copies, unless the inner store does
// otherwise. It does not implement [cache.Indexer], even if the inner store does. To use a Store
// in a testing/synctest bubble, create it there.
type Store struct {
	cache.Store
	*StoreFaults
}

// NewStore returns a store that keeps its objects in inner. inner must compute keys like
// cache.MetaNamespaceKeyFunc, and may hold objects already. If inner is nil, NewStore makes a
// client-go store in memory. To fill a store without the checks and faults of Store, write to
// inner.
func NewStore(inner cache.Store) *Store {
	if inner == nil {
		inner = cache.NewStore(object.CacheKey)
	}
	s := &store{inner: inner}
	return &Store{s, &s.StoreFaults}
}

type store struct {
	StoreFaults
	inner cache.Store
}

func (s *store) Add(obj any) error { return s.write("add", obj, false, s.inner.Add) }

func (s *store) Update(obj any) error { return s.write("update", obj, true, s.inner.Update) }

func (s *store) Delete(obj any) error { return s.write("delete", obj, true, s.inner.Delete) }

func (s *store) Get(obj any) (item any, exists bool, err error) {
	key, wrong := keyOfAny(obj)
	return s.get(key, wrong)
}

func (s *store) GetByKey(key string) (item any, exists bool, err error) { return s.get(key, nil) }

func (s *store) List() []any {
	_ = s.begin(context.Background(), "list")
	return s.inner.List()
}

func (s *store) ListKeys() []string {
	_ = s.begin(context.Background(), "list keys")
	return s.inner.ListKeys()
}

func (s *store) Replace(objs []any, rv string) error {
	return s.do(context.Background(), "replace", "", func() error { return s.inner.Replace(objs, rv) })
}

func (s *store) Resync() error { return s.do(context.Background(), "resync", "", s.inner.Resync) }

func (s *store) Bookmark(rv string) {
	_ = s.begin(context.Background(), "bookmark")
	s.inner.Bookmark(rv)
}

func (s *store) LastStoreSyncResourceVersion() string {
	_ = s.begin(context.Background(), "last version")
	return s.inner.LastStoreSyncResourceVersion()
}

func (s *store) get(key string, wrong error) (item any, exists bool, err error) {
	err = s.do(context.Background(), "get", key, func() (err error) {
		if wrong != nil {
			return s.refuse("get", key, wrong)
		}
		item, exists, err = s.inner.GetByKey(key)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	return item, exists, nil
}

// write runs a write of an object. It refuses the write if the object exists and mustExist is
// false, or the reverse.
func (s *store) write(op string, obj any, mustExist bool, effect func(any) error) error {
	key, wrong := keyOfAny(obj)
	if wrong == nil {
		if s.claim(key) {
			defer s.unclaim(key)
		} else {
			wrong = errors.New("another write of it is under way")
		}
	}
	return s.do(context.Background(), op, key, func() error {
		if wrong != nil {
			return s.refuse(op, key, wrong)
		}
		_, exists, err := s.inner.GetByKey(key)
		switch {
		case err != nil:
			return err
		case exists && !mustExist:
			return s.refuse(op, key, errors.New("it exists"))
		case !exists && mustExist:
			return s.refuse(op, key, errors.New("it does not exist"))
		}
		return effect(obj)
	})
}

// keyOfAny returns the key of obj. If obj is not an API object, it returns an error that names the
// type. For a cache.DeletedFinalStateUnknown it returns both the key and an error.
func keyOfAny(obj any) (string, error) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return gone.Key, errors.New("it was given a cache.DeletedFinalStateUnknown")
	}
	name, err := cache.ObjectToName(obj)
	if err != nil {
		return "", fmt.Errorf("it was given a %T: %w", obj, err)
	}
	return name.String(), nil
}
