package share

// update shares a new state at a, with the earlier state of the same object at old. It takes the parts
// that are equal from old, and shares the others. It compares a part as a whole before it looks into
// it, because most parts of an update have not changed. It leaves a part alone that the two states
// share already. If a list or a struct has changed, it does not go into the table itself, only what is
// in it.
func (w *work) update(p *place, old, a address) {
	switch p.kind {
	case opaque, flat:
	case quantity:
		warm(a)
	case structure:
		for i := range p.inside {
			f := &p.inside[i]
			w.update(f.place, offset(old, f.offset), offset(a, f.offset))
		}
	case array:
		for i := range p.t.Len() {
			w.update(p.elements, index(old, i, p.elements.size), index(a, i, p.elements.size))
		}
	case text:
		if x, y := stringAt(old), stringAt(a); *x != *y {
			w.share(p, a)
		} else if stringData(*x) != stringData(*y) {
			*y = *x
			w.hit(uintptr(len(*x)))
		}
	default:
		w.refused = w.refused || w.depth == maxDepth || w.met == maxParts
		if w.refused {
			return
		}
		w.depth++
		w.met++
		w.updatePart(p, old, a)
		w.depth--
	}
}

// updatePart is like update, for the kinds of values that are parts, except strings.
func (w *work) updatePart(p *place, old, a address) {
	switch p.kind {
	case slice:
		w.updateSlice(p, sliceAt(old), sliceAt(a))
	case pointer:
		x, y := pointerAt(old), pointerAt(a)
		switch e := w.elem(p); {
		case *x == *y:
		case *x == nil || *y == nil:
			w.share(p, a)
		case e.plain && w.equal(e, *x, *y):
			*y = *x
			w.hit(e.size)
		default:
			w.update(e, *x, *y)
		}
	case stringMap, anyMap, otherMap:
		w.updateMap(p, old, a)
	case dynamic:
		w.updateDynamic(p, anyAt(old), anyAt(a))
	}
}

func (w *work) updateSlice(p *place, old, s *sliceHeader) {
	e := w.elem(p)
	switch {
	case s.data == old.data:
	case old.len == 0 || s.len == 0 || e.kind == flat && !w.equal(p, address(old), address(s)):
		w.share(p, address(s))
	case old.len == s.len && e.plain && w.equalElements(e, old.data, s.data, s.len):
		s.take(old.data, s.len)
		w.hit(uintptr(s.len) * e.size)
	default:
		if s.spare(e) {
			s.take(copyOf(e.t, s.data, s.len), s.len)
		}
		for i := range s.len {
			if at := index(s.data, i, e.size); i < old.len {
				w.update(e, index(old.data, i, e.size), at)
			} else {
				w.share(e, at)
			}
		}
	}
}

func (w *work) updateMap(p *place, old, a address) {
	x, y := pointerAt(old), pointerAt(a)
	switch {
	case *x == *y:
	case *x != nil && p.plain && w.equal(p, old, a):
		*y = *x
		w.hit(mapSize(p, valueAt(p.t, a).Len()))
	case *x == nil || *y == nil || p.kind == otherMap:
		w.share(p, a)
	case w.again(*y):
	case p.kind == stringMap:
		updateEntries(w, p, stringMapAt(old), stringMapAt(a))
		w.share(p, a) // many objects may get the same new label
	default:
		updateEntries(w, p, anyMapAt(old), anyMapAt(a))
	}
}

// updateEntries takes the keys and values that an earlier state of a map also has, and shares the
// others.
func updateEntries[V any](w *work, p *place, old, m map[string]V) {
	for k, before := range old {
		if v, ok := m[k]; ok {
			w.update(w.value(p, k), addressOf(&before), addressOf(&v))
			m[k] = v
		}
	}
	for k, v := range m {
		if _, ok := old[k]; !ok {
			value := w.value(p, k)
			w.replaceText(&p.keys, &k, mixText(w.hashText(k)))
			w.share(value, addressOf(&v))
			m[k] = v
		}
	}
}

func (w *work) updateDynamic(p *place, old, h *anyHeader) {
	if h.typ == nil || h.data == old.data && h.typ == old.typ {
		return
	}
	d := w.dynamicType(p, h)
	switch {
	case old.typ != h.typ || !d.shareable():
		w.share(p, address(h))
	case d.valueIn(h) != h.data:
		w.update(d, addressOf(&old.data), addressOf(&h.data))
	case w.equal(d, old.data, h.data):
		h.data = old.data
		w.hit(d.size)
	case d.kind == slice:
		h.data = copyOf(d.t, h.data, 1) // the memory may be read-only
		w.update(d, old.data, h.data)
	default:
		w.share(p, address(h))
	}
}
