package disk_test

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/store/disk"
)

// odd returns objects that an encoding may change.
func odd() map[string]runtime.Object {
	bare := newConfigMap("default", "bare").(*corev1.ConfigMap)
	bare.TypeMeta = metav1.TypeMeta{}
	binary := newConfigMap("default", "binary").(*corev1.ConfigMap)
	binary.BinaryData = map[string][]byte{"empty": {}, "zeros": {0, 0}, "high": {255}}
	binary.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(`{"f:data":{"<":{}}}`)}}
	kindless := newConfigMap("default", "kindless").(*corev1.ConfigMap)
	kindless.TypeMeta = metav1.TypeMeta{APIVersion: "v1"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod"}}
	pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m"), corev1.ResourceMemory: resource.MustParse("1Gi")},
	}}}
	gadget := newGadget("default", "nested").(*Gadget)
	gadget.Spec.Next = &GadgetSpec{Size: -1 << 63, Ratio: math.MaxFloat64, ByName: map[string]GadgetSpec{"": {}}}
	gadget.Spec.Next.Template.Raw, gadget.Spec.Next.ByName[""] = []byte("null"), GadgetSpec{Template: runtime.RawExtension{Raw: []byte("[]")}}
	gadget.Spec.Next.Template.Raw = []byte(`"a"`)
	widget := newWidget("default", "numbers").(*unstructured.Unstructured)
	widget.Object["numbers"] = []any{int64(math.MaxInt64), int64(math.MinInt64), int64(0), 0.0, 1e300, 5e-324, float64(1 << 60), -1.0, 100000.0}
	widget.Object["texts"] = []any{"", "\x00", "\xff\xfe", "2026-03-29T01:59:59Z", "YWJj", strings.Repeat("ü", 70000)}
	widget.Object[""] = map[string]any{"": nil}
	return map[string]runtime.Object{
		"a config map": newConfigMap("default", "a"), "without a kind": bare, "with a version alone": kindless,
		"with binary data": binary, "with quantities": pod,
		"a gadget": newGadget("default", "a"), "a gadget in a gadget": gadget,
		"a widget": newWidget("default", "a"), "numbers and texts": widget,
		"metadata": newMetadata("default", "a"),
	}
}

func TestAnObjectComesBackAsItWas(t *testing.T) {
	for name, want := range odd() {
		t.Run(name, func(t *testing.T) {
			key := []byte("default/a")
			record, err := disk.Encode(key, want)
			if err != nil {
				t.Fatal(err)
			}
			got, err := disk.Decode(key, record, want)
			if err != nil {
				t.Fatal(err)
			}
			for i := range record {
				record[i] = '*' // the buffer is reused for other records
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
	record, err := disk.Encode(nil, want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := disk.Decode(nil, record, want); err != nil || !reflect.DeepEqual(want, got) {
		t.Errorf("read: %v, %v", got, err)
	}
}

func TestWhatCannotBeStoredIsRefused(t *testing.T) {
	widget := func(field any) informer.AnyObject {
		u := newWidget("default", "a").(*unstructured.Unstructured)
		u.Object["field"] = field
		return u
	}
	fails := errors.New("the index function fails")
	for name, c := range map[string]struct {
		obj  any
		want string
	}{
		"of another type":        {newConfigMap("default", "a"), "ConfigMap"},
		"nil":                    {nil, "nil"},
		"a nil pointer":          {(*unstructured.Unstructured)(nil), "nil"},
		"without a name":         {newWidget("default", ""), "name"},
		"with too long a name":   {newWidget("default", strings.Repeat("n", disk.MaxKey)), "key"},
		"with too long a UID":    {withUID(newWidget("default", "a"), strings.Repeat("u", 2000)), "UID"},
		"that is too large":      {widget(strings.Repeat("x", 33<<20)), "bytes"},
		"that has no encoding":   {widget(math.NaN()), "NaN"},
		"that cannot be indexed": {widget("unindexable"), fails.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name == "that is too large" {
				t.Skip("33 MiB take seconds to encode: make test-long")
			}
			s := open(t, newPath(t), &unstructured.Unstructured{}, disk.Options{Indexers: cache.Indexers{"field": func(obj any) ([]string, error) {
				field, _, _ := unstructured.NestedString(obj.(*unstructured.Unstructured).Object, "field")
				if field == "unindexable" {
					return nil, fails
				}
				return []string{field}, nil
			}}})
			good := newWidget("default", "good")
			if err := s.Apply(t.Context(), []cache.Transaction{adding(good)}, "1"); err != nil {
				t.Fatal(err)
			}
			for op, err := range map[string]error{
				"Apply":   s.Apply(t.Context(), []cache.Transaction{deleting(good), {Type: cache.TransactionTypeAdd, Object: c.obj}}, "2"),
				"Add":     s.Add(c.obj),
				"Update":  s.Update(c.obj),
				"Replace": s.Replace([]any{c.obj}, "2"),
			} {
				if !errors.Is(err, informer.ErrPermanent) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: %v, want a permanent error that says %q", op, err, c.want)
				}
			}
			if rv, err := s.Resume(t.Context()); rv != "1" || err != nil {
				t.Errorf("the bookmark is %q, %v, want that of before", rv, err)
			}
			if keys := s.ListKeys(); len(keys) != 1 || keys[0] != "default/good" {
				t.Errorf("there is %v, want what was before", keys)
			}
		})
	}
	s := open(t, newPath(t), &unstructured.Unstructured{}, disk.Options{})
	err := s.Apply(t.Context(), []cache.Transaction{{Type: "Move", Object: newWidget("default", "a")}}, "")
	if !errors.Is(err, informer.ErrPermanent) || !strings.Contains(err.Error(), "Move") || !strings.Contains(err.Error(), "default/a") {
		t.Errorf("a change of an unknown type: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	examples := map[byte]runtime.Object{}
	for _, obj := range odd() {
		record, err := disk.Encode([]byte("default/a"), obj)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte("default/a"), record, false)
		f.Add([]byte("default/b"), record, false)
		f.Add([]byte("default/a"), record[4:], true)
		examples[record[4]] = obj
	}
	f.Fuzz(func(t *testing.T, key, record []byte, sealed bool) {
		if sealed { // so that the decoders get incomplete payloads too
			record = disk.Put(key, record)
		}
		for _, example := range examples {
			obj, err := disk.Decode(key, record, example)
			if err != nil {
				continue
			}
			again, err := disk.Encode(key, obj)
			if err != nil {
				t.Fatalf("what was read cannot be stored: %v", err)
			}
			if _, err := disk.Decode(key, again, example); err != nil {
				t.Fatalf("what was read and stored cannot be read: %v", err)
			}
		}
	})
}
