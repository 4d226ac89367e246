package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"

	"go.etcd.io/bbolt"
	"k8s.io/client-go/tools/cache"
)

// sampled is for how many objects agrees compares an index in the file with its function.
const sampled = 500

// AddIndexers adds indexes and fills them with the stored objects. It blocks until they are
// complete. It returns an error, and adds none of them, in these cases: a name is taken or
// longer than 1024 bytes, a function is nil or returns an error for a stored object, or the
// file cannot be read or written.
//
// The file keeps indexes by name. An index that the file has from an earlier process is reused
// without reading all objects, so its function must not change: AddIndexers calls the function
// for the first 500 objects, and if a result differs from the file, it builds the index again.
// It does not notice a function that differs only for later objects: change Identity.Version
// with the function. The first write of an object removes from the file all indexes that were
// not added by then.
//
// To build an index, AddIndexers reads and decodes all objects, page by page. Other calls may
// write objects meanwhile. Index functions may read from the store, but must not write to it:
// writes wait for them.
//
// If an index function returns an error for an object, writes of the object are refused. As
// long as an informer's store lacks an object, the informer sets no bookmark, and each start
// lists. So for an object that it cannot index, an index function should return no value
// rather than an error.
func (s *Store) AddIndexers(indexers cache.Indexers) error {
	if err := s.addIndexers(indexers); err != nil {
		return fmt.Errorf("disk: add indexers: %w", err)
	}
	return nil
}

func (s *Store) addIndexers(indexers cache.Indexers) (err error) {
	if err := checkIndexers(indexers); err != nil || len(indexers) == 0 {
		return err
	}
	fresh, err := s.declare(indexers)
	if err != nil {
		return err
	}
	added := false
	defer func() {
		if !added { // also if an index function has panicked
			err = errors.Join(err, s.withdraw(indexers))
		}
	}()
	if err := s.build(fresh); err != nil {
		return err
	}
	err = s.alter(func(tx *bbolt.Tx) error {
		for name := range fresh {
			if failed := (*s.indexes.Load())[name].failed.Load(); failed != nil {
				return *failed
			}
			if err := put(bucketsOf(tx, name).self, []byte(stateKey), []byte(complete)); err != nil {
				return err
			}
		}
		return nil
	}, func(all map[string]*index) {
		for name, f := range indexers {
			all[name] = &index{f: f, ready: true}
		}
	})
	added = err == nil
	return err
}

func (s *Store) alter(inFile func(tx *bbolt.Tx) error, inUse func(map[string]*index)) error {
	if err := s.claim(context.Background()); err != nil {
		return err
	}
	defer s.release()
	if err := s.update(inFile); err != nil {
		return err
	}
	s.publish(inUse)
	return nil
}

// publish replaces the map of indexes by a changed copy. The caller must be the writer.
func (s *Store) publish(change func(map[string]*index)) {
	all := maps.Clone(*s.indexes.Load())
	change(all)
	s.indexes.Store(&all)
}

// declare makes writes maintain the indexes from now on. It returns the indexes that must still be built: those that the
// file does not have as a whole, or for which agrees is false.
func (s *Store) declare(indexers cache.Indexers) (fresh cache.Indexers, err error) {
	if err := s.claim(context.Background()); err != nil {
		return nil, err
	}
	defer s.release()
	fresh = cache.Indexers{}
	for name, f := range indexers {
		if (*s.indexes.Load())[name] != nil {
			return nil, fmt.Errorf("there is an index %q already", name)
		}
		same := false
		if s.dormant[name] {
			if same, err = s.agrees(name, f); err != nil {
				return nil, err
			}
		}
		if !same {
			fresh[name] = f
		}
	}
	if len(fresh) > 0 {
		if err := s.update(func(tx *bbolt.Tx) error { return makeIndexes(tx, fresh) }); err != nil {
			return nil, err
		}
	}
	s.publish(func(all map[string]*index) {
		for name, f := range indexers {
			all[name] = &index{f: f, ready: fresh[name] == nil, failed: &atomic.Pointer[error]{}}
			delete(s.dormant, name)
		}
	})
	return fresh, nil
}

// agrees reports whether an index function returns the values that the file has, for the first
// sampled objects.
func (s *Store) agrees(name string, f cache.IndexFunc) (bool, error) {
	items, err := s.page(bucketRange{objectsBucket}, nil, sampled)
	if err != nil {
		return false, err
	}
	want := make([][]byte, len(items))
	err = s.view(func(tx *bbolt.Tx) (err error) {
		x := bucketsOf(tx, name)
		for i := 0; i < len(items) && err == nil; i++ {
			want[i], err = get(x.values, items[i].key)
		}
		return err
	})
	if err != nil {
		return false, err
	}
	for i, item := range items {
		values, err := s.valuesOf(name, f, item)
		if err != nil {
			return false, err
		}
		if want[i] == nil || !bytes.Equal(want[i], encodeValues(values)) {
			return false, nil
		}
	}
	return true, nil
}

func (s *Store) valuesOf(name string, f cache.IndexFunc, i item) ([]string, error) {
	obj, err := s.decode(i)
	if err != nil {
		return nil, err
	}
	values, err := evaluate(name, f, obj)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", i.key, err)
	}
	return values, nil
}

// build adds the existing objects to indexes that writes maintain already.
func (s *Store) build(indexers cache.Indexers) error {
	if len(indexers) == 0 {
		return nil
	}
	for at := []byte(nil); ; {
		items, err := s.page(bucketRange{objectsBucket}, at, pageRecords)
		if err != nil || len(items) == 0 {
			return err
		}
		values := map[string][][]string{}
		for name, f := range indexers {
			for _, i := range items {
				v, err := s.valuesOf(name, f, i)
				if err != nil {
					return err
				}
				values[name] = append(values[name], v)
			}
		}
		err = s.alter(func(tx *bbolt.Tx) error { return fillIndexes(tx, items, values) }, func(map[string]*index) {})
		if err != nil {
			return err
		}
		at = items[len(items)-1].at
	}
}

// fillIndexes puts items into indexes. It leaves out objects that were written or deleted
// after the items were read, because that write has updated the indexes.
func fillIndexes(tx *bbolt.Tx, items []item, values map[string][][]string) error {
	objects := tx.Bucket([]byte(objectsBucket))
	for name, ofItems := range values {
		x := bucketsOf(tx, name)
		x.values.FillPercent = filled
		for i, item := range items {
			if objects.Get(item.key) == nil || x.values.Get(item.key) != nil {
				continue
			}
			if err := x.set(item.key, ofItems[i], true); err != nil {
				return fmt.Errorf("index %q: %w", name, err)
			}
		}
	}
	return nil
}

// withdraw removes indexes after a failed AddIndexers. The next write removes them from the
// file.
func (s *Store) withdraw(indexers cache.Indexers) error {
	if err := s.claim(context.Background()); err != nil {
		return err
	}
	defer s.release()
	s.publish(func(all map[string]*index) {
		for name := range indexers {
			delete(all, name)
			s.dormant[name] = false
		}
	})
	return nil
}

// findIndexes notes which indexes the file has.
func (s *Store) findIndexes(tx *bbolt.Tx) error {
	s.dormant = map[string]bool{}
	all := tx.Bucket([]byte(indexesBucket))
	if all == nil {
		return nil // the file is empty
	}
	return all.ForEachBucket(func(bucket []byte) error {
		name := string(bucket[1:])
		x := bucketsOf(tx, name)
		state, err := get(x.self, []byte(stateKey))
		s.dormant[name] = string(state) == complete && x.entries != nil && x.values != nil
		return err
	})
}
