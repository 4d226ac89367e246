package server

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Proxy is an address that leads to a server, and can be cut off or led to another server.
type Proxy struct {
	t        testing.TB
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	target string // "" if cut off
	conns  map[net.Conn]bool
}

// NewProxy returns a Proxy to a server. The end of the test closes it.
func NewProxy(t testing.TB, to *Server) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{t: t, listener: l, target: to.Addr(), conns: map[net.Conn]bool{}}
	p.running.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.Cut()
		p.running.Wait()
	})
	return p
}

// Addr returns the address of the proxy.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Lead makes new connections lead to a server.
func (p *Proxy) Lead(to *Server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = to.Addr()
}

// Cut breaks all connections, and lets no new one through until Lead.
func (p *Proxy) Cut() {
	p.mu.Lock()
	p.target = ""
	p.mu.Unlock()
	p.Break()
}

// Break breaks all connections.
func (p *Proxy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		_ = conn.Close()
	}
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		target := p.target
		p.mu.Unlock()
		to, err := net.Dial("tcp", target)
		if err != nil || target == "" {
			_ = conn.Close()
			continue
		}
		p.running.Go(func() { p.pipe(conn, to) })
	}
}

func (p *Proxy) pipe(a, b net.Conn) {
	p.mu.Lock()
	p.conns[a], p.conns[b] = true, true
	p.mu.Unlock()
	var both sync.WaitGroup
	for from, to := range map[net.Conn]net.Conn{a: b, b: a} {
		both.Go(func() {
			_, _ = io.Copy(to, from) // it ends when one of them is closed
			_, _ = a.Close(), b.Close()
		})
	}
	both.Wait()
	p.mu.Lock()
	delete(p.conns, a)
	delete(p.conns, b)
	p.mu.Unlock()
}
