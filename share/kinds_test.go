package share_test

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/customcacheinformer/informer/share"
)

// holder is an object with a value of a type.
type holder[T any] struct {
	Value T
	After string // is shared, whatever the value is
}

// kindCase says that equal values are one piece of memory after Share, or that they are not.
type kindCase struct {
	name string
	run  func(t *testing.T, update bool)
}

// kind returns a case with a value of a type. where returns the address of what may be shared.
func kind[T any](name string, shared bool, value func() T, where func(T) any) kindCase {
	return kindCase{name, func(t *testing.T, update bool) {
		table := share.New()
		first, second := &holder[T]{value(), strings.Clone("after")}, &holder[T]{value(), strings.Clone("after")}
		table.Share(first)
		if update {
			table.ShareUpdate(first, second)
		} else {
			table.Share(second)
		}
		if got := table.Stats().Refused; got > 0 {
			t.Errorf("%d of 2 objects were refused", got)
		}
		if got := address(where(first.Value)) == address(where(second.Value)); got != shared {
			t.Errorf("they are shared: %v, want %v", got, shared)
		}
		if address(first.After) != address(second.After) {
			t.Error("the text after it is not shared")
		}
		for _, obj := range []*holder[T]{first, second} {
			if want := value(); !same(obj.Value, want) {
				t.Errorf("the value is now %+v, want %+v", obj.Value, want)
			}
		}
	}}
}

// address returns what a value points to.
func address(value any) unsafe.Pointer {
	if s, ok := value.(string); ok {
		return unsafe.Pointer(unsafe.StringData(s))
	}
	return reflect.ValueOf(value).UnsafePointer()
}

// same reports whether two values have the same content, also if that has NaN in it or a quantity
// whose text is computed.
func same(a, b any) (is bool) {
	if reflect.DeepEqual(a, b) || fmt.Sprint(a) == fmt.Sprint(b) {
		return true
	}
	defer func() { _ = recover() }() // it does not know fields that are not exported
	return equality.Semantic.DeepEqual(a, b)
}

func itself[T any](v T) any { return v }

// Types of values that are more than data.
type (
	locked struct{ sync.Mutex }
	cached struct {
		Text  string
		cache map[string]string
	}
	builder struct{ strings.Builder }
	empty   struct{}
	flags   [3]bool
	wrapped struct{ Pointer *string }
	nested  struct {
		Type       string
		Properties map[string]nested
		Items      *nested
	}
)

var (
	global     = map[string]string{"package": "variable"}
	globalList = []string{"package", "variable"}
	pipe       = make(chan int)
)

