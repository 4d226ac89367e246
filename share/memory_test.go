package share

import (
	"reflect"
	"testing"
)

func TestTheMemoryOfValues(t *testing.T) {
	s := make([]int64, 3, 5)
	if h, v := sliceAt(addressOf(&s)), reflect.ValueOf(s); h.data != v.UnsafePointer() || h.len != 3 || h.cap != 5 ||
		reflect.TypeFor[sliceHeader]().Size() != v.Type().Size() {
		t.Errorf("the memory of a slice is %+v", h)
	}

	number, pointer, m := int64(1<<40), new(int64), map[string]string{"k": "v"}
	a := any(number)
	if h := anyAt(addressOf(&a)); *(*int64)(h.data) != number || typeIn(h) != reflect.TypeFor[int64]() ||
		reflect.TypeFor[anyHeader]().Size() != reflect.TypeFor[any]().Size() {
		t.Errorf("the memory of an any is %+v", h)
	}
	other := any(int64(2))
	if anyAt(addressOf(&a)).typ != anyAt(addressOf(&other)).typ {
		t.Error("one type has two pointers")
	}

	for _, direct := range []any{pointer, m, map[string]any{"k": "v"}, map[string]int{"k": 1}} {
		if h := anyAt(addressOf(&direct)); h.data != reflect.ValueOf(direct).UnsafePointer() || pointerIn(direct) != h.data {
			t.Errorf("an any does not hold a %T itself", direct)
		}
	}
	if *pointerAt(addressOf(&m)) != reflect.ValueOf(m).UnsafePointer() || stringMapAt(addressOf(&m))["k"] != "v" {
		t.Error("a map is no pointer")
	}

	for _, boxed := range []any{"text", []any{1}, 1.5, true, [1]int64{1}} {
		h := anyAt(addressOf(&boxed))
		if got := valueAt(reflect.TypeOf(boxed), h.data).Interface(); !reflect.DeepEqual(got, boxed) {
			t.Errorf("an any does not point to its %T, but to %v", boxed, got)
		}
	}
}
