package disk

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// A record is the value under any key of any bucket: a checksum of key and payload, and the
// payload. bbolt itself has checksums only for its two meta pages.

const sumSize = 4

// castagnoli is the polynomial for which processors have an instruction.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum returns a checksum of key and payload. It includes the length of the key, so that a byte
// that moves from the one to the other changes the sum.
func sum(key, payload []byte) uint32 {
	length := binary.AppendUvarint(make([]byte, 0, binary.MaxVarintLen64), uint64(len(key)))
	return crc32.Update(crc32.Update(crc32.Checksum(length, castagnoli), castagnoli, key), castagnoli, payload)
}

// seal returns the record of a payload that is stored under key.
func seal(key, payload []byte) []byte {
	record := make([]byte, sumSize, sumSize+len(payload))
	binary.BigEndian.PutUint32(record, sum(key, payload))
	return append(record, payload...)
}

// unseal returns the payload of a record. The payload shares memory with the record.
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

// appendBytes appends the length of b, and b, for cutBytes.
func appendBytes(to, b []byte) []byte {
	return append(binary.AppendUvarint(to, uint64(len(b))), b...)
}

// cutBytes returns the bytes that appendBytes has written, and the rest.
func cutBytes(from []byte) (b, rest []byte, ok bool) {
	n, size := binary.Uvarint(from)
	if size <= 0 || n > uint64(len(from)-size) {
		return nil, nil, false
	}
	return from[size : size+int(n)], from[size+int(n):], true
}
