package informertest_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

const (
	jsonPatch = types.JSONPatchType
	merge     = types.MergePatchType
	strategic = types.StrategicMergePatchType
)

// web returns a Pod with all that JSON does not keep: an empty map, a part of a second and a
// quantity that is not in its usual form.
func web() *corev1.Pod {
	pod := podIn("a", "web")
	pod.CreationTimestamp = metav1.NewTime(time.Date(2020, 1, 1, 0, 0, 0, 5, time.UTC))
	pod.Annotations = map[string]string{}
	pod.Spec.Containers = []corev1.Container{
		{Name: "c", Image: "one", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("1000m")},
		}},
		{Name: "d", Image: "two"},
	}
	return pod
}

func TestPatchesAreApplied(t *testing.T) {
	for _, c := range []struct {
		name  string
		patch types.PatchType
		data  string
		want  string // labels and images
	}{
		{"a JSON patch", jsonPatch, `[{"op":"test","path":"/metadata/name","value":"web"},{"op":"replace","path":"/metadata/labels/app","value":"y"},{"op":"remove","path":"/spec/containers/1"}]`, "app=y one"},
		{"a merge patch", merge, `{"metadata":{"labels":{"app":null,"new":"z"}},"spec":{"containers":[{"name":"d","image":"three"}]}}`, "new=z three"},
		{"a strategic merge patch", strategic, `{"metadata":{"labels":{"new":"z"}},"spec":{"containers":[{"name":"d","image":"three"}]}}`, "app=web,new=z one three"},
		{"a strategic merge patch that deletes", strategic, `{"spec":{"containers":[{"name":"c","$patch":"delete"}]}}`, "app=web two"},
		{"its own version and UID", merge, `{"metadata":{"resourceVersion":"1001","uid":"u","labels":{"app":"y"}}}`, "app=y one two"},
		{"no version, UID and namespace", merge, `{"metadata":{"resourceVersion":null,"uid":null,"namespace":null,"labels":{"app":"y"}}}`, "app=y one two"},
		{"a field that is unknown", merge, `{"unknown":1,"metadata":{"labels":{"app":"y"}}}`, "app=y one two"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := web()
			pod.UID = "u"
			src := informertest.NewSource(pod)
			client := serving(src)
			got, err := client.CoreV1().Pods("a").Patch(t.Context(), "web", c.patch, []byte(c.data), metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			stored := must(src.Get(types.NamespacedName{Namespace: "a", Name: "web"}))
			if diff := cmp.Diff(stored, got); diff != "" {
				t.Errorf("the answer is not what is stored (-stored +answer):\n%s", diff)
			}
			state := strings.TrimSpace(metav1.FormatLabelSelector(metav1.SetAsLabelSelector(got.Labels)))
			for _, container := range got.Spec.Containers {
				state += " " + container.Image
			}
			if state != c.want || got.UID != "u" || got.Namespace != "a" || got.ResourceVersion != "1002" || src.ResourceVersion() != "1002" {
				t.Errorf("got %s, want %s: %+v", state, c.want, got.ObjectMeta)
			}
		})
	}
}

func TestAPatchWithoutADifferenceWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(web())
		client := serving(src)
		before := must(src.Get(types.NamespacedName{Namespace: "a", Name: "web"}))
		w := openWatch(t, src, metav1.ListOptions{ResourceVersion: src.ResourceVersion()})
		for _, c := range []struct {
			patch types.PatchType
			data  string
		}{
			{jsonPatch, `[]`}, {jsonPatch, `null`}, {merge, `{}`}, {strategic, `{}`},
			{jsonPatch, `[{"op":"test","path":"/metadata/name","value":"web"}]`},
			{merge, `{"metadata":{"labels":{"app":"web"}}}`}, {merge, `{"metadata":{"resourceVersion":"1001"}}`},
			{strategic, `{"spec":{"containers":[{"name":"d","image":"two"}]}}`},
			{merge, `{"kind":"Pod","apiVersion":"v1"}`},
		} {
			got, err := client.CoreV1().Pods("a").Patch(t.Context(), "web", c.patch, []byte(c.data), metav1.PatchOptions{})
			if err != nil {
				t.Errorf("%s: %v", c.data, err)
			} else if diff := cmp.Diff(before, got); diff != "" {
				t.Errorf("%s: (-want +got):\n%s", c.data, diff)
			}
		}
		wantQuiet(t, w)
		if version := src.ResourceVersion(); version != "1001" {
			t.Errorf("the version is %s", version)
		}
	})
}

