package store

import (
	"fmt"
	"unicode/utf8"
)

// Identity says which objects a store has that outlives the process, such as those of packages
// store/disk and store/valkey. It keeps a program from taking the objects of another one for its own.
// All fields are compared literally; leave a field that does not apply empty. The type of the objects,
// down to the fields of its structs, is compared too, and need not be named here.
type Identity struct {
	// Cluster identifies the cluster. Use [ClusterUID], which stays the same when the address
	// of the API server changes.
	Cluster string `json:",omitempty"`
	// Resource is the listed resource, such as "pods" or "widgets.v1.example.com".
	Resource string `json:",omitempty"`
	// Namespace is the listed namespace, "" for all.
	Namespace string `json:",omitempty"`
	// Selector restricts the list: by labels, fields, or both, in any notation.
	Selector string `json:",omitempty"`
	// Version is the version of the program's processing of the objects: change it when a
	// Transform, an index function or a method such as UnmarshalJSON changes.
	Version string `json:",omitempty"`
}

// Validate returns an error that names a field that is no UTF-8. Such a field could not be stored as
// JSON.
func (i Identity) Validate() error {
	for name, value := range map[string]string{
		"Cluster": i.Cluster, "Resource": i.Resource, "Namespace": i.Namespace, "Selector": i.Selector, "Version": i.Version,
	} {
		if !utf8.ValidString(value) {
			return fmt.Errorf("Identity.%s is %q, which is no UTF-8", name, value)
		}
	}
	return nil
}
