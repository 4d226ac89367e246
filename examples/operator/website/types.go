// Package website is the API of the example operator: types, deep copies and clients. Code
// generators usually write these, but here they are short enough to be written by hand.
package website

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the group and version of this package's types.
	GroupVersion = schema.GroupVersion{Group: "example.com", Version: "v1"}
	// Kind is the kind of a Website.
	Kind = GroupVersion.WithKind("Website")
	// Resource is the resource of Websites in the API.
	Resource = GroupVersion.WithResource("websites")
)

// Website makes a service reachable under a host name.
type Website struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              Spec   `json:"spec"`
	Status            Status `json:"status,omitempty"`
}

// Spec is the wanted state of a Website.
type Spec struct {
	Host    string       `json:"host"`              // such as "shop.example.com"
	Service string       `json:"service"`           // in the Website's namespace
	Port    int32        `json:"port"`              // of the service
	Expires *metav1.Time `json:"expires,omitempty"` // when to take the Website down; nil for never
}

// Status is the observed state of a Website.
type Status struct {
	ObservedGeneration int64  `json:"observedGeneration,omitempty"` // generation of the Spec that this status belongs to
	Phase              Phase  `json:"phase,omitempty"`
	Address            string `json:"address,omitempty"` // an IP address or a name; empty if there is none
}

// Phase is the current phase of a Website.
type Phase string

// These are the phases of a Website.
const (
	Pending Phase = "Pending" // there is no address yet
	Online  Phase = "Online"
	Expired Phase = "Expired" // it was taken down
)

// List is a list of Websites.
type List struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Website `json:"items"`
}

// AddToScheme adds the types of this package to a scheme.
func AddToScheme(s *runtime.Scheme) {
	s.AddKnownTypeWithName(Kind, &Website{})
	s.AddKnownTypeWithName(GroupVersion.WithKind("WebsiteList"), &List{})
	metav1.AddToGroupVersion(s, GroupVersion)
}

// DeepCopy returns a copy that shares nothing with w.
func (w *Website) DeepCopy() *Website {
	out := *w
	out.ObjectMeta = *w.ObjectMeta.DeepCopy()
	out.Spec.Expires = w.Spec.Expires.DeepCopy()
	return &out
}

// DeepCopyObject makes Website a runtime.Object.
func (w *Website) DeepCopyObject() runtime.Object { return w.DeepCopy() }

// DeepCopyObject makes List a runtime.Object.
func (l *List) DeepCopyObject() runtime.Object {
	out := *l
	l.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Website, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopy()
	}
	return &out
}
