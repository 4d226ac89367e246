package disk

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"go.etcd.io/bbolt"
)

// A record is the value under any key of any bucket: a checksum of key and payload, and the
// payload. bbolt itself has checksums only for its two meta pages.

const sumSize = 4

// castagnoli is the table of a polynomial for which processors have an instruction.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum returns a checksum of key and payload. It includes the length of the key, so that the
// sum changes if a byte moves from the key to the payload or back.
func sum(key, payload []byte) uint32 {
	length := binary.AppendUvarint(make([]byte, 0, binary.MaxVarintLen64), uint64(len(key)))
	return crc32.Update(crc32.Update(crc32.Checksum(length, castagnoli), castagnoli, key), castagnoli, payload)
}

func seal(key, payload []byte) []byte {
	record := make([]byte, sumSize, sumSize+len(payload))
	binary.BigEndian.PutUint32(record, sum(key, payload))
	return append(record, payload...)
}

// unseal returns the payload of a record, or an error that wraps ErrDamaged. The payload
// shares memory with the record.
func unseal(key, record []byte) ([]byte, error) {
	if len(record) < sumSize {
		return nil, fmt.Errorf("the record of %q has %d bytes: %w", key, len(record), ErrDamaged)
	}
	payload := record[sumSize:]
	if binary.BigEndian.Uint32(record) != sum(key, payload) {
		return nil, fmt.Errorf("the record of %q has a wrong checksum: %w", key, ErrDamaged)
	}
	return payload, nil
}

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

func put(b *bbolt.Bucket, key, payload []byte) error {
	record := seal(key, payload)
	sum := b.Sequence() - weight(b.Get(key)) + weight(record)
	return setSum(b, sum, key, b.Put(key, record))
}

func remove(b *bbolt.Bucket, key []byte) error {
	record := b.Get(key)
	if record == nil {
		return nil
	}
	sum := b.Sequence() - weight(record)
	return setSum(b, sum, key, b.Delete(key))
}

// setSum sets the sum of a bucket. err is the result of the change of a key. If it is not
// nil, setSum only returns it with the key.
func setSum(b *bbolt.Bucket, sum uint64, key []byte, err error) error {
	if err == nil {
		err = b.SetSequence(sum)
	}
	if err != nil {
		return fmt.Errorf("key %q: %w", key, err)
	}
	return nil
}

// get returns a copy of the payload under a key, or nil if there is none.
func get(b *bbolt.Bucket, key []byte) ([]byte, error) {
	record := b.Get(key)
	if record == nil {
		return nil, nil
	}
	payload, err := unseal(key, record)
	return append([]byte{}, payload...), err
}

// appendBytes appends the length of b and b itself to to. cutBytes reads them.
func appendBytes(to, b []byte) []byte {
	return append(binary.AppendUvarint(to, uint64(len(b))), b...)
}

// cutBytes returns the bytes that appendBytes has written, and the rest. ok is false if from
// is too short.
func cutBytes(from []byte) (b, rest []byte, ok bool) {
	n, size := binary.Uvarint(from)
	if size <= 0 || n > uint64(len(from)-size) {
		return nil, nil, false
	}
	return from[size : size+int(n)], from[size+int(n):], true
}
