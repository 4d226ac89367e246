package relay_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/e2e/internal/process"
	"github.com/customcacheinformer/informer/relay"
)

// processVariable has the settings of a process that is a relay.
const processVariable = "RELAY_PROCESS"

type settings struct {
	Address          string // of the relay
	Certificate, Key []byte
	Upstream         string
	UpstreamCA       []byte
	Dir              string // of the disk store; "" for none
}

// serveProcess is a relay until SIGTERM.
func serveProcess(text string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() { // end with the test, however that ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	var s settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	resource, closeStore, err := leaseResource(s.Dir)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.Address)
	if err != nil {
		return err
	}
	upstream := &rest.Config{Host: s.Upstream, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: s.UpstreamCA}}
	opts := relay.Options{Upstream: upstream, Resources: []relay.Resource{resource}}
	if opts.Serving, err = servingOn(listener, s.Certificate, s.Key); err != nil {
		return err
	}
	r, err := relay.New(opts)
	if err != nil {
		return err
	}
	if err := r.Run(ctx); err != nil {
		return err
	}
	return closeStore()
}

// separate is a relay that is a process of its own. It comes back at the same address.
type separate struct {
	*world
	config  *rest.Config // of its clients
	text    string       // its settings
	process *process.Process
	in      io.WriteCloser // of the process, which ends when it is closed
}

// separate starts a relay in a process, and waits until it is ready.
func (w *world) separate(dir string) *separate {
	w.Helper()
	proxy, err := apiserver.NewProxy(w.front.config()) // for a port that no other process gets
	w.ok(err)
	address := strings.TrimPrefix(proxy.Config().Host, "https://")
	proxy.Close()
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	w.ok(err)
	upstream := w.front.config()
	text, err := json.Marshal(settings{address, certificate, key, upstream.Host, upstream.CAData, dir})
	w.ok(err)
	r := &separate{w, &rest.Config{
		Host: "https://" + address, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: certificate},
	}, string(text), nil, nil}
	w.Cleanup(func() { r.kill() })
	r.start()
	return r
}

// start starts the process, and waits until it is ready.
func (r *separate) start() {
	r.Helper()
	program, err := os.Executable()
	r.ok(err)
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), processVariable+"="+r.text, "GORACE=atexit_sleep_ms=0")
	r.in, err = cmd.StdinPipe()
	r.ok(err)
	r.process, err = process.Start(cmd)
	r.ok(err)
	client, err := rest.HTTPClientFor(r.config)
	r.ok(err)
	r.await("the process does not become ready", func() bool {
		select {
		case <-r.process.Ended():
			r.Fatalf("the relay has ended by itself:\n%s", r.process.Log)
		default:
		}
		answer, err := client.Get(r.config.Host + "/readyz")
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
}

// kill ends the process by SIGKILL.
func (r *separate) kill() {
	if r.process == nil {
		return
	}
	r.process.Kill()
	r.checkLog()
}

// terminate ends the process by SIGTERM.
func (r *separate) terminate() {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	r.ok(r.process.Stop(ctx))
	r.checkLog()
}

func (r *separate) checkLog() {
	if text := r.process.Log.String(); strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic:") || r.Failed() {
		r.Errorf("the relay says:\n%s", text[max(0, len(text)-5000):])
	}
}
