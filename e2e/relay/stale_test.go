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
	network, err := apiserver.NewProxy(w.front.Config())
	w.OK(err)
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
	w.Await("the relay stays ready", func() bool {
		err := r.Ready()
		return err != nil && strings.Contains(err.Error(), name+": the API server has been silent for")
	})
	t.Logf("after %v: %v", time.Since(before).Round(time.Millisecond), r.Ready())
	for path, want := range map[string]answer{
		"/readyz":          {code: http.StatusInternalServerError, body: "[-]upstream failed"},
		"/readyz/upstream": {code: http.StatusInternalServerError, body: name},
		"/livez":           {code: http.StatusOK},
	} {
		if a := w.get(r.config, path); a.code != want.code || !strings.Contains(a.body, want.body) {
			t.Errorf("%s answers %v", path, a)
		}
	}
	list, err := leasesOf(t, r.config).List(t.Context(), metav1.ListOptions{})
	w.OK(err)
	if len(list.Items) == 0 {
		t.Error("the relay lists nothing while the API server is silent")
	}

	network.Cut()
	w.Await("the relay does not become ready again", func() bool { return r.Ready() == nil })
	stop()
	all.check(w, h)
	all.wantQuiet(w, before)
}

func TestConsistentReadsAreRefusedIfTheRelayIsSetTo(t *testing.T) {
	w := newWorld(t)
	w.create(3)
	r := w.relay(w.front.Config(), "", func(o *relay.Options) { o.RefuseConsistentReads = true })
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
		a := w.get(r.config, leasesPath+test.query)
		if a.code != test.code || a.code == http.StatusBadRequest && !strings.Contains(a.body, "cannot know the newest state") {
			t.Errorf("%q is answered with %v, want %d", test.query, a, test.code)
		}
	}
}

func TestAnInformerContinuesAtARelayThatRefusesConsistentReads(t *testing.T) {
	w := newWorld(t)
	w.create(3)
	r := w.relay(w.front.Config(), "", func(o *relay.Options) { o.RefuseConsistentReads = true })
	between := w.newFront(r.config)
	agent := w.agent(between.Config(), "agent")
	has := func(name, value string) bool {
		lease, found, err := agent.Get(types.NamespacedName{Namespace: "default", Name: name})
		return err == nil && found && lease.Labels["changed"] == value
	}
	w.Await("the informer does not begin", func() bool { return has("l1", "") })
	between.Leave()
	w.Await("no request fails", func() bool { return agent.Health().SourceFailures > 0 })
	between.Away.Store(false)
	w.OK(w.set(t.Context(), "l1", "meanwhile"))
	w.Await("the informer does not go on", func() bool { return has("l1", "meanwhile") })
	t.Logf("the relay was asked for %v", between.asked(0))
}
