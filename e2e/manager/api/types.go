// Package api is a small API with a parent and a child. It gives managers something to do on a
// real API server. That server knows only the types that are installed, and each test installs
// these two in a group of its own.
package api

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Widget is the parent, which a reconciler looks after.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              Spec   `json:"spec,omitempty"`
	Status            Status `json:"status,omitempty"`
}

// Spec is the wanted state.
type Spec struct {
	Size  int    `json:"size,omitempty"`
	Color string `json:"color,omitempty"`
	Notes string `json:"notes,omitempty"`
	Parts int    `json:"parts,omitempty"`
}

// Status is the state that was reached.
type Status struct {
	Size int `json:"size,omitempty"`
}

// WidgetList is a list of Widgets.
type WidgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Widget `json:"items"`
}

// Part is the child. It belongs to a Widget.
type Part struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              Spec `json:"spec,omitempty"`
}

// PartList is a list of Parts.
type PartList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Part `json:"items"`
}

// Scheme returns a scheme with the types in this group.
func Scheme(group schema.GroupVersion) *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(group, &Widget{}, &WidgetList{}, &Part{}, &PartList{})
	metav1.AddToGroupVersion(s, group)
	return s
}

// Mapper returns a mapper that knows the resources of the types. Discovery does not work with
// the API server of package apiserver, which serves only custom resources.
func Mapper(group schema.GroupVersion) meta.RESTMapper {
	m := meta.NewDefaultRESTMapper([]schema.GroupVersion{group})
	for _, kind := range []string{"Widget", "WidgetList", "Part", "PartList"} { // a mapper made by discovery has the lists too
		m.Add(group.WithKind(kind), meta.RESTScopeNamespace)
	}
	return m
}

// DeepCopyInto copies w. Only the metadata contains pointers.
func (w *Widget) DeepCopyInto(out *Widget) {
	*out = *w
	w.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
}

// DeepCopyObject makes Widget a runtime.Object.
func (w *Widget) DeepCopyObject() runtime.Object {
	out := &Widget{}
	w.DeepCopyInto(out)
	return out
}

// DeepCopyObject makes WidgetList a runtime.Object.
func (l *WidgetList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = make([]Widget, len(l.Items))
	for i := range l.Items {
		l.Items[i].DeepCopyInto(&out.Items[i])
	}
	return &out
}

// DeepCopyInto copies p.
func (p *Part) DeepCopyInto(out *Part) {
	*out = *p
	p.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
}

// DeepCopyObject makes Part a runtime.Object.
func (p *Part) DeepCopyObject() runtime.Object {
	out := &Part{}
	p.DeepCopyInto(out)
	return out
}

// DeepCopyObject makes PartList a runtime.Object.
func (l *PartList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = make([]Part, len(l.Items))
	for i := range l.Items {
		l.Items[i].DeepCopyInto(&out.Items[i])
	}
	return &out
}
