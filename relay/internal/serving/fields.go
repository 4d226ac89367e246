package serving

import (
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"
)

const (
	nameField      = "metadata.name"
	namespaceField = "metadata.namespace"
)

// field reads one value of an object for a field selector. Several goroutines may use it at once,
// because a path of plain names keeps no state.
type field struct {
	name string
	path *jsonpath.JSONPath
}

func newFields(names []string) ([]field, error) {
	var all []field
	for _, name := range names {
		path := jsonpath.New(name).AllowMissingKeys(true)
		if err := path.Parse("{." + name + "}"); err != nil {
			return nil, fmt.Errorf("relay: field %q: %w", name, err)
		}
		all = append(all, field{name, path})
	}
	return all, nil
}

// of returns the value in obj as text, or "" if obj does not have it.
func (f field) of(obj runtime.Object) (string, error) {
	var data any = obj
	if u, ok := obj.(runtime.Unstructured); ok {
		data = u.UnstructuredContent()
	}
	results, err := f.path.FindResults(data)
	if err != nil || len(results) == 0 || len(results[0]) == 0 || isNil(results[0][0]) {
		return "", err
	}
	var text strings.Builder
	err = f.path.PrintResults(&text, results[0])
	return text.String(), err
}

// isNil reports whether value is a nil pointer or interface, for which jsonpath would print
// <nil>.
func isNil(value reflect.Value) bool {
	return (value.Kind() == reflect.Pointer || value.Kind() == reflect.Interface) && value.IsNil()
}

// attributes returns a function that returns the labels and the fields of an object, for
// selectors.
func attributes(namespaced bool, all []field) func(runtime.Object) (labels.Set, fields.Set, error) {
	return func(obj runtime.Object) (labels.Set, fields.Set, error) {
		object, err := meta.Accessor(obj)
		if err != nil {
			return nil, nil, err
		}
		set := make(fields.Set, len(all)+2)
		set[nameField] = object.GetName()
		if namespaced {
			set[namespaceField] = object.GetNamespace()
		}
		for _, f := range all {
			if set[f.name], err = f.of(obj); err != nil {
				return nil, nil, fmt.Errorf("field %s of %s/%s: %w", f.name, object.GetNamespace(), object.GetName(), err)
			}
		}
		return object.GetLabels(), set, nil
	}
}
