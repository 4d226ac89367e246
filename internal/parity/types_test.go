package parity_test

import (
	"fmt"
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
	sharedCases{
		"may be unstructured":                                  unstructuredObjects,
		"may be unstructured, of any kind":                     unstructuredOfAnyKind,
		"may be nothing but metadata":                          metadataObjects,
		"may be left open":                                     objectsOfAnyType,
		"may have no namespace":                                objectsWithoutANamespace,
		"that are not expected are not told, those after them": otherTypes,
		"of metadata are not told apart by kind":               metadataOfAnotherKind,
	}.inBubbles(t)
}

var (
	widgetKind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	gadgetKind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"}
)

func unstructuredOf(kind schema.GroupVersionKind, name, value string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"value": value}}}
	u.SetGroupVersionKind(kind)
	u.SetNamespace("default")
	u.SetName(name)
	return u
}

func metadataOf(kind schema.GroupVersionKind, name, value string) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(kind)
	m.Namespace, m.Name, m.Labels = "default", name, map[string]string{"value": value}
	return m
}

// checkFollowsType runs an informer of a new source with an object a, makes changes, and
// checks the handler's events. It returns the source, the handler and the informer.
func checkFollowsType[T informer.Object](t *testing.T, s shared, example runtime.Object, newObject func(name, value string) T) (*informertest.Source[T], *heard, cache.SharedIndexInformer) {
	t.Helper()
	src := informertest.NewSource(newObject("a", "1"))
	inf := s.make(src, example, 0, cache.Indexers{})
	h := &heard{}
	handle(t, inf, h)
	runShared(t, inf)
	h.expect(t, "add a@1 initial")
	src.Apply(newObject("a", "2"))
	src.Apply(newObject("b", "1"))
	h.expect(t, "update a@1->a@2", "add b@3")
	if _, err := src.Delete(keyOf("b")); err != nil {
		t.Fatal(err)
	}
	h.expect(t, "delete b@4")
	if obj, ok := cached(t, inf, "a").(T); !ok {
		t.Errorf("the store has a %T", obj)
	}
	src.SetFaults(informertest.Faults{Mute: true})
	if _, err := src.Delete(keyOf("a")); err != nil {
		t.Fatal(err)
	}
	src.Apply(newObject("c", "1"))
	src.Expire()
	src.SetFaults(informertest.Faults{})
	sleepBubble(time.Minute)
	h.expect(t, "tombstone a@2", "add c@6")
	return src, h, inf
}

// inject sends obj to the watches of src, as an added object.
func inject[T informer.Object](src *informertest.Source[T], obj runtime.Object) {
	src.Inject(watch.Event{Type: watch.Added, Object: obj})
}

func unstructuredObjects(t *testing.T, s shared) {
	example := &unstructured.Unstructured{}
	example.SetGroupVersionKind(widgetKind)
	src, h, _ := checkFollowsType(t, s, example, func(name, value string) *unstructured.Unstructured {
		return unstructuredOf(widgetKind, name, value)
	})
	inject(src, unstructuredOf(gadgetKind, "gadget", "1"))
	inject(src, object("typed", "1"))
	src.Apply(unstructuredOf(widgetKind, "d", "1"))
	h.expect(t, "add d@8")
}

func unstructuredOfAnyKind(t *testing.T, s shared) {
	src, h, _ := checkFollowsType(t, s, &unstructured.Unstructured{}, func(name, value string) *unstructured.Unstructured {
		return unstructuredOf(widgetKind, name, value)
	})
	inject(src, unstructuredOf(gadgetKind, "gadget", "1"))
	h.expect(t, "add gadget@")
}

func metadataObjects(t *testing.T, s shared) {
	example := &metav1.PartialObjectMetadata{}
	example.SetGroupVersionKind(widgetKind)
	src, h, _ := checkFollowsType(t, s, example, func(name, value string) *metav1.PartialObjectMetadata {
		return metadataOf(widgetKind, name, value)
	})
	inject(src, unstructuredOf(widgetKind, "other", "1"))
	src.Apply(metadataOf(widgetKind, "d", "1"))
	h.expect(t, "add d@8")
}

