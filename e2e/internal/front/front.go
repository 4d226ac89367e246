// Package front has what the servers share that stand between a client and an API server.
package front

import (
	"encoding/pem"
	"io"
	"log"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"

	"k8s.io/client-go/rest"
)

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
