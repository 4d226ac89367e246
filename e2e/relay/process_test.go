package relay_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/customcacheinformer/informer/e2e/apiserver"
	fronts "github.com/customcacheinformer/informer/e2e/internal/front"
	"github.com/customcacheinformer/informer/e2e/internal/process"
	"github.com/customcacheinformer/informer/e2e/internal/stage"
	"github.com/customcacheinformer/informer/relay"
)

// settings are those of a process that is a relay.
type settings struct {
	Address          string // of the relay
	Certificate, Key []byte
	Upstream         process.Address
	Dir              string // of the disk store; "" for none
}

// serveProcess is a relay until SIGTERM.
func serveProcess(s settings) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() { // end with the test, however that ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	resource, closeStore, err := leaseResource(s.Dir)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.Address)
	if err != nil {
		return err
	}
	opts := relay.Options{Upstream: s.Upstream.Config(), Resources: []relay.Resource{resource}}
	if opts.Serving, err = fronts.Serving(listener, s.Certificate, s.Key); err != nil {
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
	settings
	config  *rest.Config     // of its clients
	process *process.Process // ends with its input
}

// separate starts a relay in a process, and waits until it is ready.
func (w *world) separate(dir string) *separate {
	w.Helper()
	proxy, err := apiserver.NewProxy(w.front.Config()) // for a port that no other process gets
	w.OK(err)
	address := strings.TrimPrefix(proxy.Config().Host, "https://")
	proxy.Close()
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	w.OK(err)
	r := &separate{world: w, settings: settings{address, certificate, key, process.AddressOf(w.front.Config()), dir}}
	r.config = process.Address{Host: "https://" + address, CA: certificate}.Config()
	w.Cleanup(func() { r.kill() })
	r.start()
	return r
}

// start starts the process, and waits until it is ready.
func (r *separate) start() {
	r.Helper()
	var err error
	r.process, err = process.Self("relay", r.settings, nil)
	r.OK(err)
	client, err := rest.HTTPClientFor(r.config)
	r.OK(err)
	r.Await("the process does not become ready", func() bool {
		select {
		case <-r.process.Ended():
			r.Fatalf("the relay exited by itself:\n%s", r.process.Log)
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
	ctx, cancel := context.WithTimeout(r.Context(), stage.Patience)
	defer cancel()
	r.OK(r.process.Stop(ctx))
	r.checkLog()
}

func (r *separate) checkLog() {
	if err := r.process.Crashed(); err != nil {
		r.Error(err)
	} else if r.Failed() {
		r.Logf("the log of the relay:\n%s", r.process.Log)
	}
}