var kinds = []kindCase{
	kind("a string", true, func() string { return strings.Clone("text") }, itself),
	kind("a constant string", true, func() string { return "constant" }, itself),
	kind("a string of one byte", true, func() string { return "x" }, itself),
	kind("a named string", true, func() corev1.PodPhase { return corev1.PodPhase(strings.Clone("Running")) }, func(p corev1.PodPhase) any { return string(p) }),
	kind("a pointer to a number", true, func() *int64 { return new(int64) }, itself),
	kind("a pointer to a struct", true, func() *corev1.ObjectReference { return &corev1.ObjectReference{Name: "a"} }, itself),
	kind("a pointer in a struct of one", true, func() wrapped { s := strings.Clone("text"); return wrapped{&s} }, func(w wrapped) any { return w.Pointer }),
	kind("a slice of strings", true, func() []string { return []string{"a", "b"} }, itself),
	kind("a slice of bytes", true, func() []byte { return []byte("bytes") }, itself),
	kind("a slice of arrays", true, func() []flags { return make([]flags, 5) }, itself),
	kind("a slice that is a package variable", true, func() []string { return globalList }, itself),
	kind("a map of strings", true, func() map[string]string { return map[string]string{"a": "b"} }, itself),
	kind("a map that is a package variable", true, func() map[string]string { return global }, itself),
	kind("a map of a named type", true, func() map[named]named { return map[named]named{"a": "b"} }, itself),
	kind("a map of structs", true, func() map[string]corev1.ObjectReference { return map[string]corev1.ObjectReference{"a": {Name: "b"}} }, itself),
	kind("a set", true, func() map[string]struct{} { return map[string]struct{}{"a": {}} }, itself),
	kind("a schema", true, func() *nested {
		s := &nested{Type: "string"}
		for range 30 {
			s = &nested{Type: "object", Properties: map[string]nested{"a": *s, "b": {Type: "array", Items: &nested{}}}}
		}
		return s
	}, itself),
	kind("a map of pointers", true, func() map[string]*int { return map[string]*int{"a": new(int)} }, itself),
	kind("resources", true, func() corev1.ResourceList { return corev1.ResourceList{"cpu": resource.MustParse("1500m")} }, itself),
	kind("a pointer to a quantity", true, func() *resource.Quantity { q := resource.MustParse("1Gi"); return &q }, itself),
	kind("a huge quantity", false, func() *resource.Quantity { q := resource.MustParse("123456789012345678901234567890.5"); return &q }, itself),
	kind("quantities", true, func() []resource.Quantity { return []resource.Quantity{resource.MustParse("5"), {}} }, itself),
	kind("a time", true, func() *metav1.Time { return &metav1.Time{Time: time.Unix(1_700_000_000, 0)} }, itself),
	kind("a zero time", true, func() *metav1.Time { return &metav1.Time{} }, itself),
	kind("a time with microseconds", true, func() *metav1.MicroTime { return &metav1.MicroTime{Time: time.UnixMicro(1)} }, itself),
	kind("a number or a string", true, func() *intstr.IntOrString { return &intstr.IntOrString{Type: intstr.String, StrVal: "50%"} }, itself),
	kind("managed fields", true, func() *metav1.FieldsV1 { return &metav1.FieldsV1{Raw: []byte("{}")} }, itself),
	kind("an array", true, func() [2]string { return [2]string{"a", strings.Clone("b")} }, func(a [2]string) any { return a[1] }),
	kind("NaN", true, func() []float64 { return []float64{math.NaN()} }, itself),

	// Values in an any, as those of JSON are.
	kind("a number of JSON in an any", true, func() any { return []any{json.Number(strings.Clone("12"))} }, itself),
	kind("a string in an any", true, func() any { return strings.Clone("text") }, itself),
	kind("a map in an any", true, func() any { return map[string]any{"a": []any{"b", int64(1), 1.5, true, nil}} }, itself),
	kind("a list in an any", true, func() any { return []any{"a", map[string]any{"b": "c"}} }, itself),
	kind("a pointer in an any", true, func() any { return &corev1.ObjectReference{Name: "a"} }, itself),
	kind("the string of a number in an any", true, func() any { return map[string]any{"a": named(strings.Clone("1"))} }, func(v any) any { return v }),
	kind("a struct in an any", false, func() any { return wrapped{new(string)} }, func(v any) any { return v.(wrapped).Pointer }),
	kind("an array in an any", false, func() any { return [1]*string{new(string)} }, func(v any) any { return v.([1]*string)[0] }),
	kind("a map with a struct in an any", false, func() any { return map[string]any{"a": wrapped{new(string)}} }, itself),

	// Values that are left as they are.
	kind("a lock", false, func() *locked { return &locked{} }, itself),
	kind("a slice of locks", false, func() []locked { return make([]locked, 2, 100) }, itself),
	kind("a map of locks", false, func() map[string]*locked { return map[string]*locked{"a": {}} }, itself),
	kind("a lock in an any", false, func() any { return &locked{} }, itself),
	kind("a list with a lock in an any", false, func() any { return []any{&locked{}} }, itself),
	kind("a cache", false, func() *cached { return &cached{cache: map[string]string{}} }, itself),
	kind("a value that knows its address", false, func() *builder { b := &builder{}; b.WriteString("text"); return b }, itself),
	kind("a slice of such", false, func() []*builder { return []*builder{{}} }, itself),
	kind("an interface with methods", false, func() *runtime.RawExtension {
		return &runtime.RawExtension{Object: &corev1.Pod{}, Raw: []byte("{}")}
	}, itself),
	kind("bytes beside an interface", true, func() *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte("{}")} },
		func(r *runtime.RawExtension) any { return r.Raw }),
	kind("a map with keys that are numbers", false, func() map[int]string { return map[int]string{1: "a"} }, itself),
	kind("a map with NaN as its key", false, func() map[float64]string { return map[float64]string{math.NaN(): "a"} }, itself),
	kind("a map with keys of any kind", false, func() map[any]string { return map[any]string{1: "a", "b": "c"} }, itself),
	kind("a channel", true, func() chan int { return pipe }, itself),

	// Values without a size, or without content.
	kind("pointers to nothing", true, func() []*empty { return []*empty{{}} }, func([]*empty) any { return "" }),
	kind("a list of nothing", true, func() []empty { return make([]empty, 3) }, func([]empty) any { return "" }),
	kind("an empty array", true, func() [0]string { return [0]string{} }, func([0]string) any { return "" }),
	kind("an empty string", true, func() string { return "" }, itself),
	kind("an empty slice", true, func() []string { return []string{} }, func([]string) any { return "" }),
	kind("an empty map", true, func() map[string]string { return map[string]string{} }, func(map[string]string) any { return "" }),
	kind("nil", true, func() []any { return nil }, itself),
	kind("nothing in an any of its own", true, func() any { return empty{} }, func(any) any { return "" }),
	kind("a package variable in an any", true, func() any { return global }, itself),
	kind("no function", true, func() func() { return nil }, itself),
	kind("nothing in an any", true, func() any { return nil }, func(any) any { return "" }),
}

func TestEqualValuesOfEachKind(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) { k.run(t, false) })
		t.Run(k.name+" in an update", func(t *testing.T) { k.run(t, true) })
	}
}
