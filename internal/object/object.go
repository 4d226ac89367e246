// Package object knows what all API objects have in common.
package object

import (
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Meta returns the metadata of obj, or an error if it has none.
func Meta(obj any) (metav1.Object, error) {
	if IsNil(obj) {
		return nil, errors.New("the object is nil")
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, fmt.Errorf("%T is no object: %w", obj, err)
	}
	return m, nil
}

// ListMeta returns the metadata of a list of API objects. It returns an error if a reflector
// could not take the list apart. Unlike client-go's error, that error does not quote the list.
func ListMeta(list runtime.Object) (metav1.ListInterface, error) {
	m, err := meta.ListAccessor(list)
	if err != nil {
		return nil, fmt.Errorf("%T is no list: %w", list, err)
	}
	items, err := meta.GetItemsPtr(list)
	if err != nil {
		return nil, fmt.Errorf("%T is no list: it has no items", list)
	}
	item := reflect.TypeOf(items).Elem().Elem()
	if item != rawObject && !item.Implements(anyObject) && !reflect.PointerTo(item).Implements(anyObject) {
		return nil, fmt.Errorf("%T is no list: its items are no API objects", list)
	}
	return m, nil
}

// NewItem returns a new object of the type that the items of a list have, and nil if the type
// of the list does not say that.
func NewItem(list runtime.Object) runtime.Object {
	items, err := meta.GetItemsPtr(list)
	if err != nil {
		return nil
	}
	t := reflect.TypeOf(items).Elem().Elem()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == rawObject || t.Kind() != reflect.Struct {
		return nil
	}
	item, _ := reflect.New(t).Interface().(runtime.Object)
	return item
}

var (
	anyObject = reflect.TypeFor[runtime.Object]()
	rawObject = reflect.TypeFor[runtime.RawExtension]()
)

// Key returns the key of obj as cache.MetaNamespaceKeyFunc makes it. A key is made once, where an object
// enters an informer, and travels with the object from there: see [Entry].
func Key(obj metav1.Object) string {
	return KeyOf(types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()})
}

// ClusterMark is between the name of a cluster and the key of an object in it. No name of a cluster has it.
const ClusterMark = "|"

// KeyIn returns the key of an object in a cluster, "" for an informer over one cluster.
func KeyIn(cluster string, key types.NamespacedName) string {
	if cluster == "" {
		return KeyOf(key)
	}
	return cluster + ClusterMark + KeyOf(key)
}

// KeyOf returns the key of an object as a store has it.
func KeyOf(key types.NamespacedName) string {
	if key.Namespace == "" {
		return key.Name
	}
	return key.Namespace + "/" + key.Name
}

// IsNil reports whether v is nil or an interface around a nil pointer, func or
// the like, which would only be noticed when it is called.
func IsNil(v any) bool {
	if v == nil {
		return true
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Slice, reflect.Chan:
		return r.IsNil()
	}
	return false
}
