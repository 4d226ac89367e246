package informertest_test

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

func podIn(namespace, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}}}
}

// serving returns a clientset whose Pods are those of a source.
func serving(src *informertest.Source[*corev1.Pod]) *fake.Clientset {
	client := fake.NewClientset()
	src.Serve(&client.Fake, "pods", &corev1.PodList{})
	return client
}

func TestServeAnswersAClientset(t *testing.T) {
	ctx := t.Context()
	src := informertest.NewSource(podIn("a", "x"), podIn("b", "y"), podIn("b", "z"))
	client := fake.NewClientset(podIn("a", "never seen"))
	src.Serve(&client.Fake, "pods", &corev1.PodList{})
	inB, inC := client.CoreV1().Pods("b"), client.CoreV1().Pods("c")

	if list := must(client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})); len(list.Items) != 3 || list.ResourceVersion != src.ResourceVersion() {
		t.Errorf("List: %d items of version %s", len(list.Items), list.ResourceVersion)
	}
	page := must(inB.List(ctx, metav1.ListOptions{Limit: 1}))
	if len(page.Items) != 1 || page.Items[0].Name != "y" || page.Continue == "" {
		t.Errorf("List of a page of a namespace: %+v", page)
	}
	page = must(inB.List(ctx, metav1.ListOptions{Limit: 1, Continue: page.Continue}))
	if len(page.Items) != 1 || page.Items[0].Name != "z" || page.Continue != "" {
		t.Errorf("List of the next page: %+v", page)
	}
	list := must(inB.List(ctx, metav1.ListOptions{LabelSelector: "app=z", FieldSelector: "metadata.name=z"}))
	if len(list.Items) != 1 || list.Items[0].Name != "z" {
		t.Errorf("List with selectors: %+v", list)
	}

	created := must(inC.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{}))
	if created.UID == "" || created.ResourceVersion == "" || created.Namespace != "c" {
		t.Fatalf("Create: %+v", created)
	}
	_, err := inC.Create(ctx, created, metav1.CreateOptions{}) // has a resourceVersion
	wantError(t, err, apierrors.IsBadRequest)
	_, err = inC.Create(ctx, podIn("c", "new"), metav1.CreateOptions{})
	wantError(t, err, apierrors.IsAlreadyExists)
	_, err = inC.Create(ctx, podIn("b", "other"), metav1.CreateOptions{})
	wantError(t, err, apierrors.IsBadRequest)

	stale := created.DeepCopy()
	created.Spec.NodeName = "n"
	updated := must(inC.Update(ctx, created, metav1.UpdateOptions{}))
	if updated.ResourceVersion == stale.ResourceVersion {
		t.Errorf("Update: %+v", updated)
	}
	_, err = inC.Update(ctx, stale, metav1.UpdateOptions{})
	wantError(t, err, apierrors.IsConflict)
	updated.Status.Phase = corev1.PodRunning
	must(inC.UpdateStatus(ctx, updated, metav1.UpdateOptions{}))
	got := must(inC.Get(ctx, "new", metav1.GetOptions{}))
	if got.Spec.NodeName != "n" || got.Status.Phase != corev1.PodRunning {
		t.Errorf("Get: %+v", got)
	}

	for _, only := range []*metav1.Preconditions{metav1.NewUIDPreconditions("other"), metav1.NewRVDeletionPrecondition(stale.ResourceVersion).Preconditions} {
		wantError(t, inC.Delete(ctx, "new", metav1.DeleteOptions{Preconditions: only}), apierrors.IsConflict)
	}
	if err := inC.Delete(ctx, "new", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(got.UID))}); err != nil {
		t.Errorf("Delete: %v", err)
	}
	_, err = inC.Get(ctx, "new", metav1.GetOptions{})
	wantError(t, err, apierrors.IsNotFound)
	wantError(t, inC.Delete(ctx, "new", metav1.DeleteOptions{}), apierrors.IsNotFound)

	wantError(t, inB.EvictV1(ctx, nil), apierrors.IsMethodNotSupported)
	must(client.CoreV1().ConfigMaps("b").List(ctx, metav1.ListOptions{})) // another resource
	src.Fail("list", apierrors.NewForbidden(corev1.Resource("pods"), "", nil), 1)
	_, err = inB.List(ctx, metav1.ListOptions{})
	wantError(t, err, apierrors.IsForbidden)
}

// An informer over a fake clientset that a source serves sees the changes of the source.
func TestServeFeedsAnInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, x := informertest.NewSource(podIn("a", "x"), podIn("b", "y")), types.NamespacedName{Namespace: "a", Name: "x"}
		inf := must(informer.New(serving(src).CoreV1().Pods("a"), informer.Options[*corev1.Pod]{}))
		var seen informertest.Recorder[*corev1.Pod]
		must(inf.AddWatcher(&seen, informer.WatcherOptions{}))
		informertest.Run(t, inf)
		seen.Expect(t, "added a/x")
		for range 300 { // more events than a fake's own watch can hold
			src.Apply(podIn("a", "x"))
			src.Apply(podIn("b", "y"))
			must(src.Delete(x))
			src.Apply(podIn("a", "x"))
		}
		src.Expire() // the informer finds the delete that follows
		must(src.Delete(x))
		time.Sleep(time.Minute)
		if view := seen.View(); len(view) != 0 || seen.Err() != nil {
			t.Errorf("the watcher sees %v, %v", view, seen.Err())
		}
	})
}

func TestServeAnswersADynamicClient(t *testing.T) {
	gvr := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	obj := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"namespace": "a", "name": name},
		}}
	}
	src := informertest.NewSource(obj("x"))
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{gvr: "WidgetList"})
	src.Serve(&client.Fake, "widgets", &unstructured.UnstructuredList{})
	widgets := client.Resource(gvr).Namespace("a")
	must(widgets.Create(t.Context(), obj("y"), metav1.CreateOptions{}))
	if list := must(client.Resource(gvr).List(t.Context(), metav1.ListOptions{})); len(list.Items) != 2 || list.GetResourceVersion() != src.ResourceVersion() {
		t.Errorf("List: %v", list)
	}
	got := must(widgets.Get(t.Context(), "y", metav1.GetOptions{}))
	if got.GetUID() == "" {
		t.Errorf("Get: %v", got)
	}
	w := must(client.Resource(gvr).Watch(t.Context(), metav1.ListOptions{ResourceVersion: got.GetResourceVersion()}))
	defer w.Stop()
	must(src.Delete(types.NamespacedName{Namespace: "a", Name: "x"}))
	if event := <-w.ResultChan(); event.Type != "DELETED" {
		t.Errorf("event %v", event)
	}

	patched := must(widgets.Patch(t.Context(), "y", merge, []byte(`{"spec":{"size":3}}`), metav1.PatchOptions{}))
	if size, _, _ := unstructured.NestedInt64(patched.Object, "spec", "size"); size != 3 || patched.GetGeneration() != 2 {
		t.Errorf("Patch: %v", patched)
	}
	_, err := widgets.Patch(t.Context(), "y", merge, []byte(`{"kind":null}`), metav1.PatchOptions{})
	wantError(t, err, apierrors.IsInvalid)
	if err := widgets.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil || len(src.Objects()) > 0 {
		t.Errorf("DeleteCollection left %v, %v", src.Objects(), err)
	}
}
