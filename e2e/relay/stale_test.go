package relay_test

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/relay"
)

func TestARelayIsNotReadyWhileTheAPIServerIsSilent(t *testing.T) {
	w := newWorld(t)
	w.create(10)
	h := w.history()
	network, err := apiserver.NewProxy(w.front.config())
	w.ok(err)
	t.Cleanup(network.Close)
	// The changes keep the relay fresh. A bookmark comes only once a minute.
	stop := w.write(rand.New(rand.NewPCG(5, 6)), 10, 100*time.Millisecond)
	r := w.relay(network.Config(), "", func(o *relay.Options) { o.MaxStaleness = 4 * time.Second })
	all := w.fleet(3, r.config)
	all.await(w) // the change may be in the first state
	all.await(w) // this one comes with a watch
	before := time.Now()

	network.Silence()
	const name = "leases.v1.coordination.k8s.io"
	w.await("the relay stays ready", func() bool {
		err := r.Ready()
		return err != nil && strings.Contains(err.Error(), name+": the API server has been silent for")
	})
	t.Logf("after %v: %v", time.Since(before).Round(time.Millisecond), r.Ready())
	if code, body, _ := w.read(r.config, "/readyz"); code != http.StatusInternalServerError || !strings.Contains(body, "[-]upstream failed") {
		t.Errorf("/readyz answers %d %s", code, body)
	}
	if code, body, _ := w.read(r.config, "/readyz/upstream"); code != http.StatusInternalServerError || !strings.Contains(body, name) {
		t.Errorf("/readyz/upstream answers %d %s", code, body)
	}
	if code, body, _ := w.read(r.config, "/livez"); code != http.StatusOK {
		t.Errorf("/livez answers %d %s", code, body)
	}
	list, err := leasesOf(t, r.config).List(t.Context(), metav1.ListOptions{})
	w.ok(err)
	if len(list.Items) == 0 {
		t.Error("the relay lists nothing while the API server is silent")
	}

	network.Cut()
	w.await("the relay does not become ready again", func() bool { return r.Ready() == nil })
	stop()
	last := all.await(w)
	w.await("the history lacks the last change", func() bool { return h.newest() >= last })
	for i, n := range all {
		if err := h.check(n.record()); err != nil {
			t.Errorf("agent %d: %v", i, err)
		}
		if again := n.requests.since(before); len(again) > 0 {
			t.Errorf("agent %d made requests: %v", i, kinds(again))
		}
	}
}

func TestConsistentReadsAreRefusedIfTheRelayIsToldTo(t *testing.T) {
	w := newWorld(t)
	w.create(3)
	r := w.relay(w.front.config(), "", func(o *relay.Options) { o.RefuseConsistentReads = true })
	for _, test := range []struct {
		query string
		code  int
	}{
		{"", http.StatusBadRequest},
		{"?limit=1", http.StatusBadRequest},
		{"/l1", http.StatusBadRequest},
		{"?watch=true", http.StatusBadRequest},
		{"?resourceVersion=0", http.StatusOK},
		{"/l1?resourceVersion=0", http.StatusOK},
		{"?watch=true&resourceVersion=0&timeoutSeconds=1", http.StatusOK},
	} {
		code, body, _ := w.get(r.config, test.query)
		if code != test.code || code == http.StatusBadRequest && !strings.Contains(body, "cannot know the newest state") {
			t.Errorf("%q is answered with %d %s, want %d", test.query, code, body, test.code)
		}
	}
}

func TestAnInformerGoesOnAtARelayThatRefusesConsistentReads(t *testing.T) {
	w := newWorld(t)
	w.create(3)
	r := w.relay(w.front.config(), "", func(o *relay.Options) { o.RefuseConsistentReads = true })
	between := newFront(t, r.config)
	agent := w.agent(between.config(), "agent")
	has := func(name, value string) bool {
		lease, found, err := agent.Get(types.NamespacedName{Namespace: "default", Name: name})
		return err == nil && found && lease.Labels["changed"] == value
	}
	w.await("the informer does not begin", func() bool { return has("l1", "") })
	between.away.Store(true)
	between.cut()
	w.await("no request fails", func() bool { return agent.Health().SourceFailures > 0 })
	between.away.Store(false)
	w.ok(w.set(t.Context(), "l1", "meanwhile"))
	w.await("the informer does not go on", func() bool { return has("l1", "meanwhile") })
	t.Logf("the relay was asked for %v", between.asked(0))
}
