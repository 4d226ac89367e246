package share

import (
	"math"
	"reflect"
	"strings"
)

// share shares the parts of a value that only the caller has.
func (w *work) share(p *place, a address) {
	w.hash(p, a)
	if w.next = 0; !w.refused {
		w.replace(p, a)
	}
	w.forget()
}

// replace replaces the parts of a value that the table has, and puts the other parts into the table.
// Other walks read the parts of the table at any time. So a part goes into the table only when
// nothing inside it changes any more. replace begins at w.next, the first part of the value, and
// leaves w.next after the last one.
func (w *work) replace(p *place, a address) {
	switch p.kind {
	case opaque, flat:
		return
	case quantity:
		warm(a)
		return
	case structure:
		for i := range p.inside {
			f := &p.inside[i]
			w.replace(f.place, offset(a, f.offset))
		}
		return
	case array:
		for i := range p.t.Len() {
			w.replace(p.elements, index(a, i, p.elements.size))
		}
		return
	}
	part := w.parts[w.next]
	w.next++
	switch p.kind {
	case text:
		w.replaceText(&p.account, stringAt(a), part.hash)
	case slice:
		w.replaceSlice(p, sliceAt(a), part.hash)
	case pointer:
		w.replaceTarget(&p.account, w.elem(p), pointerAt(a), part.hash)
	case stringMap, anyMap, otherMap:
		w.replaceMap(p, pointerAt(a), part)
	case dynamic:
		w.replaceDynamic(p, anyAt(a), part.hash)
	}
	w.next = part.after
}

// find returns the part of the table that has the same content as a value, or nil if there is none.
// The caller must have asked the account whether it admits the hash.
func (w *work) find(acc *account, hash uint64, id identity, saves uintptr, same func(address) bool) address {
	part := w.known.get(hash, id)
	if part == nil || !same(part) {
		return nil
	}
	w.hit(saves)
	w.enter(acc, int64(saves))
	return part
}

func (w *work) put(acc *account, hash uint64, id identity, part address) {
	w.enter(acc, -entryCost)
	w.known.put(hash, id, part)
}

func (w *work) enter(acc *account, bytes int64) { w.cold.Add(acc.note(bytes)) }

func (w *work) replaceText(acc *account, s *string, hash uint64) {
	if len(*s) == 0 || uint64(len(*s)) > math.MaxUint32 || !acc.admits(hash) {
		return
	}
	id := identity{typ: textNumber, count: uint32(len(*s))}
	size := uintptr(len(*s))
	same := func(part address) bool { return bytesAt(part, size) == *s }
	if part := w.find(acc, hash, id, (size+7)&^7, same); part != nil {
		if part != stringData(*s) {
			*s = bytesAt(part, size)
		}
		return
	}
	*s = strings.Clone(*s) // it may be a constant, or a piece of something large
	w.copied += len(*s)
	w.put(acc, hash, id, stringData(*s))
}

func (w *work) replaceSlice(p *place, s *sliceHeader, hash uint64) {
	if s.len == 0 {
		return
	}
	e := w.elem(p)
	id := identity{typ: e.number, count: uint32(s.len)}
	shared := e.plain && uint64(s.len) <= math.MaxUint32 && p.account.admits(hash)
	if shared {
		same := func(part address) bool { return w.equalElements(e, part, s.data, s.len) }
		if part := w.find(&p.account, hash, id, uintptr(s.len)*e.size, same); part != nil {
			s.take(part, s.len)
			return
		}
	}
	if shared || s.spare(e) {
		s.take(w.copyOf(e, s.data, s.len), s.len)
	}
	if e.kind != flat {
		for i := range s.len {
			w.replace(e, index(s.data, i, e.size))
		}
	}
	if shared {
		w.put(&p.account, hash, id, s.data)
	}
}

func (w *work) copyOf(e *place, a address, n int) address {
	w.copied += n * int(e.size)
	return copyOf(e.t, a, n)
}

// take makes s the slice of the n values at a. The slice has no spare capacity, so an append copies
// it.
func (s *sliceHeader) take(a address, n int) {
	if s.data != a || s.cap != n {
		s.data, s.cap = a, n
	}
}

// spare reports whether a slice has so much spare capacity that a copy is worth it. Decoders leave
// up to half of the capacity unused.
func (s *sliceHeader) spare(e *place) bool {
	return e.plain && uintptr(s.cap-s.len)*e.size >= 16
}

