package chaos_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	fronts "github.com/customcacheinformer/informer/e2e/internal/front"
)

// front is a server between the informers and the API server. A plan can make it answer requests itself, or change
// the server's answers.
type front struct {
	*fronts.Gateway
	plan atomic.Pointer[plan] // nil for none

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
	f.Gateway = fronts.NewGateway("", func(pass http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if p := f.plan.Load(); p != nil && p.answer != nil && p.answer(w, requestOf(r)) {
				return
			}
			pass.ServeHTTP(w, r)
		})
	})
	f.Change(f.modify)
	return f
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
