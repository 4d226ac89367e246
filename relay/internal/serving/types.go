package serving

import (
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/versioning"
	genericapiserver "k8s.io/apiserver/pkg/server"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// types knows the Go type of each kind, and how its objects are encoded. Kinds of client-go's
// scheme have their own types; all others are unstructured.
type types struct {
	scheme *runtime.Scheme
	// custom are the resources that are unstructured.
	custom map[schema.GroupVersionResource]bool
}

// newTypes returns the types of the resources. They do not use client-go's scheme itself, because
// each server adds its resources to its scheme.
func newTypes(resources []Resource) (*types, error) {
	t := &types{scheme: runtime.NewScheme(), custom: map[schema.GroupVersionResource]bool{}}
	if err := clientgoscheme.AddToScheme(t.scheme); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(t.scheme, schema.GroupVersion{Version: "v1"})
	for i := range resources { // before their own kinds are in the scheme: one may be called like the lists of another
		t.custom[resources[i].GroupVersionResource] = !t.scheme.Recognizes(resources[i].kind())
	}
	for i := range resources {
		r := &resources[i]
		if t.custom[r.GroupVersionResource] {
			if err := t.addCustom(r); err != nil {
				return nil, err
			}
		}
		if err := t.addFields(r); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// addCustom adds a kind without a Go type to the scheme. It returns an error if the version has another type of that
// name, where the scheme would panic: a kind such as WatchEvent, which each version has, or the lists of another resource.
func (t *types) addCustom(r *Resource) error {
	if !t.scheme.IsVersionRegistered(r.GroupVersion()) {
		metav1.AddToGroupVersion(t.scheme, r.GroupVersion())
	}
	for _, obj := range []runtime.Object{&unstructured.Unstructured{}, &unstructured.UnstructuredList{}} {
		kind := r.kind()
		if obj.(runtime.Unstructured).IsList() {
			kind = r.listKind()
		}
		if other := t.scheme.AllKnownTypes()[kind]; other != nil && other != reflect.TypeOf(obj).Elem() {
			return fmt.Errorf("relay: resource %q: %s has another kind %s, which is a %v", r.String(), r.GroupVersion(), kind.Kind, other)
		}
		t.scheme.AddKnownTypeWithName(kind, obj)
	}
	return nil
}

// addFields adds the field selectors of a resource to the scheme. The server answers 400 to other
// field selectors.
func (t *types) addFields(r *Resource) error {
	known := map[string]bool{nameField: true, namespaceField: r.Namespaced}
	for _, name := range r.Fields {
		known[name] = true
	}
	return t.scheme.AddFieldLabelConversionFunc(r.kind(), func(label, value string) (string, string, error) {
		if !known[label] {
			return "", "", fmt.Errorf("field label not supported: %s", label)
		}
		return label, value, nil
	})
}

func (t *types) newObject(kind schema.GroupVersionKind) (runtime.Object, error) {
	obj, err := t.scheme.New(kind)
	if err != nil {
		return nil, err
	}
	if _, ok := obj.(runtime.Unstructured); ok {
		obj.GetObjectKind().SetGroupVersionKind(kind) // its only type
	}
	return obj, nil
}

// codec returns a codec for the resource. The watch cache requires one, but does not use it.
func (t *types) codec(r *Resource) runtime.Codec {
	if t.custom[r.GroupVersionResource] {
		return unstructured.UnstructuredJSONScheme
	}
	return serializer.NewCodecFactory(t.scheme).LegacyCodec(r.GroupVersion())
}

// serializer returns the encodings of the objects: JSON, YAML, and the other encodings that the
// generic API server has for Go types. Lists are encoded object by object.
func (t *types) serializer() runtime.NegotiatedSerializer {
	group := genericapiserver.NewDefaultAPIGroupInfo("", t.scheme, nil, serializer.CodecFactory{})
	return encodings{group.NegotiatedSerializer, t}
}

func (t *types) convertor() runtime.ObjectConvertor { return convertor{t.scheme} }

// convertor does not convert unstructured objects. The scheme would decode them again, and would
// take the kind of one for the kind of all, because their Go type is the same.
type convertor struct{ runtime.ObjectConvertor }

func (c convertor) ConvertToVersion(in runtime.Object, version runtime.GroupVersioner) (runtime.Object, error) {
	if _, ok := in.(runtime.Unstructured); ok {
		return in, nil
	}
	return c.ObjectConvertor.ConvertToVersion(in, version)
}

// encodings is a serializer that converts objects with convertor instead of the scheme.
type encodings struct {
	runtime.NegotiatedSerializer
	types *types
}

func (e encodings) EncoderForVersion(encoder runtime.Encoder, version runtime.GroupVersioner) runtime.Encoder {
	scheme := e.types.scheme
	unsafe := convertor{runtime.UnsafeObjectConvertor(scheme)} // as CodecFactory: objects are not copied
	return versioning.NewCodec(encoder, nil, unsafe, scheme, scheme, scheme, version, nil, "relay")
}
