package shards_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer/e2e/internal/process"
	"github.com/customcacheinformer/informer/e2e/internal/stage"
)

// A world has one API server that selects by shards, in the test's process, and may have another one
// next to it that does not.

// serving is which API servers answer.
type serving string

const (
	served  serving = "served"  // the one that selects
	ignored serving = "ignored" // the one that does not
	either  serving = "either"  // both, in turn
)

// startBeside starts the other API server, and waits until it serves the resources.
func (w *world) startBeside() {
	w.Helper()
	var err error
	w.beside, w.other, err = process.StartServer(context.Background(), "apiserver", w.server.Storage())
	w.OK(err)
	client, err := dynamic.NewForConfig(w.other)
	w.OK(err)
	w.awaitResources(client)
}

// stopBeside stops the other API server, if there is one.
func (w *world) stopBeside() {
	if w.beside != nil {
		w.OK(w.beside.End())
	}
	w.beside = nil
}

// awaitResources waits until an API server serves the resources.
func (w *world) awaitResources(client dynamic.Interface) {
	w.Helper()
	w.AwaitServed(client, w.common.Widgets, w.common.Gadgets, leaseKind.GroupVersion().WithResource("leases"))
}

// serveBy has these API servers answer from now on. All connections break.
func (w *world) serveBy(by serving) {
	w.Helper()
	w.note("the selector is %s from now on", by)
	w.by = by
	if by != served && w.beside == nil {
		w.startBeside()
	}
	w.lead()
	w.front.CloseClientConnections()
}

// lead has the front lead to the servers that answer.
func (w *world) lead() {
	w.Helper()
	var configs []*rest.Config
	if w.by != ignored {
		configs = append(configs, w.server.Config())
	}
	if w.by != served {
		configs = append(configs, w.other)
	}
	w.OK(w.front.To(configs...))
}

// TestTheAPIServerSelectsOrDoesNot has replicas that cache only their own objects read from an API server
// that selects them, from one that does not, and from both. Each replica shows which it is, and the rest is
// as always.
func TestTheAPIServerSelectsOrDoesNot(t *testing.T) {
	w := newWorld(t, 1)
	w.common.Divided = true
	order := []serving{served, ignored, either, served}
	if testing.Short() {
		order = order[:2]
	}
	for range 3 {
		w.start()
	}
	w.settle()
	for _, by := range order {
		w.serveBy(by)
		begun := time.Now()
		w.awaitAlive(fmt.Sprintf("Health does not show that the selector is %s", by), func() bool { return w.allShow(by) })
		shown := time.Since(begun)
		for come := by == served; come == (by == served); {
			if time.Since(begun) > stage.Patience {
				w.Fatalf("the selector is %s, and objects of other replicas come: %v", by, come)
			}
			from, ticked := w.foreign(), ticks.Load()
			w.awaitAlive("no writes", func() bool { return ticks.Load() > ticked+200 })
			come = w.foreign() > from // some may have been on their way
		}
		w.Logf("%s: shown after %v", by, shown.Round(time.Millisecond))
	}
	w.finish(false)
}

// allShow reports whether the Health of all replicas shows that the selector is served, or not.
func (w *world) allShow(by serving) bool {
	w.recorder.mu.Lock()
	defer w.recorder.mu.Unlock()
	for name := range w.replicas {
		if shown := w.recorder.health[name].Health.Selector; shown != string(by) && (by != either || shown == "") {
			return false
		}
	}
	return true
}

// foreign returns how many objects of other replicas the API server has sent to all.
func (w *world) foreign() (sum int) {
	w.recorder.mu.Lock()
	defer w.recorder.mu.Unlock()
	for name := range w.replicas {
		sum += w.recorder.health[name].Foreign
	}
	return sum
}
