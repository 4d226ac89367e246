package serving

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
)

// Resource is a resource that the server offers.
type Resource struct {
	schema.GroupVersionResource

	// Kind, Singular, ShortNames and Namespaced are as in discovery. Kind is required. By default,
	// Singular is Kind in lower case.
	Kind       string
	Singular   string
	ShortNames []string
	Namespaced bool

	// Fields are the field selectors besides metadata.name and metadata.namespace. Each is the path
	// of a value, such as "spec.nodeName". An object without the value has an empty one.
	Fields []string
	// Index is one of Fields, or empty. A change then wakes only the watchers that select the value
	// which the object has or had, and watchers without that selector. A list by value reads only
	// the objects with that value.
	Index string

	// Storage has the objects. They are Go types of client-go's scheme if that scheme has Kind, and
	// *unstructured.Unstructured with apiVersion and kind if it does not. The server calls these
	// methods alone:
	//
	//   - Watch with SendInitialEvents. It may block until there is a state, or until ctx ends. It
	//     sends the objects of one version as added, a bookmark of that version with the annotation
	//     for the end of initial events, and each later change once, in the order of versions. If it
	//     cannot continue like that, it sends an error of 410; the server then ends the watches of its
	//     clients, and calls Watch again. The next state may be older than what was sent before.
	//   - GetList, only if Watch has failed. It may fail, too; Watch is then called again.
	//   - GetCurrentResourceVersion, the version that a read without a resourceVersion waits for, up
	//     to 3 s. The watch must send an event or a bookmark of that version, or of a later one.
	//   - RequestWatchProgress, up to ten times a second while a read waits. It may do nothing.
	//   - Versioner, CompactRevision and EnableResourceSizeEstimation, which may do nothing.
	Storage storage.Interface

	// Absent returns the error with which all reads are answered while the resource does not exist or has
	// never had a state, and nil otherwise. It is called for each read. Watches that are open end when
	// that of the storage ends. Defaults to nil for all.
	Absent func() error

	// Reached reports whether the source of the storage has a version that the storage did not get
	// within 3 s. Clients that want such a version are told to come back if Reached returns true or an
	// error. If it returns false, they are told with 410 that the version is gone, and begin again
	// with the state of the relay. Without Reached, they are told that the version is too large, and
	// informers may go back in time when they come from a newer relay.
	Reached func(ctx context.Context, version uint64) (bool, error)
}

var fieldPath = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

func (r *Resource) kind() schema.GroupVersionKind { return r.GroupVersion().WithKind(r.Kind) }

func (r *Resource) listKind() schema.GroupVersionKind {
	return r.GroupVersion().WithKind(r.Kind + "List")
}

// prefix is where the keys of the objects begin, in the watch cache. It is not a part of continue
// tokens, so that tokens of the API server continue here.
func (r *Resource) prefix() string {
	group := r.Group
	if group == "" {
		group = "core"
	}
	return "/" + group + "/" + r.Version + "/" + r.Resource
}

func (r *Resource) absent() error {
	if r.Absent == nil {
		return nil
	}
	return r.Absent()
}

func (r *Resource) validate(allowSecrets bool) error {
	switch {
	case r.Version == "" || r.Resource == "" || r.Kind == "":
		return fmt.Errorf("relay: resource %q: Version, Resource and Kind are required", r.String())
	case r.Resource != strings.ToLower(r.Resource) || strings.Contains(r.Resource, "/"):
		return fmt.Errorf("relay: resource %q: the name must be in lower case, and no subresource", r.String())
	case r.GroupResource() == schema.GroupResource{Resource: "secrets"} && !allowSecrets:
		return fmt.Errorf("relay: Secrets are not served unless they are explicitly allowed")
	case r.Storage == nil:
		return fmt.Errorf("relay: resource %q: Storage is required", r.String())
	case r.Index != "" && !slices.Contains(r.Fields, r.Index):
		return fmt.Errorf("relay: resource %q: Index %q is none of Fields", r.String(), r.Index)
	}
	for _, field := range r.Fields {
		if !fieldPath.MatchString(field) {
			return fmt.Errorf("relay: resource %q: field %q is no path such as spec.nodeName", r.String(), field)
		}
	}
	return nil
}

func (r *Resource) singular() string {
	if r.Singular == "" {
		return strings.ToLower(r.Kind)
	}
	return r.Singular
}