func metadataOfAnotherKind(t *testing.T, s shared) {
	example := &metav1.PartialObjectMetadata{}
	example.SetGroupVersionKind(widgetKind)
	src, h, _ := checkFollowsType(t, s, example, func(name, value string) *metav1.PartialObjectMetadata {
		return metadataOf(widgetKind, name, value)
	})
	inject(src, metadataOf(gadgetKind, "gadget", "1"))
	h.expect(t, "add gadget@")
}

func objectsOfAnyType(t *testing.T, s shared) {
	src, h, inf := checkFollowsType(t, s, nil, object)
	inject(src, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "secret", ResourceVersion: "1007"}})
	h.expect(t, "add secret@7")
	if _, ok := cached(t, inf, "secret").(*corev1.Secret); !ok {
		t.Error("the secret is not in the store")
	}
}

func objectsWithoutANamespace(t *testing.T, s shared) {
	src := informertest.NewSource(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	inf := s.make(src, &corev1.Node{}, 0, cache.Indexers{})
	var h heard
	handle(t, inf, &h)
	runShared(t, inf)
	if _, exists, err := inf.GetStore().GetByKey("n"); !exists || err != nil {
		t.Errorf("the node is in the store: %t (%v)", exists, err)
	}
	src.SetFaults(informertest.Faults{Mute: true})
	if _, err := src.Delete(types.NamespacedName{Name: "n"}); err != nil {
		t.Fatal(err)
	}
	src.Expire()
	src.SetFaults(informertest.Faults{})
	sleepBubble(time.Minute)
	h.expect(t, "add n@1 initial", "tombstone n@1")
}

func otherTypes(t *testing.T, s shared) {
	src, inf, h := settled(t, s)
	inject(src, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "secret"}})
	src.Inject(watch.Event{Type: watch.Deleted, Object: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}})
	inject(src, unstructuredOf(widgetKind, "widget", "1"))
	src.Apply(object("c", "1"))
	h.expect(t, "add c@3")
	checkShared(t, inf, "a@1", "b@2", "c@3")
}

// The objects of client-go's fakes have no resourceVersion, so every update looks like no
// change.
func TestSharedOverAFakeClientset(t *testing.T) {
	sharedCases{
		"hears of updates":                          fakeWithoutResyncs,
		"hears of updates with resyncs, of its own": fakeWithResyncs,
		"hears of updates with resyncs of others":   fakeWithResyncsOfOthers,
	}.inBubbles(t)
}

// runFake runs an informer of a fake clientset that has the object a, with a handler for each
// of periods. After 15 minutes it drops the handlers' events, and then updates the object
// three times.
func runFake(t *testing.T, s shared, resync time.Duration, periods ...time.Duration) []*heard {
	t.Helper()
	client := fake.NewClientset(object("a", "1")).CoreV1().ConfigMaps("default")
	inf := s.new(informer.ListWatch(client), resync)
	var handlers []*heard
	for _, period := range periods {
		h := &heard{}
		handleEvery(t, inf, h, period)
		handlers = append(handlers, h)
	}
	runShared(t, inf)
	sleepBubble(15 * time.Minute)
	for _, h := range handlers {
		h.take()
	}
	for i := range 3 {
		if _, err := client.Update(t.Context(), object("a", fmt.Sprint(i+2)), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
	}
	if got := cached(t, inf, "a").(configMap).Data["value"]; got != "4" {
		t.Errorf("the store has the value %s", got)
	}
	return handlers
}

func fakeWithoutResyncs(t *testing.T, s shared) {
	handlers := runFake(t, s, 0, byDefault)
	handlers[0].expect(t, "update a@->a@", "update a@->a@", "update a@->a@")
}

func fakeWithResyncs(t *testing.T, s shared) {
	handlers := runFake(t, s, 10*time.Minute, byDefault)
	handlers[0].expect(t, "update a@->a@", "update a@->a@", "update a@->a@")
}

func fakeWithResyncsOfOthers(t *testing.T, s shared) {
	handlers := runFake(t, s, 10*time.Minute, byDefault, 0)
	if s.ours() {
		// Every event of a watch is a change, even if the resourceVersion is the same.
		handlers[1].expect(t, "update a@->a@", "update a@->a@", "update a@->a@")
	} else {
		handlers[1].expect(t)
	}
}
