package kubernetes_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
)

// wire counts the content types of answers.
type wire struct {
	mu    sync.Mutex // protects types
	types map[string]int
}

func (w *wire) wrap(rt http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		res, err := rt.RoundTrip(req)
		if err == nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.types[res.Header.Get("Content-Type")]++
		}
		return res, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// check fails the test unless all answers were protobuf.
func (w *wire) check(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.types) == 0 {
		t.Error("there were no answers")
	}
	for contentType := range w.types {
		if !strings.HasPrefix(contentType, "application/vnd.kubernetes.protobuf") {
			t.Errorf("an answer is %s", contentType)
		}
	}
}
