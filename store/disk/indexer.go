package disk

import (
	"bytes"
	"context"
	"fmt"

	"go.etcd.io/bbolt"
	"k8s.io/client-go/tools/cache"
)

// entryRange is the range of objects that an index has under one value. With keysOnly it has
// only their keys.
type entryRange struct {
	index    string
	prefix   []byte
	keysOnly bool
}

func (r entryRange) read(tx *bbolt.Tx, at []byte, yield func(at, key, record []byte) bool) error {
	x := bucketsOf(tx, r.index)
	if x.entries == nil {
		return nil // the index was removed a moment ago
	}
	if at == nil {
		at = r.prefix // the prefix itself is no entry
	}
	objects, c := tx.Bucket([]byte(objectsBucket)), x.entries.Cursor()
	for entry, _ := after(c, at); bytes.HasPrefix(entry, r.prefix); entry, _ = c.Next() {
		key := entry[len(r.prefix):]
		var record []byte
		if !r.keysOnly {
			if record = objects.Get(key); record == nil {
				return fmt.Errorf("index %q refers to the object %q, which does not exist: %w", r.index, key, ErrDamaged)
			}
		}
		if !yield(entry, key, record) {
			return nil
		}
	}
	return nil
}

// valueRange has one entry for each value of an index.
type valueRange struct{ index string }

func (r valueRange) read(tx *bbolt.Tx, at []byte, yield func(at, key, record []byte) bool) error {
	x := bucketsOf(tx, r.index)
	if x.entries == nil {
		return nil
	}
	c := x.entries.Cursor()
	for entry, record := after(c, at); entry != nil; {
		payload, err := unseal(entry, record)
		if err != nil {
			return err
		}
		_, prefix, err := splitEntry(entry, payload)
		if err != nil {
			return err
		}
		next := successor(prefix)
		if !yield(next, entry, record) {
			return nil
		}
		entry, record = c.Seek(next)
	}
	return nil
}

// of returns the function of an index that is ready.
func (s *Store) of(name string) (cache.IndexFunc, error) {
	x := (*s.indexes.Load())[name]
	if x == nil || !x.ready {
		return nil, fmt.Errorf("disk: there is no index %q", name)
	}
	return x.f, nil
}

// GetIndexers returns the indexes that are ready, in a new map.
func (s *Store) GetIndexers() cache.Indexers {
	all := cache.Indexers{}
	for name, x := range *s.indexes.Load() {
		if x.ready {
			all[name] = x.f
		}
	}
	return all
}

// ByIndex returns the objects that an index has under a value, in the order of their keys. It
// reads like Scan. If the index does not exist, it returns an error.
func (s *Store) ByIndex(name, value string) ([]any, error) {
	if _, err := s.of(name); err != nil {
		return nil, err
	}
	objs, err := s.read(context.Background(), entryRange{index: name, prefix: entryPrefix(value)}, nil, unlimited)
	if err != nil {
		return nil, fmt.Errorf("disk: by index %q: %w", name, err)
	}
	return objs, nil
}

// IndexKeys returns the keys of the objects that ByIndex returns.
func (s *Store) IndexKeys(name, value string) ([]string, error) {
	if _, err := s.of(name); err != nil {
		return nil, err
	}
	var keys []string
	r := entryRange{index: name, prefix: entryPrefix(value), keysOnly: true}
	err := s.each(context.Background(), r, nil, unlimited, func(i item) error {
		keys = append(keys, string(i.key))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("disk: index keys of %q: %w", name, err)
	}
	return keys, nil
}

// Index returns the objects that share a value in an index with obj, each once. It reads like
// Scan. If the index does not exist, it returns an error.
func (s *Store) Index(name string, obj any) ([]any, error) {
	f, err := s.of(name)
	if err != nil {
		return nil, err
	}
	values, err := evaluate(name, f, obj)
	if err != nil {
		return nil, fmt.Errorf("disk: %w", err)
	}
	var objs []any
	seen := map[string]bool{}
	for _, value := range values {
		err := s.each(context.Background(), entryRange{index: name, prefix: entryPrefix(value)}, nil, unlimited, func(i item) error {
			if seen[string(i.key)] {
				return nil
			}
			seen[string(i.key)] = true
			found, err := s.decode(i)
			objs = append(objs, found)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("disk: index %q: %w", name, err)
		}
	}
	return objs, nil
}

// ListIndexFuncValues returns the values of an index, nil if the index does not exist. It
// cannot return an error: it reports the error like List.
func (s *Store) ListIndexFuncValues(name string) []string {
	if _, err := s.of(name); err != nil {
		return nil
	}
	var values []string
	err := s.each(context.Background(), valueRange{name}, nil, unlimited, func(i item) error {
		value, _, err := splitEntry(i.key, i.payload)
		values = append(values, value)
		return err
	})
	if err != nil {
		s.report(fmt.Errorf("disk: %s: values of index %q: %w", s.path, name, err))
		return nil
	}
	return values
}
