package informertest_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer/informertest"
)

func TestDeleteCollectionDeletesTheObjectsThatALISTReturns(t *testing.T) {
	for _, c := range []struct {
		name      string
		namespace string
		options   metav1.ListOptions
		want      string // the Pods that are left
		is        func(error) bool
	}{
		{"all", "", metav1.ListOptions{}, "[]", nil},
		{"a namespace", "b", metav1.ListOptions{}, "[a/x a/y]", nil},
		{"a namespace without Pods", "c", metav1.ListOptions{}, "[a/x a/y b/x b/z]", nil},
		{"labels", "", metav1.ListOptions{LabelSelector: "app in (x,z)"}, "[a/y]", nil},
		{"fields", "a", metav1.ListOptions{FieldSelector: "metadata.name!=x,spec.nodeName="}, "[a/x b/x b/z]", nil},
		{"both", "", metav1.ListOptions{LabelSelector: "app=x", FieldSelector: "metadata.namespace=a"}, "[a/y b/x b/z]", nil},
		{"a page", "", metav1.ListOptions{Limit: 3}, "[b/z]", nil},
		{"an old version, of which one is gone", "", metav1.ListOptions{ResourceVersion: "1005", ResourceVersionMatch: metav1.ResourceVersionMatchExact}, "[]", nil},
		{"a version to come", "", metav1.ListOptions{ResourceVersion: "2000"}, "[a/x a/y b/x b/z]", isTooLarge},
		{"an unknown field", "", metav1.ListOptions{FieldSelector: "spec.color=red"}, "[a/x a/y b/x b/z]", apierrors.IsBadRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := informertest.NewSource(podIn("a", "x"), podIn("a", "y"), podIn("b", "x"), podIn("b", "z"), podIn("b", "gone"))
			must(src.Delete(types.NamespacedName{Namespace: "b", Name: "gone"}))
			client := serving(src)
			src.SetFaults(informertest.Faults{ListItems: []runtime.Object{podIn("c", "injected"), nil}}) // a fault of only LIST
			err := client.CoreV1().Pods(c.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, c.options)
			if c.is != nil {
				wantError(t, err, c.is)
			} else if err != nil {
				t.Error(err)
			}
			left := []string{}
			for _, pod := range src.Objects() {
				left = append(left, pod.Namespace+"/"+pod.Name)
			}
			if got := fmt.Sprint(left); got != c.want {
				t.Errorf("left are %s, want %s", got, c.want)
			}
		})
	}
}

func TestDeleteCollectionIsADeleteOfEachObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(podIn("a", "x"), podIn("a", "y"))
		client := serving(src)
		w := openWatch(t, src, metav1.ListOptions{ResourceVersion: "1002"})
		if err := client.CoreV1().Pods("a").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"x 1003", "y 1004"} {
			e := next(t, w)
			if pod := e.Object.(*corev1.Pod); e.Type != watch.Deleted || pod.Name+" "+pod.ResourceVersion != want {
				t.Errorf("got %s of %s %s, want a delete of %s", e.Type, pod.Name, pod.ResourceVersion, want)
			}
		}
		wantQuiet(t, w)
	})
}

func TestDeleteCollectionStopsAtAPreconditionThatDoesNotHold(t *testing.T) {
	x, y := podIn("a", "x"), podIn("a", "y")
	x.UID, y.UID = "first", "second"
	src := informertest.NewSource(x, y)
	client := serving(src)
	only := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("first")}
	wantError(t, client.CoreV1().Pods("a").DeleteCollection(t.Context(), only, metav1.ListOptions{}), apierrors.IsConflict)
	if left := src.Objects(); len(left) != 1 || left[0].Name != "y" {
		t.Errorf("left are %v", left)
	}
}

func TestCreateMakesANameFromGenerateName(t *testing.T) {
	ctx := t.Context()
	long := strings.Repeat("n", 60)
	src := informertest.NewSource(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "first-"}})
	client := serving(src)
	names := map[string]bool{}
	for _, base := range []string{"web-", "web-", "w", long, long[:58]} {
		obj := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: base}}
		got, err := client.CoreV1().Pods("a").Create(ctx, obj, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		kept := base[:min(len(base), 58)]
		if !strings.HasPrefix(got.Name, kept) || len(got.Name) != len(kept)+5 || got.GenerateName != base || got.Namespace != "a" || got.UID == "" {
			t.Errorf("generateName %s: got %+v", base, got.ObjectMeta)
		}
		if _, err := src.Get(types.NamespacedName{Namespace: "a", Name: got.Name}); err != nil {
			t.Error(err)
		}
		if obj.Name != "" {
			t.Errorf("the caller's object has got the name %s", obj.Name)
		}
		names[got.Name] = true
	}
	if len(names) != 5 {
		t.Errorf("names: %v", names)
	}
	if first := src.Objects()[0].Name; !strings.HasPrefix(first, "first-") || len(first) != 11 {
		t.Errorf("NewSource made the name %q", first)
	}
	named := podIn("a", "own")
	named.GenerateName = "web-"
	if got := must(src.Create(named)); got.Name != "own" {
		t.Errorf("got the name %s", got.Name)
	}
	_, err := src.Create(&corev1.Pod{})
	wantError(t, err, apierrors.IsInvalid)
}
