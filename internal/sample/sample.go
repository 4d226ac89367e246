// Package sample provides objects for tests of how stores encode objects.
package sample

import (
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/customcacheinformer/informer"
)

// Gadget is a custom resource with a Go type, which has only a JSON form.
type Gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              GadgetSpec `json:"spec"`
}

// GadgetSpec has fields that are hard to encode as JSON.
type GadgetSpec struct {
	Size     int64                 `json:"size"`
	Ratio    float64               `json:"ratio"`
	Nil      []string              `json:"nil"`
	Empty    []string              `json:"empty"`
	Text     string                `json:"text"`
	Data     []byte                `json:"data,omitempty"`
	Template runtime.RawExtension  `json:"template"`
	Next     *GadgetSpec           `json:"next,omitempty"`
	ByName   map[string]GadgetSpec `json:"byName,omitempty"`
}

// DeepCopyObject returns a copy that shares Spec.
func (g *Gadget) DeepCopyObject() runtime.Object {
	next := *g
	g.DeepCopyInto(&next.ObjectMeta)
	return &next
}

// ConfigMap returns an object that is encoded as protobuf.
func ConfigMap(namespace, name string) informer.AnyObject {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string]string{"name": name},
	}
}

// NewGadget returns an object of a custom resource with a Go type.
func NewGadget(namespace, name string) informer.AnyObject {
	return &Gadget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Gadget"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       GadgetSpec{Size: 1<<62 + 1, Ratio: 1, Empty: []string{}, Text: "<&>\u2028", Data: []byte{0, 255}, Template: runtime.RawExtension{Raw: []byte(`{"a":"<&>","b":1.0}`)}},
	}
}

// Widget returns an unstructured object with values of all kinds.
func Widget(namespace, name string) informer.AnyObject {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"spec": map[string]any{"int": int64(1<<62 + 1), "float": 1.0, "small": 0.1, "null": nil, "yes": true,
			"text": "<&>\u2028", "none": []any{}, "empty": map[string]any{}, "list": []any{int64(-1), "a", map[string]any{"b": 2.5}}},
	}}
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// Metadata returns an object of type *metav1.PartialObjectMetadata.
func Metadata(namespace, name string) informer.AnyObject {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
	}
}

// Odd returns objects that an encoding may change, by a description.
func Odd() map[string]runtime.Object {
	bare := ConfigMap("default", "bare").(*corev1.ConfigMap)
	bare.TypeMeta = metav1.TypeMeta{}
	binary := ConfigMap("default", "binary").(*corev1.ConfigMap)
	binary.BinaryData = map[string][]byte{"empty": {}, "zeros": {0, 0}, "high": {255}}
	binary.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(`{"f:data":{"<":{}}}`)}}
	kindless := ConfigMap("default", "kindless").(*corev1.ConfigMap)
	kindless.TypeMeta = metav1.TypeMeta{APIVersion: "v1"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod"}}
	pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m"), corev1.ResourceMemory: resource.MustParse("1Gi")},
	}}}
	gadget := NewGadget("default", "nested").(*Gadget)
	gadget.Spec.Next = &GadgetSpec{Size: -1 << 63, Ratio: math.MaxFloat64, ByName: map[string]GadgetSpec{"": {}}}
	gadget.Spec.Next.Template.Raw, gadget.Spec.Next.ByName[""] = []byte("null"), GadgetSpec{Template: runtime.RawExtension{Raw: []byte("[]")}}
	gadget.Spec.Next.Template.Raw = []byte(`"a"`)
	widget := Widget("default", "numbers").(*unstructured.Unstructured)
	widget.Object["numbers"] = []any{int64(math.MaxInt64), int64(math.MinInt64), int64(0), 0.0, 1e300, 5e-324, float64(1 << 60), -1.0, 100000.0}
	widget.Object["texts"] = []any{"", "\x00", "\xff\xfe", "2026-03-29T01:59:59Z", "YWJj", strings.Repeat("ü", 70000)}
	widget.Object[""] = map[string]any{"": nil}
	return map[string]runtime.Object{
		"a config map": ConfigMap("default", "a"), "without a kind": bare, "with only a version": kindless,
		"with binary data": binary, "with quantities": pod,
		"a gadget": NewGadget("default", "a"), "a gadget in a gadget": gadget,
		"a widget": Widget("default", "a"), "numbers and texts": widget,
		"metadata": Metadata("default", "a"),
	}
}
