package kinds

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Kind names a kind of objects, and chooses which of its objects a [Set] reads. Equal Kinds share one source, which
// lists and watches their objects. Only the field Kind is required. If a kind is read both with and without a version,
// a namespace or a selector, it has two sources: its objects come twice, under two names.
type Kind struct {
	// Group is the API group. "" is the core group, which contains Pods.
	Group string `json:"group,omitempty"`
	// Kind is the name of the kind, such as "Deployment".
	Kind string `json:"kind"`
	// Version is the version in which the objects are read, such as "v1". If the server does not serve it, the kind
	// is [Waiting], or [Parked] if it was read before. Defaults to the version that the server prefers, which may
	// change while the set runs.
	Version string `json:"version,omitempty"`
	// Namespace is the namespace of the objects. Defaults to all namespaces. It must be "" for a kind without namespaces:
	// otherwise the kind is not read, and [KindHealth] has the reason.
	Namespace string `json:"namespace,omitempty"`
	// Selector is a label selector, such as "app=web". Defaults to all objects.
	Selector string `json:"selector,omitempty"`
}

// GroupKind returns the group and the kind, without the other fields.
func (k Kind) GroupKind() schema.GroupKind { return schema.GroupKind{Group: k.Group, Kind: k.Kind} }

// String returns the name that the kind has in events, keys, errors and Health, such as "Deployment.apps", or
// "Pod@v1:default?app=web" with a version, a namespace and a selector. It contains no spaces: each space of the selector
// becomes a "+". Events, keys, errors and Health have the selector in its canonical form, as [Lease.Kind] returns it.
func (k Kind) String() string {
	name := k.GroupKind().String()
	for _, part := range []struct{ mark, text string }{
		{"@", k.Version}, {":", k.Namespace}, {"?", strings.ReplaceAll(k.Selector, " ", "+")}, // a label has no "+"
	} {
		if part.text != "" {
			name += part.mark + part.text
		}
	}
	return name
}

// maxName is how long the name of a source of an informer may be, in bytes.
const maxName = 253

// checked returns the kind with its selector in canonical form. It returns an error that names the field that is wrong.
func (k Kind) checked() (Kind, error) {
	switch {
	case k.Kind == "":
		return k, errors.New("Kind.Kind is empty")
	case strings.Contains(k.Kind, "."):
		return k, fmt.Errorf("Kind.Kind: %q has a dot: the group belongs in Kind.Group", k.Kind)
	case strings.Contains(k.Group, "/"):
		return k, fmt.Errorf("Kind.Group: %q has a slash: the version belongs in Kind.Version", k.Group)
	}
	selector, err := labels.Parse(k.Selector)
	if err != nil {
		return k, fmt.Errorf("Kind.Selector: %w", err)
	}
	k.Selector = selector.String()
	for _, field := range []struct {
		name, value string
		problems    func(string) []string
	}{
		{"Group", k.Group, validation.IsDNS1123Subdomain},
		{"Version", k.Version, validation.IsDNS1035Label},
		{"Namespace", k.Namespace, validation.IsDNS1123Label},
		{"Kind", strings.ToLower(k.Kind), validation.IsDNS1035Label}, // as a CRD has it
	} {
		if field.value == "" {
			continue
		}
		if problems := field.problems(field.value); len(problems) > 0 {
			return k, fmt.Errorf("Kind.%s: %s", field.name, strings.Join(problems, ", "))
		}
	}
	if len(k.String()) > maxName {
		return k, errors.New("Kind.Selector is too long: the name of the kind is longer than 253 bytes")
	}
	return k, nil
}

// tweak returns a function that adds the selector to the options of a request, or nil if there is no selector.
func (k Kind) tweak() func(*metav1.ListOptions) {
	if k.Selector == "" {
		return nil
	}
	return func(opts *metav1.ListOptions) { opts.LabelSelector = k.Selector }
}

// Offer is a kind that the server offers: it can be listed and watched.
type Offer struct {
	Group, Kind string   // as in [Kind]
	Resource    string   // the name of the kind in the path of requests, such as "deployments"
	Versions    []string // the versions that the server serves, the preferred one first
	Namespaced  bool     // whether the objects have namespaces
	Categories  []string // its categories, such as "all" for kubectl get all
	Custom      bool     // the kind is known from its CRD, not from discovery; false for every kind while the CRDs cannot be listed
}

// place is where a kind is served.
type place struct {
	resource   schema.GroupVersionResource
	namespaced bool
	uid        string // of the CRD; "" if the kind is not known from a CRD
	guessed    bool   // discovery showed the kind while the CRDs could not be listed: it may have a CRD
}
