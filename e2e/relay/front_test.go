package relay_test

import (
	"errors"
	"net/http"
	"sync"

	"k8s.io/client-go/rest"

	fronts "github.com/customcacheinformer/informer/e2e/internal/front"
)

// front is a proxy before the API server, or before a relay.
type front struct {
	*fronts.Gateway
	late sync.RWMutex // while it is locked, watches bring nothing
}

func (w *world) newFront(to *rest.Config) *front {
	w.Helper()
	f := &front{}
	f.Gateway = fronts.NewGateway("leases", func(pass http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") == "" {
				pass.ServeHTTP(w, r)
				return
			}
			s := &slow{ResponseWriter: w, front: f}
			defer func() { // a server that ends a watch has not broken the connection of its client
				v := recover()
				if err, _ := v.(error); v != nil && (!s.begun || !errors.Is(err, http.ErrAbortHandler)) {
					panic(v)
				}
			}()
			pass.ServeHTTP(s, r)
		})
	})
	w.Cleanup(f.Close)
	w.OK(f.To(to))
	return f
}

// asked returns the requests for objects after the first n.
func (f *front) asked(n int) []string { return f.Asked("", n) }

// slow is the answer to a watch, late if the front is.
type slow struct {
	http.ResponseWriter
	front *front
	begun bool
}

func (s *slow) WriteHeader(code int) {
	s.begun = true
	s.ResponseWriter.WriteHeader(code)
}

func (s *slow) Write(p []byte) (int, error) {
	s.front.late.RLock()
	defer s.front.late.RUnlock()
	return s.ResponseWriter.Write(p)
}

func (s *slow) Unwrap() http.ResponseWriter { return s.ResponseWriter }
