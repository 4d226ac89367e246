package disk

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/bbolt"
)

// Every bucket keeps the sum of its records in bbolt's sequence number, which is stored next
// to the number of the bucket's first page. That detects a page that is valid in itself but
// older than the others, as after a disk has lost a write.

// weight returns the number that a record adds to the sum of its bucket.
func weight(record []byte) uint64 {
	if len(record) < sumSize {
		return 0
	}
	return 1<<32 + uint64(binary.BigEndian.Uint32(record))
}

// put stores a payload under a key.
func put(b *bbolt.Bucket, key, payload []byte) error {
	record := seal(key, payload)
	sum := b.Sequence() - weight(b.Get(key)) + weight(record)
	err := b.Put(key, record)
	if err == nil {
		err = b.SetSequence(sum)
	}
	if err != nil {
		return fmt.Errorf("key %q: %w", key, err)
	}
	return nil
}

// remove removes the record under a key, if there is one.
func remove(b *bbolt.Bucket, key []byte) error {
	record := b.Get(key)
	if record == nil {
		return nil
	}
	sum := b.Sequence() - weight(record)
	err := b.Delete(key)
	if err == nil {
		err = b.SetSequence(sum)
	}
	if err != nil {
		return fmt.Errorf("key %q: %w", key, err)
	}
	return nil
}

// get returns a copy of the payload under a key, nil if there is none.
func get(b *bbolt.Bucket, key []byte) ([]byte, error) {
	record := b.Get(key)
	if record == nil {
		return nil, nil
	}
	payload, err := unseal(key, record)
	return append([]byte{}, payload...), err
}
