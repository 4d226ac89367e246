package apiserver_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer/e2e/apiserver"
)

func TestProxyCut(t *testing.T) {
	t.Parallel()
	widgets := install(t)
	proxy := startProxy(t)
	client := widgets.client(t, proxy.Config())
	direct := widgets.client(t, server.Config())
	cut, other := startWatch(t, client, metav1.ListOptions{}), startWatch(t, direct, metav1.ListOptions{})

	proxy.Cut()

	waitEnd(t, cut)
	widgets.create(t, client, "a")
	if got := next(t, other); got.Type != watch.Added {
		t.Errorf("watch past the proxy: got %s, want ADDED", got.Type)
	}
}

func TestProxyRefuse(t *testing.T) {
	t.Parallel()
	widgets := install(t)
	proxy := startProxy(t)
	client := widgets.client(t, proxy.Config())
	w := startWatch(t, client, metav1.ListOptions{})

	for range 2 { // the second call must make no difference
		proxy.Refuse()
	}
	waitEnd(t, w)
	for range 3 {
		_, err := client.Create(t.Context(), widgets.object("a"), metav1.CreateOptions{})
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("create: got %v, want connection refused", err)
		}
	}

	for range 2 {
		if err := proxy.Allow(); err != nil {
			t.Fatal(err)
		}
	}
	w = startWatch(t, client, metav1.ListOptions{})
	widgets.create(t, client, "a")
	if got := next(t, w); got.Type != watch.Added {
		t.Errorf("after Allow: got %s, want ADDED", got.Type)
	}
}

func TestProxySilence(t *testing.T) {
	t.Parallel()
	widgets := install(t)
	proxy := startProxy(t)
	direct := widgets.client(t, server.Config())
	silent := startWatch(t, widgets.client(t, proxy.Config()), metav1.ListOptions{})

	proxy.Silence()

	// Clients with the same configuration would share a connection.
	config := proxy.Config()
	config.Dial = (&net.Dialer{}).DialContext
	w := startWatch(t, widgets.client(t, config), metav1.ListOptions{})
	widgets.create(t, direct, "a")
	if got := next(t, w); got.Type != watch.Added {
		t.Errorf("connection after Silence: got %s, want ADDED", got.Type)
	}
	select {
	case event, open := <-silent.ResultChan():
		t.Errorf("connection before Silence: got %v, open %v, want nothing", event, open)
	default:
	}
	proxy.Cut()
	waitEnd(t, silent)
}

func TestProxySlow(t *testing.T) {
	t.Parallel()
	widgets := install(t)
	proxy := startProxy(t)
	client := widgets.client(t, proxy.Config())
	widgets.create(t, client, "a")

	const latency = 200 * time.Millisecond
	proxy.Slow(latency, 1<<20)
	start := time.Now()
	widgets.create(t, client, "b")
	if took := time.Since(start); took < 2*latency { // the request and the response
		t.Errorf("create took %s, want %s at least", took, 2*latency)
	}
	proxy.Slow(0, 0)
	widgets.create(t, client, "c")
}

func TestProxyClose(t *testing.T) {
	t.Parallel()
	widgets := install(t)
	proxy := startProxy(t)
	client := widgets.client(t, proxy.Config())
	w := startWatch(t, client, metav1.ListOptions{})

	proxy.Close()
	proxy.Close()

	waitEnd(t, w)
	if _, err := client.Create(t.Context(), widgets.object("a"), metav1.CreateOptions{}); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("create: got %v, want connection refused", err)
	}
}

func TestStop(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	s, err := apiserver.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	widgets := widgets{kind: newGVK()}
	if widgets.resource, err = s.Install(t.Context(), apiserver.Kind{GroupVersionKind: widgets.kind}); err != nil {
		t.Fatal(err)
	}
	proxy, err := s.Proxy()
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	direct := startWatch(t, widgets.client(t, s.Config()), metav1.ListOptions{})
	proxied := startWatch(t, widgets.client(t, proxy.Config()), metav1.ListOptions{})

	start := time.Now()
	s.Stop()
	if took := time.Since(start); took > time.Minute {
		t.Errorf("Stop took %s with two watches open", took)
	}
	s.Stop()

	waitEnd(t, direct)
	waitEnd(t, proxied)
	host, err := url.Parse(s.Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", host.Host); err == nil {
		_ = conn.Close()
		t.Error("something listens after Stop")
	}
	wantEmpty(t, dir)
}

func TestStartCancelled(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := apiserver.Start(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	wantEmpty(t, dir)
}

func startProxy(t *testing.T) *apiserver.Proxy {
	t.Helper()
	proxy, err := server.Proxy()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return proxy
}

// waitEnd waits until the watch ends. The client may report the broken connection as an error
// event first.
func waitEnd(t *testing.T, w watch.Interface) {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case event, ok := <-w.ResultChan():
			if !ok {
				return
			}
			if event.Type != watch.Error {
				t.Errorf("got %s %v, want the end of the watch", event.Type, event.Object)
			}
		case <-timeout:
			t.Fatal("the watch has not ended")
		}
	}
}

func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) > 0 {
		t.Errorf("left behind: %v", files)
	}
}
