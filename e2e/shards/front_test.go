package shards_test

import (
	"fmt"
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

// front stands before the API servers, as a load balancer does: each request goes to the next server.
// It keeps its address, and its certificate, when the servers restart.
type front struct {
	*httptest.Server
	backends atomic.Pointer[[]*httputil.ReverseProxy]
	turn     atomic.Uint64

	mu       sync.Mutex     // protects the rest
	selected map[string]int // the requests with a shard selector, by their kind
}

func newFront() *front {
	f := &front{selected: map[string]int{}}
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.note(r)
		backends := *f.backends.Load()
		backends[f.turn.Add(1)%uint64(len(backends))].ServeHTTP(w, r)
	}))
	f.EnableHTTP2 = true
	f.Config.ErrorLog = log.New(io.Discard, "", 0)
	f.StartTLS()
	return f
}

func (f *front) note(r *http.Request) {
	query := r.URL.Query()
	if !query.Has("shardSelector") {
		return
	}
	kind := "LIST"
	parts := strings.Split(r.URL.Path, "/")
	switch {
	case r.Method != http.MethodGet || !slices.Contains([]string{"widgets", "gadgets"}, parts[len(parts)-1]):
		kind = fmt.Sprint(r.Method, " ", r.URL.Path)
	case query.Get("watch") != "":
		kind = "WATCH"
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.selected[kind]++
}

// judge fails the test if a selector was sent with another request than LIST or WATCH, and if none was
// sent although there should have been.
func (f *front) judge(t *testing.T, wanted bool) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	t.Logf("requests with a shard selector: %v", f.selected)
	for kind := range f.selected {
		if kind != "LIST" && kind != "WATCH" {
			t.Errorf("a shard selector was sent with %s", kind)
		}
	}
	if wanted != (f.selected["WATCH"] > 0) {
		t.Errorf("divided: %v, but %d watches had a shard selector", wanted, f.selected["WATCH"])
	}
}

// config returns the configuration for clients of the front.
func (f *front) config() *rest.Config {
	return address{Host: f.URL, CA: fronts.Certificate(f.Server)}.config()
}

// lead directs requests to the servers with the given configurations.
func (f *front) lead(configs ...*rest.Config) error {
	var backends []*httputil.ReverseProxy
	for _, config := range configs {
		proxy, err := fronts.ProxyTo(config)
		if err != nil {
			return err
		}
		proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {
			panic(http.ErrAbortHandler) // breaks the connection, as happens without the front
		}
		backends = append(backends, proxy)
	}
	f.backends.Store(&backends)
	return nil
}
