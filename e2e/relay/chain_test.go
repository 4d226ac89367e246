package relay_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/customcacheinformer/informer/e2e/apiserver"
)

// chain starts two relays. The second reads from the first, which hears of each change late.
func (w *world) chain() (first, second *relayed) {
	w.Helper()
	slow, err := apiserver.NewProxy(w.front.Config())
	w.OK(err)
	w.Cleanup(slow.Close)
	first = w.relay(slow.Config(), "", nil)
	second = w.relay(first.config, "", nil)
	slow.Slow(200*time.Millisecond, 0)
	return first, second
}

func TestAnAgentThatMovesBetweenServersNeverGoesBack(t *testing.T) {
	w := newWorld(t)
	w.create(20)
	h := w.history()
	first, second := w.chain()
	names := []string{"second relay", "first relay", "API server"}
	m := w.mover(second.config, first.config, w.server.Config())
	n := w.node(second.config, m)
	fleet{n}.await(w)
	random := rand.New(rand.NewPCG(3, 4))
	moves := 24
	if testing.Short() {
		moves = 9
	}
	for i := range moves {
		to := i % len(names)
		m.move(to)
		for range 1 + random.IntN(5) {
			w.OK(w.set(t.Context(), fmt.Sprint("l", 1+random.IntN(25)), fmt.Sprint(i)))
		}
		last := w.mark()
		w.Await("the agent has not got the last change from the "+names[to], func() bool { return n.has(last) })
	}
	if lists := (fleet{n}).check(w, h); lists != 1 {
		t.Errorf("the agent listed %d times, want once", lists)
	}
	t.Logf("%d moves, %d changes, requests of the agent: %v", moves, len(h.changes), kinds(n.requests.since(time.Time{})))
	asked := w.front.asked(0)
	if slices.ContainsFunc(asked[1:], readsAll) {
		t.Errorf("the API server was asked for %v, want the state once", asked)
	}
}

func kinds(all []request) map[string]int {
	count := map[string]int{}
	for _, r := range all {
		count[fmt.Sprint(r.kind, " ", r.code)]++
	}
	return count
}

func TestAnAgentWithATooOldVersionListsAtTheRelay(t *testing.T) {
	w := newWorld(t)
	w.create(20)
	h := w.history()
	// The agent begins at the API server, and is away when the relays begin.
	m := w.mover(w.server.Config())
	n := w.node(w.server.Config(), m)
	fleet{n}.await(w)
	m.move(nowhere)
	for i := range 20 {
		w.OK(w.set(t.Context(), fmt.Sprint("l", 10+i), "meanwhile"))
	}
	_, second := w.chain()
	before := len(w.front.asked(0))
	begun := time.Now()
	to := w.mover(second.config)
	m.mu.Lock()
	m.servers = to.servers
	m.mu.Unlock()
	m.move(0)
	if lists := (fleet{n}).check(w, h); lists != 2 {
		t.Errorf("the agent listed %d times, want twice", lists)
	}
	t.Logf("requests of the agent at the relay: %v", kinds(n.requests.since(begun)))
	if asked := w.front.asked(before); len(asked) > 0 {
		t.Errorf("the API server was asked for %v, want nothing", asked)
	}
}

func TestALaggingRelayIsNotReadAsIfItWereCurrent(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute: make soak")
	}
	w := newWorld(t)
	w.create(5)
	first, second := w.chain()
	w.front.late.Lock()
	release := sync.OnceFunc(w.front.late.Unlock)
	defer release()
	version := w.mark()
	for name, r := range map[string]*relayed{"first": first, "second": second} {
		for _, test := range []struct {
			version uint64
			code    int
			says    string
		}{
			{version, http.StatusTooManyRequests, "the relay is behind version"},
			{version + 1_000_000, http.StatusGone, "does not have version"},
		} {
			a := w.get(r.config, leasesAt(test.version))
			if a.code != test.code || !strings.Contains(a.body, test.says) || (a.code == http.StatusTooManyRequests) != (a.header.Get("Retry-After") != "") {
				t.Errorf("the %s relay answers %v, want %d", name, a, test.code)
			}
		}
	}
	t.Logf("the API server was asked for %v", w.front.asked(0))
	release()
	for _, r := range []*relayed{first, second} {
		w.Await("the relay does not catch up", func() bool { return w.get(r.config, leasesAt(version)).code == http.StatusOK })
	}
}
