package chaos_test

import (
	"bufio"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/rest"

	fronts "github.com/customcacheinformer/informer/e2e/internal/front"
)

// front stands between the informers and the API server. It keeps its address when the server
// restarts. A plan can make it answer requests itself, or change the server's answers.
type front struct {
	*httptest.Server
	backend atomic.Pointer[backend]
	plan    atomic.Pointer[plan] // nil for none

	mu      sync.Mutex // protects the rest
	streams map[*stream]struct{}
}

// plan decides how requests go wrong. Its functions may be called at any time.
type plan struct {
	answer func(http.ResponseWriter, request) bool // reports whether it has answered the request; nil if it never does
	change func(*http.Response, request)           // may replace the body of a successful answer; nil if it never does
}

// request is a request of an informer.
type request struct {
	*http.Request
	watch     bool
	streaming bool // a watch that begins with the initial state
	next      bool // a page of a list after the first
}

func requestOf(r *http.Request) request {
	query := r.URL.Query()
	watch := query.Get("watch") != ""
	return request{r, watch, watch && query.Get("sendInitialEvents") == "true", query.Get("continue") != ""}
}

func newFront() *front {
	f := &front{streams: map[*stream]struct{}{}}
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(f.serve))
	f.EnableHTTP2 = true
	f.Config.ErrorLog = log.New(io.Discard, "", 0)
	f.StartTLS()
	return f
}

func (f *front) config() *rest.Config {
	certificate := fronts.Certificate(f.Server)
	return &rest.Config{Host: f.URL, TLSClientConfig: rest.TLSClientConfig{CAData: certificate}, QPS: -1}
}

// backend is one API server, from its start to its stop.
type backend struct {
	httputil.ReverseProxy
	transport http.RoundTripper
}

// lead directs requests to the server with the given configuration.
func (f *front) lead(config *rest.Config) error {
	target, err := url.Parse(config.Host)
	if err != nil {
		return err
	}
	config = rest.CopyConfig(config)
	config.DisableCompression = true // plans read the answers
	transport, err := rest.TransportFor(config)
	if err != nil {
		return err
	}
	b := &backend{transport: transport}
	b.ReverseProxy = httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Accept-Encoding")
		},
		FlushInterval:  -1,
		ErrorLog:       log.New(io.Discard, "", 0),
		ModifyResponse: f.modify,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			panic(http.ErrAbortHandler) // breaks the connection, as happens without the front
		},
	}
	f.backend.Store(b)
	return nil
}

func (f *front) serve(w http.ResponseWriter, r *http.Request) {
	if p := f.plan.Load(); p != nil && p.answer != nil && p.answer(w, requestOf(r)) {
		return
	}
	f.backend.Load().ServeHTTP(w, r)
}

func (f *front) modify(resp *http.Response) error {
	if resp.StatusCode != http.StatusOK {
		return nil
	}
	r := requestOf(resp.Request)
	if r.watch {
		s := &stream{front: f, ReadCloser: resp.Body}
		resp.Body = s
		f.mu.Lock()
		f.streams[s] = struct{}{}
		f.mu.Unlock()
	}
	if p := f.plan.Load(); p != nil && p.change != nil {
		p.change(resp, r)
	}
	return nil
}

// end ends all open watches, as the server does after some minutes.
func (f *front) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.streams {
		s.ended.Store(true)
		_ = s.ReadCloser.Close()
	}
}

// stream is the body of a watch.
type stream struct {
	front *front
	io.ReadCloser
	ended atomic.Bool

	// edit changes the body line by line. Each line is one event if the body is JSON.
	edit  func(line []byte) ([]byte, error) // an error ends the body, after the returned bytes; nil for no changes
	lines *bufio.Reader
	rest  []byte // to be read first
	err   error  // to be returned after rest
}

func (s *stream) Read(p []byte) (int, error) {
	for len(s.rest) == 0 && s.err == nil && s.edit != nil {
		s.rest, s.err = s.lines.ReadBytes('\n')
		if len(s.rest) > 0 && s.err == nil {
			s.rest, s.err = s.edit(s.rest)
		}
	}
	if len(s.rest) > 0 {
		n := copy(p, s.rest)
		s.rest = s.rest[n:]
		return n, nil
	}
	n, err := 0, s.err
	if err == nil {
		n, err = s.ReadCloser.Read(p)
	}
	if err != nil && s.ended.Load() {
		err = io.EOF
	}
	return n, err
}

func (s *stream) Close() error {
	s.front.mu.Lock()
	delete(s.front.streams, s)
	s.front.mu.Unlock()
	return s.ReadCloser.Close()
}

// editing makes a watch send begin first, and then its events as edit returns them.
func editing(resp *http.Response, begin []byte, edit func([]byte) ([]byte, error)) {
	s := resp.Body.(*stream)
	s.rest, s.edit, s.lines = begin, edit, bufio.NewReader(s.ReadCloser)
}

func isJSON(resp *http.Response) bool {
	return strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json")
}

// replace makes an answer consist of body, followed by err.
func replace(resp *http.Response, body []byte, err error) {
	_ = resp.Body.Close()
	resp.ContentLength = -1
	resp.Header.Del("Content-Length")
	resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(string(body)), failing{err}))
}

// failing is a reader that always fails.
type failing struct{ error }

func (f failing) Read([]byte) (int, error) { return 0, f.error }
