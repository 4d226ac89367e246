package store_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/customcacheinformer/informer/store"
)

func system(uid types.UID) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: uid}}
}

func TestTheUIDOfAClusterIsThatOfKubeSystem(t *testing.T) {
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "other"}}
	client := fake.NewClientset(other, system("1234"))
	if uid, err := store.ClusterUID(t.Context(), client.CoreV1().Namespaces()); uid != "1234" || err != nil {
		t.Errorf("%q, %v", uid, err)
	}
	if n := len(client.Actions()); n != 1 {
		t.Errorf("it made %d requests, want 1: %v", n, client.Actions())
	}
}

// namespaces is a client that cannot be used as a nil pointer.
type namespaces struct{ uid types.UID }

func (n *namespaces) Get(context.Context, string, metav1.GetOptions) (*corev1.Namespace, error) {
	return system(n.uid), nil
}

func TestWithoutTheUIDOfAClusterTheErrorContainsHowToGoOn(t *testing.T) {
	failing := func(err error) *fake.Clientset {
		client := fake.NewClientset(system("1234"))
		client.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
		return client
	}
	down := errors.New("connection refused")
	for name, c := range map[string]struct {
		client *fake.Clientset
		is     func(error) bool
		want   []string
	}{
		"forbidden": {
			failing(apierrors.NewForbidden(corev1.Resource("namespaces"), "kube-system", errors.New("no RBAC"))),
			apierrors.IsForbidden,
			[]string{"no RBAC", "allow get on namespaces with resourceNames: [kube-system] in a ClusterRole", "Identity.Cluster"},
		},
		"not found": {fake.NewClientset(), apierrors.IsNotFound, []string{"create the namespace", "Identity.Cluster"}},
		"no UID":    {fake.NewClientset(system("")), func(error) bool { return true }, []string{"has no UID", "Identity.Cluster"}},
		"a failure": {failing(down), func(err error) bool { return errors.Is(err, down) }, []string{"store: ClusterUID: connection refused"}},
		"ctx's end": {failing(context.Canceled), func(err error) bool { return errors.Is(err, context.Canceled) }, nil},
	} {
		uid, err := store.ClusterUID(t.Context(), c.client.CoreV1().Namespaces())
		if err == nil || uid != "" || !c.is(err) {
			t.Errorf("%s: %q, %v", name, uid, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error does not say %q: %v", name, want, err)
			}
		}
	}
	if _, err := store.ClusterUID[*corev1.Namespace](t.Context(), nil); err == nil || !strings.Contains(err.Error(), "the client is nil") {
		t.Errorf("no client: %v", err)
	}
	if _, err := store.ClusterUID(t.Context(), (*namespaces)(nil)); err == nil || !strings.Contains(err.Error(), "the client is nil") {
		t.Errorf("a nil pointer: %v", err)
	}
}
