// Package indexes provides ready-made index functions: by label, by owner, and by the path of a field. They are
// meant for informer.Options.Indexers. Options.Fields of package informer is a shorter way to an index by field.
//
// The functions may be called from any goroutine. They do not block, and do not change objects. A
// nil object has no values. No function returns a value twice for one object.
package indexes

import (
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer/internal/field"
	"github.com/customcacheinformer/informer/internal/object"
)

// ByLabel returns an index function that indexes objects by the value of a label. An object without the label has
// no value. If the label is present but empty, the value is "". The function never returns an error.
func ByLabel[T metav1.Object](label string) func(T) ([]string, error) {
	return func(obj T) ([]string, error) {
		if !object.IsNil(obj) {
			if value, ok := obj.GetLabels()[label]; ok {
				return []string{value}, nil
			}
		}
		return nil, nil
	}
}

// ByOwner is an index function that returns the UIDs of all owners of an object. It never returns an error.
func ByOwner[T metav1.Object](obj T) ([]string, error) {
	return owners(obj, func(metav1.OwnerReference) bool { return true }), nil
}

// ByController is an index function that returns the UID of the owner that controls an object. An object that no
// owner controls has no value. ByController never returns an error.
func ByController[T metav1.Object](obj T) ([]string, error) {
	return owners(obj, func(ref metav1.OwnerReference) bool { return ref.Controller != nil && *ref.Controller }), nil
}

func owners(obj metav1.Object, wanted func(metav1.OwnerReference) bool) (uids []string) {
	if object.IsNil(obj) {
		return nil
	}
	for _, ref := range obj.GetOwnerReferences() {
		if uid := string(ref.UID); wanted(ref) && !slices.Contains(uids, uid) {
			uids = append(uids, uid)
		}
	}
	return uids
}

// ByField returns an index function that indexes objects by the values of the field at a path, such as
// "spec.nodeName". A path consists of the names of fields in JSON:
//
//   - "spec.containers.image" goes through a list: each element gives its values.
//   - "data.color" and "metadata.labels['example.com/team']" name the key of a map. The second form is for keys
//     that contain dots.
//
// The values are those of the JSON, as text. So a time or a quantity is its string, an integer is in base 10, a
// bool is "true" or "false", and binary data is in base64. A field that is missing or null has no value. An empty
// field that JSON omits, such as the spec.nodeName of a Pod without a node, has no value either.
//
// ByField returns an error that names the path if the path is malformed, names a field that T does not have, or
// does not end at a single value. If T is unstructured or an interface, ByField checks only the syntax. Then the
// index function returns an error for an object in which the path ends at a map or leads below a single value. If T
// is an interface, the index function also returns an error for an object whose type lacks a field of the path.
func ByField[T metav1.Object](path string) (func(T) ([]string, error), error) {
	values, err := field.Values(reflect.TypeFor[T](), path)
	if err != nil {
		return nil, fmt.Errorf("indexes: %w", err)
	}
	return func(obj T) ([]string, error) { return values(obj) }, nil
}
