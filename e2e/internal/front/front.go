// Package front is shared by the servers between a client and an API server.
package front

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

// Front is a server in front of an API server, whose answers can become wrong at any time.
type Front struct {
	*httptest.Server
	answer atomic.Pointer[http.Handler]
}

// New starts a front. The caller must call Close when its clients are done.
func New(answer http.Handler) (*Front, error) {
	forged, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(forged, key)
	if err != nil {
		return nil, err
	}
	f := &Front{}
	f.answer.Store(&answer)
	f.Server = quiet(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*f.answer.Load()).ServeHTTP(w, r) }))
	f.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if *f.answer.Load() != nil {
			return nil, nil
		}
		return &tls.Config{Certificates: []tls.Certificate{pair}}, nil
	}}
	f.StartTLS()
	return f, nil
}

// quiet returns a server for HTTP/2 that logs nothing.
func quiet(answer http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(answer)
	s.EnableHTTP2, s.Config.ErrorLog = true, log.New(io.Discard, "", 0)
	return s
}

// Set changes the answers, and ends all connections. With nil, the front shows a certificate that its clients do not trust.
func (f *Front) Set(answer http.Handler) {
	f.answer.Store(&answer)
	f.CloseClientConnections()
}

// Config returns a client configuration for the front.
func (f *Front) Config() *rest.Config { return ConfigOf(f.Server) }

// ConfigOf returns a client configuration for a server.
func ConfigOf(s *httptest.Server) *rest.Config {
	return &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{CAData: Certificate(s)}, QPS: -1}
}

// Says returns a handler that has one answer.
func Says(code int, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	})
}

// Repeat makes a proxy send each update of a watch n times. The watch must be JSON.
func Repeat(proxy *httputil.ReverseProxy, n int) {
	proxy.ModifyResponse = func(resp *http.Response) error {
		if resp.Request.URL.Query().Get("watch") != "" {
			resp.Body = &repeated{ReadCloser: resp.Body, lines: bufio.NewReader(resp.Body), n: n}
		}
		return nil
	}
}

type repeated struct {
	io.ReadCloser
	lines *bufio.Reader
	rest  []byte
	n     int
}

func (r *repeated) Read(p []byte) (n int, err error) {
	if len(r.rest) == 0 {
		if r.rest, err = r.lines.ReadBytes('\n'); bytes.HasPrefix(r.rest, []byte(`{"type":"MODIFIED"`)) {
			r.rest = bytes.Repeat(r.rest, r.n)
		}
	}
	n = copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, err
}

// ProxyTo returns a proxy to the server of a client configuration.
func ProxyTo(config *rest.Config) (*httputil.ReverseProxy, error) {
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // a watch is passed on event by event
		ErrorLog:      log.New(io.Discard, "", 0),
	}, nil
}

// Certificate returns the certificate of a server, for its clients.
func Certificate(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// KindOf returns "list", "stream" (a watch that begins with the state), "watch" or "probe".
func KindOf(query url.Values) string {
	switch {
	case query.Get("watch") != "" && query.Get("sendInitialEvents") == "true":
		return "stream"
	case query.Get("watch") != "":
		return "watch"
	case query.Get("limit") == "1":
		return "probe"
	}
	return "list"
}
