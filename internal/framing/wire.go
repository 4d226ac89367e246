package framing

import (
	"encoding/binary"
	"math"
)

// These are the numbers of the fields that this package reads. The fields all have a length.
const (
	unknownType     = 1 // of runtime.Unknown
	unknownRaw      = 2
	unknownLast     = 4 // how raw is encoded, which client-go does not read
	listItems       = 2 // of every list
	objectMeta      = 1 // of every object
	eventType       = 1 // of metav1.WatchEvent
	eventObject     = 2
	extensionRaw    = 1 // of runtime.RawExtension
	typeAPIVersion  = 1 // of runtime.TypeMeta
	typeKind        = 2
	wireLength      = 2 // the wire type of a field that has a length
	longestFieldTag = 2 * binary.MaxVarintLen64
)

// fields stores each field of a message in into, at the index of its number. It returns false if
// the message has another field, or has a field twice.
func fields(message []byte, into [][]byte) bool {
	for len(message) > 0 {
		number, size, n, ok := field(message)
		if !ok || size > len(message)-n || number >= len(into) || into[number] != nil {
			return false
		}
		into[number] = message[n : n+size]
		message = message[n+size:]
	}
	return true
}

// field returns the number and the size of the field at the start of b, and where its content
// begins. It returns false if b is too short, or if the field has no length.
func field(b []byte) (number, size, begin int, ok bool) {
	tag, k := binary.Uvarint(b)
	if k <= 0 || tag&7 != wireLength || tag>>3 == 0 || tag > 1<<32 {
		return 0, 0, 0, false
	}
	length, m := binary.Uvarint(b[k:])
	if m <= 0 || length > math.MaxInt/2 {
		return 0, 0, 0, false
	}
	return int(tag >> 3), int(length), k + m, true
}
