// Package size estimates the memory of objects.
package size

import (
	"reflect"
	"slices"
	"sync"
	"time"
	"unsafe"
)

// maxPieces is the maximum number of pieces of an object that are counted. The size of a larger object is too
// small.
const maxPieces = 1 << 16

// maxKept is the size up to which a Pieces is kept for the next object.
const maxKept = 1 << 12

// Pieces holds the pieces of memory that an object refers to, with their sizes in bytes. A piece with several
// references is counted once.
type Pieces map[uintptr]int

// Of returns the memory of obj in bytes, with everything that it refers to. No other goroutine may change a map
// in obj meanwhile.
func Of(obj any) (sum int) {
	p := NewPieces(obj)
	for _, n := range p {
		sum += n
	}
	p.Free()
	return sum
}

var free = sync.Pool{New: func() any { return Pieces{} }}

// NewPieces returns the pieces of obj. The caller may call Free when it no longer needs them.
func NewPieces(obj any) Pieces {
	p := free.Get().(Pieces)
	p.walk(reflect.ValueOf(obj))
	return p
}

// Free lets NewPieces reuse p, which must not be used after that.
func (p Pieces) Free() {
	if len(p) < maxKept {
		clear(p)
		free.Put(p)
	}
}

// note adds a piece, and reports whether it is new.
func (p Pieces) note(at unsafe.Pointer, n int) bool {
	_, known := p[uintptr(at)]
	if known || at == nil || n == 0 || len(p) >= maxPieces {
		return false
	}
	p[uintptr(at)] = n
	return true
}

func (p Pieces) walk(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		p.note(v.UnsafePointer(), Allocated(v.Len(), false))
	case reflect.Pointer:
		if t := v.Type().Elem(); p.note(v.UnsafePointer(), Allocated(int(t.Size()), refers(t))) && refers(t) {
			p.walk(v.Elem())
		}
	case reflect.Slice:
		t := v.Type().Elem()
		if p.note(v.UnsafePointer(), Allocated(v.Cap()*int(t.Size()), refers(t))) && refers(t) {
			for i := range v.Len() {
				p.walk(v.Index(i))
			}
		}
	case reflect.Map:
		if p.note(v.UnsafePointer(), ofMap(v.Type(), v.Len())) {
			for all := v.MapRange(); all.Next(); {
				p.walk(all.Key())
				p.walk(all.Value())
			}
		}
	case reflect.Interface:
		p.walkIn(v)
	case reflect.Struct:
		for _, i := range fields(v.Type()) {
			p.walk(v.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			if refers(v.Type().Elem()) {
				p.walk(v.Index(i))
			}
		}
	}
}

// walkIn walks over the value in an interface. A pointer or a map is in the interface itself. For other values
// the interface has a pointer to the value.
func (p Pieces) walkIn(v reflect.Value) {
	in := v.Elem()
	switch in.Kind() {
	case reflect.Invalid, reflect.Bool, reflect.Func, reflect.Chan: // the runtime has both values of a bool
	case reflect.Pointer, reflect.Map:
		p.walk(in)
	default:
		if !v.CanInterface() || v.NumMethod() > 0 { // a field that is not exported
			return
		}
		words := v.Interface()
		data := (*[2]unsafe.Pointer)(unsafe.Pointer(&words))[1]
		if p.note(data, Allocated(int(in.Type().Size()), refers(in.Type()))) {
			p.walk(in)
		}
	}
}

// ofMap returns the memory of a map with n entries: its header, and groups of 8 entries. A map of more than one
// group has a power of two groups, and fills at most 7 of 8 entries.
func ofMap(t reflect.Type, n int) int {
	const header, group, large = 48, 8, 128
	slot, outside := 0, 0
	for _, of := range []reflect.Type{t.Key(), t.Elem()} {
		s, align := int(of.Size()), of.Align()
		if s > large { // the entry has a pointer to it
			outside += n * Allocated(s, refers(of))
			s, align = 8, 8
		}
		slot = (slot+align-1)/align*align + s
	}
	slot = (slot + 7) &^ 7
	groups := 1
	for n > group && n > groups*7 {
		groups *= 2
	}
	if n == 0 {
		groups = 0
	}
	return Allocated(header, true) + Allocated(groups*(group+group*slot), true) + outside
}

// Allocated returns the memory that the runtime allocates for n bytes. refers is true if the bytes contain
// pointers.
func Allocated(n int, refers bool) int {
	const header, scanned, tiny, page = 8, 512, 16, 8192
	if refers && n > scanned {
		n += header
	}
	all := classes()
	switch {
	case n <= tiny/2 && !refers: // several share a block
		return n
	case n > all[len(all)-1]:
		return (n + page - 1) / page * page
	}
	i, _ := slices.BinarySearch(all, n)
	return all[i]
}

// classes returns the sizes in which the runtime allocates memory.
var classes = sync.OnceValue(func() (all []int) {
	for n := 0; n < 32<<10; {
		n = cap(append([]byte(nil), make([]byte, n+1)...))
		all = append(all, n)
	}
	return all
})

// once holds types whose pointers lead to memory that the process has only once.
var once = map[reflect.Type]bool{reflect.TypeFor[time.Time](): true}

var (
	referring sync.Map // reflect.Type -> bool
	places    sync.Map // reflect.Type -> []int
)

// refers reports whether values of a type refer to other memory.
func refers(t reflect.Type) bool {
	if known, ok := referring.Load(t); ok {
		return known.(bool)
	}
	does := false
	switch t.Kind() {
	case reflect.String, reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface, reflect.Func, reflect.Chan, reflect.UnsafePointer:
		does = true
	case reflect.Array:
		does = t.Len() > 0 && refers(t.Elem())
	case reflect.Struct:
		does = len(fields(t)) > 0
	}
	referring.Store(t, does)
	return does
}

// fields returns the indexes of the fields of a struct that refer to other memory.
func fields(t reflect.Type) (all []int) {
	if known, ok := places.Load(t); ok {
		return known.([]int)
	}
	if !once[t] {
		for i := range t.NumField() {
			if refers(t.Field(i).Type) {
				all = append(all, i)
			}
		}
	}
	places.Store(t, all)
	return all
}
