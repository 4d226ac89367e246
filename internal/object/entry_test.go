package object_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/object"
)

func pod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func checkKey(t *testing.T, e object.Entry, want string) {
	t.Helper()
	if got := e.Key(); got != want {
		t.Errorf("the key is %q, want %q", got, want)
	}
	if got := string(e.AppendKey([]byte("after "))); got != "after "+want {
		t.Errorf("appended: %q, want %q", got, "after "+want)
	}
}

func TestAnEntryKeepsTheKeyThatItWasGiven(t *testing.T) {
	web := pod("default", "web")
	checkKey(t, object.Keyed("east|default/web", web), "east|default/web")
	checkKey(t, object.Keyed("west|default/web", web), "west|default/web")
	var es object.Entries
	es.Append("east|default/web", web)
	es.Append("west|default/web", web)
	if rest := es.From(1); es.Len() != 2 || rest.Len() != 1 {
		t.Fatalf("%d and %d entries", es.Len(), rest.Len())
	}
	checkKey(t, es.At(0), "east|default/web")
	checkKey(t, es.From(1).At(0), "west|default/web")
}

func TestAStoreOfObjectsOnlyHasTheKeysOfClientGo(t *testing.T) {
	var none *corev1.Pod
	es := object.Unkeyed([]any{pod("default", "web"), pod("", "node"), none, nil, 7})
	for n, want := range []string{"default/web", "node", "", "", ""} {
		checkKey(t, es.At(n), want)
	}
	checkKey(t, es.From(1).At(0), "node")
}

func TestCacheKeyIsTheKeyOfClientGo(t *testing.T) {
	for _, obj := range []any{
		pod("default", "web"), pod("", "node"), cache.DeletedFinalStateUnknown{Key: "default/gone"}, cache.ExplicitKey("explicit"), 7, nil,
	} {
		want, refused := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
		if got, err := object.CacheKey(obj); got != want || (err != nil) != (refused != nil) {
			t.Errorf("%v: %q, %v, want %q, %v", obj, got, err, want, refused)
		}
	}
	var none *corev1.Pod
	if got, err := object.CacheKey(none); got != "" || err == nil {
		t.Errorf("a nil pointer: %q, %v", got, err)
	}
}
