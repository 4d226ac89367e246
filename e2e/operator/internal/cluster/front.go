package cluster

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/e2e/internal/front"
)

// Front forwards the requests of one operator to the API server and counts them. It can call a
// function before each request. It translates protobuf to JSON, so that the operator needs the
// same settings as in a cluster.
type Front struct {
	// Kubeconfig is the file with which the operator finds the Front.
	Kubeconfig string

	before func(*http.Request)
	server http.Server
	ended  sync.WaitGroup // for the goroutine that accepts connections

	mu    sync.Mutex // protects calls
	calls Calls
}

// Front starts a Front. Unless before is nil, the Front calls it with each request before it
// forwards the request; the calls come from several goroutines. The caller must close the
// Front.
func (c *Cluster) Front(before func(*http.Request)) (*Front, error) {
	proxy, err := front.ProxyTo(c.Config())
	if err != nil {
		return nil, err
	}
	f := &Front{before: before, calls: Calls{}}
	proxy.ModifyResponse = f.count
	// This happens when the operator or the API server is gone.
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	f.server.Handler = f.handler(proxy)
	f.server.ErrorLog = log.New(io.Discard, "", 0)
	if err := f.start(c.Config()); err != nil {
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

func (f *Front) start(config *rest.Config) error {
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	f.server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := f.writeKubeconfig("https://"+listener.Addr().String(), certificate, config.BearerToken); err != nil {
		_ = listener.Close()
		return err
	}
	f.ended.Go(func() { _ = f.server.ServeTLS(listener, "", "") })
	return nil
}

func (f *Front) writeKubeconfig(server string, ca []byte, token string) error {
	dir, err := os.MkdirTemp("", "operator-")
	if err != nil {
		return err
	}
	f.Kubeconfig = filepath.Join(dir, "kubeconfig")
	config := &rest.Config{Host: server, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	return apiserver.WriteKubeconfig(config, f.Kubeconfig)
}

// Close ends all requests and removes the kubeconfig.
func (f *Front) Close() {
	_ = f.server.Close()
	f.ended.Wait()
	if f.Kubeconfig != "" {
		_ = os.RemoveAll(filepath.Dir(f.Kubeconfig))
	}
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