// replaceTarget replaces a value that has its own memory on the heap: the target of a pointer, or
// the value in an any.
func (w *work) replaceTarget(acc *account, e *place, to *address, hash uint64) {
	if *to == nil {
		return
	}
	id := identity{typ: e.number, count: 1}
	shared := e.plain && acc.admits(hash)
	if shared {
		same := func(part address) bool { return w.equal(e, part, *to) }
		if part := w.find(acc, hash, id, e.size, same); part != nil {
			if *to != part {
				*to = part
			}
			return
		}
		*to = w.copyOf(e, *to, 1) // it may be a part of something large, or not on the heap
	}
	w.replace(e, *to)
	if shared {
		w.put(acc, hash, id, *to)
	}
}

func (w *work) replaceDynamic(p *place, h *anyHeader, hash uint64) {
	if h.typ == nil {
		return
	}
	d := w.dynamicType(p, h)
	switch {
	case !d.shareable() || d.t.Kind() == reflect.Bool: // the runtime has both
	case d.valueIn(h) != h.data:
		w.replace(d, addressOf(&h.data))
	case p.account.admits(hash):
		w.replaceTarget(&p.account, d, &h.data, hash)
	case d.kind != flat:
		h.data = w.copyOf(d, h.data, 1) // the memory may be read-only
		w.replace(d, h.data)
	}
}

func (w *work) replaceMap(p *place, m *address, part part) {
	size := valueAt(p.t, address(m)).Len()
	if size == 0 {
		return
	}
	id := identity{typ: p.number}
	shared := p.plain && p.account.admits(part.hash)
	if shared {
		same := func(found address) bool { return w.equal(p, addressOf(&found), address(m)) }
		if found := w.find(&p.account, part.hash, id, mapSize(p, size), same); found != nil {
			if *m != found {
				*m = found
			}
			return
		}
	}
	switch {
	case w.again(*m):
	case p.kind == stringMap:
		w.replaceInStringMap(p, stringMapAt(address(m)), part)
	case p.kind == anyMap:
		w.replaceInAnyMap(p, anyMapAt(address(m)), part)
	default:
		w.replaceInOtherMap(p, valueAt(p.t, address(m)))
	}
	if shared {
		w.put(&p.account, part.hash, id, *m)
	}
}

// mapSize returns about how many bytes a map with n entries takes.
func mapSize(p *place, n int) uintptr {
	slot := p.t.Key().Size() + p.t.Elem().Size()
	if n <= 8 {
		return 64 + 8*slot
	}
	return uintptr(n) * slot * 3 / 2
}

// An assignment to a map replaces the key as well as the value.

func (w *work) replaceInStringMap(p *place, m map[string]string, part part) {
	for i := part.entries; i < part.entries+part.length; i++ {
		e := &w.entries[i]
		k, v := e.key, e.text
		w.replaceText(&p.keys, &k, mixText(e.keyHash))
		w.replaceText(&w.value(p, k).account, &v, mixText(e.textHash))
		if stringData(k) != stringData(e.key) || stringData(v) != stringData(e.text) {
			m[k] = v
		}
	}
}

func (w *work) replaceInAnyMap(p *place, m map[string]any, part part) {
	for i := part.entries; i < part.entries+part.length; i++ {
		k, v := w.entries[i].key, w.entries[i].value
		w.replaceText(&p.keys, &k, mixText(w.entries[i].keyHash))
		w.next = w.entries[i].valuePart
		w.replace(w.value(p, k), addressOf(&v))
		if stringData(k) != stringData(w.entries[i].key) || anyAt(addressOf(&v)).data != anyAt(addressOf(&w.entries[i].value)).data {
			m[k] = v
		}
	}
}

// replaceInOtherMap walks over each value of the map separately.
func (w *work) replaceInOtherMap(p *place, m reflect.Value) {
	inside, e := w.borrow(), w.elem(p)
	inside.maps, w.maps, inside.hashed = w.maps, inside.maps, w.hashed
	before, after := newValue(e.t), newValue(e.t)
	for _, key := range m.MapKeys() {
		before.Set(m.MapIndex(key))
		after.Set(before)
		k := key.String()
		w.replaceText(&p.keys, &k, mixText(w.hashText(k)))
		inside.share(e, addressIn(after))
		if stringData(k) != stringData(key.String()) || bytesAt(addressIn(before), e.size) != bytesAt(addressIn(after), e.size) {
			m.SetMapIndex(reflect.ValueOf(k).Convert(p.t.Key()), after)
		}
	}
	inside.maps, w.maps = w.maps, inside.maps
	w.hashed, w.refused = inside.hashed, w.refused || inside.refused
	w.hits, w.saved, w.copied = w.hits+inside.hits, w.saved+inside.saved, w.copied+inside.copied
	w.giveBack(inside)
}
