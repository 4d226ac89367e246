package parity_test

import (
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

func TestSharedTypes(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "secret", ResourceVersion: "1007"}}
	widget, gadget := unstructuredOf("Widget"), unstructuredOf("Gadget")
	widgetMeta, gadgetMeta := metadataOf("Widget"), metadataOf("Gadget")
	sharedCases{
		"may be unstructured": func(t *testing.T, s shared) {
			checkType(t, s, widget("", ""), widget, nil, gadget("gadget", "1"), object("typed", "1"))
		},
		"may be unstructured, of any kind": func(t *testing.T, s shared) {
			checkType(t, s, &unstructured.Unstructured{}, widget, gadget("gadget", "1"))
		},
		"may be nothing but metadata, whose kind does not matter": func(t *testing.T, s shared) {
			checkType(t, s, widgetMeta("", ""), widgetMeta, gadgetMeta("gadget", "1"), widget("other", "1"))
		},
		"may be left open": func(t *testing.T, s shared) {
			checkType(t, s, nil, object, secret)
		},
		"may have no namespace": func(t *testing.T, s shared) {
			src := informertest.NewSource(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
			inf := s.make(src, &corev1.Node{}, 0, cache.Indexers{})
			h := listen(t, inf)
			runShared(t, inf)
			if _, exists, err := inf.GetStore().GetByKey("n"); !exists || err != nil {
				t.Errorf("the node is in the store: %t (%v)", exists, err)
			}
			unseen(src, func() {
				_, err := src.Delete(types.NamespacedName{Name: "n"})
				must(t, err)
			})
			h.expect(t, "add n@1 initial", "tombstone n@1")
		},
		"that are not expected are not delivered, those after them are": func(t *testing.T, s shared) {
			src, inf, h := settled(t, s, two())
			inject(src, secret)
			src.Inject(watch.Event{Type: watch.Deleted, Object: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}})
			inject(src, widget("widget", "1"))
			change(t, src, "c=1")
			h.expect(t, "add c@3")
			checkShared(t, inf, "a@1", "b@2", "c@3")
		},
	}.inBubbles(t)
}

func unstructuredOf(kind string) func(name, value string) *unstructured.Unstructured {
	return func(name, value string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"value": value}}}
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: kind})
		u.SetNamespace("default")
		u.SetName(name)
		return u
	}
}

func metadataOf(kind string) func(name, value string) *metav1.PartialObjectMetadata {
	return func(name, value string) *metav1.PartialObjectMetadata {
		m := &metav1.PartialObjectMetadata{ObjectMeta: object(name, value).ObjectMeta}
		m.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: kind})
		return m
	}
}

// inject sends obj to the watches of src, as an added object.
func inject[T informer.Object](src *informertest.Source[T], obj runtime.Object) {
	src.Inject(watch.Event{Type: watch.Added, Object: obj})
}

// checkType runs an informer of a source of new objects, and checks what its handler hears of
// changes. Then the watch sends an object of another kind that belongs to the type nevertheless,
// unless kin is nil, and strangers that do not.
func checkType[T informer.Object](t *testing.T, s shared, example runtime.Object, newObject func(name, value string) T, kin runtime.Object, strangers ...runtime.Object) {
	t.Helper()
	src := informertest.NewSource(newObject("a", "1"))
	inf := s.make(src, example, 0, cache.Indexers{})
	h := listen(t, inf)
	runShared(t, inf)
	h.expect(t, "add a@1 initial")
	src.Apply(newObject("a", "2"))
	src.Apply(newObject("b", "1"))
	h.expect(t, "update a@1->a@2", "add b@3")
	remove(t, src, "b")
	h.expect(t, "delete b@4")
	if obj, ok := cached(t, inf, "a").(T); !ok {
		t.Errorf("the store has a %T", obj)
	}
	unseen(src, func() {
		remove(t, src, "a")
		src.Apply(newObject("c", "1"))
	})
	h.expect(t, "tombstone a@2", "add c@6")

	for _, stranger := range strangers {
		inject(src, stranger)
	}
	want := []string{"add d@8"}
	if kin != nil {
		want = append(want, "add "+stateOf(kin))
		inject(src, kin) // with Share, the informer changes it from now on
	}
	src.Apply(newObject("d", "1"))
	h.expect(t, want...)
	if kin == nil {
		return
	}
	if obj := cached(t, inf, kin.(metav1.Object).GetName()); reflect.TypeOf(obj) != reflect.TypeOf(kin) {
		t.Errorf("the store has a %T", obj)
	}
}

// The objects of client-go's fakes have no resourceVersion, so every update looks like no
// change.
func TestSharedOverAFakeClientset(t *testing.T) {
	sharedCases{
		"hears of updates": func(t *testing.T, s shared) {
			checkFake(t, s, true, 0, byDefault)
		},
		"hears of updates with resyncs, of its own": func(t *testing.T, s shared) {
			checkFake(t, s, true, 10*time.Minute, byDefault)
		},
		"hears of updates with resyncs of others": func(t *testing.T, s shared) {
			// In ours every event of a watch is a change, even if the resourceVersion is the same.
			checkFake(t, s, s.ours(), 10*time.Minute, byDefault, 0)
		},
	}.inBubbles(t)
}

// checkFake runs an informer of a fake clientset that has the object a, with a handler for each
// of periods. After 15 minutes it updates the object three times, and checks whether the last
// handler hears of that.
func checkFake(t *testing.T, s shared, hears bool, resync time.Duration, periods ...time.Duration) {
	t.Helper()
	client := fake.NewClientset(object("a", "1")).CoreV1().ConfigMaps("default")
	inf := s.new(informer.ListWatch(client), resync)
	var last *heard
	for _, period := range periods {
		last = listenEvery(t, inf, period)
	}
	runShared(t, inf)
	sleepBubble(15 * time.Minute)
	last.take()
	var want []string
	for i := range 3 {
		_, err := client.Update(t.Context(), object("a", fmt.Sprint(i+2)), metav1.UpdateOptions{})
		must(t, err)
		synctest.Wait()
		if hears {
			want = append(want, "update a@->a@")
		}
	}
	last.expect(t, want...)
	equal(t, "value in the store", valueOf(t, inf, "a"), "4")
}
