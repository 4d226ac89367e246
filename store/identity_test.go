package store_test

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/customcacheinformer/informer/store"
)

// The errors name the field and the remedy.
func TestAnIdentityMustNameTheClusterAndTheKind(t *testing.T) {
	pod, untyped, metadata := reflect.TypeFor[*corev1.Pod](), reflect.TypeFor[*unstructured.Unstructured](), reflect.TypeFor[*metav1.PartialObjectMetadata]()
	const resource = "does not name the kind of the objects: set it to the listed resource"
	for _, c := range []struct {
		identity store.Identity
		of       reflect.Type
		want     []string // of the error; none if there is no error
	}{
		{store.Identity{}, pod, []string{"Identity.Cluster is empty", "the namespace kube-system", "store.ClusterUID"}},
		{store.Identity{Resource: "pods", Namespace: "a", Selector: "b", Version: "1"}, pod, []string{"Identity.Cluster is empty"}},
		{store.Identity{Resource: "pods"}, untyped, []string{"Identity.Cluster is empty"}},
		{store.Identity{Cluster: "c"}, pod, nil},
		{store.Identity{Cluster: "c"}, untyped, []string{"Identity.Resource is empty, and *unstructured.Unstructured", resource}},
		{store.Identity{Cluster: "c"}, metadata, []string{"Identity.Resource is empty, and *v1.PartialObjectMetadata", resource}},
		{store.Identity{Cluster: "c", Resource: "pods"}, untyped, nil},
		{store.Identity{Cluster: "c", Resource: "pods"}, metadata, nil},
		{store.Identity{Cluster: "c", Version: "\xff"}, pod, []string{`Identity.Version is "\xff"`}},
	} {
		err := c.identity.Validate(c.of)
		if (err == nil) != (c.want == nil) {
			t.Errorf("%+v of %v: %v", c.identity, c.of, err)
		}
		for _, want := range c.want {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%+v of %v: the error does not say %q: %v", c.identity, c.of, want, err)
			}
		}
	}
}
