package share_test

import (
	"encoding/json"
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
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/share"
)

// box is an object that has one value.
type box[T any] struct{ Value T }

// same shares two values that makes returns, and then a third one as an update of the first. It checks
// that they stay equal to a fourth one that is not shared.
func same[T any](makes func() T) func(*testing.T) {
	return func(t *testing.T) {
		table := share.New()
		first, second, third, pristine := &box[T]{makes()}, &box[T]{makes()}, &box[T]{makes()}, &box[T]{makes()}
		table.Share(first)
		table.Share(second)
		table.ShareUpdate(first, third)
		table.ShareUpdate(&box[T]{}, &box[T]{makes()})
		for n, obj := range []*box[T]{first, second, third} {
			if !equality.Semantic.DeepEqual(obj, pristine) {
				t.Errorf("number %d is %#v, want %#v", n, obj.Value, pristine.Value)
			}
		}
		if s := table.Stats(); s.Refused > 0 {
			t.Errorf("refused: %+v", s)
		}
	}
}

type named string

type props struct {
	Type       string
	Properties map[string]props
	Items      *props
	Default    *runtime.RawExtension
}

var (
	packageMap   = map[string]string{"package": "map"}
	packageSlice = []string{"package", "slice"}
)

func TestOddValuesStayEqual(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"quantity":           same(func() *resource.Quantity { q := resource.MustParse("500m"); return &q }),
		"huge quantity":      same(func() []resource.Quantity { return []resource.Quantity{resource.MustParse("1e50")} }),
		"quantities in maps": same(func() corev1.ResourceList { return corev1.ResourceList{"cpu": resource.MustParse("0.5")} }),
		"quantity in any":    same(func() any { q := resource.MustParse("2Gi"); return &q }),
		"raw extension":      same(func() *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte("{}"), Object: &corev1.Pod{}} }),
		"int or string":      same(func() []intstr.IntOrString { return []intstr.IntOrString{intstr.FromInt32(1), intstr.FromString("a")} }),
		"time":               same(func() *metav1.Time { return &metav1.Time{Time: time.Unix(1, 0)} }),
		"micro time":         same(func() any { return &metav1.MicroTime{Time: time.Unix(1, 5)} }),
		"fields":             same(func() *metav1.FieldsV1 { return &metav1.FieldsV1{Raw: []byte(`{"f:a":{}}`)} }),
		"json number":        same(func() any { return json.Number("12") }),
		"any key":            same(func() map[any]string { return map[any]string{1: "a", "b": "c"} }),
		"int key":            same(func() map[int]string { return map[int]string{1: "a"} }),
		"named key":          same(func() map[named]*string { return map[named]*string{"k": new(string), "n": nil} }),
		"struct values":      same(func() map[string]box[[]string] { return map[string]box[[]string]{"k": {[]string{"a"}}} }),
		"set":                same(func() map[string]struct{} { return map[string]struct{}{"a": {}} }),
		"nil slice":          same(func() []string { return nil }),
		"empty slice":        same(func() []string { return []string{} }),
		"nil map":            same(func() map[string]any { return nil }),
		"empty map":          same(func() map[string]string { return map[string]string{} }),
		"no size":            same(func() []struct{} { return make([]struct{}, 3) }),
		"pointer to no size": same(func() *struct{} { return &struct{}{} }),
		"empty array":        same(func() [0]string { return [0]string{} }),
		"stringer":           same(func() error { return nil }),
		"any of no size":     same(func() any { return struct{}{} }),
		"any of struct":      same(func() any { return box[string]{"a"} }),
		"any of pointer":     same(func() any { return box[*int]{new(int)} }),
		"any of array":       same(func() any { return [2]string{"a", "b"} }),
		"any of small int":   same(func() any { return int64(3) }),
		"any of bool":        same(func() any { return true }),
		"any of text":        same(func() any { return "constant" }),
		"any of no text":     same(func() any { return "" }),
		"any of nil slice":   same(func() any { return []any(nil) }),
		"any of slice":       same(func() any { return []string{"a", "b"} }),
		"any of nil pointer": same(func() any { return (*box[string])(nil) }),
		"constant":           same(func() string { return "constant" }),
		"package map":        same(func() map[string]string { return packageMap }),
		"package slice":      same(func() any { return packageSlice }),
		"schema": same(func() *props {
			s := &props{Type: "string", Default: &runtime.RawExtension{Raw: []byte("1")}}
			for range 30 {
				s = &props{Type: "object", Properties: map[string]props{"a": *s, "b": {Type: "array"}}}
			}
			return s
		}),
	} {
		t.Run(name, test)
	}
	if packageMap["package"] != "map" || packageSlice[0] != "package" {
		t.Error("a package variable has changed")
	}
}

