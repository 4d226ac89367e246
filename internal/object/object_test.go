package object_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/customcacheinformer/informer/internal/object"
)

type listOf[Item any] struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []Item
}

func (l *listOf[Item]) DeepCopyObject() runtime.Object { return l }

func TestListMetaKnowsEveryFormOfList(t *testing.T) {
	version := metav1.ListMeta{ResourceVersion: "7"}
	loose := &unstructured.UnstructuredList{}
	loose.SetResourceVersion("7")
	for name, list := range map[string]runtime.Object{
		"typed":        &corev1.PodList{ListMeta: version},
		"unstructured": loose,
		"metadata":     &metav1.PartialObjectMetadataList{ListMeta: version},
		"raw":          &metav1.List{ListMeta: version},
		"internal":     &metainternal.List{ListMeta: version},
		"of pointers":  &listOf[*corev1.Pod]{ListMeta: version},
	} {
		if m, err := object.ListMeta(list); err != nil || m.GetResourceVersion() != "7" {
			t.Errorf("%s: %v, %v", name, m, err)
		}
	}
	for want, list := range map[string]runtime.Object{
		"*v1.Pod is not a list: object does not implement the List interfaces":           &corev1.Pod{},
		"*unstructured.Unstructured is not a list: it has no items":                      &unstructured.Unstructured{},
		"*object_test.listOf[string] is not a list: its items are not API objects":       &listOf[string]{},
		"*object_test.listOf[interface {}] is not a list: its items are not API objects": &listOf[any]{},
	} {
		if m, err := object.ListMeta(list); err == nil || err.Error() != want {
			t.Errorf("%v, %v, want the error %s", m, err, want)
		}
	}
}
