package serving

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage/cacher"
)

// settle returns when the server has the state of Pods that the storage has now. A list without a
// version waits for that.
func (f *fixture) settle(t testing.TB) {
	t.Helper()
	if _, err := f.client(t).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{Limit: 1}); err != nil {
		t.Fatal(err)
	}
}

func TestAListIsServedInPagesOfOneVersion(t *testing.T) {
	f := serve(t)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		f.pods.set(t, pod(name, "n1"))
	}
	pods := f.client(t).CoreV1().Pods("default")
	first, err := pods.List(t.Context(), metav1.ListOptions{Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	if podNames(first) != "a b" || first.ResourceVersion != "105" || *first.RemainingItemCount != 3 {
		t.Fatalf("got %s at %s, remaining %d", podNames(first), first.ResourceVersion, *first.RemainingItemCount)
	}
	f.pods.set(t, pod("bb", "n1"))
	f.pods.remove(t, "default/d")
	f.settle(t)
	second, err := pods.List(t.Context(), metav1.ListOptions{Limit: 5, Continue: first.Continue})
	if err != nil {
		t.Fatal(err)
	}
	if podNames(second) != "c d e" || second.ResourceVersion != "105" || second.Continue != "" {
		t.Errorf("got %s at %s, continue %q", podNames(second), second.ResourceVersion, second.Continue)
	}
}

func TestAListSelectsByLabelFieldNameAndShard(t *testing.T) {
	f := serve(t)
	for _, p := range []string{"a1", "a2", "b1"} {
		f.pods.set(t, pod(p, "node-"+p))
	}
	hostNetwork := pod("host", "")
	hostNetwork.Spec.HostNetwork = true
	f.pods.set(t, hostNetwork)
	other := pod("a1", "node-a1")
	other.Namespace = "other"
	f.pods.set(t, other)
	pods := f.client(t).CoreV1().Pods("")
	const everything = "shardRange(object.metadata.uid, '0x0000000000000000', '0x10000000000000000')"
	const half = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"
	const rest = "shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')"
	for _, test := range []struct {
		options metav1.ListOptions
		want    string
	}{
		{metav1.ListOptions{}, "a1 a2 b1 host a1"},
		{metav1.ListOptions{LabelSelector: "app=a"}, "a1 a2 a1"},
		{metav1.ListOptions{FieldSelector: "metadata.name=b1"}, "b1"},
		{metav1.ListOptions{FieldSelector: "metadata.namespace=other"}, "a1"},
		{metav1.ListOptions{FieldSelector: "spec.nodeName=node-a1"}, "a1 a1"},
		{metav1.ListOptions{FieldSelector: "spec.nodeName!=node-a1,spec.hostNetwork=false"}, "a2 b1"},
		{metav1.ListOptions{FieldSelector: "spec.hostNetwork=true"}, "host"},
		{metav1.ListOptions{ShardSelector: everything}, "a1 a2 b1 host a1"},
	} {
		list, err := pods.List(t.Context(), test.options)
		if err != nil {
			t.Errorf("%+v: %v", test.options, err)
		} else if got := podNames(list); got != test.want {
			t.Errorf("%+v: got %s, want %s", test.options, got, test.want)
		}
	}
	a, err := pods.List(t.Context(), metav1.ListOptions{ShardSelector: half})
	if err != nil {
		t.Fatal(err)
	}
	b, err := pods.List(t.Context(), metav1.ListOptions{ShardSelector: rest})
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Items)+len(b.Items) != 5 || len(a.Items) == 5 || len(b.Items) == 5 {
		t.Errorf("two shards have %d and %d of 5 Pods", len(a.Items), len(b.Items))
	}
}

func TestAListOfACustomResourceSelectsByFields(t *testing.T) {
	f := serve(t)
	f.widgets.set(t, widget("a", "red", 1))
	f.widgets.set(t, widget("b", "blue", 2))
	without := widget("c", "", 0)
	delete(without.Object, "spec")
	f.widgets.set(t, without)
	for selector, want := range map[string]string{
		"spec.color=red": "a", "spec.size=2": "b", "spec.color=": "c", "spec.color!=red": "b c", "metadata.name=b": "b",
	} {
		list, err := f.dynamic(t).Resource(widgetResource).List(t.Context(), metav1.ListOptions{FieldSelector: selector})
		if err != nil {
			t.Errorf("%s: %v", selector, err)
		} else if got := names(list); got != want {
			t.Errorf("%s: got %s, want %s", selector, got, want)
		}
	}
}

func TestAnUnservedFieldIsRefused(t *testing.T) {
	f := serve(t)
	body := f.get(t, "/api/v1/pods?fieldSelector=spec.dnsPolicy%3DDefault", http.StatusBadRequest)
	if !strings.Contains(body, "field label not supported: spec.dnsPolicy") {
		t.Error(body)
	}
	f.get(t, "/apis/example.com/v1/widgets?fieldSelector=spec.weight%3D1", http.StatusBadRequest)
	f.get(t, "/apis/example.com/v1/gadgets?fieldSelector=metadata.namespace%3Da", http.StatusBadRequest)
}

