package disk

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"

	"go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

// The limits of a record. bbolt takes keys of 32 KiB; the keys of index entries and of
// tombstones are longer than the object's.
const (
	maxKey    = 16 << 10
	maxUID    = 1 << 10
	maxRecord = 32 << 20
)

// filled is how full pages become when keys arrive in order, as in a list. The rest is room
// for objects that grow. Otherwise bbolt leaves half of a page that it splits.
const filled = 0.95

// change is a change of one object, encoded.
type change struct {
	key       []byte
	obj       any    // nil to remove the object
	payload   []byte // encoded obj
	tombstone []byte // encoded tombstone, nil for none
	uid       types.UID
}

// storing returns the change that stores an object.
func (s *Store) storing(obj any) (change, error) {
	key, _, payload, err := s.encode(obj)
	return change{key: key, obj: obj, payload: payload}, err
}

// burying returns the change that turns an object into a tombstone.
func (s *Store) burying(obj any) (change, error) {
	key, uid, payload, err := s.encode(obj)
	return change{key: key, tombstone: payload, uid: uid}, err
}

// removing returns the change that removes the object with the key of obj.
func removing(obj any) (change, error) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		err = fmt.Errorf("%w: %w", err, informer.ErrPermanent)
	}
	return change{key: []byte(key)}, err
}

// encode returns the parts of an object that are stored. All of its errors are permanent. It
// returns the key, if there is one, also with an error.
func (s *Store) encode(obj any) (key []byte, uid types.UID, payload []byte, err error) {
	if payload, err = s.codec.Encode(obj); err == nil {
		// An object that cannot be decoded again would be an error at every start from now on.
		_, err = s.codec.Decode(payload)
	}
	if object, wrong := meta.Accessor(obj); wrong == nil && !isNil(obj) {
		key, uid = []byte(cache.MetaObjectToName(object).String()), object.GetUID()
		if err == nil {
			err = checkSizes(object.GetName(), key, uid, payload)
		}
	} else if err == nil {
		err = wrong
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", err, informer.ErrPermanent)
	}
	return key, uid, payload, err
}

func isNil(obj any) bool {
	v := reflect.ValueOf(obj)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

func checkSizes(name string, key []byte, uid types.UID, payload []byte) error {
	switch {
	case name == "":
		return errors.New("it has no name")
	case len(key) > maxKey:
		return fmt.Errorf("its key has %d bytes, more than %d", len(key), maxKey)
	case len(uid) > maxUID:
		return fmt.Errorf("its UID has %d bytes, more than %d", len(uid), maxUID)
	case len(payload) > maxRecord:
		return fmt.Errorf("it takes %d bytes, more than %d", len(payload), maxRecord)
	}
	return nil
}

// tombstoneKey returns the key of a tombstone, which is different for each key and UID.
func tombstoneKey(key []byte, uid types.UID) []byte {
	return append(appendBytes(make([]byte, 0, binary.MaxVarintLen64+len(key)+len(uid)), key), uid...)
}

// buried returns the key of the object that a tombstone is of.
func buried(tombstoneKey []byte) []byte {
	key, _, _ := cutBytes(tombstoneKey)
	return key
}

// batch holds the changes of one transaction.
type batch struct {
	changes  []change
	replace  bool // remove all other objects
	bookmark string
}

// write writes a batch as a whole, or nothing.
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
	changes := b.replace || len(b.changes) > 0
	err = s.update(func(tx *bbolt.Tx) error {
		if changes {
			if err := s.dropDormant(tx); err != nil {
				return err
			}
		}
		// Call inOrder before anything is removed: bbolt would search forever for the last key
		// of pages that have become empty in the same transaction.
		fill := bbolt.DefaultFillPercent
		if inOrder(tx, b.changes) {
			fill = filled
		}
		if b.replace {
			if err := removeOthers(tx, indexes, b.changes); err != nil {
				return err
			}
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

// makeChanges makes changes in their order. values are those of each change, by index.
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

// inOrder reports whether the changes begin after all stored objects, as in a list.
func inOrder(tx *bbolt.Tx, changes []change) bool {
	last, _ := tx.Bucket([]byte(objectsBucket)).Cursor().Last()
	return len(changes) > 0 && bytes.Compare(last, changes[0].key) < 0
}

// removeOthers removes the objects that are not in changes.
func removeOthers(tx *bbolt.Tx, indexes map[string]*index, changes []change) error {
	stays := map[string]bool{}
	for _, c := range changes {
		stays[string(c.key)] = true
	}
	objects := tx.Bucket([]byte(objectsBucket))
	var gone []change
	err := objects.ForEach(func(key, _ []byte) error {
		if !stays[string(key)] {
			gone = append(gone, change{key: bytes.Clone(key)})
		}
		return nil
	})
	if err != nil {
		return err
	}
	none := map[string][][]string{}
	for name := range indexes {
		none[name] = make([][]string, len(gone))
	}
	return makeChanges(context.Background(), tx, gone, none, bbolt.DefaultFillPercent)
}

func setBookmark(tx *bbolt.Tx, bookmark string) error {
	about := tx.Bucket([]byte(aboutBucket))
	if bookmark == "" {
		return remove(about, []byte(bookmarkKey))
	}
	return put(about, []byte(bookmarkKey), []byte(bookmark))
}
