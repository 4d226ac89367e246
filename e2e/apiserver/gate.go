package apiserver

import (
	"net"
	"sync"
)

// gate is a listener that can refuse new connections and reset the connections that it has
// accepted.
type gate struct {
	net.Listener

	mu      sync.Mutex
	conns   map[*gateConn]struct{}
	refuses bool
}

func newGate(listener net.Listener) *gate {
	return &gate{Listener: listener, conns: map[*gateConn]struct{}{}}
}

// Accept waits for the next connection that is not refused.
func (g *gate) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := g.admit(conn); c != nil {
			return c, nil
		}
		reset(conn)
	}
}

// admit registers the connection. It returns nil if connections are refused.
func (g *gate) admit(conn net.Conn) net.Conn {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refuses {
		return nil
	}
	c := &gateConn{Conn: conn, gate: g}
	g.conns[c] = struct{}{}
	return c
}

// refuse makes the gate reset every further connection as soon as it is accepted. The listener
// stays open.
func (g *gate) refuse() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refuses = true
}

// cut resets all open connections.
func (g *gate) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.conns {
		reset(c.Conn)
	}
	clear(g.conns)
}

// gateConn is a connection that removes itself from its gate when it is closed.
type gateConn struct {
	net.Conn
	gate *gate
}

func (c *gateConn) Close() error {
	c.gate.mu.Lock()
	delete(c.gate.conns, c)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}

// reset closes the connection so that the peer sees a broken connection, not a normal end.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
