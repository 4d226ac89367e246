package e2e_test

import (
	"context"
	"flag"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/informertest"
)

var firstListObjects = flag.Int("first-list-objects", 6000, "how many objects there are in TestADisturbedFirstList")

// TestADisturbedFirstList cuts the connection in the middle of a first list, and compacts the
// history of the server, while the objects are taken in as they arrive. Until the list is complete,
// no delete may be delivered, and the store must have no bookmark.
func TestADisturbedFirstList(t *testing.T) {
	if testing.Short() {
		t.Skip("with few objects, the list is complete before it can be disturbed")
	}
	w := newWarmWorld(t, informer.WatchListAuto)
	w.createMany(*firstListObjects)
	round := 0
	for name, mode := range map[string]informer.WatchListMode{"pages": informer.WatchListOff, "stream": informer.WatchListOn} {
		t.Run(name, func(t *testing.T) {
			w.t, w.mode = t, mode
			for _, disturb := range []func(ctx context.Context, p *apiserver.Proxy) error{
				func(context.Context, *apiserver.Proxy) error { return nil },
				func(_ context.Context, p *apiserver.Proxy) error { p.Cut(); return nil },
				func(ctx context.Context, _ *apiserver.Proxy) error { return w.server.Expire(ctx, w.gvr) },
				func(ctx context.Context, p *apiserver.Proxy) error { p.Cut(); return w.server.Expire(ctx, w.gvr) },
			} {
				w.store = informertest.NewDurable()
				w.disturbed(round, disturb)
				round++
			}
		})
	}
}

// createMany creates objects from several goroutines.
func (w *warmWorld) createMany(objects int) {
	var next atomic.Int64
	var writers errgroup.Group
	for range 16 {
		writers.Go(func() error {
			for n := int(next.Add(1) - 1); n < objects; n = int(next.Add(1) - 1) {
				if _, err := w.writer.Create(w.t.Context(), (&world{gvk: w.gvk}).widget(name(n), n), metav1.CreateOptions{}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	w.do(writers.Wait())
}

// disturbed runs an informer over an empty store. In the middle of its first list, objects change
// and the list is disturbed.
func (w *warmWorld) disturbed(round int, disturb func(context.Context, *apiserver.Proxy) error) {
	w.t.Helper()
	proxy, err := w.server.Proxy()
	w.do(err)
	defer proxy.Close()
	config := proxy.Config()
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		w.asked.RoundTripper = rt
		return &w.asked
	})
	middle, goOn := make(chan struct{}), make(chan struct{})
	applied := 0
	w.store.Fail(func(op, _ string) error { // one goroutine calls it
		if op == "apply" {
			if applied++; applied == 2 {
				close(middle)
				<-goOn
			}
		}
		return nil
	})
	l := w.prepare(w.client(config).Namespace(namespace))
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		if err := l.inf.Run(ctx); err != nil {
			w.t.Error(err)
		}
	})
	<-middle
	released := sync.OnceFunc(func() { close(goOn) })
	defer released()
	w.remove(10*round + 1)
	w.update(10*round+2, 1000+round)
	w.remove(10*round + 3)
	w.create(10*round + 3)
	w.do(disturb(ctx, proxy))
	if l.inf.HasSynced() {
		w.t.Error("the list was not disturbed in the middle")
	}
	if bookmark, err := w.store.Resume(ctx); bookmark != "" || err != nil {
		w.t.Errorf("the bookmark in the middle of the list is %q (%v)", bookmark, err)
	}
	if n := len(l.deleted()); n > 0 {
		w.t.Errorf("%d deletes were delivered in the middle of the list", n)
	}
	released()
	<-l.inf.Synced()
	l.converge()
	w.t.Logf("requests: %s", w.asked.take())
}
