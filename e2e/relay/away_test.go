package relay_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/e2e/internal/stage"
)

func TestAgentsGoOnWhileTheAPIServerIsAway(t *testing.T) {
	for name, leave := range map[string]func(w *world, network *apiserver.Proxy) (back func()){
		"connections are refused": func(w *world, network *apiserver.Proxy) func() {
			network.Refuse()
			return func() { w.OK(network.Allow()) }
		},
		"a load balancer answers 503": func(w *world, network *apiserver.Proxy) func() {
			w.front.Away.Store(true)
			network.Cut()
			return func() { w.front.Away.Store(false) }
		},
	} {
		t.Run(name, func(t *testing.T) { testAway(t, leave) })
	}
}

// The API server is away for 20 s, in place of ten minutes: the relay is the same after any
// time for which the API server keeps the changes.
func testAway(t *testing.T, leave func(*world, *apiserver.Proxy) (back func())) {
	away := 20 * time.Second
	if testing.Short() {
		away = 5 * time.Second
	}
	w := newWorld(t)
	w.create(20)
	h := w.history()
	network, err := apiserver.NewProxy(w.front.Config())
	w.OK(err)
	t.Cleanup(network.Close)
	r := w.relay(network.Config(), t.TempDir(), nil)
	all := w.fleet(10, r.config)
	all.await(w)
	before := time.Now()

	back := leave(w, network)
	for i := range 20 {
		w.OK(w.set(t.Context(), fmt.Sprint("l", 5+i), "meanwhile"))
	}
	w.OK(w.leases.Delete(t.Context(), "l1", metav1.DeleteOptions{}))
	leases := leasesOf(t, r.config)
	for begun := time.Now(); time.Since(begun) < away; stage.Pass(t.Context(), time.Second) {
		list, err := leases.List(t.Context(), metav1.ListOptions{})
		w.OK(err)
		if len(list.Items) != 20 {
			t.Fatalf("the relay lists %d objects while the API server is away, want 20", len(list.Items))
		}
	}
	watch, err := leases.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	w.OK(err)
	for range 20 {
		if e := <-watch.ResultChan(); e.Type != "ADDED" {
			t.Fatalf("a new watch brings %v while the API server is away", e)
		}
	}
	back()
	all.check(w, h)
	watch.Stop()
	all.wantQuiet(w, before)
	asked := w.front.asked(0)
	t.Logf("the API server was asked for %v", asked)
	if slices.ContainsFunc(asked[1:], readsAll) {
		t.Errorf("the API server was asked for %v, want the state once", asked)
	}
}
