package relay_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer/e2e/apiserver"
)

// chain starts two relays. The second reads from the first, which hears of each change late.
func (w *world) chain() (first, second *relayed) {
	w.Helper()
	slow, err := apiserver.NewProxy(w.front.config())
	w.ok(err)
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
	var last uint64
	for i := range moves {
		to := i % len(names)
		m.move(to)
		for range 1 + random.IntN(5) {
			w.ok(w.set(t.Context(), fmt.Sprint("l", 1+random.IntN(25)), fmt.Sprint(i)))
		}
		last = w.mark()
		w.await("the agent is not told the last change by the "+names[to], func() bool { return n.has(last) })
	}
	w.await("the history lacks the last change", func() bool { return h.newest() >= last })
	record := n.record()
	if len(record) != 1 {
		t.Errorf("the agent listed %d times, want once", len(record))
	}
	if err := h.check(record); err != nil {
		t.Error(err)
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

func TestAnAgentThatIsTooOldListsAtTheRelay(t *testing.T) {
	w := newWorld(t)
	w.create(20)
	h := w.history()
	// The agent begins at the API server, and is away when the relays begin.
	configs := []*rest.Config{w.server.Config()}
	m := w.mover(configs...)
	n := w.node(w.server.Config(), m)
	fleet{n}.await(w)
	m.move(nowhere)
	for i := range 20 {
		w.ok(w.set(t.Context(), fmt.Sprint("l", 10+i), "meanwhile"))
	}
	_, second := w.chain()
	before := len(w.front.asked(0))
	begun := time.Now()
	to := w.mover(second.config)
	m.mu.Lock()
	m.servers = to.servers
	m.mu.Unlock()
	m.move(0)
	last := fleet{n}.await(w)
	w.await("the history lacks the last change", func() bool { return h.newest() >= last })
	record := n.record()
	if len(record) != 2 {
		t.Errorf("the agent listed %d times, want twice", len(record))
	}
	if err := h.check(record); err != nil {
		t.Error(err)
	}
	t.Logf("requests of the agent at the relay: %v", kinds(n.requests.since(begun)))
	if asked := w.front.asked(before); len(asked) > 0 {
		t.Errorf("the API server was asked for %v, want nothing", asked)
	}
}

func TestARelayThatIsBehindIsNotReadAsIfItWereNot(t *testing.T) {
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
			code, body, header := w.get(r.config, "?resourceVersion="+strconv.FormatUint(test.version, 10))
			if code != test.code || !strings.Contains(body, test.says) || (code == http.StatusTooManyRequests) != (header.Get("Retry-After") != "") {
				t.Errorf("the %s relay answers %d %v %s, want %d", name, code, header, body, test.code)
			}
		}
	}
	t.Logf("the API server was asked for %v", w.front.asked(0))
	release()
	for _, r := range []*relayed{first, second} {
		w.await("the relay does not catch up", func() bool {
			code, _, _ := w.get(r.config, "?resourceVersion="+strconv.FormatUint(version, 10))
			return code == http.StatusOK
		})
	}
}

// get reads Leases once, without client-go's retries.
func (w *world) get(config *rest.Config, query string) (int, string, http.Header) {
	w.Helper()
	return w.read(config, "/apis/coordination.k8s.io/v1/namespaces/default/leases"+query)
}

// read reads a path once.
func (w *world) read(config *rest.Config, path string) (int, string, http.Header) {
	w.Helper()
	client, err := rest.HTTPClientFor(config)
	w.ok(err)
	answer, err := client.Get(config.Host + path)
	w.ok(err)
	body, err := io.ReadAll(answer.Body)
	w.ok(err)
	w.ok(answer.Body.Close())
	return answer.StatusCode, string(body), answer.Header
}