func TestAListAtAnExactVersionHasTheStateOfThatVersion(t *testing.T) {
	f := serve(t)
	f.pods.set(t, pod("a", "n1")) // 101
	f.pods.set(t, pod("b", "n1"))
	f.pods.remove(t, "default/a") // 103
	f.settle(t)
	pods := f.client(t).CoreV1().Pods("default")
	for _, test := range []struct{ version, field, want string }{
		{"101", "", "a"}, {"102", "", "a b"}, {"103", "", "b"}, {"102", "metadata.name=a", "a"}, {"103", "metadata.name=a", ""},
	} {
		list, err := pods.List(t.Context(), metav1.ListOptions{
			ResourceVersion: test.version, ResourceVersionMatch: metav1.ResourceVersionMatchExact, FieldSelector: test.field,
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := podNames(list); got != test.want || list.ResourceVersion != test.version {
			t.Errorf("at %s %s: got %q at %s, want %q", test.version, test.field, got, list.ResourceVersion, test.want)
		}
	}
	_, err := pods.List(t.Context(), metav1.ListOptions{ResourceVersion: "50", ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("at a version before the first list: got %v, want 410", err)
	}
	anyVersion, err := pods.List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil || podNames(anyVersion) != "b" {
		t.Errorf("at version 0: got %v, %v", anyVersion, err)
	}
}

func TestAReadOfAFutureVersionIsAskedToComeBack(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 6 s: make test-long")
	}
	f := serve(t)
	f.pods.set(t, pod("a", "n1"))
	for _, path := range []string{"/api/v1/pods?resourceVersion=999", "/api/v1/namespaces/default/pods/a?resourceVersion=999"} {
		body := f.get(t, path, http.StatusGatewayTimeout)
		if !strings.Contains(body, string(metav1.CauseTypeResourceVersionTooLarge)) || !strings.Contains(body, `"retryAfterSeconds":1`) {
			t.Errorf("%s: %s", path, body)
		}
	}
}

// The storage of the tests panics when it is asked for an object, and refuses lists at a version.
func TestNoReadReachesTheStorage(t *testing.T) {
	f := serve(t)
	f.pods.set(t, pod("a", "n1"))
	f.settle(t)
	for _, path := range []string{
		"/api/v1/namespaces/default/pods/a", "/api/v1/namespaces/default/pods/a?resourceVersion=0",
		"/api/v1/namespaces/default/pods/a?resourceVersion=101",
		"/api/v1/pods", "/api/v1/pods?resourceVersion=0", "/api/v1/pods?limit=1", "/api/v1/pods?resourceVersion=101&limit=1",
		"/api/v1/pods?resourceVersion=101&resourceVersionMatch=NotOlderThan",
		"/api/v1/pods?resourceVersion=101&resourceVersionMatch=Exact",
		"/api/v1/namespaces/default/pods?fieldSelector=metadata.name%3Da",
		"/api/v1/pods?watch=true&timeoutSeconds=1",
	} {
		if body := f.get(t, path, http.StatusOK); !strings.Contains(body, `"name":"a"`) {
			t.Errorf("%s: %s", path, body)
		}
	}
	f.get(t, "/api/v1/namespaces/default/pods/b", http.StatusNotFound)
	f.get(t, "/api/v1/pods?resourceVersion=1&resourceVersionMatch=Exact", http.StatusGone)
	f.get(t, "/api/v1/pods?limit=1&continue=nonsense", http.StatusBadRequest)
	f.get(t, "/api/v1/namespaces/default/pods/..", http.StatusBadRequest)
	f.get(t, "/api/v1/namespaces/default/pods/%2e%2e%2fa", http.StatusNotFound)
	if n := f.pods.read(); n != 1 {
		t.Errorf("the storage was read %d times, want once", n)
	}
}

func TestAListByTheIndexedFieldReadsOnlyTheObjectsWithThatValue(t *testing.T) {
	const fetched = `apiserver_cache_list_fetched_objects_total{group="example.com",index="f:spec.color",resource="widgets"} `
	f := serve(t)
	for i := range 20 {
		f.widgets.set(t, widget(fmt.Sprint("w", i), fmt.Sprint("color", i/2), 1))
	}
	before := metric(t, f, fetched)
	list, err := f.dynamic(t).Resource(widgetResource).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.color=color3,spec.size=1"})
	if err != nil || names(list) != "w6 w7" {
		t.Fatalf("got %v, %v", list, err)
	}
	if n := metric(t, f, fetched) - before; n != 2 {
		t.Errorf("%d objects were read, want 2", n)
	}
}

// metric returns the value of the metric whose line begins so, or 0.
func metric(t testing.TB, f *fixture, line string) int {
	t.Helper()
	_, after, found := strings.Cut(f.get(t, "/metrics", http.StatusOK), line)
	if !found {
		return 0
	}
	value, _, _ := strings.Cut(after, "\n")
	n, err := strconv.Atoi(value)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTheWatchCacheWakesWatchersByTheIndexedField(t *testing.T) {
	fields, err := newFields([]string{"spec.nodeName"})
	if err != nil {
		t.Fatal(err)
	}
	var config cacher.Config
	index(&config, fields[0])
	if value := config.IndexerFuncs["spec.nodeName"](pod("a", "n1")); value != "n1" {
		t.Errorf("the value is %q, want n1", value)
	}
}
