package debug_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/debug"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/shards"
)

type debuggedSet struct {
	Name, State, Error string
	Attention          bool
	Health             struct {
		Replica, Session         string
		Replicas, Buckets, Owned int
		LostSessions, LostCalls  int
		UnownedSeconds           float64
		DrainingSeconds          float64
		Unowned, Draining        int
		CatchingUp, Taken        int
		Released                 int
	}
}

func TestASetIsShownInEachOfItsStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, leases, client := informertest.NewSource(object("a", "1")), informertest.NewSource[*coordinationv1.Lease](), fake.NewClientset()
		leases.Serve(&client.Fake, "leases", &coordinationv1.LeaseList{})
		var refused atomic.Bool
		refuse := func(clienttesting.Action) (bool, runtime.Object, error) {
			return refused.Load(), nil, errors.New("no quota")
		}
		client.PrependReactor("update", "leases", refuse)
		client.PrependReactor("create", "leases", refuse)
		src.SetFaults(informertest.Faults{HoldLists: true, RejectWatchList: true})
		release := func() { src.SetFaults(informertest.Faults{RejectWatchList: true}) }
		set, err := shards.New(client.CoordinationV1().Leases("default"), shards.Options{Name: "sites", Identity: "replica-0", Buckets: 8})
		must(t, err)
		hold := make(chan struct{})
		group := informer.Group{ErrorHandler: ignore}
		for _, m := range append(newController(t, src, enqueue.Options{Name: "website", Shards: set},
			func(context.Context, types.NamespacedName) (time.Duration, error) { <-hold; return 0, nil }), set) {
			must(t, group.Add(m))
		}
		h := debug.Handler(group.Health)
		check := func(want string, attention bool) debuggedSet {
			t.Helper()
			synctest.Wait()
			d := look(t, h)
			if len(d.Informers) != 1 || d.Informers[0].Name != "maps" || len(d.Controllers) != 1 || len(d.Sets) != 1 || d.Sets[0].Name != "sites" {
				t.Fatalf("shown are %+v", d)
			}
			s := d.Sets[0]
			if s.State != want || s.Attention != attention {
				t.Errorf("the set is %q (attention %v), want %q", s.State, s.Attention, want)
			}
			shown := page(t, h)
			wantShown(t, shown, `Set <bdi>sites</bdi> <span class="state`, ">"+want+"</span>")
			if sick := strings.Contains(summary(shown), "1 of 1 set need"); sick != attention {
				t.Errorf("with the state %q, the summary counts the set: %v", want, sick)
			}
			return s
		}
		check("not started", false)
		stop := start(t, &group)
		check("joining", false)
		release()
		sleepBubble(20 * time.Second)
		if s := check("working", false).Health; s.Replica != "replica-0" || s.Session == "" || s.Replicas != 1 || s.Buckets != 8 || s.Owned != 8 || s.Taken != 8 {
			t.Errorf("the set is %+v", s)
		}
		if got := summary(page(t, h)); got != "All is well: 1 informer, 1 watcher, 1 controller, 1 set." {
			t.Errorf("the summary is %q", got)
		}

		refused.Store(true)
		sleepBubble(20 * time.Second)
		if s := check("lost calls", true).Health; s.LostSessions != 1 || s.LostCalls != 1 || s.Owned != 0 {
			t.Errorf("after a lost session: %+v", s)
		}
		close(hold)
		check("no session", true)
		stop()
		check("stopped", true)
	})
}

func divided(h shards.Health) http.Handler { return showing(h.Name, h) }

// showing returns a page of one thing with that Health.
func showing(name string, h informer.MemberHealth) http.Handler {
	return debug.Handler(func() map[string]informer.MemberHealth { return map[string]informer.MemberHealth{name: h} })
}

// joined returns the Health of a set that has joined, with a session.
func joined(s shards.Health) shards.Health {
	s.Name, s.Started, s.Synced, s.Session = "sites", true, true, "session"
	return s
}

