package informertest

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/customcacheinformer/informer"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func keyOf[T informer.Object](obj T) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func sortedKeys[T any](objects map[types.NamespacedName]T) []types.NamespacedName {
	return slices.SortedFunc(maps.Keys(objects), compareKeys)
}

func copyOf[T informer.Object](obj T) T {
	return obj.DeepCopyObject().(T)
}

func withVersion[T informer.Object](obj T, version uint64) T {
	obj = copyOf(obj)
	obj.SetResourceVersion(formatVersion(version))
	return obj
}

func formatVersion(version uint64) string {
	return strconv.FormatUint(version, 10)
}

// definition is what a source knows about its resource.
type definition[T informer.Object] struct {
	kind   schema.GroupVersionKind // of the first object that has one
	goType reflect.Type            // of the first object; T may be an interface

	customFields selectables // of SetSelectableFields
}

// learnType keeps the Go type and the kind of obj for newObject and for error messages.
func (d *definition[T]) learnType(obj T) {
	if d.goType == nil {
		d.goType = reflect.TypeOf(obj)
	}
	if d.kind.Empty() {
		d.kind = obj.GetObjectKind().GroupVersionKind()
	}
}

func (d *definition[T]) newObject() T {
	obj := reflect.New(d.objectType().Elem()).Interface().(T)
	if !d.kind.Empty() {
		obj.GetObjectKind().SetGroupVersionKind(d.kind)
	}
	return obj
}

func (d *definition[T]) objectType() reflect.Type {
	if t := reflect.TypeFor[T](); t.Kind() == reflect.Pointer {
		return t
	}
	if d.goType != nil {
		return d.goType
	}
	return reflect.TypeFor[*metav1.PartialObjectMetadata]()
}

func (d *definition[T]) guessKind() schema.GroupVersionKind {
	if d.kind.Empty() {
		return schema.GroupVersionKind{Kind: d.objectType().Elem().Name()}
	}
	return d.kind
}

func (d *definition[T]) resource() schema.GroupResource {
	plural, _ := meta.UnsafeGuessKindToResource(d.guessKind())
	return plural.GroupResource()
}

// selectableField returns the field that a label in a field selector names. For an unknown label it
// returns the same error as the API server.
func (d *definition[T]) selectableField(label string) (selectable, error) {
	t := d.objectType()
	kind, builtin := builtinKind(t, d.kind)
	fields := builtinFields[kind]
	if t == reflect.TypeFor[*metav1.PartialObjectMetadata]() {
		fields = nil // a server selects by the whole object, but here is only metadata
	}
	if field, ok := d.customFields[label]; ok {
		return field, nil
	}
	if field, ok := fields[label]; ok {
		return field, nil
	}
	if fields == nil {
		_, _, err := runtime.DefaultMetaV1FieldSelectorConversion(label, "")
		if err == nil || builtin {
			return selectable{}, err
		}
	}
	return selectable{}, fmt.Errorf("field label not supported: %s", label)
}