func TestPatchesThatTheAPIServerRefuses(t *testing.T) {
	src := informertest.NewSource(web())
	client := serving(src)
	for _, c := range []struct {
		name  string
		patch types.PatchType
		data  string
		is    func(error) bool
	}{
		{"another name", merge, `{"metadata":{"name":"other"}}`, apierrors.IsBadRequest},
		{"no name", merge, `{"metadata":{"name":null}}`, apierrors.IsBadRequest},
		{"no metadata", jsonPatch, `[{"op":"remove","path":"/metadata"}]`, apierrors.IsBadRequest},
		{"another namespace", strategic, `{"metadata":{"namespace":"b"}}`, apierrors.IsBadRequest},
		{"another UID", merge, `{"metadata":{"uid":"other"}}`, apierrors.IsInvalid},
		{"another version", merge, `{"metadata":{"resourceVersion":"1000"}}`, apierrors.IsConflict},
		{"a version to come", jsonPatch, `[{"op":"replace","path":"/metadata/resourceVersion","value":"1002"}]`, apierrors.IsConflict},
		{"a version that is none, and another UID", merge, `{"metadata":{"resourceVersion":"x","uid":"other"}}`, apierrors.IsConflict},
		{"empty JSON patch", jsonPatch, ``, apierrors.IsBadRequest},
		{"empty merge patch", merge, ``, apierrors.IsBadRequest},
		{"empty strategic merge patch", strategic, ``, apierrors.IsBadRequest},
		{"a JSON patch that is none", jsonPatch, `{}`, apierrors.IsBadRequest},
		{"a merge patch that is a list", merge, `[]`, apierrors.IsBadRequest},
		{"a merge patch that is null", merge, `null`, apierrors.IsBadRequest},
		{"a strategic merge patch that is a list", strategic, `[]`, apierrors.IsBadRequest},
		{"a strategic merge patch with an unknown directive", strategic, `{"spec":{"containers":[{"name":"c","$patch":"odd"}]}}`, isRefused},
		{"keys to retain that are not a list", strategic, `{"spec":{"$retainKeys":5}}`, apierrors.IsBadRequest},
		{"an order that is not a list", strategic, `{"spec":{"$setElementOrder/containers":5}}`, apierrors.IsInvalid},
		{"a test that fails", jsonPatch, `[{"op":"test","path":"/metadata/name","value":"other"}]`, apierrors.IsInvalid},
		{"a path that is not there", jsonPatch, `[{"op":"remove","path":"/spec/none/at/all"}]`, apierrors.IsInvalid},
		{"an operation that there is not", jsonPatch, `[{"op":"paint","path":"/spec"}]`, apierrors.IsInvalid},
		{"a value of another type", merge, `{"spec":{"containers":"none"}}`, apierrors.IsInvalid},
		{"a strategic value of another type", strategic, `{"metadata":{"labels":{"app":[]}}}`, isRefused},
		{"the whole document", jsonPatch, `[{"op":"replace","path":"","value":[]}]`, isRefused},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := client.CoreV1().Pods("a").Patch(t.Context(), "web", c.patch, []byte(c.data), metav1.PatchOptions{})
			wantError(t, err, c.is)
		})
	}
	_, err := client.CoreV1().Pods("a").Patch(t.Context(), "none", merge, []byte("{}"), metav1.PatchOptions{})
	wantError(t, err, apierrors.IsNotFound)
	_, err = client.CoreV1().Pods("b").Patch(t.Context(), "web", merge, []byte("{}"), metav1.PatchOptions{})
	wantError(t, err, apierrors.IsNotFound)
	for _, notSupported := range []struct {
		patch        types.PatchType
		subresources []string
	}{{types.ApplyPatchType, nil}, {types.ApplyCBORPatchType, nil}, {"text/plain", nil}, {merge, []string{"scale"}}} {
		_, err := client.CoreV1().Pods("a").Patch(t.Context(), "web", notSupported.patch, []byte("{}"), metav1.PatchOptions{}, notSupported.subresources...)
		wantError(t, err, apierrors.IsMethodNotSupported)
	}
	if version := src.ResourceVersion(); version != "1001" {
		t.Errorf("the version is %s: something was written", version)
	}
}

