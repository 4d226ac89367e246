package relay_test

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	fronts "github.com/customcacheinformer/informer/e2e/internal/front"
)

// front stands before the API server, or before a relay. It keeps its address when the server behind
// it changes, counts the requests for objects, and can be silent.
type front struct {
	*httptest.Server
	backend atomic.Pointer[httputil.ReverseProxy]
	away    atomic.Bool
	sent    atomic.Int64 // bytes of answers
	late    sync.RWMutex // while it is locked, watches bring nothing

	mu       sync.Mutex
	requests []string
}

func newFront(t *testing.T, to *rest.Config) *front {
	t.Helper()
	f := &front{}
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(f.serve))
	f.EnableHTTP2 = true
	f.Config.ErrorLog = log.New(io.Discard, "", 0)
	f.StartTLS()
	t.Cleanup(f.Close)
	f.to(t, to)
	return f
}

// to has the front send requests to another server from now on.
func (f *front) to(t *testing.T, config *rest.Config) {
	t.Helper()
	proxy, err := fronts.ProxyTo(config)
	if err != nil {
		t.Fatal(err)
	}
	f.backend.Store(proxy)
}

// cut breaks all connections.
func (f *front) cut() { f.CloseClientConnections() }

func (f *front) serve(w http.ResponseWriter, r *http.Request) {
	if f.away.Load() {
		http.Error(w, "away", http.StatusServiceUnavailable)
		return
	}
	f.note(r)
	defer func() {
		v := recover()
		if err, _ := v.(error); v != nil && !errors.Is(err, http.ErrAbortHandler) {
			panic(v)
		}
	}()
	f.backend.Load().ServeHTTP(&counted{w, f, r.URL.Query().Get("watch") != ""}, r)
}

// note keeps a request for objects as text, such as "leases: list" or "leases: watch".
func (f *front) note(r *http.Request) {
	parts := strings.Split(r.URL.Path, "/")
	if !slices.Contains([]string{"leases", "pods", "widgets", "configmaps"}, parts[len(parts)-1]) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, parts[len(parts)-1]+": "+fronts.KindOf(r.URL.Query()))
}

// asked returns the requests for objects after the first n.
func (f *front) asked(n int) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.requests[n:])
}

func (f *front) config() *rest.Config {
	return &rest.Config{Host: f.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: fronts.Certificate(f.Server), NextProtos: []string{"h2"}}}
}

type counted struct {
	http.ResponseWriter
	front *front
	watch bool
}

func (c *counted) Write(p []byte) (int, error) {
	if c.watch {
		c.front.late.RLock()
		defer c.front.late.RUnlock()
	}
	n, err := c.ResponseWriter.Write(p)
	c.front.sent.Add(int64(n))
	return n, err
}

func (c *counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }
