package share

import (
	"reflect"
	"unsafe"
	"weak"
)

// This is the only file of the package that uses unsafe. Reading the parts of an object by reflection takes about
// four times as long as decoding the object, and no other way replaces what a string or an interface
// value points to.
//
// It relies on three facts about the memory of Go values: a slice is a pointer, a length and a
// capacity; an empty interface is a pointer to a type and a pointer to a value; and a map, and a
// pointer in an interface, is a single pointer. TestTheMemoryOfValues checks them. Each write goes
// through a pointer type, so that the garbage collector learns of it, and memory is always allocated
// by reflect, with its type.

// address is the address of a value.
type address = unsafe.Pointer

type sliceHeader struct {
	data     address
	len, cap int
}

type anyHeader struct{ typ, data address }

func offset(a address, n uintptr) address { return unsafe.Add(a, n) }

func index(a address, i int, size uintptr) address { return unsafe.Add(a, uintptr(i)*size) }

func stringAt(a address) *string { return (*string)(a) }

func sliceAt(a address) *sliceHeader { return (*sliceHeader)(a) }

func anyAt(a address) *anyHeader { return (*anyHeader)(a) }

// pointerAt returns the pointer at a, which may also be a map.
func pointerAt(a address) *address { return (*address)(a) }

func stringMapAt(a address) map[string]string { return *(*map[string]string)(a) }

func anyMapAt(a address) map[string]any { return *(*map[string]any)(a) }

// bytesAt returns n bytes of memory as a string, without copying them.
func bytesAt(a address, n uintptr) string { return unsafe.String((*byte)(a), n) }

func uint64At(a address) uint64 { return *(*uint64)(a) }

func uint32At(a address) uint32 { return *(*uint32)(a) }

func uint8At(a address) uint8 { return *(*uint8)(a) }

// number returns an address as a number. The number does not keep the memory alive.
func number(a address) uint64 { return uint64(uintptr(a)) }

// stringData returns the address of the bytes of a string.
func stringData(s string) address { return address(unsafe.StringData(s)) }

func valueAt(t reflect.Type, a address) reflect.Value { return reflect.NewAt(t, a).Elem() }

func pointerIn(obj any) address { return anyAt(address(&obj)).data }

// addressOf returns the address of an any or a map.
func addressOf[T any](v *T) address { return address(v) }

func typeIn(h *anyHeader) reflect.Type { return reflect.TypeOf(*(*any)(address(h))) }

// weakTo returns a weak pointer. A part must be memory that this package has allocated, or a map,
// because memory that is not on the heap is never collected.
func weakTo(a address) weak.Pointer[byte] { return weak.Make((*byte)(a)) }

// strong returns the memory that a weak pointer leads to, or nil if it was collected.
func strong(w weak.Pointer[byte]) address { return address(w.Value()) }

func newValue(t reflect.Type) reflect.Value { return reflect.New(t).Elem() }

// addressIn returns the address of a value that is addressable.
func addressIn(v reflect.Value) address { return v.Addr().UnsafePointer() }

func copyOf(t reflect.Type, a address, n int) address {
	s := reflect.MakeSlice(reflect.SliceOf(t), n, n)
	reflect.Copy(s, reflect.SliceAt(t, a, n))
	return s.UnsafePointer()
}
