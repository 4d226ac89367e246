package relay

import (
	"context"
	"errors"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/customcacheinformer/informer/relay/internal/serving"
)

// stateless is a storage that never has a state. A server of it has discovery.
type stateless struct{ storage.Interface }

func (stateless) Versioner() storage.Versioner                        { return storage.APIObjectVersioner{} }
func (stateless) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }
func (stateless) CompactRevision() int64                              { return 0 }
func (stateless) GetList(context.Context, string, storage.ListOptions, runtime.Object) error {
	return errors.New("no state")
}
func (stateless) Watch(ctx context.Context, _ string, _ storage.ListOptions) (watch.Interface, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func upstreamOf(t *testing.T, resources ...serving.Resource) *rest.Config {
	t.Helper()
	config := serving.Config{Generic: serving.NewGenericConfig(), Resources: resources}
	config.Generic.ExternalAddress = "upstream.example:443"
	config.Generic.LoopbackClientConfig = &rest.Config{}
	for i := range resources {
		resources[i].Storage = stateless{}
	}
	server, err := serving.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	listener := httptest.NewServer(server.Handler())
	t.Cleanup(listener.Close)
	return &rest.Config{Host: listener.URL}
}

func TestDiscoverFindsResourcesByTheirNames(t *testing.T) {
	group := schema.GroupVersion{Group: "example.com", Version: "v1"}
	older := schema.GroupVersion{Group: "example.com", Version: "v1beta1"}
	upstream := upstreamOf(t,
		serving.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods"), Kind: "Pod", ShortNames: []string{"po"}, Namespaced: true},
		serving.Resource{GroupVersionResource: group.WithResource("pods"), Kind: "Pod", Namespaced: true},
		serving.Resource{GroupVersionResource: group.WithResource("widgets"), Kind: "Widget", Singular: "thing"},
		serving.Resource{GroupVersionResource: older.WithResource("widgets"), Kind: "Widget"},
	)
	found, err := Discover(upstream, "pods", "widgets.example.com", "widgets.v1beta1.example.com")
	if err != nil {
		t.Fatal(err)
	}
	pods := Resource{
		GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods"), Kind: "Pod", Singular: "pod", ShortNames: []string{"po"},
		Namespaced: true,
	}
	if pods.SetKubernetesFields(); len(pods.Fields) == 0 || pods.Index != "spec.nodeName" {
		t.Fatalf("the fields of Pods are %v, the index is %q", pods.Fields, pods.Index)
	}
	want := []Resource{
		pods,
		{GroupVersionResource: group.WithResource("widgets"), Kind: "Widget", Singular: "thing"},
		{GroupVersionResource: older.WithResource("widgets"), Kind: "Widget", Singular: "widget"},
	}
	if !reflect.DeepEqual(found, want) {
		t.Errorf("got  %+v\nwant %+v", found, want)
	}
	if _, err := Discover(upstream, "pods", "gadgets.example.com"); err == nil || !strings.Contains(err.Error(), `"gadgets.example.com"`) {
		t.Errorf("got %v, want an error that names the resource", err)
	}
}

func TestDiscoverRefusesAResourceThatCannotBeWatched(t *testing.T) {
	version := metav1.GroupVersionForDiscovery{GroupVersion: "example.com/v1", Version: "v1"}
	groups := []*restmapper.APIGroupResources{{
		Group: metav1.APIGroup{Name: "example.com", Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version},
		VersionedResources: map[string][]metav1.APIResource{"v1": {
			{Name: "reviews", Kind: "Review", Verbs: metav1.Verbs{"create"}},
			{Name: "reports", Kind: "Report", Verbs: metav1.Verbs{"get", "list"}},
		}},
	}}
	for name, verb := range map[string]string{"reviews.example.com": "get", "reports.example.com": "watch"} {
		if _, err := discover(groups, name); err == nil || !strings.Contains(err.Error(), "no verb "+verb) {
			t.Errorf("%s: got %v, want that %s is missing", name, err, verb)
		}
	}
}
