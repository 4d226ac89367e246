package share

// equal reports whether the contents of two values are the same. Both are of a plain type.
func (t *Table) equal(p *place, a, b address) bool {
	switch p.kind {
	case flat:
		return bytesAt(a, p.size) == bytesAt(b, p.size)
	case structure, quantity:
		for i := range p.content {
			f := &p.content[i]
			if !t.equal(f.place, offset(a, f.offset), offset(b, f.offset)) {
				return false
			}
		}
		return true
	case array:
		return t.equalElements(p.elements, a, b, p.t.Len())
	case text:
		return *stringAt(a) == *stringAt(b)
	case slice:
		x, y := sliceAt(a), sliceAt(b)
		return x.len == y.len && (x.data == nil) == (y.data == nil) &&
			(x.data == y.data || t.equalElements(t.elem(p), x.data, y.data, x.len))
	case pointer:
		x, y := *pointerAt(a), *pointerAt(b)
		return x == y || x != nil && y != nil && t.equal(t.elem(p), x, y)
	case stringMap, anyMap, otherMap:
		return *pointerAt(a) == *pointerAt(b) || t.equalMaps(p, a, b)
	case dynamic:
		x, y := anyAt(a), anyAt(b)
		if x.typ != y.typ || x.typ == nil || x.data == y.data {
			return x.typ == y.typ
		}
		d := t.dynamicType(p, x)
		return d.shareable() && t.equal(d, d.valueIn(x), d.valueIn(y))
	}
	return false
}

// equalElements reports whether n values that follow each other are the same.
func (t *Table) equalElements(e *place, a, b address, n int) bool {
	if e.kind == flat {
		size := uintptr(n) * e.size
		return bytesAt(a, size) == bytesAt(b, size)
	}
	for i := range n {
		if !t.equal(e, index(a, i, e.size), index(b, i, e.size)) {
			return false
		}
	}
	return true
}

func (t *Table) equalMaps(p *place, a, b address) bool {
	if *pointerAt(a) == nil || *pointerAt(b) == nil {
		return false
	}
	switch p.kind {
	case stringMap:
		x, y := stringMapAt(a), stringMapAt(b)
		if len(x) != len(y) {
			return false
		}
		for k, v := range x {
			if w, ok := y[k]; !ok || v != w {
				return false
			}
		}
	case anyMap:
		x, y := anyMapAt(a), anyMapAt(b)
		if len(x) != len(y) {
			return false
		}
		for k, v := range x {
			w, ok := y[k]
			if !ok || !t.equal(t.value(p, k), addressOf(&v), addressOf(&w)) {
				return false
			}
		}
	default:
		return t.equalOtherMaps(p, a, b)
	}
	return true
}

func (t *Table) equalOtherMaps(p *place, a, b address) bool {
	x, y := valueAt(p.t, a), valueAt(p.t, b)
	if x.Len() != y.Len() {
		return false
	}
	v, w := newValue(p.t.Elem()), newValue(p.t.Elem())
	for it := x.MapRange(); it.Next(); {
		other := y.MapIndex(it.Key())
		if !other.IsValid() {
			return false
		}
		v.SetIterValue(it)
		w.Set(other)
		if !t.equal(t.elem(p), addressIn(v), addressIn(w)) {
			return false
		}
	}
	return true
}
