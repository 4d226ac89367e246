package relay_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer/e2e/internal/stage"
)

const leasesPath = "/apis/coordination.k8s.io/v1/namespaces/default/leases"

// connect returns a connection for requests that no client library would send.
func connect(ctx context.Context, config *rest.Config) (*tls.Conn, error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.CAData)
	dialer := &tls.Dialer{Config: &tls.Config{RootCAs: roots, NextProtos: []string{"http/1.1"}}}
	conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(config.Host, "https://"))
	if err != nil {
		return nil, err
	}
	return conn.(*tls.Conn), conn.SetDeadline(time.Now().Add(5 * stage.Patience)) // some are read last
}

type answer struct {
	code   int
	header http.Header
	body   string
}

// ask sends the text of a request over a connection of its own.
func ask(ctx context.Context, config *rest.Config, text string) (a answer, err error) {
	conn, err := connect(ctx, config)
	if err != nil {
		return a, err
	}
	defer func() { _ = conn.Close() }()
	// A server may refuse a request before it has read all of it. The answer can be read anyway.
	_, _ = io.WriteString(conn, text)
	method, _, _ := strings.Cut(text, " ")
	got, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		return a, err
	}
	defer func() { _ = got.Body.Close() }()
	body, err := io.ReadAll(got.Body)
	if got.StatusCode == http.StatusRequestHeaderFieldsTooLarge {
		err = nil // the server resets the connection when it has not read all
	}
	return answer{got.StatusCode, got.Header, string(body)}, err
}

func (w *world) send(config *rest.Config, text string) answer {
	w.Helper()
	a, err := ask(w.Context(), config, text)
	w.OK(err)
	return a
}

// get reads a path once.
func (w *world) get(config *rest.Config, path string) answer {
	w.Helper()
	return w.send(config, rawRequest("GET", path))
}

// leasesAt returns the path of all Leases of a version.
func leasesAt(version uint64) string { return fmt.Sprint(leasesPath, "?resourceVersion=", version) }

// open opens a watch of all Leases that is not read yet, with its own connection.
func (w *world) open(config *rest.Config) *http.Response {
	w.Helper()
	conn, err := connect(w.Context(), config)
	w.OK(err)
	w.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, rawRequest("GET", leasesPath+"?watch=true&resourceVersion=0"))
	w.OK(err)
	a, err := http.ReadResponse(bufio.NewReader(conn), nil)
	w.OK(err)
	return a
}

func rawRequest(method, path string, more ...string) string {
	lines := append([]string{method + " " + path + " HTTP/1.1", "Host: relay", "Connection: close"}, more...)
	return strings.Join(lines, "\r\n") + "\r\n\r\n"
}
