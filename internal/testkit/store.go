package testkit

import (
	"errors"
	"fmt"
	"sync"

	"k8s.io/client-go/tools/cache"
)

// PlainStore is a store and nothing more: no Indexer, no upserts. It refuses tombstones, as
// a user's store may. NewPlainStore makes one.
type PlainStore struct {
	// Lenient makes an add of a key that is there, and an update or a delete of one that is
	// not, do nothing. Without it, each is an error.
	Lenient bool
	// Decodes makes reads return copies.
	Decodes bool

	// Mu is held during every operation. It protects the fields below.
	Mu sync.Mutex
	// Objects has the contents by key, "namespace/name".
	Objects map[string]ConfigMap
	// Fail, unless nil, is called at the beginning of each operation on a key, such as "add".
	// Its error is returned, and the operation has no effect.
	Fail func(op, key string) error
	// After, unless nil, is called once the operation has taken effect. Its error is returned.
	After func(op, key string) error
	// Marks are the versions that [PlainStore.Bookmark] got.
	Marks []string
}

var _ cache.Store = &PlainStore{}

// NewPlainStore returns a store that holds objs.
func NewPlainStore(objs ...ConfigMap) *PlainStore {
	s := &PlainStore{Objects: map[string]ConfigMap{}}
	for _, obj := range objs {
		_ = s.Add(obj)
	}
	return s
}

// SetFail sets Fail. It may be called while the store is in use.
func (s *PlainStore) SetFail(fail func(op, key string) error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.Fail = fail
}

func (s *PlainStore) do(op, key string, f func() error) error {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.Fail != nil {
		if err := s.Fail(op, key); err != nil {
			return err
		}
	}
	if err := f(); err != nil {
		return err
	}
	if s.After != nil {
		return s.After(op, key)
	}
	return nil
}

func (s *PlainStore) write(op string, obj any, mustExist bool, f func(key string)) error {
	cm, ok := obj.(ConfigMap)
	if !ok {
		return fmt.Errorf("%s was given a %T", op, obj)
	}
	key := cm.Namespace + "/" + cm.Name
	return s.do(op, key, func() error {
		if _, exists := s.Objects[key]; exists != mustExist {
			if s.Lenient {
				return nil
			}
			return fmt.Errorf("%s %s, which exists: %v", op, key, exists)
		}
		f(key)
		return nil
	})
}

// Add adds a config map whose key is not there.
func (s *PlainStore) Add(obj any) error {
	return s.write("add", obj, false, func(key string) { s.Objects[key] = obj.(ConfigMap) })
}

// Update replaces a config map whose key is there.
func (s *PlainStore) Update(obj any) error {
	return s.write("update", obj, true, func(key string) { s.Objects[key] = obj.(ConfigMap) })
}

// Delete removes a config map whose key is there.
func (s *PlainStore) Delete(obj any) error {
	return s.write("delete", obj, true, func(key string) { delete(s.Objects, key) })
}

// GetByKey returns the config map of that key.
func (s *PlainStore) GetByKey(key string) (obj any, exists bool, err error) {
	err = s.do("get", key, func() error {
		if cm, ok := s.Objects[key]; ok {
			obj, exists = s.decoded(cm), true
		}
		return nil
	})
	return obj, exists, err
}

// List returns all config maps, in no order. It cannot fail.
func (s *PlainStore) List() []any {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	var objs []any
	for _, obj := range s.Objects {
		objs = append(objs, s.decoded(obj))
	}
	return objs
}

func (s *PlainStore) decoded(obj ConfigMap) ConfigMap {
	if s.Decodes {
		return obj.DeepCopy()
	}
	return obj
}

// Bookmark keeps the version in Marks.
func (s *PlainStore) Bookmark(rv string) { s.Marks = append(s.Marks, rv) }

// Get returns the config map that has the key of obj.
func (s *PlainStore) Get(obj any) (any, bool, error) {
	cm := obj.(ConfigMap)
	return s.GetByKey(cm.Namespace + "/" + cm.Name)
}

// ListKeys returns nothing, like a remote store that fails.
func (s *PlainStore) ListKeys() []string { return nil }

// LastStoreSyncResourceVersion returns nothing.
func (s *PlainStore) LastStoreSyncResourceVersion() string { return "" }

// Replace is not supported.
func (s *PlainStore) Replace([]any, string) error { return errors.New("not supported") }

// Resync does nothing.
func (s *PlainStore) Resync() error { return nil }
