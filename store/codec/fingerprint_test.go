package codec_test

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/customcacheinformer/informer/store/codec"
)

// Types with names, as fields of others.
type (
	text       string
	texts      []string
	inner      struct{ A string }
	outer      struct{ A string }
	box[T any] struct{ In T }
	ring       struct {
		A    string
		Next *ring
	}
	mutual struct{ Other *mirror }
	mirror struct{ Others map[string][]mutual }
)

// pairs has pairs of types of which one must not be taken for the other. Some are declared by
// two functions under one name, as by two versions of a program.
func pairs() map[string][2]reflect.Type {
	return map[string][2]reflect.Type{
		"another type":         both[string, int](),
		"the size of a number": both[int32, int64](),
		"the sign of a number": both[int32, uint32](),

		"an element of a slice":                 both[[]string, []int32](),
		"an element of a slice of slices":       both[[][]string, [][]int32](),
		"an element of an array":                both[[4]string, [4]int32](),
		"the length of an array":                both[[8]int, [4]int](),
		"the target of a pointer":               both[*string, *int32](),
		"an element of a map":                   both[map[string]string, map[string]int32](),
		"a key of a map":                        both[map[string]string, map[int32]string](),
		"a method of an interface":              both[any, interface{ A() }](),
		"the type of a field":                   both[struct{ A string }, struct{ A int32 }](),
		"the name of a field":                   both[struct{ A string }, struct{ B string }](),
		"a new field":                           both[struct{ A string }, struct{ A, B string }](),
		"the order of fields":                   both[struct{ A, B string }, struct{ B, A string }](),
		"a field that can be read from outside": both[struct{ a string }, struct{ A string }](),
		"a field that moves into a struct of it": {reflect.TypeFor[struct {
			A struct{ A string }
			B string
		}](), reflect.TypeFor[struct{ A struct{ A, B string } }]()},
		"a new tag": {reflect.TypeFor[struct{ A string }](), reflect.TypeFor[struct {
			A string `json:"a"`
		}]()},
		"another tag": {reflect.TypeFor[struct {
			A string `json:"a"`
		}](), reflect.TypeFor[struct {
			A string `json:"a,omitempty"`
		}]()},

		"an array for a slice":   both[[4]int, []int](),
		"a slice for a pointer":  both[[]int, *int](),
		"a pointer for a value":  both[*int, int](),
		"a pointer to a pointer": both[**int, *int](),
		"a slice of slices":      both[[][]int, []int](),
		"a map for a slice":      both[map[int]string, []string](),
		"a struct for a map":     both[struct{ A string }, map[string]string](),

		"a string with a name":        both[string, text](),
		"a slice with a name":         both[[]string, texts](),
		"a struct with a name":        both[struct{ A string }, inner](),
		"the name of a struct":        both[inner, outer](),
		"the package of a type":       both[corev1.ConditionStatus, metav1.ConditionStatus](),
		"a type argument":             both[box[string], box[int32]](),
		"a slice of another struct":   both[[]inner, []outer](),
		"a type that contains itself": both[ring, []ring](),

		"a field for an embedded struct":    both[struct{ inner }, struct{ inner inner }](),
		"a field for an embedded interface": both[struct{ metav1.Object }, struct{ Object metav1.Object }](),
		"a field for an embedded pointer":   both[struct{ *metav1.Time }, struct{ Time *metav1.Time }](),
		"a pointer that is embedded":        both[struct{ metav1.Time }, struct{ *metav1.Time }](),

		"a field of a type with a name": {
			func() reflect.Type { type in struct{ A string }; return reflect.TypeFor[in]() }(),
			func() reflect.Type { type in struct{ A, B string }; return reflect.TypeFor[in]() }(),
		},
		"a field of an embedded type": {
			func() reflect.Type { type in struct{ A string }; return reflect.TypeFor[struct{ in }]() }(),
			func() reflect.Type { type in struct{ A, B string }; return reflect.TypeFor[struct{ in }]() }(),
		},
		"a field of a type that contains itself": {
			func() reflect.Type {
				type in struct {
					Next *in
					A    []string
				}
				return reflect.TypeFor[in]()
			}(),
			func() reflect.Type {
				type in struct {
					Next *in
					A    []int32
				}
				return reflect.TypeFor[in]()
			}(),
		},
		"a field of the type of a key": {
			func() reflect.Type { type in struct{ A string }; return reflect.TypeFor[map[in]string]() }(),
			func() reflect.Type { type in struct{ A int32 }; return reflect.TypeFor[map[in]string]() }(),
		},
	}
}

