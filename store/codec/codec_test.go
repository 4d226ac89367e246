package codec_test

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/customcacheinformer/informer/internal/sample"
	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/store/codec"
)

// encode returns the Codec of an object, and the encoded object.
func encode(t *testing.T, obj runtime.Object) (codec.Codec, []byte) {
	t.Helper()
	c, err := codec.New(obj)
	testkit.Must(t, err)
	encoded, err := c.Encode(obj)
	testkit.Must(t, err)
	return c, encoded
}

func TestAnObjectComesBackAsItWas(t *testing.T) {
	for name, want := range sample.Odd() {
		t.Run(name, func(t *testing.T) {
			c, encoded := encode(t, want)
			got, err := c.Decode(encoded)
			testkit.Must(t, err)
			for i := range encoded {
				encoded[i] = '*' // stores reuse the buffer
			}
			if !reflect.DeepEqual(want, got) {
				t.Errorf("(-stored +read):\n%s", cmp.Diff(want, got, cmp.Exporter(func(reflect.Type) bool { return true })))
			}
		})
	}
}

// Meta has the protobuf methods of its metadata, which leave out its other fields.
type Meta struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              string `json:"spec"`
}

func (*Meta) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns a copy.
func (m *Meta) DeepCopyObject() runtime.Object { c := *m; return &c }

func TestAnObjectThatEmbedsProtobufMethodsIsKeptWhole(t *testing.T) {
	var want runtime.Object = &Meta{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: "kept"}
	if _, ok := want.(interface{ Marshal() ([]byte, error) }); !ok {
		t.Fatal("it has no Marshal, so that there is nothing to test")
	}
	c, encoded := encode(t, want)
	if got, err := c.Decode(encoded); err != nil || !reflect.DeepEqual(want, got) {
		t.Errorf("read: %v, %v", got, err)
	}
}

func TestACodecIsOfOneType(t *testing.T) {
	for name, example := range map[string]runtime.Object{"nil": nil, "no pointer": value{}} {
		if _, err := codec.New(example); err == nil {
			t.Errorf("%s is an example", name)
		}
	}
	maps, encoded := encode(t, sample.ConfigMap("default", "a").(runtime.Object))
	for name, obj := range map[string]any{"nil": nil, "a nil pointer": (*corev1.ConfigMap)(nil), "another type": &corev1.Pod{}, "no object": "a"} {
		if _, err := maps.Encode(obj); err == nil {
			t.Errorf("%s is encoded", name)
		}
	}
	widgets, err := codec.New(&unstructured.Unstructured{})
	testkit.Must(t, err)
	for name, bad := range map[string][]byte{"nothing": nil, "another encoding": encoded} {
		if obj, err := widgets.Decode(bad); err == nil {
			t.Errorf("%s is decoded to %v", name, obj)
		}
	}
	for n := range encoded[:len(encoded)/2] {
		if obj, err := maps.Decode(encoded[:n]); err == nil && obj.(*corev1.ConfigMap).Name == "a" && len(obj.(*corev1.ConfigMap).Data) > 0 {
			t.Errorf("%d of %d bytes are decoded to the whole object", n, len(encoded))
		}
	}
	if maps.Encoding() != "protobuf" || widgets.Encoding() != "CBOR" || maps.TypeName() != "k8s.io/api/core/v1.ConfigMap" ||
		maps.Type() != reflect.TypeFor[*corev1.ConfigMap]() || maps.Fingerprint() == widgets.Fingerprint() {
		t.Errorf("%s, %s, %s, %v, %s", maps.Encoding(), widgets.Encoding(), maps.TypeName(), maps.Type(), maps.Fingerprint())
	}
}

// value is a runtime.Object that is not a pointer.
type value struct{}

func (value) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

func (v value) DeepCopyObject() runtime.Object { return v }
