package relay_test

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"sync"
	"syscall"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// mover is the transport of an agent that moves from server to server.
type mover struct {
	servers []place

	mu  sync.Mutex
	at  int      // the server that is used now; nowhere, if it is not one of servers
	end []func() // end what is open
}

type place struct {
	host string
	http.RoundTripper
}

const nowhere = -1

// mover returns a transport to the first of some servers.
func (w *world) mover(configs ...*rest.Config) *mover {
	w.Helper()
	m := &mover{}
	for _, config := range configs {
		at, err := url.Parse(config.Host)
		w.OK(err)
		transport, err := rest.TransportFor(config)
		w.OK(err)
		m.servers = append(m.servers, place{at.Host, transport})
		w.Cleanup(func() { utilnet.CloseIdleConnectionsFor(transport) })
	}
	return m
}

// move ends the open watch, and has later requests go to another server.
func (m *mover) move(to int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, end := range m.end {
		end()
	}
	m.at, m.end = to, nil
}

func (m *mover) RoundTrip(r *http.Request) (*http.Response, error) {
	m.mu.Lock()
	if m.at == nowhere {
		m.mu.Unlock()
		return nil, syscall.ECONNREFUSED
	}
	to := m.servers[m.at]
	moved, end := context.WithCancel(r.Context())
	m.end = append(m.end, end)
	m.mu.Unlock()
	r = r.Clone(moved)
	r.URL.Host, r.Host = to.host, to.host
	answer, err := to.RoundTrip(r)
	if err == nil {
		answer.Body = &endable{answer.Body, moved}
	}
	return answer, err
}

// endable is the body of an answer that ends, as if the server had ended it.
type endable struct {
	io.ReadCloser
	moved context.Context
}

func (e *endable) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	if err != nil && e.moved.Err() != nil {
		err = io.EOF
	}
	return n, err
}
