package apiserver

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// Proxy forwards TCP connections to a Server and breaks them on demand. It puts clients
// through network failures without disturbing other clients of the same server. Its methods
// may be called concurrently, except Close.
type Proxy struct {
	address string
	backend string
	config  *rest.Config
	pace    atomic.Pointer[pace] // nil means full speed
	sent    atomic.Int64

	mu      sync.Mutex
	gate    *gate         // nil while connections are refused
	silence chan struct{} // closed to make the connections that are open now carry nothing any more

	accepting  sync.WaitGroup
	forwarding sync.WaitGroup
}

// Proxy starts a proxy in front of the server, on a port of its own at 127.0.0.1. The caller
// must close it, before or after stopping the server.
func (s *Server) Proxy() (*Proxy, error) {
	return NewProxy(s.Config())
}

// NewProxy starts a proxy in front of any server. config is a client configuration for that
// server; NewProxy copies it. Its Host must be of the form https://HOST:PORT.
func NewProxy(config *rest.Config) (*Proxy, error) {
	backend, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("starting proxy: %w", err)
	}
	listener, err := listenOnFixedPort()
	if err != nil {
		return nil, fmt.Errorf("starting proxy: %w", err)
	}
	p := &Proxy{
		address: listener.Addr().String(), backend: backend.Host, config: rest.CopyConfig(config),
		silence: make(chan struct{}),
	}
	p.config.Host = "https://" + p.address
	p.serve(listener)
	return p, nil
}

// listenOnFixedPort listens on a port below the range from which systems choose ports, so that
// no other process gets the port while connections are refused.
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

// Config returns a new client configuration like Server.Config, but one that connects through
// the proxy.
func (p *Proxy) Config() *rest.Config {
	return rest.CopyConfig(p.config)
}

// Cut resets all open connections through the proxy. New connections are accepted as before.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gate != nil {
		p.gate.cut()
	}
}

// Refuse resets all open connections, as Cut does, and makes the system refuse new ones until
// Allow.
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
	// The port stays open until the accepting goroutine has returned.
	p.accepting.Wait()
}

// Allow ends Refuse. It fails if another process has taken the port in the meantime.
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

// Silence makes all connections that are open now half-open: they stay open, but everything
// that either side sends is lost. New connections work as before.
func (p *Proxy) Silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.silence)
	p.silence = make(chan struct{})
}

// pace is the speed of a proxy.
type pace struct {
	latency time.Duration
	rate    int // bytes a second
}

// Slow delays each portion of up to 16 KiB, in either direction of each connection: by the
// latency, and by the time that its bytes take at rate bytes per second. Portions are delayed
// one after the other. Slow(0, 0) ends the delays.
func (p *Proxy) Slow(latency time.Duration, rate int) {
	if latency <= 0 && rate <= 0 {
		p.pace.Store(nil)
		return
	}
	p.pace.Store(&pace{latency, rate})
}

// Sent returns how many bytes the server has sent to clients through the proxy. They are encrypted, and
// lists may be compressed.
func (p *Proxy) Sent() int64 { return p.sent.Load() }

// Close resets all connections and returns when the proxy has no open connection and no
// running goroutine left. The proxy cannot be used afterwards, but Close may be called again.
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
	p.mu.Lock()
	silence := p.silence
	p.mu.Unlock()
	server, err := net.Dial("tcp", p.backend)
	if err != nil {
		_ = client.Close()
		return
	}
	var upstream sync.WaitGroup
	upstream.Go(func() { p.pipe(server, client, silence, nil) })
	p.pipe(client, server, silence, &p.sent)
	upstream.Wait()
}

// pipe copies until either connection is done. It then closes both, which also ends the pipe
// in the other direction. It adds the bytes to count, unless that is nil.
func (p *Proxy) pipe(to, from net.Conn, silence <-chan struct{}, count *atomic.Int64) {
	defer func() {
		_ = to.Close()
		_ = from.Close()
	}()
	portion := make([]byte, 16<<10)
	for {
		n, err := from.Read(portion)
		if count != nil {
			count.Add(int64(n))
		}
		p.pace.Load().wait(n)
		select {
		case <-silence:
		default:
			if _, failed := to.Write(portion[:n]); failed != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// wait sleeps for the latency and for the time that the given number of bytes takes.
func (p *pace) wait(bytes int) {
	if p == nil {
		return
	}
	if p.rate > 0 {
		time.Sleep(time.Duration(bytes) * time.Second / time.Duration(p.rate))
	}
	time.Sleep(p.latency)
}
