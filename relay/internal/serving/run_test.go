package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

// running is a server with a listener and TLS.
type running struct {
	*fixture
	client *http.Client
	config *rest.Config
	stop   func() error
}

// run starts a fixture that serves TLS. It stops with the test, if not before.
func run(t testing.TB, change func(*Config)) *running {
	t.Helper()
	f := &fixture{pods: newMemory(100), widgets: newMemory(200), gadgets: newMemory(300)}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	serving, err := dynamiccertificates.NewStaticCertKeyContent("serving", certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	config := f.config()
	config.Generic.SecureServing = &genericapiserver.SecureServingInfo{Listener: listener, Cert: serving}
	change(&config)
	if f.Server, err = New(config); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	r := &running{
		fixture: f,
		client:  &http.Client{Transport: transport},
		config:  &rest.Config{Host: "https://" + listener.Addr().String(), TLSClientConfig: rest.TLSClientConfig{Insecure: true}},
	}
	r.url = r.config.Host
	stopped := false
	r.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		transport.CloseIdleConnections()
		cancel()
		return <-done
	}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *running) get(t testing.TB, path string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := r.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// becomes polls in real time, because the server starts its checks in the background.
func (r *running) becomes(t testing.TB, path string, code int) string {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		got, body := r.get(t, path)
		if got == code {
			return body
		}
		if time.Now().After(end) {
			t.Fatalf("%s: got %d, want %d: %s", path, got, code, body)
		}
	}
}

func TestARunningServerTellsItsHealth(t *testing.T) {
	stale := make(chan struct{})
	r := run(t, func(c *Config) {
		c.Generic.AddReadyzChecks(healthz.NamedCheck("upstream", func(*http.Request) error {
			select {
			case <-stale:
				return errors.New("silent")
			default:
				return nil
			}
		}))
	})
	r.becomes(t, "/healthz", http.StatusOK)
	r.becomes(t, "/livez", http.StatusOK)
	body := r.becomes(t, "/readyz?verbose=true", http.StatusOK)
	if !strings.Contains(body, "[+]upstream ok") {
		t.Error(body)
	}
	close(stale)
	r.becomes(t, "/readyz", http.StatusInternalServerError)
	r.becomes(t, "/livez", http.StatusOK)
	for path, contains := range map[string]string{
		"/metrics": `apiserver_watch_cache_resource_version{group="",resource="pods"}`, "/version": `"gitVersion"`, "/": "/apis/example.com",
	} {
		if code, body := r.get(t, path); code != http.StatusOK || !strings.Contains(body, contains) {
			t.Errorf("%s: got %d %s", path, code, body)
		}
	}
	for _, path := range []string{"/debug/pprof/", "/apis/other.example/v1/things", "/openapi/v2", "/api/v1/secrets"} {
		if code, body := r.get(t, path); code != http.StatusNotFound {
			t.Errorf("%s: got %d %s, want 404", path, code, body)
		}
	}
}

func TestAServerThatStopsEndsItsWatches(t *testing.T) {
	r := run(t, func(*Config) {})
	r.waitUntilReady(t)
	client, err := kubernetes.NewForConfig(r.config)
	if err != nil {
		t.Fatal(err)
	}
	w, err := client.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "100"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	r.pods.set(t, pod("a", "n1"))
	expect(t, w, "ADDED a 101")
	stopped := make(chan error, 1)
	go func() { stopped <- r.stop() }()
	expect(t, w, "end")
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// A storage that never answers must not keep the server from stopping.
func TestAServerWithoutAStateTellsClientsToComeBackAndStops(t *testing.T) {
	f := &fixture{pods: newMemory(1), widgets: newMemory(1), gadgets: newMemory(1)}
	config := f.config()
	silent := &silentStorage{memory: newMemory(1), asked: make(chan struct{})}
	config.Resources[0].Storage = silent
	server, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	<-silent.asked
	if server.HasState(config.Resources[0].GroupVersionResource) == nil {
		t.Error("there is a state")
	}
	listener := httptest.NewServer(server.Handler())
	defer listener.Close()
	f.url = listener.URL
	for _, path := range []string{podPath, podPath + "/a", podPath + "?limit=1", podPath + "?watch=true"} {
		f.get(t, path, http.StatusTooManyRequests)
	}
	server.Close()
}

// Unknown knows only the group and the name of a resource, and another version of a served one may be unknown.
func TestAServedResourceIsNotUnknown(t *testing.T) {
	f := serve(t, func(c *Config) {
		c.Unknown = func(schema.GroupResource) error { return apierrors.NewServiceUnavailable("not found yet") }
	})
	f.get(t, podPath, http.StatusOK)
	f.get(t, "/api/v2/namespaces/default/pods", http.StatusServiceUnavailable)
}