func TestANaNAndAFunctionStayWhatTheyAre(t *testing.T) {
	type odd struct {
		Map     map[float64]string
		Func    func() int
		Any     any
		Channel chan int
	}
	table, channel := share.New(), make(chan int)
	for range 2 {
		obj := &odd{Map: map[float64]string{math.NaN(): "a"}, Func: func() int { return 1 }, Any: channel, Channel: channel}
		table.Share(obj)
		if len(obj.Map) != 1 || obj.Func() != 1 || obj.Any != channel || obj.Channel != channel {
			t.Errorf("%+v", obj)
		}
	}
}

// private has fields that are not exported.
type private struct {
	Text    string
	mu      sync.Mutex
	builder strings.Builder
	cache   map[string]string
}

func TestAValueWithFieldsThatAreNotExportedIsNeverMerged(t *testing.T) {
	type owner struct {
		Pointer *private
		Slice   []private
		Map     map[string]*private
		Any     any
		Anys    []any
	}
	table := share.New()
	var met []*private
	var before *owner
	for range 3 {
		obj := &owner{Pointer: new(private), Slice: make([]private, 1, 8), Map: map[string]*private{"k": new(private)}, Any: new(private)}
		obj.Anys = []any{new(private)}
		all := func() []*private {
			return []*private{obj.Pointer, &obj.Slice[0], obj.Map["k"], obj.Any.(*private), obj.Anys[0].(*private)}
		}
		was := all()
		for _, p := range was {
			p.Text = "text"
			p.builder.WriteString("built")
			p.cache = map[string]string{"k": "v"}
			p.mu.Lock()
		}
		table.ShareUpdate(before, obj)
		if now := all(); !reflect.DeepEqual(now, was) {
			t.Errorf("%v have become %v", was, now)
		}
		for i, p := range all() {
			if p != was[i] {
				t.Errorf("number %d is a copy", i)
			}
			p.builder.WriteString("again") // it panics in a copy
			p.mu.Unlock()
			for _, other := range met {
				if p == other {
					t.Errorf("number %d is that of another object", i)
				}
			}
		}
		met, before = append(met, was...), obj
	}
}

func TestValuesOfEveryKindThatAreNoObjects(t *testing.T) {
	table, number := share.New(), 1
	for _, obj := range []any{
		nil, (*corev1.Pod)(nil), corev1.Pod{}, &number, "text", []any{"a"}, map[string]any{"a": "b"},
		cache.DeletedFinalStateUnknown{Key: "a", Obj: &corev1.Pod{}}, func() {}, make(chan int),
	} {
		if got, err := table.Transform(obj); err != nil || reflect.TypeOf(got) != reflect.TypeOf(obj) {
			t.Errorf("Transform(%T) returns %T, %v", obj, got, err)
		}
		table.ShareUpdate(obj, obj)
		table.ShareUpdate(obj, &box[string]{"old is of another type"})
	}
	if s := table.Stats(); s.Objects != 10 {
		t.Errorf("%d objects, want 10", s.Objects)
	}
	obj := &box[[]string]{[]string{"a", "b"}}
	for range 3 {
		table.Share(obj)
		table.ShareUpdate(obj, obj)
	}
	if !reflect.DeepEqual(obj.Value, []string{"a", "b"}) {
		t.Errorf("%v", obj.Value)
	}
}

func TestEqualTextsAreOneMemory(t *testing.T) {
	table := share.New()
	first, second := &box[string]{strings.Repeat("a", 20)}, &box[string]{strings.Repeat("a", 20)}
	table.Share(first)
	table.Share(second)
	if unsafe.StringData(first.Value) != unsafe.StringData(second.Value) {
		t.Error("they are two")
	}
}

func TestASharedSliceHasNoRoom(t *testing.T) {
	table := share.New()
	var objects []*box[[]string]
	for range 3 {
		objects = append(objects, &box[[]string]{append(make([]string, 0, 9), "a", "b")})
	}
	table.Share(objects[0])
	table.Share(objects[1])
	table.ShareUpdate(objects[0], objects[2])
	for n, obj := range objects {
		if cap(obj.Value) != 2 || &obj.Value[0] != &objects[0].Value[0] {
			t.Errorf("number %d has a capacity of %d, or memory of its own", n, cap(obj.Value))
		}
	}
}
