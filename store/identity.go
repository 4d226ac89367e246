package store

import (
	"errors"
	"fmt"
	"reflect"
	"unicode/utf8"

	"github.com/customcacheinformer/informer/internal/object"
)

// Identity describes the objects of a store that outlives the process, such as the stores of packages
// store/disk and store/valkey. It keeps a program from using a store with the objects of another
// program. All fields are compared literally; leave a field that does not apply empty. The type of the
// objects, down to the fields of its structs, is compared too, and need not be named here.
type Identity struct {
	// Cluster identifies the cluster, and must not be empty. Use the result of [ClusterUID]: it stays
	// the same when the address of the API server changes, and differs if a volume is restored in
	// another cluster. For an informer over several clusters, choose a name for the whole set, such as
	// "fleet-eu".
	Cluster string `json:",omitempty"`
	// Resource is the listed resource, such as "pods" or "widgets.v1.example.com". It must not be
	// empty for Unstructured and PartialObjectMetadata, because these types do not name the kind.
	Resource string `json:",omitempty"`
	// Namespace is the listed namespace, or "" for all. For an informer over several namespaces,
	// choose a text that stays the same when the set of namespaces changes.
	Namespace string `json:",omitempty"`
	// Selector is the label selector, the field selector or both by which the list is restricted, in
	// any notation. It is "" if there is none.
	Selector string `json:",omitempty"`
	// Version identifies the code with which the program processes the objects. Change it when a
	// Transform, Options.Omit, an index function or a method such as UnmarshalJSON changes.
	Version string `json:",omitempty"`
}

// Validate returns an error if i cannot be the identity of a store with objects of the given type. The
// error names the field that is wrong: Cluster or Resource is empty but must be set, or a field is not
// valid UTF-8 and cannot be stored as JSON. Packages store/disk and store/valkey call Validate. It
// does not block.
func (i Identity) Validate(objects reflect.Type) error {
	switch {
	case i.Cluster == "":
		return errors.New("Identity.Cluster is empty: set it to the UID of the namespace kube-system, which store.ClusterUID returns, or to a name that no other cluster has")
	case i.Resource == "" && object.AnyKind(objects):
		return fmt.Errorf("Identity.Resource is empty, and %v does not name the kind of the objects: set it to the listed resource, such as widgets.v1.example.com", objects)
	}
	for name, value := range map[string]string{
		"Cluster": i.Cluster, "Resource": i.Resource, "Namespace": i.Namespace, "Selector": i.Selector, "Version": i.Version,
	} {
		if !utf8.ValidString(value) {
			return fmt.Errorf("Identity.%s is %q, which is not UTF-8", name, value)
		}
	}
	return nil
}
