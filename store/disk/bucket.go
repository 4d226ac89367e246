package disk

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/bbolt"
)

// Every bucket has the sum of its records in what bbolt calls its sequence, which stands
// beside the number of its first page. So a page of it that is right by itself, but older
// than the others, is noticed, as a disk leaves it that loses what it was told to write.

// weight is what a record adds to that sum.
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

// remove removes what is under a key, if anything.
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
