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

	// Kind, Singular, ShortNames and Namespaced are as in discovery. Kind is required. Singular
	// defaults to Kind in lower case.
	Kind       string
	Singular   string
	ShortNames []string
	Namespaced bool

	// Fields are the field selectors in addition to metadata.name and metadata.namespace. Each is the
	// path of a value, such as "spec.nodeName". If an object does not have the value, it is "".
	Fields []string
	// Index is one of Fields, or "". With an Index, a change wakes only the watches that select the
	// old or the new value of the object, and watches without that selector. A list by value reads
	// only the objects with that value.
	Index string

	// Storage has the objects. They must be Go types of client-go's scheme if that scheme has Kind,
	// and otherwise *unstructured.Unstructured with apiVersion and kind. The server calls only these
	// methods:
	//
	//   - Watch with SendInitialEvents. It may block until there is a state, or until ctx ends. It
	//     must send the objects of one version as added, a bookmark of that version with the
	//     annotation for the end of initial events, and each later change once, in the order of
	//     versions. If it cannot continue, it must send a 410 error. The server then ends the watches
	//     of its clients, and calls Watch again. The next state may be older.
	//   - GetList, only if Watch has failed. If it fails too, the server calls Watch again.
	//   - GetCurrentResourceVersion, the version that a read without a resourceVersion waits for, up
	//     to 3 s. The watch must send an event or a bookmark of that version, or of a later one.
	//   - RequestWatchProgress, up to ten times a second while a read waits. It may do nothing.
	//   - Versioner, CompactRevision, and EnableResourceSizeEstimation, which may do nothing.
	Storage storage.Interface

	// Absent returns the error for all reads while the resource does not exist or has never had a
	// state, and nil otherwise. The server calls it for each read. Open watches end when the watch of
	// the storage ends. If Absent is nil, the resource is never absent.
	Absent func() error

	// Reached reports whether the source of the storage has a version that the storage did not get
	// within 3 s. If it returns true or an error, clients that want such a version get 429 and come
	// back. If it returns false, they get 410 and begin again with the state of the relay. If Reached
	// is nil, they get the error that the version is too large, and informers that come from a newer
	// relay may go back in time.
	Reached func(ctx context.Context, version uint64) (bool, error)
}

var fieldPath = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

func (r *Resource) kind() schema.GroupVersionKind { return r.GroupVersion().WithKind(r.Kind) }

func (r *Resource) listKind() schema.GroupVersionKind {
	return r.GroupVersion().WithKind(r.Kind + "List")
}

// prefix returns the prefix of the keys of the objects in the watch cache. Continue tokens do not
// contain it, so tokens of the API server can be used here.
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
			return fmt.Errorf("relay: resource %q: field %q is not a path such as spec.nodeName", r.String(), field)
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