func TestASetNeedsAttentionFromTheBoundsOn(t *testing.T) {
	failing := func(h shards.Health) shards.Health { h.SourceError = errors.New("forbidden"); return h }
	well := joined(shards.Health{})
	early := shards.Health{Name: "sites", Started: true}
	for name, test := range map[string]struct {
		health shards.Health
		want   string
	}{
		"buckets that have waited for an owner for a minute": {joined(shards.Health{Unowned: 1, UnownedFor: time.Minute}), "unowned"},
		"buckets that wait for less":                         {joined(shards.Health{Unowned: 9, UnownedFor: time.Minute - 1}), "working"},
		"caches that have been behind for a minute":          {joined(shards.Health{CatchingUpFor: time.Minute}), "behind"},
		"caches that have been behind for less":              {joined(shards.Health{CatchingUp: 2, Owned: 5, CatchingUpFor: time.Minute - 1}), "working"},
		"replicas without a controller for five minutes":     {joined(shards.Health{Unserved: 1, UnservedFor: 5 * time.Minute}), "unserved"},
		"replicas without a controller for less":             {joined(shards.Health{Unserved: 9, UnservedFor: 5*time.Minute - 1}), "working"},
		"a bucket that drains for five minutes":              {joined(shards.Health{Draining: 1, DrainingFor: 5 * time.Minute}), "draining"},
		"a bucket that drains for less":                      {joined(shards.Health{Draining: 1, DrainingFor: 5*time.Minute - 1}), "working"},
		"a replica that waits for its caches":                {joined(shards.Health{CatchingUp: 5}), "working"},
		"a replica without buckets":                          {joined(shards.Health{Buckets: 1, Replicas: 2}), "working"},
		"a session that was lost before":                     {joined(shards.Health{LostSessions: 3}), "working"},
		"calls of a lost session":                            {joined(shards.Health{LostCalls: 1}), "lost calls"},
		"Leases that cannot be read any more":                {failing(well), "Leases fail"},
		"Leases that cannot be read at the start":            {failing(early), "cannot join"},
	} {
		s := look(t, divided(test.health)).Sets[0]
		if s.State != test.want || s.Attention != (test.want != "working") {
			t.Errorf("%s: it is %q (attention %v), want %q", name, s.State, s.Attention, test.want)
		}
		if want := test.health.SourceError != nil; (s.Error == "forbidden") != want {
			t.Errorf("%s: the error is %q", name, s.Error)
		}
	}
}

func TestThePageShowsASetAsSuch(t *testing.T) {
	health := joined(shards.Health{
		Replica: "replica-0", Replicas: 3, Buckets: 64, Owned: 21, CatchingUp: 4, CatchingUpFor: 7 * time.Second, Unserved: 8, UnservedFor: 3 * time.Second, Lacking: []string{"added", "more"}, Draining: 2, DrainingFor: 90 * time.Second,
		Unowned: 5, UnownedFor: 12 * time.Second, Taken: 1200, Released: 1179, LostSessions: 7, LostCalls: 6,
		Selector: "ignored",
	})
	health.SourceError = errors.New("Leases are forbidden")
	shown := page(t, divided(health))
	wantShown(t, shown,
		"<dt>This replica</dt><dd><bdi>replica-0</bdi></dd>", "<dt>Replicas</dt><dd>3</dd>", "<dt>Buckets here</dt><dd>21 of 64</dd>",
		"<dt>Buckets without owner</dt><dd>5, the first for 12 s</dd>", "<dt>Waiting for the caches</dt><dd>4, caches behind for 7 s</dd>",
		"<dt>Buckets without a controller</dt><dd><bdi>8 for 3 s: no added, more there</bdi></dd>",
		"<dt>Draining</dt><dd>2, the first for 1 min 30 s</dd>", "<dt>Taken</dt><dd>1200</dd>", "<dt>Released</dt><dd>1179</dd>",
		"<dt>Selection by the API server</dt><dd>ignored</dd>", "<dt>Lost sessions</dt><dd>7</dd>", "<dt>Calls of lost sessions</dt><dd>6</dd>", `<p class="error"><bdi>Leases are forbidden</bdi></p>`,
		">1 of 1 set</a> needs attention.",
	)
	wantHidden(t, shown, "Last contact", "Resource version", "objects", "It has no watchers.", "Queued")
	idle := page(t, divided(joined(shards.Health{})))
	wantShown(t, idle, "<dt>Draining</dt><dd>0</dd>")
	wantHidden(t, idle, "Calls of lost sessions", "Selection by the API server")
}

func TestTheJSONOfASetHasTheFieldsThatAreDocumented(t *testing.T) {
	health := joined(shards.Health{})
	health.SourceError = errors.New("no")
	var answer struct{ Sets []map[string]json.RawMessage }
	must(t, json.Unmarshal(get(divided(health), "/?format=json").Body.Bytes(), &answer))
	equal(t, "the fields", fields(answer.Sets[0]), "attention error health name state")
}

func TestHostileTextsDoNoHarmOnThePage(t *testing.T) {
	shown := func(text string) string {
		err := errors.New("the error " + text)
		set := joined(shards.Health{Replica: text, SourceError: err})
		return page(t, debug.Handler(func() map[string]informer.MemberHealth {
			return map[string]informer.MemberHealth{text: set, text + "2": acting{fact: fact{started: true, ready: err}}, text + "3": enqueue.Health{
				Started: true, Synced: true, Calls: []enqueue.KeyHealth{{Key: text, For: time.Minute}}, Failures: []enqueue.KeyHealth{{Key: text, Failures: 1, For: time.Minute, Err: err}},
			}}
		}))
	}
	want := strings.Count(shown("harmless"), "<")
	for _, text := range hostile {
		whole := shown(text)
		if got := strings.Count(whole, "<"); got != want {
			t.Errorf("with %.40q the page has %d tags, not %d", text, got, want)
		}
		if strings.ContainsRune(whole, 0) || len(whole) > 60_000 {
			t.Errorf("with %.40q the page has a NUL, or %d bytes", text, len(whole))
		}
	}
}
