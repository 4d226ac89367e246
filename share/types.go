package share

import (
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// kind is how the values at a place are walked.
type kind uint8

const (
	opaque    kind = iota // of unknown content, which is not looked at
	flat                  // without parts, and equal if its bytes are equal
	quantity              // a resource.Quantity
	structure             // a struct
	array
	text // a string
	slice
	pointer
	stringMap // a map from string to string
	anyMap    // a map from string to any
	otherMap  // any other map whose keys are strings
	dynamic   // an any
)

var (
	timeType     = reflect.TypeFor[time.Time]()
	quantityType = reflect.TypeFor[resource.Quantity]()
	stringType   = reflect.TypeFor[string]()
	anyType      = reflect.TypeFor[any]()
)

func kindOf(t reflect.Type) kind {
	switch t {
	case timeType:
		return flat // equal times of different locations are different
	case quantityType:
		return quantity
	}
	switch t.Kind() {
	case reflect.String:
		return text
	case reflect.Struct:
		return structure
	case reflect.Array:
		if t.Size() > 0 {
			return array
		}
	case reflect.Slice:
		if t.Elem().Size() > 0 {
			return slice
		}
	case reflect.Pointer:
		// Values without a size may all be at one address, which is not on the heap.
		if t.Elem().Size() > 0 {
			return pointer
		}
	case reflect.Map:
		return mapKind(t)
	case reflect.Interface:
		if t.NumMethod() == 0 {
			return dynamic
		}
	case reflect.Chan, reflect.Func, reflect.UnsafePointer:
	default:
		return flat
	}
	return opaque
}

func mapKind(t reflect.Type) kind {
	switch {
	case t.Key().Kind() != reflect.String:
		return opaque
	case t.Key() == stringType && t.Elem() == stringType:
		return stringMap
	case t.Key() == stringType && t.Elem() == anyType:
		return anyMap
	}
	return otherMap
}

var plainTypes sync.Map // reflect.Type -> bool

// isPlain reports whether values of a type are only data, so that two values with the same content may
// share memory. A value with unexported fields may be a lock or a cache, or know its own address. The
// value in an any is checked when there is one.
func isPlain(t reflect.Type) bool {
	if known, ok := plainTypes.Load(t); ok {
		return known.(bool)
	}
	plain := onlyData(t, map[reflect.Type]bool{})
	plainTypes.Store(t, plain)
	return plain
}

// onlyData is isPlain for a type inside other types, which are in met. Some of these may contain the
// type again.
func onlyData(t reflect.Type, met map[reflect.Type]bool) bool {
	if met[t] {
		return true // unless another part decides otherwise
	}
	met[t] = true
	switch kindOf(t) {
	case opaque:
		return false
	case quantity:
		return quantityFields != nil
	case slice, pointer, array, otherMap:
		return onlyData(t.Elem(), met)
	case structure:
		for i := range t.NumField() {
			if f := t.Field(i); !f.IsExported() || !onlyData(f.Type, met) {
				return false
			}
		}
	}
	return true
}

// quantityFields are the fields that make up the content of a resource.Quantity, including those of
// structs in it. The text that a Quantity caches is left out: equal compares it. Each Offset counts
// from the beginning of the Quantity. The list is nil if a Quantity is not made as expected.
var quantityFields = func() (all []reflect.StructField) {
	known := true
	var add func(t reflect.Type, offset uintptr)
	add = func(t reflect.Type, offset uintptr) {
		for f := range t.Fields() {
			f.Offset += offset
			switch f.Type.Kind() {
			case reflect.Struct:
				add(f.Type, f.Offset)
				continue
			case reflect.String, reflect.Int32, reflect.Int64, reflect.Pointer:
			default:
				known = false
			}
			if f.Name != "s" {
				all = append(all, f)
			}
		}
	}
	add(quantityType, 0)
	if !known {
		return nil
	}
	return all
}()

// warm computes the text of a Quantity. Otherwise the first call of String, at any time, would write
// it into an object that others read.
func warm(a address) { _ = (*resource.Quantity)(a).String() }

// quantityText returns the text of a Quantity. It computes it in a copy, because others may read the
// Quantity.
func quantityText(a address) string { q := *(*resource.Quantity)(a); return q.String() }

var (
	typeNumbers sync.Map // reflect.Type -> uint32
	lastNumber  atomic.Uint32
)

// typeNumber returns a number for a type. It is not 0, and differs between processes.
func typeNumber(t reflect.Type) uint32 {
	if n, ok := typeNumbers.Load(t); ok {
		return n.(uint32)
	}
	n, _ := typeNumbers.LoadOrStore(t, lastNumber.Add(1))
	return n.(uint32)
}

// textNumber is the number for the bytes of a string.
var textNumber = typeNumber(reflect.TypeFor[textBytes]())

type textBytes byte
