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

func TestServeAnswersAClientset(t *testing.T) {
	ctx := t.Context()
	src := informertest.NewSource(podIn("a", "x"), podIn("b", "y"), podIn("b", "z"))
	client := fake.NewClientset(podIn("a", "never seen"))
	src.Serve(&client.Fake, "pods", &corev1.PodList{})

	list, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 3 || list.ResourceVersion != src.ResourceVersion() {
		t.Errorf("List: %d items of version %s, %v", len(list.Items), list.ResourceVersion, err)
	}
	list, err = client.CoreV1().Pods("b").List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "y" || list.Continue == "" {
		t.Errorf("List of a page of a namespace: %+v, %v", list, err)
	}
	list, err = client.CoreV1().Pods("b").List(ctx, metav1.ListOptions{Limit: 1, Continue: list.Continue})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "z" || list.Continue != "" {
		t.Errorf("List of the next page: %+v, %v", list, err)
	}
	list, err = client.CoreV1().Pods("b").List(ctx, metav1.ListOptions{LabelSelector: "app=z", FieldSelector: "metadata.name=z"})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "z" {
		t.Errorf("List with selectors: %+v, %v", list, err)
	}

	created, err := client.CoreV1().Pods("c").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{})
	if err != nil || created.UID == "" || created.ResourceVersion == "" || created.Namespace != "c" {
		t.Fatalf("Create: %+v, %v", created, err)
	}
	if _, err := client.CoreV1().Pods("c").Create(ctx, created, metav1.CreateOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("Create of what has a resourceVersion: %v", err)
	}
	if _, err := client.CoreV1().Pods("c").Create(ctx, podIn("c", "new"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("Create again: %v", err)
	}
	if _, err := client.CoreV1().Pods("c").Create(ctx, podIn("b", "other"), metav1.CreateOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("Create in another namespace: %v", err)
	}
	stale := created.DeepCopy()
	created.Spec.NodeName = "n"
	if created, err = client.CoreV1().Pods("c").Update(ctx, created, metav1.UpdateOptions{}); err != nil || created.ResourceVersion == stale.ResourceVersion {
		t.Errorf("Update: %+v, %v", created, err)
	}
	if _, err := client.CoreV1().Pods("c").Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("Update of a stale object: %v", err)
	}
	created.Status.Phase = corev1.PodRunning
	if _, err = client.CoreV1().Pods("c").UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
		t.Errorf("UpdateStatus: %v", err)
	}
	got, err := client.CoreV1().Pods("c").Get(ctx, "new", metav1.GetOptions{})
	if err != nil || got.Spec.NodeName != "n" || got.Status.Phase != corev1.PodRunning {
		t.Errorf("Get: %+v, %v", got, err)
	}

	for _, only := range []*metav1.Preconditions{metav1.NewUIDPreconditions("other"), metav1.NewRVDeletionPrecondition(stale.ResourceVersion).Preconditions} {
		if err := client.CoreV1().Pods("c").Delete(ctx, "new", metav1.DeleteOptions{Preconditions: only}); !apierrors.IsConflict(err) {
			t.Errorf("Delete of another one: %v", err)
		}
	}
	if err := client.CoreV1().Pods("c").Delete(ctx, "new", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(got.UID))}); err != nil {
		t.Errorf("Delete: %v", err)
	}
	if _, err := client.CoreV1().Pods("c").Get(ctx, "new", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get of what is deleted: %v", err)
	}
	if err := client.CoreV1().Pods("c").Delete(ctx, "new", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Delete of what is deleted: %v", err)
	}

	if err := client.CoreV1().Pods("b").EvictV1(ctx, nil); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("Evict: %v", err)
	}
	if _, err := client.CoreV1().ConfigMaps("b").List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("another resource: %v", err)
	}
	src.Fail("list", apierrors.NewForbidden(corev1.Resource("pods"), "", nil), 1)
	if _, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("List that is to fail: %v", err)
	}
}

// An informer over a fake clientset that a source serves sees the changes of the source.
func TestServeFeedsAnInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(podIn("a", "x"), podIn("b", "y"))
		client := fake.NewClientset()
		src.Serve(&client.Fake, "pods", &corev1.PodList{})
		inf, err := informer.New(client.CoreV1().Pods("a"), informer.Options[*corev1.Pod]{})
		if err != nil {
			t.Fatal(err)
		}
		var seen informertest.Recorder[*corev1.Pod]
		if _, err := inf.AddWatcher(&seen, informer.WatcherOptions{}); err != nil {
			t.Fatal(err)
		}
		informertest.Run(t, inf)
		seen.Expect(t, "added a/x")
		for range 300 { // more events than a fake's own watch can hold
			src.Apply(podIn("a", "x"))
			src.Apply(podIn("b", "y"))
			if _, err := src.Delete(types.NamespacedName{Namespace: "a", Name: "x"}); err != nil {
				t.Fatal(err)
			}
			src.Apply(podIn("a", "x"))
		}
		src.Expire() // the informer finds the delete that follows
		if _, err := src.Delete(types.NamespacedName{Namespace: "a", Name: "x"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if view := seen.View(); len(view) != 0 || seen.Err() != nil {
			t.Errorf("the watcher sees %v, %v", view, seen.Err())
		}
	})
}

func TestServeAnswersADynamicClient(t *testing.T) {
	resource := corev1.SchemeGroupVersion.WithResource("pods")
	obj := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"namespace": "a", "name": name},
		}}
	}
	src := informertest.NewSource(obj("x"))
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{resource: "PodList"})
	src.Serve(&client.Fake, "pods", &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "PodList"}})
	if _, err := client.Resource(resource).Namespace("a").Create(t.Context(), obj("y"), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	list, err := client.Resource(resource).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 || list.GetResourceVersion() != src.ResourceVersion() {
		t.Errorf("List: %v, %v", list, err)
	}
	got, err := client.Resource(resource).Namespace("a").Get(t.Context(), "y", metav1.GetOptions{})
	if err != nil || got.GetUID() == "" {
		t.Errorf("Get: %v, %v", got, err)
	}
	w, err := client.Resource(resource).Watch(t.Context(), metav1.ListOptions{ResourceVersion: got.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if _, err := src.Delete(types.NamespacedName{Namespace: "a", Name: "x"}); err != nil {
		t.Fatal(err)
	}
	if event := <-w.ResultChan(); event.Type != "DELETED" {
		t.Errorf("event %v", event)
	}
}
