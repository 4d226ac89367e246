package serving

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// patience limits every wait. It is long because machines may be busy.
const patience = 5 * time.Minute

var (
	podResource    = corev1.SchemeGroupVersion.WithResource("pods")
	widgetResource = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	gadgetResource = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gadgets"}
)

// fixture is a server of Pods, which are a Go type, and of Widgets and Gadgets, which are not.
// Gadgets are not namespaced.
type fixture struct {
	*Server
	pods, widgets, gadgets *memory
	url                    string
}

// serve starts a server of the fixture's storages. The functions change its configuration.
func serve(t testing.TB, change ...func(*Config)) *fixture {
	t.Helper()
	f := &fixture{pods: newMemory(100), widgets: newMemory(200), gadgets: newMemory(300)}
	config := f.config()
	for _, c := range change {
		c(&config)
	}
	server, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	f.Server = server
	listener := httptest.NewServer(server.Handler())
	t.Cleanup(listener.Close)
	f.url = listener.URL
	f.waitUntilReady(t)
	return f
}

func (f *fixture) config() Config {
	generic := NewGenericConfig()
	generic.ExternalAddress = "relay.example:443"
	generic.LoopbackClientConfig = &rest.Config{}
	fields, index := WellKnownFields(podResource.GroupResource())
	return Config{Generic: generic, Resources: []Resource{
		{
			GroupVersionResource: podResource, Kind: "Pod", ShortNames: []string{"po"}, Namespaced: true,
			Fields: fields, Index: index, Storage: f.pods,
		},
		{
			GroupVersionResource: widgetResource, Kind: "Widget", Singular: "thing", ShortNames: []string{"wd"}, Namespaced: true,
			Fields: []string{"spec.color", "spec.size"}, Index: "spec.color", Storage: f.widgets,
		},
		{GroupVersionResource: gadgetResource, Kind: "Gadget", Storage: f.gadgets},
	}}
}

// waitUntilReady polls in real time, because the watch cache has no signal.
func (f *fixture) waitUntilReady(t testing.TB) {
	t.Helper()
	for name := range f.endpoints {
		for end := time.Now().Add(patience); f.HasState(name) != nil; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(name, f.HasState(name))
			}
		}
	}
}

func (f *fixture) client(t testing.TB) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: f.url, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/vnd.kubernetes.protobuf"}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (f *fixture) dynamic(t testing.TB) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(&rest.Config{Host: f.url, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// request makes a request, and returns the code of the answer, its Content-Type and its body.
func (f *fixture) request(t testing.TB, method, path, accept string) (code int, contentType, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, f.url+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	all, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header.Get("Content-Type"), string(all)
}

// get fails the test if the path is not answered with code.
func (f *fixture) get(t testing.TB, path string, code int) string {
	t.Helper()
	got, _, body := f.request(t, http.MethodGet, path, "")
	if got != code {
		t.Fatalf("GET %s: got %d, want %d: %s", path, got, code, body)
	}
	return body
}

func pod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"app": name[:1]}},
		Spec:       corev1.PodSpec{NodeName: node},
	}
}

func widget(name, color string, size int64) *unstructured.Unstructured {
	return custom("Widget", map[string]any{"name": name, "namespace": "default"}, map[string]any{"color": color, "size": size})
}

func gadget(name string) *unstructured.Unstructured {
	return custom("Gadget", map[string]any{"name": name}, map[string]any{})
}

func custom(kind string, metadata, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": kind, "metadata": metadata, "spec": spec,
	}}
}

func podNames(list *corev1.PodList) string {
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return strings.Join(names, " ")
}

func names(list *unstructured.UnstructuredList) string {
	var all []string
	for i := range list.Items {
		all = append(all, list.Items[i].GetName())
	}
	return strings.Join(all, " ")
}
