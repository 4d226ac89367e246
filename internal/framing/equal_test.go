package framing_test

import (
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer/internal/framing"
)

// TestClientsGetTheSame compares clients with a tap and without the transport, over real connections.
func TestClientsGetTheSame(t *testing.T) {
	const n = 20
	for _, http2 := range []bool{false, true} {
		for _, packed := range []bool{false, true} {
			t.Run(fmt.Sprintf("http2=%t/gzip=%t", http2, packed), func(t *testing.T) {
				server, config := serve(t, http2, packed)
				without := newClients(rest.CopyConfig(config))
				config.Wrap(framing.Transport)
				with := newClients(config)
				for i, c := range with {
					for _, sorted := range []bool{false, true} {
						server.answer(c, c.listBody(n, sorted))
						want, _ := without[i].get(t.Context(), false, false)
						got, tap := c.get(t.Context(), false, true)
						compare(t, want, got, tap)
						if tap.Count() != n || len(got.items) != n || !tap.Used() || tap.Misfit() || tap.Why() != "" {
							t.Errorf("%s, sorted=%t: %d objects tapped, %q", c.name, sorted, tap.Count(), tap.Why())
						}
					}
					server.answer(c, c.watchBody(n))
					want, _ := without[i].get(t.Context(), true, false)
					got, tap := c.get(t.Context(), true, true)
					compare(t, want, got, tap)
					if tap.Count() != n || len(got.events) != n+n/4+1 {
						t.Errorf("%s: %d of %d events tapped", c.name, tap.Count(), len(got.events))
					}
				}
			})
		}
	}
}

// A server sends the same answer to each request.
type server struct {
	media, body atomic.Value
}

func (s *server) answer(c client, body []byte) {
	s.media.Store(mediaJSON)
	if c.binary {
		s.media.Store(mediaProtobuf)
	}
	s.body.Store(body)
}

func serve(t *testing.T, http2, packed bool) (*server, *rest.Config) {
	s := &server{}
	h := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 != http2 {
			t.Errorf("a request over %s", r.Proto)
		}
		w.Header().Set("Content-Type", s.media.Load().(string))
		var to io.Writer = w
		if packed {
			if r.Header.Get("Accept-Encoding") != "gzip" {
				t.Errorf("Accept-Encoding: %v", r.Header["Accept-Encoding"])
			}
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			defer func() { _ = z.Close() }()
			to = z
		}
		_, _ = to.Write(s.body.Load().([]byte))
	}))
	config := &rest.Config{}
	if http2 {
		h.EnableHTTP2 = true
		h.StartTLS()
		config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
	} else {
		h.Start()
	}
	config.Host = h.URL
	t.Cleanup(h.Close)
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	return s, config
}

// TestCuts cuts bodies anywhere, with an error and without one, and reads them in pieces.
func TestCuts(t *testing.T) {
	cut := errors.New("cut")
	for _, c := range inMemory {
		t.Run(c.name, func(t *testing.T) {
			bodies := [][]byte{c.listBody(5, false), c.listBody(5, true), c.watchBody(5)}
			for i, body := range bodies {
				live := i == 2
				for n := 0; n <= len(body); n++ {
					if n > 400 {
						n = min(n+12, len(body))
					}
					_, tap := c.both(t, live, func() io.Reader {
						read := readers[n%len(readers)]
						if n%3 == 0 {
							return read(bytes.NewReader(body[:n]))
						}
						return read(io.MultiReader(bytes.NewReader(body[:n]), iotest.ErrReader(cut)))
					})
					if t.Failed() || n == len(body) && tap.Count() != 5 {
						t.Fatalf("body %d cut after %d bytes: %d objects tapped", i, n, tap.Count())
					}
				}
			}
		})
	}
}

// readers read all at once, a byte at a time, in growing pieces, and with the end in the last piece.
var readers = []func(io.Reader) io.Reader{
	func(r io.Reader) io.Reader { return r },
	iotest.OneByteReader,
	func(r io.Reader) io.Reader { return &pieces{from: r, sizes: []int{1, 2, 3, 5, 8, 13, 21, 34, 55, 89}} },
	iotest.DataErrReader,
}

// pieces reads pieces of these sizes, in turn.
type pieces struct {
	from  io.Reader
	sizes []int
}

func (p *pieces) Read(to []byte) (int, error) {
	n := min(p.sizes[0], len(to))
	p.sizes = append(slices.Clone(p.sizes[1:]), p.sizes[0])
	return p.from.Read(to[:n])
}
