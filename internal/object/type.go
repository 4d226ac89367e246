package object

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Object is the constraint on the type of an informer's objects. It is the same as the
// public one.
type Object interface {
	comparable
	metav1.Object
	runtime.Object
}

// ErrWrongType indicates that a value is not of the informer's type.
var ErrWrongType = errors.New("is not of the informer's type")

// As returns v as a T. If v is of another type, As returns the zero T and an error that
// wraps ErrWrongType and names both types.
func As[T any](v any) (T, error) {
	t, ok := v.(T)
	if !ok {
		return t, fmt.Errorf("%T %w, %v", v, ErrWrongType, reflect.TypeFor[T]())
	}
	return t, nil
}

// TypeName returns the name of t, or of the type that t points to, without the package and
// without type arguments. It returns "" for a type without a name.
func TypeName(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name, _, _ := strings.Cut(t.Name(), "[")
	return name
}

// AnyKind reports whether objects of type t can be of any kind, as unstructured objects and
// metadata can.
func AnyKind(t reflect.Type) bool {
	return t.Kind() == reflect.Interface || t == reflect.TypeFor[*metav1.PartialObjectMetadata]() || t.Implements(reflect.TypeFor[runtime.Unstructured]())
}
