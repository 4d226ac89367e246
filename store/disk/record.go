package disk

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// A record is what is stored under any key of any bucket: a checksum of key and
// payload, and the payload. bbolt has no checksums but for its two meta pages.

const sumSize = 4

// castagnoli is the polynomial that processors have an instruction for.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum is of the length of the key too: a byte that passes from the one to the other is
// a change.
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

// unseal returns the payload of a record, which it shares memory with.
func unseal(key, record []byte) ([]byte, error) {
	if len(record) < sumSize {
		return nil, fmt.Errorf("the record of %q has %d bytes: %w", key, len(record), ErrDamaged)
	}
	payload := record[sumSize:]
	if binary.BigEndian.Uint32(record) != sum(key, payload) {
		return nil, fmt.Errorf("the record of %q has another checksum: %w", key, ErrDamaged)
	}
	return payload, nil
}

// appendBytes appends b so that cutBytes finds its end.
func appendBytes(to, b []byte) []byte {
	return append(binary.AppendUvarint(to, uint64(len(b))), b...)
}

// cutBytes returns what appendBytes has put in front of rest.
func cutBytes(from []byte) (b, rest []byte, ok bool) {
	n, size := binary.Uvarint(from)
	if size <= 0 || n > uint64(len(from)-size) {
		return nil, nil, false
	}
	return from[size : size+int(n)], from[size+int(n):], true
}
