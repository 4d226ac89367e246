package informertest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/customcacheinformer/informer/informertest"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
)

func items(t *testing.T, list runtime.Object) []*corev1.ConfigMap {
	t.Helper()
	objs, err := meta.ExtractList(list)
	if err != nil {
		t.Fatal(err)
	}
	var configMaps []*corev1.ConfigMap
	for _, obj := range objs {
		configMaps = append(configMaps, obj.(*corev1.ConfigMap))
	}
	return configMaps
}

// wantItems checks the items of a list, for instance "name=value @1001".
func wantItems(t *testing.T, list runtime.Object, want ...string) {
	t.Helper()
	var got []string
	for _, obj := range items(t, list) {
		got = append(got, fmt.Sprintf("%s=%s @%s", obj.Name, obj.Data["value"], obj.ResourceVersion))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("items (-want +got):\n%s", diff)
	}
}

func listMeta(t *testing.T, list runtime.Object) metav1.ListInterface {
	t.Helper()
	m, err := meta.ListAccessor(list)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func isTooLarge(err error) bool {
	return apierrors.IsTimeout(err) && apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

func TestListAnswersTheRequestedVersion(t *testing.T) {
	src := informertest.NewSource(configMap("a", "1"), configMap("b", "1")) // 1001, 1002
	src.Apply(configMap("a", "2"))
	must(src.Delete(keyOf("b")))
	src.Apply(configMap("c", "1")) // 1005
	src.Bookmark()

	now := []string{"a=2 @1003", "c=1 @1005"}
	for _, c := range []struct {
		name    string
		options metav1.ListOptions
		version string
		items   []string
	}{
		{"the latest", metav1.ListOptions{}, "1005", now},
		{"any", metav1.ListOptions{ResourceVersion: "0"}, "1005", now},
		{"not older than, by default", metav1.ListOptions{ResourceVersion: "1002"}, "1005", now},
		{"not older than", metav1.ListOptions{ResourceVersion: "1002", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, Limit: 5}, "1005", now},
		{"exact", metav1.ListOptions{ResourceVersion: "1003", ResourceVersionMatch: metav1.ResourceVersionMatchExact}, "1003", []string{"a=2 @1003", "b=1 @1002"}},
		{"exact at the beginning", metav1.ListOptions{ResourceVersion: "1000", ResourceVersionMatch: metav1.ResourceVersionMatchExact}, "1000", nil},
		{"exact, because of the limit", metav1.ListOptions{ResourceVersion: "1002", Limit: 5}, "1002", []string{"a=1 @1001", "b=1 @1002"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			list := must(src.List(c.options))
			wantItems(t, list, c.items...)
			if got := listMeta(t, list).GetResourceVersion(); got != c.version {
				t.Errorf("got resourceVersion %s, want %s", got, c.version)
			}
		})
	}
}

func TestListRefusesTheSameRequestsAsTheAPIServer(t *testing.T) {
	src := informertest.NewSource(configMap("a", "1"))
	src.Apply(configMap("a", "2"))
	token := listMeta(t, must(informertest.NewSource(configMap("a", "1"), configMap("b", "1")).List(metav1.ListOptions{Limit: 1}))).GetContinue()
	src.Compact() // 1003
	yes := true
	for _, c := range []struct {
		name    string
		options metav1.ListOptions
		is      func(error) bool
	}{
		{"a version to come", metav1.ListOptions{ResourceVersion: "1004"}, isTooLarge},
		{"an exact version to come", metav1.ListOptions{ResourceVersion: "1004", ResourceVersionMatch: metav1.ResourceVersionMatchExact}, isTooLarge},
		{"a version that is gone", metav1.ListOptions{ResourceVersion: "1002", ResourceVersionMatch: metav1.ResourceVersionMatchExact}, apierrors.IsResourceExpired},
		{"a page that is gone", metav1.ListOptions{Continue: token}, apierrors.IsResourceExpired},
		{"a page of another version", metav1.ListOptions{Continue: token, ResourceVersion: "1003"}, apierrors.IsBadRequest},
		{"a version that is none", metav1.ListOptions{ResourceVersion: "new"}, apierrors.IsBadRequest},
		{"a page that is none", metav1.ListOptions{Continue: "two"}, apierrors.IsBadRequest},
		{"a page that is almost one", metav1.ListOptions{Continue: "bnVsbCxudWxs"}, apierrors.IsBadRequest},
		{"a match of no version", metav1.ListOptions{ResourceVersionMatch: metav1.ResourceVersionMatchExact}, apierrors.IsInvalid},
		{"initial events", metav1.ListOptions{SendInitialEvents: &yes}, apierrors.IsInvalid},
		{"a field it cannot select by", metav1.ListOptions{FieldSelector: "spec.nodeName=a"}, apierrors.IsBadRequest},
		{"a broken label selector", metav1.ListOptions{LabelSelector: "a b"}, apierrors.IsBadRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			list, err := src.List(c.options)
			wantError(t, err, c.is)
			if list != nil {
				t.Errorf("got a list of type %T next to the error", list)
			}
		})
	}
}

func TestPagesAreOfTheVersionOfTheFirst(t *testing.T) {
	src := informertest.NewSource(configMap("a", "1"), configMap("b", "1"), configMap("c", "1"), configMap("e", "1"))
	first := must(src.List(metav1.ListOptions{Limit: 2}))
	wantItems(t, first, "a=1 @1001", "b=1 @1002")
	must(src.Delete(keyOf("c")))
	src.Apply(configMap("d", "1"))
	src.Apply(configMap("e", "2"))
	src.Apply(configMap("e", "3"))

	second := must(src.List(metav1.ListOptions{Limit: 1, Continue: listMeta(t, first).GetContinue()}))
	wantItems(t, second, "c=1 @1003")
	third := must(src.List(metav1.ListOptions{Limit: 1, Continue: listMeta(t, second).GetContinue()}))
	wantItems(t, third, "e=1 @1004")
	if m := listMeta(t, third); m.GetContinue() != "" || m.GetResourceVersion() != "1004" {
		t.Errorf("the last page is of %s and continues with %q", m.GetResourceVersion(), m.GetContinue())
	}
}

func TestListHonoursSelectors(t *testing.T) {
	elsewhere := labelled(configMap("a", "1"), "x")
	elsewhere.Namespace = "other"
	src := informertest.NewSource(
		labelled(configMap("a", "1"), "x"), labelled(configMap("b", "1"), "y"), labelled(configMap("c", "1"), "x"), elsewhere)
	wantItems(t, must(src.List(metav1.ListOptions{LabelSelector: "app=x"})), "a=1 @1001", "c=1 @1003", "a=1 @1004")
	wantItems(t, must(src.List(metav1.ListOptions{FieldSelector: "metadata.name=a"})), "a=1 @1001", "a=1 @1004")
	wantItems(t, must(src.List(metav1.ListOptions{LabelSelector: "app=x", FieldSelector: "metadata.namespace=default,metadata.name!=a"})), "c=1 @1003")

	page := must(src.List(metav1.ListOptions{LabelSelector: "app=x", Limit: 1}))
	wantItems(t, must(src.List(metav1.ListOptions{LabelSelector: "app=x", Continue: listMeta(t, page).GetContinue()})), "c=1 @1003", "a=1 @1004")
}

func TestThePagerOfClientGoUnderstandsTheLists(t *testing.T) {
	src := informertest.NewSource[*corev1.ConfigMap]()
	for i := range 10 {
		src.Apply(configMap(fmt.Sprint("name-", i), "1"))
	}
	for name, between := range map[string]func(){
		"undisturbed": func() {},
		"compacted":   src.Compact,
	} {
		t.Run(name, func(t *testing.T) {
			p := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				defer between()
				return src.ListWithContext(ctx, options)
			})
			p.PageSize = 3
			list, _, err := p.ListWithAlloc(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(src.Objects(), items(t, list)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
