package e2e_test

import (
	"errors"
	"flag"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/e2e/apiserver"
	fronts "github.com/customcacheinformer/informer/e2e/internal/front"
	"github.com/customcacheinformer/informer/informertest"
)

var clusterEvents = flag.Int("cluster-events", 600, "how many events of a healthy cluster are timed with each fault of others, and as many without, in turns of 500; a tenth with -short")

// faulty is a cluster behind a front, which has its fault now and then.
type faulty struct {
	*member
	front          *fronts.Front
	name, reason   string // reason is that of Health; "" if the cluster can be read
	late           bool   // Health has it only after 30 s, and reports first that no watch is open
	healthy, fault http.Handler
	older          *member // what the cluster has while it has its fault; nil if that is not the state of another server
	events         int     // before the fault
	halt           func()
}

func passTo(t *testing.T, config *rest.Config) *httputil.ReverseProxy {
	proxy, err := fronts.ProxyTo(config)
	if err != nil {
		t.Fatal(err)
	}
	return proxy
}

// newFaulty returns a cluster for each fault, in a namespace of server. older has an earlier state of server.
func newFaulty(w *world, server, older *apiserver.Server) (all []*faulty) {
	unknown := server.Config()
	unknown.BearerToken = "unknown"
	flood := passTo(w.t, server.Config())
	fronts.Repeat(flood, 50)
	all = []*faulty{
		{name: "hangs", reason: "no answer", late: true, fault: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })},
		{name: "unauthorized", reason: "nauthorized", fault: passTo(w.t, unknown)},
		{name: "forbidden", reason: "forbidden", fault: passTo(w.t, server.User(func(authorizer.Attributes) bool { return false }))},
		{name: "fails", reason: "on the server", fault: fronts.Says(http.StatusInternalServerError, "")},
		{name: "garbage", reason: "invalid character", fault: fronts.Says(http.StatusOK, `{"kind":"List","items":[{"\x00`)},
		{name: "certificate", reason: "x509"},
		{name: "older", fault: passTo(w.t, older.Config()), older: w.member(older, "older")},
		{name: "floods", fault: flood},
	}
	for _, c := range all {
		c.member, c.healthy = w.member(server, c.name), passTo(w.t, server.Config())
		c.writes(10) // so that older is behind
		var err error
		if c.front, err = fronts.New(c.healthy); err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(c.front.Close)
	}
	return all
}

func (c *faulty) shown(f *fleet) bool {
	err := f.health(c.name).SourceError
	return err != nil && strings.Contains(err.Error(), c.reason)
}

// begin lets the fault begin. It returns when Health shows it.
func (c *faulty) begin(f *fleet) {
	f.settles(c.name, c.member)
	c.events = f.events(c.name)
	if c.older != nil { // it fails first, as in a restore: an older state without a failure before it is not noticed
		c.front.Set(fronts.Says(http.StatusServiceUnavailable, ""))
		f.eventually(c.name+" is not shown", func() bool { return c.shown(f) })
	}
	c.front.Set(c.fault)
	switch {
	case c.older != nil:
		f.settles(c.name, c.older)
	case c.reason == "":
		c.halt = c.writing()
	default:
		f.eventually(c.name+" is not shown", func() bool { return c.shown(f) || c.late && !f.health(c.name).Watching })
		c.writes(5)
	}
}

// end ends the fault, and waits until the cluster has healed.
func (c *faulty) end(f *fleet) {
	if n := f.events(c.name); c.reason != "" && n != c.events {
		f.t.Errorf("%s: there are %d events of a cluster that cannot be read", c.name, n-c.events)
	}
	if c.halt != nil {
		c.halt()
	}
	c.front.Set(c.healthy)
	f.settles(c.name, c.member)
	f.eventually(c.name+" does not heal", func() bool { return f.health(c.name).SourceError == nil })
}

// TestAFaultOfAClusterIsItsOwn counts and times the events of a healthy cluster, in turns without and with a fault of another
// one, and with all faults at once.
func TestAFaultOfAClusterIsItsOwn(t *testing.T) {
	w := newWorldOf(t, "faults.example.com")
	servers, east := copies(w, "older"), w.member(server, "east")
	all, f := newFaulty(w, servers[0], servers[1]), newFleet(t, func(error) {})
	err := f.Engage("east", f.source(east, server.Config(), "east"))
	for _, c := range all {
		config := c.front.Config()
		config.Wrap(informer.Transport)
		err = errors.Join(err, f.Engage(c.name, informer.ClusterSource{Source: informer.ListWatch(w.client(config).Namespace(c.name))}))
	}
	if err != nil {
		t.Fatal(err)
	}
	informertest.Run(t, f)

	plans := map[string][]*faulty{"all at once": all}
	for _, c := range all {
		plans[c.name] = []*faulty{c}
	}
	events := *clusterEvents
	if testing.Short() {
		events /= 10
	}
	rounds := max(1, events/500)
	for round := range rounds {
		for name, plan := range plans {
			east.phase = name + " without"
			east.writes(events / rounds)
			for _, c := range plan {
				c.begin(f)
			}
			east.phase = name
			east.writes(events / rounds)
			f.settles("east", east)
			if err := f.health("east").SourceError; err != nil {
				t.Errorf("east: %v", err)
			}
			if c := plan[0]; c.late && round == 0 && len(plan) == 1 && !testing.Short() {
				f.eventually(c.name+" is not shown", func() bool { return c.shown(f) })
			}
			for _, c := range plan {
				c.end(f)
			}
		}
	}
	took := f.complete("east", east)
	p99 := func(phase string) time.Duration {
		all := slices.Sorted(slices.Values(took[phase]))
		return all[len(all)*99/100]
	}
	for name := range plans {
		without, with := p99(name+" without"), p99(name)
		t.Logf("%-12s %d events, p99 %9v without, %9v with, ratio %.2f", name, len(took[name]), without, with, float64(with)/float64(without))
	}
	if n := f.lists.Load(); n != 1 {
		t.Errorf("%d lists of east", n)
	}
	t.Logf("%d events of the flood", f.events("floods"))
}
