package testkit

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

// Storing returns the change with which a Durable stores obj, under the key that an informer
// gives it.
func Storing(obj informer.AnyObject) informer.Change {
	return informer.Change{Entry: informer.Entry{Key: cache.MetaObjectToName(obj).String(), Object: obj}}
}

// Burying returns the change with which a Durable deletes obj and keeps it as a tombstone.
func Burying(obj informer.AnyObject) informer.Change {
	c := Storing(obj)
	c.Delete = true
	return c
}

// Stored returns the objects of a Durable. It panics if the store fails.
func Stored(d informer.Durable) (objs []ConfigMap) {
	for after, more := "", true; more; {
		page, err := d.Scan(context.Background(), after, 1000)
		if err != nil {
			panic(err)
		}
		for _, e := range page {
			objs, after = append(objs, e.Object.(ConfigMap)), e.Key
		}
		more = len(page) > 0
	}
	return objs
}

// FailOn returns a function with which the operations op of a store return err.
func FailOn(op string, err error) func(asked, key string) error {
	return func(asked, _ string) error { return ErrorIf(asked == op, err) }
}

// PlainStore is a store without indexes and without upserts. It refuses tombstones, as a
// user's store may. NewPlainStore makes one.
type PlainStore struct {
	// Lenient makes the store ignore the add of a key that exists, and the update or delete of a
	// key that does not exist. Otherwise each of these returns an error.
	Lenient bool
	// Decodes makes reads return copies.
	Decodes bool

	// Mu protects the fields below. Every operation holds it.
	Mu sync.Mutex
	// Objects are the contents by key, "namespace/name".
	Objects map[string]ConfigMap
	// Fail, if not nil, is called at the beginning of each operation on a key. op is "add",
	// "update", "delete" or "get". If Fail returns an error, the operation returns it and has
	// no effect.
	Fail func(op, key string) error
	// After, if not nil, is called once the operation has taken effect. The operation returns
	// its error.
	After func(op, key string) error
	// Marks are the versions that were passed to [PlainStore.Bookmark].
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

// Add adds a config map. Its key must not exist.
func (s *PlainStore) Add(obj any) error {
	return s.write("add", obj, false, func(key string) { s.Objects[key] = obj.(ConfigMap) })
}

// Update replaces a config map. Its key must exist.
func (s *PlainStore) Update(obj any) error {
	return s.write("update", obj, true, func(key string) { s.Objects[key] = obj.(ConfigMap) })
}

// Delete removes a config map. Its key must exist.
func (s *PlainStore) Delete(obj any) error {
	return s.write("delete", obj, true, func(key string) { delete(s.Objects, key) })
}

// GetByKey returns the config map with this key.
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

// Bookmark appends the version to Marks.
func (s *PlainStore) Bookmark(rv string) { s.Marks = append(s.Marks, rv) }

// Get returns the config map that has the key of obj.
func (s *PlainStore) Get(obj any) (any, bool, error) {
	cm := obj.(ConfigMap)
	return s.GetByKey(cm.Namespace + "/" + cm.Name)
}

// ListKeys returns nothing, like a remote store that fails.
func (s *PlainStore) ListKeys() []string { return nil }

// LastStoreSyncResourceVersion returns "".
func (s *PlainStore) LastStoreSyncResourceVersion() string { return "" }

// Replace returns an error, because it is not supported.
func (s *PlainStore) Replace([]any, string) error { return errors.New("not supported") }

// Resync does nothing and returns nil.
func (s *PlainStore) Resync() error { return nil }
