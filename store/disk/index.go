package disk

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"k8s.io/client-go/tools/cache"
)

// An index is a bucket in indexesBucket with two buckets inside. The entries lead from a value
// to the keys of objects. The values are those of each object; they lead to the object's
// entries without decoding its last state. An object without a value has a record among the
// values too.
const (
	entriesBucket = "entries"
	valuesBucket  = "values"

	stateKey = "state"
	complete = "complete" // the state of an index that has all objects

	maxIndexName = 1 << 10
)

// index is an index with a function. Writes maintain it from declare on, and it answers
// queries once it is ready.
type index struct {
	f     cache.IndexFunc
	ready bool
	// failed is why the index will never be ready: f has returned an error for an object that
	// was written during the build. The object itself is not refused.
	failed *atomic.Pointer[error]
}

type indexBuckets struct{ self, entries, values *bbolt.Bucket }

// bucketsOf returns the buckets of an index. A bucket that does not exist is nil.
func bucketsOf(tx *bbolt.Tx, name string) indexBuckets {
	self := tx.Bucket([]byte(indexesBucket)).Bucket(indexName(name))
	if self == nil {
		return indexBuckets{}
	}
	return indexBuckets{self, self.Bucket([]byte(entriesBucket)), self.Bucket([]byte(valuesBucket))}
}

// indexName returns the name of an index's bucket. It is never empty, as bbolt requires.
func indexName(name string) []byte { return []byte("i" + name) }

// makeIndexes puts empty indexes into the file, in place of existing ones with the same names.
func makeIndexes(tx *bbolt.Tx, indexers cache.Indexers) error {
	for name := range indexers {
		if err := deleteIndex(tx, name); err != nil {
			return err
		}
		self, err := tx.Bucket([]byte(indexesBucket)).CreateBucket(indexName(name))
		for _, part := range []string{entriesBucket, valuesBucket} {
			if err == nil {
				_, err = self.CreateBucket([]byte(part))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func deleteIndex(tx *bbolt.Tx, name string) error {
	err := tx.Bucket([]byte(indexesBucket)).DeleteBucket(indexName(name))
	if errors.Is(err, berrors.ErrBucketNotFound) {
		return nil
	}
	return err
}

// evaluate returns the values of an object in their normal form: sorted, without duplicates.
func evaluate(name string, f cache.IndexFunc, obj any) ([]string, error) {
	values, err := f(obj)
	if err != nil {
		return nil, fmt.Errorf("index %q: %w", name, err)
	}
	values = slices.Compact(slices.Sorted(slices.Values(values)))
	if n := len(encodeValues(values)); n > maxRecord {
		return nil, fmt.Errorf("index %q: the values take %d bytes, more than %d", name, n, maxRecord)
	}
	return values, nil
}

// set replaces the values of an object by now. If exists is false, it removes them.
func (x indexBuckets) set(key []byte, now []string, exists bool) error {
	was, err := get(x.values, key)
	if err != nil {
		return err
	}
	is := encodeValues(now)
	if exists && was != nil && bytes.Equal(was, is) {
		return nil
	}
	before, err := decodeValues(was)
	if err != nil {
		return fmt.Errorf("the values of %q: %w", key, err)
	}
	for _, value := range before {
		if _, still := slices.BinarySearch(now, value); !still {
			if err := remove(x.entries, append(entryPrefix(value), key...)); err != nil {
				return err
			}
		}
	}
	for _, value := range now {
		if _, already := slices.BinarySearch(before, value); !already {
			if err := put(x.entries, append(entryPrefix(value), key...), entryPayload(value)); err != nil {
				return err
			}
		}
	}
	if !exists {
		return remove(x.values, key)
	}
	return put(x.values, key, is)
}

// encodeValues returns values in encoded form. It never returns nil.
func encodeValues(values []string) []byte {
	b := []byte{}
	for _, value := range values {
		b = appendBytes(b, []byte(value))
	}
	return b
}

func decodeValues(b []byte) (values []string, err error) {
	for len(b) > 0 {
		value, rest, ok := cutBytes(b)
		if !ok {
			return nil, ErrDamaged
		}
		values, b = append(values, string(value)), rest
	}
	return values, nil
}

// The key of an entry consists of a prefix for the value and of the object's key. No prefix is
// the beginning of another one. So the entries of one value are adjacent, in the order of the
// objects' keys. If a value is too long for a key of bbolt's, the prefix has its hash, and the
// payload has the value.
const (
	literal = 0x00 // followed by the value, in which a zero becomes {0, 0xFF}, and {0, 1}
	hashed  = 0x01 // followed by a hash of 32 bytes

	maxLiteral = 1 << 10
)

func entryPrefix(value string) []byte {
	if len(value) > maxLiteral {
		hash := sha256.Sum256([]byte(value))
		return append([]byte{hashed}, hash[:]...)
	}
	prefix := []byte{literal}
	for i := range len(value) {
		prefix = append(prefix, value[i])
		if value[i] == 0 {
			prefix = append(prefix, 0xFF)
		}
	}
	return append(prefix, 0, 1)
}

func entryPayload(value string) []byte {
	if len(value) > maxLiteral {
		return []byte(value)
	}
	return nil
}
