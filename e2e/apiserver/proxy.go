package apiserver

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"

	"k8s.io/client-go/rest"
)

// Proxy forwards TCP connections to a Server and breaks them on demand, to put
// clients through network failures that do not disturb other clients of the
// same server. Its methods may be called concurrently, except Close.
type Proxy struct {
	address string
	backend string
	config  *rest.Config

	mu   sync.Mutex
	gate *gate // nil while connections are refused

	accepting  sync.WaitGroup
	forwarding sync.WaitGroup
}

// Proxy starts a proxy in front of the server, on a port of its own at
// 127.0.0.1. The caller must close it, before or after stopping the server.
func (s *Server) Proxy() (*Proxy, error) {
	listener, err := listenOnFixedPort()
	if err != nil {
		return nil, fmt.Errorf("starting proxy: %w", err)
	}
	p := &Proxy{address: listener.Addr().String(), backend: s.address, config: s.Config()}
	p.config.Host = "https://" + p.address
	p.serve(listener)
	return p, nil
}

// listenOnFixedPort listens on a port below those that systems hand out by
// themselves, so that nobody else gets it while connections are refused.
func listenOnFixedPort() (listener net.Listener, err error) {
	const first, last = 20000, 30000
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(last-first))
		if listener, err = net.Listen("tcp", address); err == nil {
			return listener, nil
		}
	}
	return nil, err
}

// Config returns a new client configuration like Server.Config that connects
// through the proxy.
func (p *Proxy) Config() *rest.Config {
	return rest.CopyConfig(p.config)
}

// Cut resets all connections that are open through the proxy. New ones are
// accepted as before.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gate != nil {
		p.gate.cut()
	}
}

// Refuse resets all open connections as Cut does and has new ones refused
// until Allow.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gate == nil {
		return
	}
	p.gate.refuse()
	_ = p.gate.Close()
	p.gate.cut()
	p.gate = nil
	// The port is open as long as somebody accepts from it.
	p.accepting.Wait()
}

// Allow ends Refuse. It fails if another process has taken the port meanwhile.
func (p *Proxy) Allow() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gate != nil {
		return nil
	}
	listener, err := net.Listen("tcp", p.address)
	if err != nil {
		return fmt.Errorf("reopening proxy: %w", err)
	}
	p.serve(listener)
	return nil
}

// Close resets all connections and returns when nothing of the proxy is open
// or running any more. The proxy is of no use afterwards, but Close may be
// called again.
func (p *Proxy) Close() {
	p.Refuse()
	p.forwarding.Wait()
}

func (p *Proxy) serve(listener net.Listener) {
	gate := newGate(listener)
	p.gate = gate
	p.accepting.Go(func() {
		for {
			client, err := gate.Accept()
			if err != nil {
				return
			}
			p.forwarding.Go(func() { p.forward(client) })
		}
	})
}

func (p *Proxy) forward(client net.Conn) {
	server, err := net.Dial("tcp", p.backend)
	if err != nil {
		_ = client.Close()
		return
	}
	var upstream sync.WaitGroup
	upstream.Go(func() { pipe(server, client) })
	pipe(client, server)
	upstream.Wait()
}

// pipe copies until either connection is done. It then closes both, which ends
// the pipe in the other direction too.
func pipe(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
}
