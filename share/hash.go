package share

import (
	"hash/maphash"
	"math/bits"
)

// mix combines two hashes. Their order matters. Without the last term, a number that makes one
// factor 0 would hide the other hash.
func mix(a, b uint64) uint64 {
	high, low := bits.Mul64(a^0x9e3779b97f4a7c15, b^0xd6e8feb86659fd93)
	return high ^ low ^ a
}

// mixText returns the hash of a string as a part, from the hash of its bytes. It is the same
// for all string types.
func mixText(hash uint64) uint64 { return mix(hash, uint64(textNumber)) }

// These are the hashes of values without content, and the beginnings of others.
const (
	hashOfNil = iota + 1
	hashOfList
	hashOfPointer
	hashOfMap
)

func (w *work) hashText(s string) uint64 { return maphash.String(w.seed, s) }

// hashBytes returns the hash of memory that has no parts.
func (w *work) hashBytes(a address, size uintptr) uint64 {
	switch size {
	case 8:
		return uint64At(a)
	case 4:
		return uint64(uint32At(a))
	case 1:
		return uint64(uint8At(a))
	}
	return w.hashText(bytesAt(a, size))
}

// hash returns the hash of the content of a value, and notes the parts in it. If there are too
// many parts, it refuses the object.
func (w *work) hash(p *place, a address) uint64 {
	switch p.kind {
	case opaque:
		return 0
	case flat:
		return w.hashBytes(a, p.size)
	case quantity:
		return w.hashQuantity(p, a)
	case structure:
		h := uint64(p.number)
		for i := range p.content {
			f := &p.content[i]
			h = mix(h, w.hash(f.place, offset(a, f.offset)))
		}
		return h
	case array:
		h := uint64(p.number)
		for i := range p.t.Len() {
			h = mix(h, w.hash(p.elements, index(a, i, p.elements.size)))
		}
		return h
	}
	w.refused = w.refused || w.depth == maxDepth || w.met == maxParts || w.hashed == maxCompared
	if w.refused {
		return 0
	}
	w.depth++
	w.met++
	w.hashed++
	i := len(w.parts)
	w.parts = append(w.parts, part{})
	var h uint64
	if p.kind == text {
		h = mixText(w.hashText(*stringAt(a)))
	} else {
		h = mix(w.hashPart(p, a, i), uint64(p.number)^w.salt)
	}
	w.parts[i].hash, w.parts[i].after = h, len(w.parts)
	w.depth--
	return h
}

func (w *work) hashPart(p *place, a address, n int) uint64 {
	switch p.kind {
	case slice:
		return w.hashSlice(p, sliceAt(a))
	case pointer:
		if to := *pointerAt(a); to != nil {
			return mix(hashOfPointer, w.hash(w.elem(p), to))
		}
		return hashOfNil
	case stringMap:
		return w.hashStringMap(stringMapAt(a), n)
	case anyMap:
		return w.hashAnyMap(p, anyMapAt(a), n)
	case otherMap:
		return w.hashOtherMap(p, a)
	default: // dynamic
		return w.hashDynamic(p, anyAt(a))
	}
}

func (w *work) hashQuantity(p *place, a address) uint64 {
	h := uint64(p.number)
	for i := range p.content {
		f := &p.content[i]
		if at := offset(a, f.offset); f.kind == text {
			h = mix(h, w.hashText(*stringAt(at)))
		} else {
			h = mix(h, w.hashBytes(at, f.size))
		}
	}
	return h
}

func (w *work) hashSlice(p *place, s *sliceHeader) uint64 {
	if s.data == nil {
		return hashOfNil
	}
	e := w.elem(p)
	h := mix(hashOfList, uint64(s.len))
	if e.kind == flat {
		return mix(h, w.hashText(bytesAt(s.data, uintptr(s.len)*e.size)))
	}
	for i := range s.len {
		h = mix(h, w.hash(e, index(s.data, i, e.size)))
	}
	return h
}

func (w *work) hashStringMap(m map[string]string, n int) uint64 {
	if m == nil {
		return hashOfNil
	}
	w.parts[n].entries, w.parts[n].length = len(w.entries), len(m)
	var sum uint64 // the same in any order
	for k, v := range m {
		e := mapEntry{key: k, keyHash: w.hashText(k), text: v, textHash: w.hashText(v)}
		sum += mix(e.keyHash, e.textHash)
		w.entries = append(w.entries, e)
	}
	return mix(hashOfMap, sum)
}

func (w *work) hashAnyMap(p *place, m map[string]any, n int) uint64 {
	if m == nil {
		return hashOfNil
	}
	begin := len(w.entries)
	w.parts[n].entries, w.parts[n].length = begin, len(m)
	for k, v := range m {
		w.entries = append(w.entries, mapEntry{key: k, value: v})
	}
	var sum uint64
	for i := begin; i < begin+len(m); i++ {
		key, value := w.entries[i].key, w.entries[i].value
		keyHash, first := w.hashText(key), len(w.parts)
		sum += mix(keyHash, w.hash(w.value(p, key), addressOf(&value)))
		w.entries[i].keyHash, w.entries[i].valuePart = keyHash, first
	}
	return mix(hashOfMap, sum)
}

// hashOtherMap notes no parts for the values of the map: replace walks over each of them
// separately.
func (w *work) hashOtherMap(p *place, a address) uint64 {
	m := valueAt(p.t, a)
	if m.IsNil() {
		return hashOfNil
	}
	var sum uint64
	inside, value := w.borrow(), newValue(p.t.Elem())
	for it := m.MapRange(); it.Next(); {
		value.SetIterValue(it)
		inside.depth, inside.met, inside.hashed, inside.refused = w.depth, w.met, w.hashed, w.refused
		sum += mix(w.hashText(it.Key().String()), inside.hash(w.elem(p), addressIn(value)))
		w.met, w.hashed, w.refused = inside.met, inside.hashed, inside.refused
		inside.forget()
	}
	w.giveBack(inside)
	return mix(hashOfMap, sum)
}

func (w *work) hashDynamic(p *place, h *anyHeader) uint64 {
	if h.typ == nil {
		return hashOfNil
	}
	d := w.dynamicType(p, h)
	if !d.shareable() {
		return w.hashText(bytesAt(address(h), p.size)) // it is equal only if it is the same
	}
	return mix(uint64(d.number), w.hash(d, d.valueIn(h)))
}
