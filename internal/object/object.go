// Package object provides functions for all API objects: their metadata, keys and types.
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
		return nil, fmt.Errorf("%T is not an object: %w", obj, err)
	}
	return m, nil
}

// ListMeta returns the metadata of a list of API objects. It returns an error if a reflector could not
// extract the objects. Unlike client-go's error, this error does not quote the list.
func ListMeta(list runtime.Object) (metav1.ListInterface, error) {
	m, err := meta.ListAccessor(list)
	if err != nil {
		return nil, fmt.Errorf("%T is not a list: %w", list, err)
	}
	items, err := meta.GetItemsPtr(list)
	if err != nil {
		return nil, fmt.Errorf("%T is not a list: it has no items", list)
	}
	item := reflect.TypeOf(items).Elem().Elem()
	if item != rawObject && !item.Implements(anyObject) && !reflect.PointerTo(item).Implements(anyObject) {
		return nil, fmt.Errorf("%T is not a list: its items are not API objects", list)
	}
	return m, nil
}

// NewItem returns a new object of the type of a list's items, or nil if the type of the list does not
// determine it.
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

// Key returns the same key of obj as cache.MetaNamespaceKeyFunc. An informer calls it once for each
// object that arrives, and passes the key on with the object: see [Entry].
func Key(obj metav1.Object) string {
	return KeyOf(types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()})
}

// ClusterMark separates the name of a cluster from the key of an object in it. The name of a cluster
// must not contain it.
const ClusterMark = "|"

// KeyIn returns the key of an object in a cluster. cluster is "" in an informer over one cluster.
func KeyIn(cluster string, key types.NamespacedName) string {
	if cluster == "" {
		return KeyOf(key)
	}
	return cluster + ClusterMark + KeyOf(key)
}

// KeyOf returns the key of an object as text, as in a store.
func KeyOf(key types.NamespacedName) string {
	if key.Namespace == "" {
		return key.Name
	}
	return key.Namespace + "/" + key.Name
}

// IsNil reports whether v is nil or holds a nil pointer, func, map, slice or channel.
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
