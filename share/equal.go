package share

import "maps"

// equal reports whether two values have the same content. Both must be of a plain type.
// If it has compared too many parts, it refuses the object and returns false.
func (w *work) equal(p *place, a, b address) bool {
	switch p.kind {
	case flat:
		return bytesAt(a, p.size) == bytesAt(b, p.size)
	case structure, quantity:
		if p.kind == quantity && quantityText(a) != quantityText(b) {
			return false // 1e3 and 1E3
		}
		for i := range p.content {
			f := &p.content[i]
			if !w.equal(f.place, offset(a, f.offset), offset(b, f.offset)) {
				return false
			}
		}
		return true
	case array:
		return w.equalElements(p.elements, a, b, p.t.Len())
	case text:
		return *stringAt(a) == *stringAt(b)
	case opaque:
		return false
	}
	w.refused = w.refused || w.depth == maxDepth || w.compared == maxCompared
	if w.refused {
		return false
	}
	w.depth++
	w.compared++
	same := w.equalParts(p, a, b)
	w.depth--
	return same
}

// equalParts is like equal, for the kinds of values that are parts, except strings.
func (w *work) equalParts(p *place, a, b address) bool {
	switch p.kind {
	case slice:
		x, y := sliceAt(a), sliceAt(b)
		return x.len == y.len && (x.data == nil) == (y.data == nil) &&
			(x.data == y.data || w.equalElements(w.elem(p), x.data, y.data, x.len))
	case pointer:
		x, y := *pointerAt(a), *pointerAt(b)
		return x == y || x != nil && y != nil && w.equal(w.elem(p), x, y)
	case stringMap, anyMap, otherMap:
		x, y := *pointerAt(a), *pointerAt(b)
		return x == y || x != nil && y != nil && w.equalMaps(p, a, b)
	case dynamic:
		x, y := anyAt(a), anyAt(b)
		if x.typ != y.typ || x.typ == nil || x.data == y.data {
			return x.typ == y.typ
		}
		d := w.dynamicType(p, x)
		return d.shareable() && w.equal(d, d.valueIn(x), d.valueIn(y))
	}
	return false
}

// equalElements reports whether the n consecutive values at a and at b have the same
// content.
func (w *work) equalElements(e *place, a, b address, n int) bool {
	if e.kind == flat {
		size := uintptr(n) * e.size
		return bytesAt(a, size) == bytesAt(b, size)
	}
	for i := range n {
		if !w.equal(e, index(a, i, e.size), index(b, i, e.size)) {
			return false
		}
	}
	return true
}

func (w *work) equalMaps(p *place, a, b address) bool {
	switch p.kind {
	case stringMap:
		return maps.Equal(stringMapAt(a), stringMapAt(b))
	case otherMap:
		return w.equalOtherMaps(p, a, b)
	}
	x, y := anyMapAt(a), anyMapAt(b)
	if len(x) != len(y) {
		return false
	}
	for k, v := range x {
		other, ok := y[k]
		if !ok || !w.equal(w.value(p, k), addressOf(&v), addressOf(&other)) {
			return false
		}
	}
	return true
}

func (w *work) equalOtherMaps(p *place, a, b address) bool {
	x, y := valueAt(p.t, a), valueAt(p.t, b)
	if x.Len() != y.Len() {
		return false
	}
	u, v := newValue(p.t.Elem()), newValue(p.t.Elem())
	for it := x.MapRange(); it.Next(); {
		other := y.MapIndex(it.Key())
		if !other.IsValid() {
			return false
		}
		u.SetIterValue(it)
		v.Set(other)
		if !w.equal(w.elem(p), addressIn(u), addressIn(v)) {
			return false
		}
	}
	return true
}
