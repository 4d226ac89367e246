package controllerruntime_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/controllerruntime"
)

var (
	podKind    = corev1.SchemeGroupVersion.WithKind("Pod")
	widgetKind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"} // a kind that no scheme knows
)

func pod(namespace, name string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
}

func widget(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(widgetKind)
	u.SetNamespace("default")
	u.SetName(name)
	return u
}

func listOf(kind schema.GroupVersionKind) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	return list
}

func metadataOf(kind schema.GroupVersionKind) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	return list
}

// lifeThrough creates, changes and deletes an object through the client, and expects an event
// for each step. It returns the first state of an object from the first list, and of an object
// from the watch.
func lifeThrough[T informer.Object](t *testing.T, c client.Client, lw cache.ListerWatcher, created client.Object) (listed, watched T) {
	t.Helper()
	inf, events := follow[T](t, lw)
	listed = want(t, events, informer.EventAdded, "old")
	ok(t, inf.WaitForSync(t.Context()))
	name := created.GetName()

	ok(t, c.Create(t.Context(), created)) // the watch may not be open yet
	watched = want(t, events, informer.EventAdded, name)
	created.SetLabels(map[string]string{"changed": "yes"})
	ok(t, c.Update(t.Context(), created))
	if got := want(t, events, informer.EventUpdated, name).GetLabels()["changed"]; got != "yes" {
		t.Errorf("the label of the updated object is %q, want yes", got)
	}
	ok(t, c.Delete(t.Context(), created))
	want(t, events, informer.EventDeleted, name)
	return listed, watched
}

func TestChangesThroughAFakeClientArrive(t *testing.T) {
	t.Run("typed", func(t *testing.T) {
		c := fake.NewClientBuilder().WithObjects(pod("default", "old", nil)).Build()
		lifeThrough[*corev1.Pod](t, c, controllerruntime.ListWatch(c, &corev1.PodList{}), pod("default", "new", nil))
	})
	t.Run("unstructured of a kind that the scheme knows", func(t *testing.T) {
		c := fake.NewClientBuilder().WithObjects(pod("default", "old", nil)).Build()
		listed, watched := lifeThrough[*unstructured.Unstructured](t, c, controllerruntime.ListWatch(c, listOf(podKind)), pod("default", "new", nil))
		wantKind(t, podKind, listed, watched)
	})
	t.Run("unstructured of a kind that it does not", func(t *testing.T) {
		c := fake.NewClientBuilder().WithObjects(widget("old")).Build()
		listed, watched := lifeThrough[*unstructured.Unstructured](t, c, controllerruntime.ListWatch(c, listOf(widgetKind)), widget("new"))
		wantKind(t, widgetKind, listed, watched)
	})
	t.Run("metadata", func(t *testing.T) {
		c := fake.NewClientBuilder().WithObjects(pod("default", "old", nil)).Build()
		listed, watched := lifeThrough[*metav1.PartialObjectMetadata](t, c, controllerruntime.ListWatch(c, metadataOf(podKind)), pod("default", "new", nil))
		wantKind(t, podKind, listed, watched)
	})
	t.Run("behind interceptors", func(t *testing.T) {
		c := fake.NewClientBuilder().WithObjects(pod("default", "old", nil)).WithInterceptorFuncs(interceptor.Funcs{}).Build()
		c = interceptor.NewClient(c, interceptor.Funcs{})
		lifeThrough[*corev1.Pod](t, c, controllerruntime.ListWatch(c, &corev1.PodList{}), pod("default", "new", nil))
	})
	t.Run("any object", func(t *testing.T) {
		c := fake.NewClientBuilder().WithObjects(pod("default", "old", nil)).Build()
		lifeThrough[informer.AnyObject](t, c, controllerruntime.ListWatch(c, &corev1.PodList{}), pod("default", "new", nil))
	})
}

func wantKind(t *testing.T, kind schema.GroupVersionKind, objects ...informer.AnyObject) {
	t.Helper()
	for _, obj := range objects {
		if got := obj.GetObjectKind().GroupVersionKind(); got != kind {
			t.Errorf("the kind of %s is %v, want %v", obj.GetName(), got, kind)
		}
	}
}

func TestOnlyTheNamespaceAndTheSelectorAreTold(t *testing.T) {
	blue, red := map[string]string{"color": "blue"}, map[string]string{"color": "red"}
	c := fake.NewClientBuilder().WithObjects(
		pod("here", "first", blue), pod("here", "listed-red", red), pod("there", "listed-elsewhere", blue),
	).Build()
	_, events := follow[*corev1.Pod](t, controllerruntime.ListWatch(c, &corev1.PodList{},
		client.InNamespace("here"), client.MatchingLabels(blue)))
	want(t, events, informer.EventAdded, "first")

	p := pod("here", "second", blue)
	ok(t, c.Create(t.Context(), pod("here", "red", red)))
	ok(t, c.Create(t.Context(), pod("there", "elsewhere", blue)))
	ok(t, c.Create(t.Context(), p))
	want(t, events, informer.EventAdded, "second")
	p.Labels = red
	ok(t, c.Update(t.Context(), p))
	want(t, events, informer.EventDeleted, "second")
	p.Labels = blue
	ok(t, c.Update(t.Context(), p))
	want(t, events, informer.EventAdded, "second")
}

func TestAFakeIsReadAheadOfASlowStore(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	lw := controllerruntime.ListWatch(c, &corev1.PodList{})
	_, err := cache.ToListerWatcherWithContext(lw).ListWithContext(t.Context(), metav1.ListOptions{})
	ok(t, err)
	for n := range 150 { // the fake panics when more than 100 events are unread
		ok(t, c.Create(t.Context(), pod("default", fmt.Sprint("p", n), nil)))
		time.Sleep(time.Microsecond) // gives the reading goroutine a chance to run
	}
	w, err := cache.ToListerWatcherWithContext(lw).WatchWithContext(t.Context(), metav1.ListOptions{})
	ok(t, err)
	defer w.Stop()
	for n := range 150 {
		if got := (<-w.ResultChan()).Object.(*corev1.Pod).Name; got != fmt.Sprint("p", n) {
			t.Fatalf("event %d is of %s", n, got)
		}
	}
}

func TestAFakeKeepsNothingOfAnInformerThatHasStopped(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	lw := cache.ToListerWatcherWithContext(controllerruntime.ListWatch(c, &corev1.PodList{}))
	ctx, stop := context.WithCancel(t.Context())
	_, err := lw.ListWithContext(ctx, metav1.ListOptions{})
	ok(t, err)
	stop() // before Watch is called: goleak finds a watch that is left open
}
