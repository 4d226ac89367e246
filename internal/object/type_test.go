package object_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer/internal/object"
)

func TestAsNamesBothTypesOfAValueThatDoesNotFit(t *testing.T) {
	pod := &corev1.Pod{}
	if got, err := object.As[*corev1.Pod](pod); got != pod || err != nil {
		t.Errorf("a pod: %v, %v", got, err)
	}
	if got, err := object.As[metav1.Object](pod); got != metav1.Object(pod) || err != nil {
		t.Errorf("a pod as an interface: %v, %v", got, err)
	}
	for want, v := range map[string]any{"*v1.Secret": &corev1.Secret{}, "<nil>": nil, "string": "pod"} {
		got, err := object.As[*corev1.Pod](v)
		if got != nil || !errors.Is(err, object.ErrWrongType) {
			t.Errorf("%T: %v, %v", v, got, err)
			continue
		}
		for _, name := range []string{want, "*v1.Pod"} {
			if !strings.Contains(err.Error(), name) {
				t.Errorf("%T: %q does not name %s", v, err, name)
			}
		}
	}
}

type generic[T any] struct{}

func TestTypeNameIsTheBareName(t *testing.T) {
	for want, of := range map[string]reflect.Type{
		"Pod":     reflect.TypeFor[*corev1.Pod](),
		"Secret":  reflect.TypeFor[corev1.Secret](),
		"generic": reflect.TypeFor[*generic[corev1.Pod]](),
		"":        reflect.TypeFor[func()](),
	} {
		if got := object.TypeName(of); got != want {
			t.Errorf("%v: %q, want %q", of, got, want)
		}
	}
}
