package framing

import (
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
)

// A Type is the type of the objects of a client. With the zero Type, client-go decodes all objects.
type Type struct {
	elem reflect.Type // of the items; nil for unstructured ones
	ok   bool
	omit *Omission
}

// Without returns t with an Omission: the objects are decoded without its fields.
func (t Type) Without(o *Omission) Type {
	t.omit = o
	return t
}

// TypeOf returns the type of the items of a list type: *unstructured.UnstructuredList, or a pointer
// to a struct named after its items, such as *v1.PodList. It returns false for another list.
func TypeOf(list reflect.Type) (Type, bool) {
	if list == reflect.TypeFor[*unstructured.UnstructuredList]() {
		return Type{ok: true}, true
	}
	if list.Kind() != reflect.Pointer || list.Elem().Kind() != reflect.Struct {
		return Type{}, false
	}
	items, ok := list.Elem().FieldByName("Items")
	if !ok || items.Type.Kind() != reflect.Slice || items.Type.Elem().Kind() != reflect.Struct {
		return Type{}, false
	}
	elem := items.Type.Elem()
	if list.Elem().Name() != elem.Name()+"List" {
		return Type{}, false
	}
	t := TypeOfObject(reflect.PointerTo(elem))
	return t, t.ok
}

// TypeOfObject returns the type of objects such as *v1.Pod, or the zero value if they are not pointers to
// structs.
func TypeOfObject(obj reflect.Type) Type {
	switch {
	case obj == reflect.TypeFor[*unstructured.Unstructured]():
		return Type{ok: true}
	case obj.Kind() != reflect.Pointer || obj.Elem().Kind() != reflect.Struct || !obj.Implements(reflect.TypeFor[runtime.Object]()):
		return Type{}
	}
	return Type{elem: obj.Elem(), ok: true}
}

// OK reports whether t is a type that this package can decode.
func (t Type) OK() bool { return t.ok }

type message interface {
	runtime.Object
	Unmarshal([]byte) error
}

func (t Type) protobuf() bool {
	return t.elem != nil && reflect.PointerTo(t.elem).Implements(reflect.TypeFor[message]())
}

// typeMeta is the type that an encoded object or list names.
type typeMeta struct{ apiVersion, kind string }

// fits reports whether client-go decodes something of type m as an object of t, or as a list if
// suffix is "List". gv is the requested apiVersion.
func (t Type) fits(m typeMeta, suffix, gv string) bool {
	switch t.elem {
	case nil:
		return m.kind != ""
	case reflect.TypeFor[metav1.PartialObjectMetadata]():
		gv = "meta.k8s.io/v1"
	}
	return m == typeMeta{gv, t.elem.Name() + suffix}
}

// binary decodes a protobuf object without its envelope. It returns an *Undecodable if it can
// decode only the metadata, and nil if it cannot decode these either.
func (t Type) binary(raw []byte) runtime.Object {
	obj := reflect.New(t.elem).Interface().(message)
	err := t.omit.without(raw, cutBinary, obj.Unmarshal)
	if err == nil {
		return obj
	}
	u := &Undecodable{Err: err}
	number, size, n, ok := field(raw)
	if !ok || number != objectMeta || size > len(raw)-n || u.ObjectMeta.Unmarshal(raw[n:n+size]) != nil || u.Name == "" {
		return nil
	}
	return u
}

// json decodes a JSON object. It returns an *Undecodable if it can decode only the metadata, and
// nil if it cannot decode these either.
func (t Type) json(raw []byte) runtime.Object {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	var obj runtime.Object = u
	into := any(&u.Object)
	if t.elem != nil {
		obj = reflect.New(t.elem).Interface().(runtime.Object)
		into = obj
	}
	err := t.omit.without(raw, cutJSON, func(raw []byte) error { return json.Unmarshal(raw, into) })
	if err == nil {
		return obj
	}
	undecodable := &Undecodable{Err: err}
	metadata := func(raw []byte) error { return json.Unmarshal(raw, &undecodable.PartialObjectMetadata) }
	if t.omit.without(raw, cutJSON, metadata) != nil || undecodable.Name == "" {
		return nil
	}
	return undecodable
}

// live changes an object of a watch as client-go does when it decodes the object. It returns false
// if client-go would refuse the object, or decode it as another type.
func (t Type) live(obj runtime.Object, gv string) bool {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		k := obj.GetObjectKind()
		apiVersion, kind := k.GroupVersionKind().ToAPIVersionAndKind()
		k.SetGroupVersionKind(schema.GroupVersionKind{})
		return t.fits(typeMeta{apiVersion, kind}, "", gv)
	}
	version, _ := u.Object["apiVersion"].(string)
	group, err := schema.ParseGroupVersion(version)
	if err != nil || group.Version == "" {
		return false
	}
	switch kind := u.GetKind(); kind {
	case "":
		return false
	case "Status", "APIVersions", "APIGroup", "APIGroupList", "APIResourceList", "WatchEvent":
		return false // the scheme of the dynamic client has types for these, whatever their group
	default:
		return version != "v1" || !strings.HasSuffix(kind, "Options") // and for these
	}
}

// isBare reports whether an item has no type, so that client-go gives it the type of its list.
func isBare(obj runtime.Object) bool {
	u, ok := obj.(*unstructured.Unstructured)
	return ok && u.GetKind() == "" && u.GetAPIVersion() == ""
}

// dress gives an item the type of the items of a list of type m.
func (m typeMeta) dress(obj runtime.Object) {
	u := obj.(*unstructured.Unstructured)
	u.SetKind(strings.TrimSuffix(m.kind, "List"))
	u.SetAPIVersion(m.apiVersion)
}

// Undecodable takes the place of an object that cannot be decoded. It has only the metadata of the
// object, and the error.
type Undecodable struct {
	metav1.PartialObjectMetadata
	Err error
}

// DeepCopyObject returns a copy that shares Err.
func (u *Undecodable) DeepCopyObject() runtime.Object {
	c := &Undecodable{Err: u.Err}
	u.DeepCopyInto(&c.PartialObjectMetadata)
	return c
}
