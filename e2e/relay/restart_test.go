package relay_test

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// fleetSize is how many agents a relay has when it is killed. A thousand take both processors of a small
// machine for some minutes: make relay-fleet.
var fleetSize = flag.Int("relay-agents", 300, "how many agents the relay has that is killed and upgraded")

func TestAFleetMissesNothingWhileItsRelayIsKilledAndUpgraded(t *testing.T) {
	agents := *fleetSize
	if testing.Short() {
		agents = 50
	}
	asked := restartRelay(t, agents, t.TempDir())
	if again := asked[1:]; slices.ContainsFunc(again, readsAll) {
		t.Errorf("after the first start, the API server was asked for %v, want only probes and watches", again)
	}
}

func TestARelayWithoutAStoreListsWhenItIsRestarted(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 20 s: make soak")
	}
	asked := restartRelay(t, 20, "")
	if again := asked[1:]; !slices.ContainsFunc(again, readsAll) {
		t.Errorf("after the first start, the API server was asked for %v, want the state again", again)
	}
}

// readsAll reports whether a request asks for the whole state.
func readsAll(asked string) bool { return asked == "stream" || asked == "list" }

// restartRelay kills a relay, and stops and starts it, while objects change. It checks all that the
// agents get, and returns the requests of the relay.
func restartRelay(t *testing.T, agents int, dir string) []string {
	const objects = 50
	w := newWorld(t)
	w.create(objects)
	h := w.history()
	r := w.separate(dir)
	all := w.fleet(agents, r.config)
	all.await(w)
	stop := w.write(rand.New(rand.NewPCG(1, 2)), objects, 200*time.Millisecond)
	for _, by := range []struct {
		name string
		end  func()
	}{{"SIGKILL", r.kill}, {"SIGTERM", r.terminate}} {
		begun, before := time.Now(), len(w.front.asked(0))
		by.end()
		ended := time.Since(begun).Round(time.Millisecond)
		r.start()
		ready := time.Since(begun).Round(time.Millisecond)
		all.await(w)
		t.Logf("%s: ended after %v, ready again after %v, upstream was asked for %v", by.name, ended, ready, w.front.asked(before))
		t.Logf("%s: %s", by.name, all.returned(begun))
	}
	stop()
	lists := all.check(w, h)
	t.Logf("%d changes, each checked at %d agents, which listed %d times after their start", len(h.changes), agents, lists-agents)
	return w.front.asked(0)
}

// The agents are at two relays behind one address. One relay stops. Its agents go on at the other, from their versions.
func TestAgentsOfARelayThatStopsListNowhere(t *testing.T) {
	w := newWorld(t)
	w.create(20)
	one, two := w.relay(w.front.Config(), "", nil), w.relay(w.front.Config(), "", nil)
	service := w.newFront(one.config)
	all := w.fleet(20, service.Config())
	all.await(w)
	stop := w.write(rand.New(rand.NewPCG(1, 2)), 20, 20*time.Millisecond)
	before, asked := time.Now(), len(service.asked(0))
	w.OK(service.To(two.config))
	one.stop()
	stop()
	all.await(w)
	if again := service.asked(asked); slices.ContainsFunc(again, readsAll) || len(again) < len(all) {
		t.Errorf("the agents asked for %v, want only watches", again)
	}
	t.Log(all.returned(before))
}
