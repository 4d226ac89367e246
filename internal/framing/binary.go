package framing

import (
	"bytes"
	"encoding/binary"

	"k8s.io/apimachinery/pkg/watch"
)

// magic is the beginning of an object in its envelope, a runtime.Unknown.
var magic = []byte("k8s\x00")

// listBinary reads a list and takes its items out. The reader gets the rest.
func (b *body) listBinary() {
	w := &b.in
	if !w.has(len(magic)) || !bytes.Equal(w.data()[:len(magic)], magic) {
		return
	}
	meta, metaSize, n, ok := w.field(len(magic))
	if !ok || meta != unknownType || metaSize > maxItem || !w.has(len(magic)+n+metaSize) {
		return
	}
	head := len(magic) + n + metaSize
	list, ok := readMeta(w.data()[head-metaSize : head])
	if !ok || !b.tap.Type.fits(list, "List", b.gv) {
		return
	}
	raw, size, n, ok := w.field(head)
	if !ok || raw != unknownRaw {
		return
	}
	b.pass(head)
	w.skip(n)
	b.itemsBinary(size)
}

// itemsBinary reads a list of size bytes and takes its items out. The reader gets the rest.
func (b *body) itemsBinary(size int) {
	w := &b.in
	var rest []byte
	for size > 0 && b.err == nil {
		number, length, n, ok := w.field(0)
		if !ok || length > maxItem || n+length > size || !w.has(n+length) {
			break
		}
		if number == listItems {
			obj := b.tap.Type.binary(w.data()[n : n+length])
			if obj == nil {
				break
			}
			b.item(obj)
		} else {
			rest = append(rest, w.data()[:n+length]...)
		}
		w.skip(n + length)
		size -= n + length
	}
	if (size > 0 || !w.sealed()) && b.tap.Count() > 0 {
		b.tap.misfit.Store(true)
	}
	b.out = append(b.out, unknownRaw<<3|wireLength)
	b.out = binary.AppendUvarint(b.out, uint64(len(rest)+size))
	b.out = append(b.out, rest...)
}

// frameBinary reads one event of a watch. If the event has an object, frameBinary takes it;
// otherwise the reader gets the event.
func (b *body) frameBinary() {
	const prefix = 4
	w := &b.in
	w.release()
	if !w.has(prefix) {
		if b.raw = len(w.data()) == 0; !b.raw {
			b.passRest()
		}
		return
	}
	size := binary.BigEndian.Uint32(w.data())
	if size > maxEvent || !w.has(prefix+int(size)) {
		b.passRest()
		return
	}
	end := prefix + int(size)
	if kind, envelope := eventBinary(w.data()[prefix:end]); envelope != nil {
		if m, raw, ok := open(envelope); ok && b.tap.Type.fits(m, "", b.gv) {
			if obj := b.tap.Type.binary(raw); obj != nil {
				b.event(kind, obj, end)
				return
			}
		}
	}
	b.passFrame(end)
}

// eventBinary returns the type of an event and its object in the envelope, or nil if the event
// has none.
func eventBinary(frame []byte) (watch.EventType, []byte) {
	var f [eventObject + 1][]byte
	if !fields(frame, f[:]) || heads[watch.EventType(f[eventType])] == nil {
		return "", nil
	}
	var e [extensionRaw + 1][]byte
	if !fields(f[eventObject], e[:]) {
		return "", nil
	}
	return watch.EventType(f[eventType]), e[extensionRaw]
}

// sealed reports whether the rest of the envelope has no second type or list, which would replace
// the first.
func (w *window) sealed() bool {
	var f [unknownLast + 1][]byte
	return !w.has(longestFieldTag) && fields(w.data(), f[:]) && f[unknownType] == nil && f[unknownRaw] == nil
}

// open returns the type and the encoded object in an envelope. ok is false if the envelope cannot
// be read.
func open(envelope []byte) (m typeMeta, raw []byte, ok bool) {
	message, ok := bytes.CutPrefix(envelope, magic)
	var f [unknownLast + 1][]byte
	if !ok || !fields(message, f[:]) {
		return m, nil, false
	}
	m, ok = readMeta(f[unknownType])
	return m, f[unknownRaw], ok
}

func readMeta(message []byte) (typeMeta, bool) {
	var f [typeKind + 1][]byte
	ok := fields(message, f[:])
	return typeMeta{apiVersion: string(f[typeAPIVersion]), kind: string(f[typeKind])}, ok
}

// field returns the number, the size and the beginning of the field at an offset of the window.
// begin is relative to offset.
func (w *window) field(offset int) (number, size, begin int, ok bool) {
	w.has(offset + longestFieldTag) // or all that is there
	if len(w.data()) < offset {
		return 0, 0, 0, false
	}
	return field(w.data()[offset:])
}
