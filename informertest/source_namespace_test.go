package informertest_test

import (
	"errors"
	"syscall"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/customcacheinformer/informer/informertest"
)

// clients has the clients of two namespaces and of all, and of a clientset.
type clients struct {
	*informertest.Source[*corev1.Pod]
	t      *testing.T
	client *fake.Clientset
}

func newClients(t *testing.T) *clients {
	src := informertest.NewSource(podIn("a", "x"), podIn("b", "x"))
	return &clients{src, t, serving(src)}
}

func (f *clients) wantList(namespace string, want error) {
	f.t.Helper()
	if _, err := f.Namespace(namespace).List(f.t.Context(), metav1.ListOptions{}); !errors.Is(err, want) {
		f.t.Errorf("LIST of %q: %v, want %v", namespace, err, want)
	}
}

func (f *clients) wantWatch(namespace string, want error) {
	f.t.Helper()
	w, err := f.Namespace(namespace).Watch(f.t.Context(), metav1.ListOptions{})
	if !errors.Is(err, want) {
		f.t.Errorf("WATCH of %q: %v, want %v", namespace, err, want)
	}
	if err == nil {
		w.Stop()
	}
}

var (
	errOfAll = errors.New("of all")
	errOfOne = errors.New("of one")
	errLater = errors.New("later")
)

func TestANamespaceFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newClients(t)
		f.FailIn("a", "list", errOfOne, 2)
		f.FailIn("a", "list", errOfAll, 0)
		f.FailIn("a", "list", errLater, 1)
		f.FailIn("a", "watch", errOfOne, -1)
		f.wantList("b", nil)
		f.wantList("", nil)
		f.wantWatch("b", nil)
		for _, want := range []error{errOfOne, errOfOne, errLater, nil} {
			f.wantList("a", want)
		}
		for range 3 {
			f.wantWatch("a", errOfOne)
		}
		if _, err := f.client.CoreV1().Pods("a").Watch(t.Context(), metav1.ListOptions{}); !errors.Is(err, errOfOne) {
			t.Errorf("WATCH of a clientset: %v", err)
		}
		f.SetFaults(informertest.Faults{}) // does not heal
		f.wantWatch("a", errOfOne)
		f.Heal()
		f.wantWatch("a", nil)
	})
}

func TestAFailureOfANamespaceComesBeforeThoseOfAll(t *testing.T) {
	f := newClients(t)
	f.Fail("list", errOfAll, 2)
	f.FailIn("a", "list", errOfOne, 1)
	f.SetFaults(informertest.Faults{Down: true})
	f.wantList("a", syscall.ECONNREFUSED) // uses up neither
	f.SetFaults(informertest.Faults{})
	for _, want := range []error{errOfOne, errOfAll} {
		f.wantList("a", want)
	}
	f.wantList("b", errOfAll)
	f.wantList("a", nil)
	f.wantList("b", nil)

	f.FailIn("a", "list", errOfOne, -1)
	f.Fail("list", errOfAll, 1)
	f.wantList("a", errOfOne)
	f.wantList("a", errOfOne)
	f.wantList("b", errOfAll)
}

// A program without rights for all namespaces may have those for one.
func TestRequestsForAllNamespacesFailAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newClients(t)
		f.FailIn("", "list", errOfOne, 3)
		f.FailIn("", "watch", errOfOne, 1)
		f.wantList("a", nil)
		f.wantWatch("a", nil)
		f.wantList("", errOfOne)
		if _, err := f.List(metav1.ListOptions{}); !errors.Is(err, errOfOne) {
			t.Errorf("LIST of the source itself: %v", err)
		}
		if _, err := f.client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); !errors.Is(err, errOfOne) {
			t.Errorf("LIST of a clientset: %v", err)
		}
		if _, err := f.Watch(metav1.ListOptions{}); !errors.Is(err, errOfOne) {
			t.Errorf("WATCH of the source itself: %v", err)
		}
		f.wantList("", nil)
		f.wantWatch("", nil)
	})
}
