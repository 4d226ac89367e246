package cluster

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/e2e/internal/front"
)

// Front forwards the requests of one operator to the API server and counts them. It can call a
// function before each request. It translates protobuf to JSON, so that the operator needs the
// same settings as in a cluster.
type Front struct {
	*front.Gateway
	// Kubeconfig is the file with which the operator finds the Front.
	Kubeconfig string

	before func(*http.Request)
	mu     sync.Mutex // protects calls
	calls  Calls
}

// Front starts a Front. Unless before is nil, the Front calls it with each request before it
// forwards the request; the calls come from several goroutines. The caller must close the
// Front.
func (c *Cluster) Front(before func(*http.Request)) (*Front, error) {
	dir, err := os.MkdirTemp("", "operator-")
	if err != nil {
		return nil, err
	}
	f := &Front{Kubeconfig: filepath.Join(dir, "kubeconfig"), before: before, calls: Calls{}}
	f.Gateway = front.NewGateway("", f.handler)
	f.Change(f.count)
	config := f.Config()
	config.BearerToken = c.Config().BearerToken
	if err := errors.Join(f.To(c.Config()), apiserver.WriteKubeconfig(config, f.Kubeconfig)); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (f *Front) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.before != nil {
			f.before(r)
		}
		if err := translate(r); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if r.Method != http.MethodGet {
			// A write that has arrived here is made even if the operator dies in the meantime.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), time.Minute)
			defer cancel()
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}

// Close ends all requests and removes the kubeconfig.
func (f *Front) Close() {
	f.Gateway.Close()
	_ = os.RemoveAll(filepath.Dir(f.Kubeconfig))
}

// Calls returns the counts of the requests that have been answered so far.
func (f *Front) Calls() Calls {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.calls)
}

func (f *Front) count(r *http.Response) error {
	verb, resource, _ := RequestOf(r.Request)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[Call{verb, resource, r.StatusCode}]++
	return nil
}
