package disk

import (
	"bytes"
	"context"
	"fmt"

	"go.etcd.io/bbolt"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

// entryRange is the range of the objects that an index has under one value.
type entryRange struct {
	index  string
	prefix []byte
}

func (r entryRange) read(tx *bbolt.Tx, at []byte, yield func(at, key, record []byte) bool) error {
	x := bucketsOf(tx, r.index)
	if x.entries == nil {
		return fmt.Errorf("there is no index %q", r.index) // it was removed a moment ago
	}
	if at == nil {
		at = r.prefix // the prefix itself is not an entry
	}
	objects, c := tx.Bucket([]byte(objectsBucket)), x.entries.Cursor()
	for entry, _ := after(c, at); bytes.HasPrefix(entry, r.prefix); entry, _ = c.Next() {
		key := entry[len(r.prefix):]
		record := objects.Get(key)
		if record == nil {
			return fmt.Errorf("index %q refers to the object %q, which does not exist: %w", r.index, key, ErrDamaged)
		}
		if !yield(entry, key, record) {
			return nil
		}
	}
	return nil
}

// GetIndexers returns the functions of all complete indexes, by name, in a new map. It
// does not block.
func (s *Store) GetIndexers() cache.Indexers {
	all := cache.Indexers{}
	for name, x := range *s.indexes.Load() {
		if x.ready {
			all[name] = x.f
		}
	}
	return all
}

// ByIndex returns the objects for which the index function with the given name returns
// value, in the order of their keys. It reads them in steps, as Scan does. If there is no
// such index, or it is not complete yet, ByIndex returns an error.
func (s *Store) ByIndex(ctx context.Context, name, value string) ([]informer.Entry, error) {
	if x := (*s.indexes.Load())[name]; x == nil || !x.ready {
		return nil, fmt.Errorf("disk: there is no index %q", name)
	}
	entries, err := s.read(ctx, entryRange{index: name, prefix: entryPrefix(value)}, nil, unlimited)
	if err != nil {
		return nil, fmt.Errorf("disk: by index %q: %w", name, err)
	}
	return entries, nil
}