func both[A, B any]() [2]reflect.Type {
	return [2]reflect.Type{reflect.TypeFor[A](), reflect.TypeFor[B]()}
}

// fields returns the type of a struct with fields A, B and so on.
func fields(types ...reflect.Type) reflect.Type {
	var all []reflect.StructField
	for i, typ := range types {
		all = append(all, reflect.StructField{Name: string(rune('A' + i)), Type: typ})
	}
	return reflect.StructOf(all)
}

func TestATypeThatHasChangedHasAnotherFingerprint(t *testing.T) {
	for name, pair := range pairs() {
		was, is := pair[0], pair[1]
		for where, in := range map[string]func(reflect.Type) reflect.Type{
			"alone":                   func(t reflect.Type) reflect.Type { return t },
			"as a field":              func(t reflect.Type) reflect.Type { return fields(t) },
			"after a field of either": func(t reflect.Type) reflect.Type { return fields(was, is, t) },
			"in types without a name after both in such types": func(t reflect.Type) reflect.Type {
				wrap := func(t reflect.Type) reflect.Type {
					return reflect.PointerTo(reflect.SliceOf(reflect.MapOf(reflect.TypeFor[string](), reflect.ArrayOf(2, fields(t)))))
				}
				return fields(wrap(was), wrap(is), wrap(t))
			},
		} {
			if codec.Fingerprint(in(was)) == codec.Fingerprint(in(is)) {
				t.Errorf("%s, %s: %v and %v have the same fingerprint", name, where, in(was), in(is))
			}
		}
	}
}

func TestATypeAlwaysHasTheSameFingerprint(t *testing.T) {
	same := map[string][2]reflect.Type{
		"types that contain each other": both[mutual, mutual](),
		"a type that contains itself":   both[ring, ring](),
		"a Pod":                         both[corev1.Pod, corev1.Pod](),
		"an unstructured object":        both[unstructured.Unstructured, unstructured.Unstructured](),
		"a field that is not encoded": both[struct{ A string }, struct {
			A string
			b int
		}](),
		"two programs with the same types": {
			func() reflect.Type {
				type in struct{ Next map[string]*in }
				return reflect.TypeFor[struct{ A, B []in }]()
			}(),
			func() reflect.Type {
				type in struct{ Next map[string]*in }
				return reflect.TypeFor[struct{ A, B []in }]()
			}(),
		},
	}
	for name, pair := range pairs() {
		same[name+", before"], same[name+", after"] = [2]reflect.Type{pair[0], pair[0]}, [2]reflect.Type{pair[1], pair[1]}
	}
	for name, pair := range same {
		if codec.Fingerprint(pair[0]) != codec.Fingerprint(pair[1]) {
			t.Errorf("%s: %v and %v have different fingerprints", name, pair[0], pair[1])
		}
	}
}

// These types differ in their methods alone.
type (
	methodless  struct{}
	marshaled   struct{}
	byPointer   struct{}
	unmarshaled struct{}
	textual     struct{}
	untextual   struct{}
	omitted     struct{}
)

func (marshaled) MarshalJSON() ([]byte, error)  { return nil, nil }
func (*byPointer) MarshalJSON() ([]byte, error) { return nil, nil }
func (*unmarshaled) UnmarshalJSON([]byte) error { return nil }
func (textual) MarshalText() ([]byte, error)    { return nil, nil }
func (*untextual) UnmarshalText([]byte) error   { return nil }
func (omitted) IsZero() bool                    { return false }

// One program cannot have two types of one name with different methods, so this test compares
// only the part of the description that is about methods.
func TestTheFingerprintOfATypeIncludesHowItEncodesItself(t *testing.T) {
	seen := map[string]reflect.Type{}
	for _, typ := range []reflect.Type{
		reflect.TypeFor[methodless](), reflect.TypeFor[marshaled](), reflect.TypeFor[byPointer](), reflect.TypeFor[unmarshaled](),
		reflect.TypeFor[textual](), reflect.TypeFor[untextual](), reflect.TypeFor[omitted](), reflect.TypeFor[metav1.Time](),
	} {
		own := codec.OwnEncoding(typ)
		if other := seen[own]; other != nil {
			t.Errorf("%v and %v have the same: %s", typ, other, own)
		}
		seen[own] = typ
	}
}
