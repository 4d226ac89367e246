package framing

import (
	"bytes"
	"encoding/binary"

	"k8s.io/apimachinery/pkg/watch"
)

// magic is the beginning of an object in its envelope, a runtime.Unknown.
var magic = []byte("k8s\x00")

// listBinary takes the items out of a list.
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

// itemsBinary takes a list of that size. The reader gets the list without its items.
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

// frameBinary takes one event of a watch.
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

// eventBinary returns the type and the object of an event that has one, in its envelope, and nil
// for others.
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

// sealed reports whether only the end of an envelope is left. Another type or list there would
// replace that before it.
func (w *window) sealed() bool {
	var f [unknownLast + 1][]byte
	return !w.has(longestFieldTag) && fields(w.data(), f[:]) && f[unknownType] == nil && f[unknownRaw] == nil
}

// open takes an object out of its envelope.
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

// field returns the field at an offset of the window. size counts from offset+begin.
func (w *window) field(offset int) (number, size, begin int, ok bool) {
	w.has(offset + longestFieldTag) // or all that is there
	if len(w.data()) < offset {
		return 0, 0, 0, false
	}
	return field(w.data()[offset:])
}
