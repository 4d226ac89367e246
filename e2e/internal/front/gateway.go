package front

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"path"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/rest"
)

// Gateway passes requests on to servers, to each in turn, as a load balancer does. It keeps its address and its
// certificate when the servers change.
type Gateway struct {
	*httptest.Server
	Away atomic.Bool // it answers everything with 503

	plural   string
	change   func(*http.Response) error
	backends atomic.Pointer[[]*httputil.ReverseProxy]
	turn     atomic.Uint64
	watches  atomic.Int64

	mu       sync.Mutex
	requests []request
}

// request is a request for objects: its user agent, and KindOf.
type request struct{ by, kind string }

// NewGateway starts a Gateway that notes the requests for resources with the given plural. wrap, which may be
// nil, returns what answers instead of the Gateway, and may leave requests to it. The caller must call Close.
func NewGateway(plural string, wrap func(pass http.Handler) http.Handler) *Gateway {
	g := &Gateway{plural: plural}
	var answer http.Handler = g
	if wrap != nil {
		answer = wrap(g)
	}
	g.Server = quiet(answer)
	g.StartTLS()
	return g
}

// Change sets a function that changes answers of the servers that To sets from now on. They are not compressed then.
func (g *Gateway) Change(change func(*http.Response) error) { g.change = change }

// Config returns a client configuration for the Gateway.
func (g *Gateway) Config() *rest.Config { return ConfigOf(g.Server) }

// To directs requests to the servers with the given configurations.
func (g *Gateway) To(configs ...*rest.Config) error {
	var backends []*httputil.ReverseProxy
	for _, config := range configs {
		proxy, err := ProxyTo(config)
		if err != nil {
			return err
		}
		proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {
			panic(http.ErrAbortHandler) // breaks the connection, as happens without the Gateway
		}
		if g.change != nil {
			direct := proxy.Rewrite
			proxy.Rewrite = func(r *httputil.ProxyRequest) {
				direct(r)
				r.Out.Header.Set("Accept-Encoding", "identity")
			}
			proxy.ModifyResponse = g.change
		}
		backends = append(backends, proxy)
	}
	g.backends.Store(&backends)
	return nil
}

// ServeHTTP passes a request on.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g.Away.Load() {
		http.Error(w, "away", http.StatusServiceUnavailable)
		return
	}
	if path.Base(r.URL.Path) == g.plural {
		kind := KindOf(r.URL.Query())
		g.mu.Lock()
		g.requests = append(g.requests, request{r.UserAgent(), kind})
		g.mu.Unlock()
		if kind == "watch" || kind == "stream" {
			g.watches.Add(1)
			defer g.watches.Add(-1)
		}
	}
	backends := *g.backends.Load()
	backends[g.turn.Add(1)%uint64(len(backends))].ServeHTTP(w, r)
}

// Leave breaks all connections, and makes the Gateway be away.
func (g *Gateway) Leave() {
	g.Away.Store(true)
	g.CloseClientConnections()
}

// Watches returns how many watches are open.
func (g *Gateway) Watches() int { return int(g.watches.Load()) }

// Asked returns the kinds of the requests after the first n, of those with a user agent if by is not "".
func (g *Gateway) Asked(by string, n int) (kinds []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.requests[n:] {
		if by == "" || r.by == by {
			kinds = append(kinds, r.kind)
		}
	}
	return kinds
}

// Close ends all requests, and then the Gateway.
func (g *Gateway) Close() {
	g.CloseClientConnections() // a watch would not end by itself
	g.Server.Close()
}
