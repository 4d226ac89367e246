package disk

import (
	"bytes"
	"context"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/customcacheinformer/informer"
)

// batch holds the changes of one transaction.
type batch struct {
	changes  []change
	bookmark string
}

func (s *Store) write(ctx context.Context, b batch) error {
	if err := s.claim(ctx); err != nil {
		return err
	}
	defer s.release()
	indexes := *s.indexes.Load()
	values, err := evaluateAll(ctx, indexes, b.changes)
	if err != nil {
		return err
	}
	changes := len(b.changes) > 0
	err = s.update(func(tx *bbolt.Tx) error {
		if changes {
			for name := range s.dormant { // the write would make them wrong
				if err := deleteIndex(tx, name); err != nil {
					return err
				}
			}
		}
		// Call inOrder before anything is removed: bbolt would search forever for the last key
		// of pages that have become empty in the same transaction.
		fill := bbolt.DefaultFillPercent
		if inOrder(tx, b.changes) {
			fill = filled
		}
		if err := makeChanges(ctx, tx, b.changes, values, fill); err != nil {
			return err
		}
		if err := setBookmark(tx, b.bookmark); err != nil {
			return err
		}
		return ctx.Err()
	})
	if err == nil && changes {
		clear(s.dormant)
	}
	return err
}

// evaluateAll returns the values of each change, by index. It must be called before a
// transaction begins, because the index functions are the user's code. If a function returns an error, the write is
// refused, except for an index that is still being built: that index fails.
func evaluateAll(ctx context.Context, indexes map[string]*index, changes []change) (map[string][][]string, error) {
	all := map[string][][]string{}
	for name, x := range indexes {
		all[name] = make([][]string, len(changes))
		for i, c := range changes {
			if c.obj == nil {
				continue
			}
			var err error
			if all[name][i], err = evaluate(name, x.f, c.obj); err != nil && !x.ready {
				x.failed.CompareAndSwap(nil, &err)
			} else if err != nil {
				return nil, fmt.Errorf("%q: %w: %w", c.key, err, informer.ErrPermanent)
			}
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func makeChanges(ctx context.Context, tx *bbolt.Tx, changes []change, values map[string][][]string, fill float64) error {
	objects, tombstones := tx.Bucket([]byte(objectsBucket)), tx.Bucket([]byte(tombstonesBucket))
	indexes := map[string]indexBuckets{}
	for name := range values {
		x := bucketsOf(tx, name)
		x.entries.FillPercent, x.values.FillPercent = fill, fill
		indexes[name] = x
	}
	objects.FillPercent = fill
	for i, c := range changes {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := makeChange(objects, tombstones, c); err != nil {
			return err
		}
		for name, x := range indexes {
			if err := x.set(c.key, values[name][i], c.obj != nil); err != nil {
				return fmt.Errorf("index %q: %w", name, err)
			}
		}
	}
	return nil
}

func makeChange(objects, tombstones *bbolt.Bucket, c change) error {
	if c.tombstone != nil {
		if err := put(tombstones, tombstoneKey(c.key, c.uid), c.tombstone); err != nil {
			return err
		}
	}
	if c.obj == nil {
		return remove(objects, c.key)
	}
	return put(objects, c.key, c.payload)
}

// inOrder reports whether the first change comes after all stored objects, as in a list.
func inOrder(tx *bbolt.Tx, changes []change) bool {
	last, _ := tx.Bucket([]byte(objectsBucket)).Cursor().Last()
	return len(changes) > 0 && bytes.Compare(last, changes[0].key) < 0
}

func setBookmark(tx *bbolt.Tx, bookmark string) error {
	about := tx.Bucket([]byte(aboutBucket))
	if bookmark == "" {
		return remove(about, []byte(bookmarkKey))
	}
	return put(about, []byte(bookmarkKey), []byte(bookmark))
}
