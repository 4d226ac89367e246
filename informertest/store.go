package informertest

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/tools/cache"
)

// Store is a [cache.Store] that fails, hangs or is slow on demand, to be given to
// an informer as its store. Until it is told otherwise everything works, at once.
//
// It is always strict. To Add what is there, to Update or Delete what is not, to
// hand in a [cache.DeletedFinalStateUnknown], and to write an object while another
// write of it is under way, are errors that name the operation and the key, and
// have no effect. Err returns the first of them, which whoever tries again may
// have hidden.
//
// Its operations are, as Fail, FailAfter and Calls name them, "get" (Get and
// GetByKey), "add", "update", "delete", "list", "list keys", "replace", "resync",
// "bookmark" and "last version" (LastStoreSyncResourceVersion).
//
// Fail, FailAfter, FailRandomly, Hang and Delay make something go wrong, and each
// stays until it is changed or Heal is called. They and all other methods may be
// called from any goroutine at any time. Only the operations block, where Hang and
// Delay say so, and nothing is locked meanwhile, nor while a function of the
// test's is called.
//
// It hands out the very objects that it was given, unless the store behind it does
// otherwise. It is no [cache.Indexer], whatever is behind it. It takes time only
// from package time; to use it in a testing/synctest bubble, create it there. A
// Store is made by [NewStore] and must not be copied.
type Store struct {
	storeFaults
	inner cache.Store
}

var _ cache.Store = (*Store)(nil)

// NewStore returns a store that keeps its objects in inner, which must key them
// as cache.MetaNamespaceKeyFunc does and may hold some. The default, if inner is
// nil, is client-go's store in memory. To fill a store past all that is said here,
// write to inner.
func NewStore(inner cache.Store) *Store {
	if inner == nil {
		inner = cache.NewStore(cache.MetaNamespaceKeyFunc)
	}
	return &Store{inner: inner}
}

// Add stores an object that is not there.
func (s *Store) Add(obj any) error { return s.write("add", obj, false, s.inner.Add) }

// Update replaces an object that is there.
func (s *Store) Update(obj any) error { return s.write("update", obj, true, s.inner.Update) }

// Delete removes an object that is there.
func (s *Store) Delete(obj any) error { return s.write("delete", obj, true, s.inner.Delete) }

// Get returns what is stored under the key of obj.
func (s *Store) Get(obj any) (item any, exists bool, err error) {
	key, wrong := keyOfAny(obj)
	return s.get(key, wrong)
}

// GetByKey returns what is stored under a key.
func (s *Store) GetByKey(key string) (item any, exists bool, err error) { return s.get(key, nil) }

// List returns all objects.
func (s *Store) List() []any {
	_ = s.begin(context.Background(), "list")
	return s.inner.List()
}

// ListKeys returns the keys of all objects.
func (s *Store) ListKeys() []string {
	_ = s.begin(context.Background(), "list keys")
	return s.inner.ListKeys()
}

// Replace stores the objects of a list in place of all others.
func (s *Store) Replace(objs []any, rv string) error {
	return s.do(context.Background(), "replace", "", func() error { return s.inner.Replace(objs, rv) })
}

// Resync does what it does to the store behind.
func (s *Store) Resync() error { return s.do(context.Background(), "resync", "", s.inner.Resync) }

// Bookmark notes a resourceVersion.
func (s *Store) Bookmark(rv string) {
	_ = s.begin(context.Background(), "bookmark")
	s.inner.Bookmark(rv)
}

// LastStoreSyncResourceVersion returns the resourceVersion that the store behind
// has noted. client-go's own return "" unless its feature AtomicFIFO is on.
func (s *Store) LastStoreSyncResourceVersion() string {
	_ = s.begin(context.Background(), "last version")
	return s.inner.LastStoreSyncResourceVersion()
}

func (s *Store) get(key string, wrong error) (item any, exists bool, err error) {
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

// write makes a write of an object that must be there, or must not.
func (s *Store) write(op string, obj any, mustExist bool, effect func(any) error) error {
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

// keyOfAny returns the key of an object. If it is none, the error says what it is,
// and the key is what is known of it.
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
