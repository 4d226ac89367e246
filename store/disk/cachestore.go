package disk

import (
	"context"
	"fmt"

	"go.etcd.io/bbolt"
	"k8s.io/client-go/tools/cache"
)

// Add stores an object, whether or not its key exists. Like every write except Apply and
// Forget, it removes the bookmark. It waits like Apply.
func (s *Store) Add(obj any) error { return s.writeOne("add", obj, s.codec.storing) }

// Update stores an object; see Add.
func (s *Store) Update(obj any) error { return s.writeOne("update", obj, s.codec.storing) }

// Delete removes the object under the key of obj and keeps no tombstone; see Add. obj may be
// an object of any type or a cache.DeletedFinalStateUnknown.
func (s *Store) Delete(obj any) error { return s.writeOne("delete", obj, removing) }

func (s *Store) writeOne(op string, obj any, as func(any) (change, error)) error {
	c, err := as(obj)
	if err == nil {
		err = s.write(context.Background(), batch{changes: []change{c}})
	}
	if err != nil {
		return fmt.Errorf("disk: %s %q: %w", op, c.key, err)
	}
	return nil
}

// Replace stores objects in place of all others, in one transaction, which needs memory for
// all of them. It removes the bookmark and keeps the tombstones. The resourceVersion is not
// used. It waits like Apply.
func (s *Store) Replace(objs []any, _ string) error {
	b := batch{replace: true}
	for _, obj := range objs {
		c, err := s.codec.storing(obj)
		if err != nil {
			return fmt.Errorf("disk: replace: %q: %w", c.key, err)
		}
		b.changes = append(b.changes, c)
	}
	if err := s.write(context.Background(), b); err != nil {
		return fmt.Errorf("disk: replace: %w", err)
	}
	return nil
}

// Get returns the object under the key of obj.
func (s *Store) Get(obj any) (item any, exists bool, err error) {
	key, err := cache.MetaNamespaceKeyFunc(obj)
	if err != nil {
		return nil, false, fmt.Errorf("disk: get: %w", err)
	}
	return s.GetByKey(key)
}

// GetByKey returns the object under a key. It waits only for the disk.
func (s *Store) GetByKey(key string) (obj any, exists bool, err error) {
	found := item{key: []byte(key)}
	err = s.view(func(tx *bbolt.Tx) (err error) {
		if key != "" { // bbolt would return the first key for an empty one
			found.payload, err = get(tx.Bucket([]byte(objectsBucket)), found.key)
		}
		return err
	})
	if err == nil && found.payload != nil {
		obj, err = s.decode(found)
	}
	if err != nil {
		return nil, false, fmt.Errorf("disk: get %q: %w", key, err)
	}
	return obj, found.payload != nil, nil
}

// List returns all objects, in the order of their keys; they are all in memory then. It reads
// like Scan. It cannot return an error: it reports the error to Options.ErrorHandler and
// returns nil, never a part of the objects. An informer calls Scan instead.
func (s *Store) List() []any {
	objs, err := s.read(context.Background(), bucketRange{objectsBucket}, nil, unlimited)
	if err != nil {
		s.report(fmt.Errorf("disk: %s: list: %w", s.path, err))
		return nil
	}
	return objs
}

// ListKeys returns the keys of all objects, in order; see List.
func (s *Store) ListKeys() []string {
	var keys []string
	err := s.each(context.Background(), keyRange{}, nil, unlimited, func(i item) error {
		keys = append(keys, string(i.at))
		return nil
	})
	if err != nil {
		s.report(fmt.Errorf("disk: %s: list keys: %w", s.path, err))
		return nil
	}
	return keys
}

// Resync does nothing.
func (s *Store) Resync() error { return nil }

// Bookmark does nothing: only Apply sets the bookmark that Resume returns.
func (s *Store) Bookmark(string) {}

// LastStoreSyncResourceVersion returns "": an informer resumes from the bookmark instead.
func (s *Store) LastStoreSyncResourceVersion() string { return "" }
