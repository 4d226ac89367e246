package e2e_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"github.com/customcacheinformer/informer/informertest"
)

// A source answers patches of a custom resource as a real server does.
func TestASourceAnswersPatchesAsARealServer(t *testing.T) {
	const json, merge, strategic = types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType
	w := newWorldOf(t, "patches.example.com")
	for _, c := range []struct {
		patch types.PatchType
		data  string
	}{
		{json, ``}, {json, `null`}, {json, `[]`}, {json, `{}`},
		{merge, ``}, {merge, `null`}, {merge, `[]`}, {merge, `{}`},
		{strategic, ``}, {strategic, `{}`},
		{merge, `{"metadata":{"labels":{"app":"new"}}}`},
		{merge, `{"metadata":{"labels":{"app":null}}}`},
		{merge, `{"metadata":{"labels":{"app":[]}}}`},
		{merge, `{"metadata":{"labels":5}}`},
		{merge, `{"metadata":null}`},
		{merge, `{"metadata":{"name":"other"}}`},
		{merge, `{"metadata":{"name":null}}`},
		{merge, `{"metadata":{"namespace":"other"}}`},
		{merge, `{"metadata":{"namespace":null}}`},
		{merge, `{"metadata":{"uid":"other"}}`},
		{merge, `{"metadata":{"uid":null}}`},
		{merge, `{"metadata":{"resourceVersion":"1"}}`},
		{merge, `{"metadata":{"resourceVersion":"999999999"}}`},
		{merge, `{"metadata":{"resourceVersion":"1","uid":"other"}}`},
		{merge, `{"metadata":{"resourceVersion":null}}`},
		{merge, `{"metadata":{"resourceVersion":"","labels":{"app":"new"}}}`},
		{merge, `{"metadata":{"generation":9}}`},
		{merge, `{"kind":null}`}, {merge, `{"kind":"Other"}`}, {merge, `{"apiVersion":"other/v1"}`},
		{json, `[{"op":"remove","path":"/metadata"}]`},
		{json, `[{"op":"add","path":"/metadata/labels/new","value":"x"},{"op":"remove","path":"/metadata/labels/app"}]`},
		{json, `[{"op":"test","path":"/metadata/name","value":"other"}]`},
		{json, `[{"op":"remove","path":"/spec/none/at/all"}]`},
		{json, `[{"op":"paint","path":"/spec"}]`},
		{json, `[{"op":"replace","path":"","value":[]}]`},
		{json, `[{"op":"replace","path":"","value":{}}]`},
	} {
		obj := w.widget("web", 1)
		obj.SetLabels(map[string]string{"app": "web"})
		created, err := w.writers[0].Create(t.Context(), obj, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		src := informertest.NewSource(created)
		client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{w.gvr: "WidgetList"})
		src.Serve(&client.Fake, w.gvr.Resource, &unstructured.UnstructuredList{})
		want := patchAnswer(t, w.writers[0], c.patch, c.data)
		got := patchAnswer(t, client.Resource(w.gvr).Namespace(created.GetNamespace()), c.patch, c.data)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s %s: (-server +source):\n%s", c.patch, c.data, diff)
		}
		if err := w.writers[0].Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// patchAnswer is how a client answers a patch, and whether it has changed the object.
func patchAnswer(t *testing.T, client dynamic.ResourceInterface, patch types.PatchType, data string) string {
	t.Helper()
	before, err := client.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Patch(t.Context(), "web", patch, []byte(data), metav1.PatchOptions{}); err != nil {
		return fmt.Sprint(apierrors.ReasonForError(err))
	}
	after, err := client.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("written: %v, labels %v, generation %d",
		after.GetResourceVersion() != before.GetResourceVersion(), after.GetLabels(), after.GetGeneration())
}
