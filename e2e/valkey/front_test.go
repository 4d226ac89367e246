package valkey_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/rest"

	fronts "github.com/customcacheinformer/informer/e2e/internal/front"
)

// front stands before the API server, and keeps its address when the API server changes. It notes who asks
// for objects, and how.
type front struct {
	*httptest.Server
	backend atomic.Pointer[httputil.ReverseProxy]
	away    atomic.Bool

	watches  atomic.Int64 // that are open
	mu       sync.Mutex
	requests []request
}

type request struct{ who, kind string }

func (w *world) newFront(to *rest.Config) *front {
	w.Helper()
	f := &front{}
	w.ok(f.to(to))
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(f.serve))
	f.Config.ErrorLog = log.New(io.Discard, "", 0)
	f.StartTLS()
	w.Cleanup(func() {
		f.CloseClientConnections() // a watch would not end by itself
		f.Close()
	})
	return f
}

// to has the front send requests to another server from now on.
func (f *front) to(config *rest.Config) error {
	proxy, err := fronts.ProxyTo(config)
	if err == nil {
		f.backend.Store(proxy)
	}
	return err
}

func (f *front) serve(w http.ResponseWriter, r *http.Request) {
	if f.away.Load() {
		http.Error(w, "away", http.StatusServiceUnavailable)
		return
	}
	if strings.HasSuffix(r.URL.Path, "/widgets") {
		f.mu.Lock()
		f.requests = append(f.requests, request{r.UserAgent(), fronts.KindOf(r.URL.Query())})
		f.mu.Unlock()
		if r.URL.Query().Get("watch") != "" {
			f.watches.Add(1)
			defer f.watches.Add(-1)
		}
	}
	f.backend.Load().ServeHTTP(w, r)
}

// cut breaks all connections, and refuses requests until back.
func (f *front) cut() {
	f.away.Store(true)
	f.CloseClientConnections()
}

func (f *front) back() { f.away.Store(false) }

// asked returns the kinds of the requests of a process.
func (f *front) asked(who string) (kinds []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.requests {
		if r.who == who {
			kinds = append(kinds, r.kind)
		}
	}
	return kinds
}

// all returns the number of all requests.
func (f *front) all() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.requests)
}

// wantATakeover fails the test unless a process has asked for one object and then for one watch.
func (w *world) wantATakeover(who string) {
	w.Helper()
	if asked := w.front.asked(who); !slices.Equal(asked, []string{"probe", "watch"}) {
		w.Errorf("%s has asked the API server for %q, want one object and a watch", who, asked)
	}
}
