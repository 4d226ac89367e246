package share

import (
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
)

// place is a path in the objects of a type, such as the image of a container of a Pod. Each place
// has its own account, because images are worth sharing, but container IDs are not. A place is made
// when an object first has something there.
type place struct {
	kind    kind
	plain   bool // see isPlain
	t       reflect.Type
	number  uint32 // of t
	size    uintptr
	account account
	keys    account // of the keys of a map

	content []field // of a struct: the fields that its content consists of
	inside  []field // of a struct: the fields of content that have parts

	first    sync.Once
	elements *place // of an array, slice, pointer or otherMap: see elem

	mu     sync.Mutex                        // held while byKey or byType changes
	byKey  atomic.Pointer[map[string]*place] // of a stringMap or anyMap: its values
	byType atomic.Pointer[[]*place]          // of an any: its values
}

var noKeys, noTypes = map[string]*place{}, []*place{} // of a new place; never changed

type field struct {
	offset uintptr
	*place
}

type places struct {
	roots      sync.Map     // reflect.Type -> *place
	made, cold atomic.Int64 // how many places there are, and how many of them are cold
}

const (
	// maxKeys is how many keys of a map have their own place. The other keys share one.
	maxKeys    = 256
	maxKeySize = 256
	otherKeys  = "\x00"

	// maxPlaces is how many places a table may have before new paths share one place for each type.
	// Otherwise objects with ever new keys would make places without end.
	maxPlaces = 1 << 16
)

func (ps *places) root(of reflect.Type) *place {
	if p, ok := ps.roots.Load(of); ok {
		return p.(*place)
	}
	p, _ := ps.roots.LoadOrStore(of, ps.newPlace(of))
	return p.(*place)
}

func (ps *places) newPlace(of reflect.Type) *place {
	ps.made.Add(1)
	p := &place{kind: kindOf(of), plain: isPlain(of), t: of, number: typeNumber(of), size: of.Size()}
	switch p.kind {
	case quantity:
		p.content = quantityContent
	case structure:
		ps.addFields(p)
	case array:
		if e := ps.elem(p); e.kind == flat || e.kind == opaque {
			p.kind = e.kind
		}
	case stringMap, anyMap:
		p.byKey.Store(&noKeys)
	case dynamic:
		p.byType.Store(&noTypes)
	}
	return p
}

// quantityContent is quantityFields as places.
var quantityContent = func() (all []field) {
	for _, f := range quantityFields {
		sub := &place{kind: flat, t: f.Type, size: f.Type.Size()} // a pointer is equal if it is the same
		if f.Type.Kind() == reflect.String {
			sub.kind = text
		}
		all = append(all, field{f.Offset, sub})
	}
	return all
}()

// addFields adds the fields of a struct. It leaves out fields that are not exported, because they
// must not be changed. The struct is flat if all its fields are flat and no bytes lie between them.
func (ps *places) addFields(p *place) {
	isFlat, sum := true, uintptr(0)
	for f := range p.t.Fields() {
		if !f.IsExported() || f.Type.Size() == 0 {
			continue
		}
		sub := ps.newPlace(f.Type)
		if sub.kind == opaque {
			continue
		}
		sum += sub.size
		p.content = append(p.content, field{f.Offset, sub})
		if sub.kind != flat {
			isFlat = false
			p.inside = append(p.inside, field{f.Offset, sub})
		}
	}
	if isFlat && sum == p.size {
		p.kind, p.content = flat, nil
	}
}

// shareable reports whether the value in an any may be shared. A struct or an array may be held in
// two ways, and never comes from JSON. A value of size 0 is not on the heap.
func (p *place) shareable() bool {
	return p.plain && p.size > 0 && p.kind != structure && p.kind != array && p.kind != quantity
}

// valueIn returns the address of the value in an any. A map or a pointer is stored in the any
// itself.
func (p *place) valueIn(h *anyHeader) address {
	if k := p.t.Kind(); k == reflect.Map || k == reflect.Pointer {
		return addressOf(&h.data)
	}
	return h.data
}

func (ps *places) placeInside(of reflect.Type) *place {
	if ps.made.Load() >= maxPlaces {
		return ps.root(of)
	}
	return ps.newPlace(of)
}

// elem returns the place of the elements of a value.
func (ps *places) elem(p *place) *place {
	p.first.Do(func() { p.elements = ps.placeInside(p.t.Elem()) })
	return p.elements
}

func (ps *places) value(p *place, key string) *place {
	if v := (*p.byKey.Load())[key]; v != nil {
		return v
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	known := *p.byKey.Load()
	if len(known) >= maxKeys || len(key) > maxKeySize || ps.made.Load() >= maxPlaces {
		key = otherKeys
	}
	if v := known[key]; v != nil {
		return v
	}
	more := maps.Clone(known)
	v := ps.placeInside(p.t.Elem())
	more[string([]byte(key))] = v
	p.byKey.Store(&more)
	return v
}

// dynamicType returns the place for the values of an any that have the same type as the value in h.
func (ps *places) dynamicType(p *place, h *anyHeader) *place {
	of := typeIn(h)
	for _, v := range *p.byType.Load() {
		if v.t == of {
			return v
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	known := *p.byType.Load()
	for _, v := range known {
		if v.t == of {
			return v
		}
	}
	v := ps.placeInside(of)
	more := append(slices.Clip(known), v)
	p.byType.Store(&more)
	return v
}