func isRefused(err error) bool { return apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) }

// sprocket is a custom resource with a Go type.
type sprocket struct {
	metav1.PartialObjectMetadata `json:",inline"`
}

func (w *sprocket) DeepCopyObject() runtime.Object {
	return &sprocket{*w.DeepCopy()}
}

func TestStrategicMergePatchesNeedATypeOfKubernetes(t *testing.T) {
	kinds := func(obj informer.AnyObject, apiVersion, kind string) informer.AnyObject {
		obj.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind))
		obj.SetName("x")
		return obj
	}
	for name, c := range map[string]struct {
		obj informer.AnyObject
		is  func(error) bool
	}{
		"custom type":         {kinds(&sprocket{}, "example.com/v1", "Widget"), apierrors.IsUnsupportedMediaType},
		"custom unstructured": {kinds(&unstructured.Unstructured{}, "example.com/v1", "Widget"), apierrors.IsUnsupportedMediaType},
		"unstructured":        {kinds(&unstructured.Unstructured{}, "apps/v1", "Deployment"), apierrors.IsMethodNotSupported},
		"typed":               {kinds(&corev1.Node{}, "v1", "Node"), func(err error) bool { return err == nil }},
	} {
		src := informertest.NewSource(c.obj)
		var server clienttesting.Fake
		src.Serve(&server, "things", &metav1.List{})
		patch := func(patch types.PatchType, data string) error {
			action := clienttesting.NewRootPatchAction(schema.GroupVersionResource{Resource: "things"}, "x", patch, []byte(data))
			_, err := server.Invokes(action, nil)
			return err
		}
		if err := patch(strategic, `{"metadata":{"labels":{"a":"b"}}}`); !c.is(err) {
			t.Errorf("%s: %v", name, err)
		}
		if err := patch(merge, `{"metadata":{"labels":{"a":"c"}}}`); err != nil {
			t.Errorf("%s: a merge patch: %v", name, err)
		}
		if err := patch(merge, `{"metadata":{"labels":5}}`); !apierrors.IsInvalid(err) {
			t.Errorf("%s: labels that are a number: %v", name, err)
		}
		custom := strings.Contains(name, "custom") // has no updates without a version
		if err := patch(merge, `{"metadata":{"resourceVersion":null}}`); custom != (err != nil) || custom && !apierrors.IsInvalid(err) {
			t.Errorf("%s: no version: %v", name, err)
		}
		if err := patch(merge, `{"kind":"Other"}`); !apierrors.IsInvalid(err) {
			t.Errorf("%s: a patch of the kind: %v", name, err)
		}
		got := must(src.Get(types.NamespacedName{Name: "x"}))
		if _, same := got.(*unstructured.Unstructured); got.GetLabels()["a"] != "c" || same != strings.Contains(name, "unstructured") {
			t.Errorf("%s: it is now a %T: %v", name, got, got)
		}
	}
}

func TestWritesUseUpNoFailures(t *testing.T) {
	src := informertest.NewSource(web())
	client := serving(src)
	pods := client.CoreV1().Pods("a")
	src.Fail("list", errOfAll, 1)
	src.FailIn("a", "list", errOfOne, 1)
	if _, err := pods.Patch(t.Context(), "web", merge, []byte(`{"metadata":{"labels":null}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("Patch: %v", err)
	}
	if err := pods.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Errorf("DeleteCollection: %v", err)
	}
	for _, want := range []error{errOfOne, errOfAll, nil} {
		if _, err := pods.List(t.Context(), metav1.ListOptions{}); !errors.Is(err, want) {
			t.Errorf("List: %v, want %v", err, want)
		}
	}
	if got := len(src.Requests()); got != 3 {
		t.Errorf("%d requests are recorded, want only the LISTs", got)
	}
}
