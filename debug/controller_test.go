package debug_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/debug"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
)

// debugged is the page as JSON.
type debugged struct {
	Time        time.Time
	Informers   []debuggedInformer
	Controllers []debuggedController
	Sets        []debuggedSet
}

type debuggedController struct {
	Name, State string
	Attention   bool
	Health      struct {
		Standby             bool
		Queued, Busy        int
		OldestQueuedSeconds float64
	}
	Calls []struct {
		Key       string
		Seconds   float64
		Attention bool
	}
	Failures []struct {
		Key, Error        string
		Seconds           float64
		Failures          int
		GaveUp, Attention bool
	}
}

type reconcileFunc = func(ctx context.Context, key types.NamespacedName) (time.Duration, error)

// newController returns a controller of the objects of src, and the informer that it needs.
func newController(t *testing.T, src *informertest.Source[configMap], opts enqueue.Options, reconcile reconcileFunc) []informer.Member {
	t.Helper()
	inf := newInformer(t, src, options{Name: "maps"})
	opts.ErrorHandler = ignore
	c, err := enqueue.NewController(reconcile, opts, enqueue.For(inf))
	must(t, err)
	return []informer.Member{c, inf}
}

func TestAControllerIsShownInEachOfItsStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"))
		src.SetFaults(informertest.Faults{HoldLists: true, RejectWatchList: true})
		release := func() { src.SetFaults(informertest.Faults{RejectWatchList: true}) }
		elected := make(chan struct{})
		var reconcile atomic.Pointer[reconcileFunc]
		use := func(f reconcileFunc) { reconcile.Store(&f) }
		use(func(context.Context, types.NamespacedName) (time.Duration, error) { return 0, nil })
		var group informer.Group
		for _, m := range newController(t, src, enqueue.Options{Name: "website", Elected: elected},
			func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
				return (*reconcile.Load())(ctx, key)
			}) {
			must(t, group.Add(m))
		}
		h := debug.Handler(group.Health)
		check := func(want string, attention bool) debuggedController {
			t.Helper()
			synctest.Wait()
			d := look(t, h)
			if len(d.Informers) != 1 || d.Informers[0].Name != "maps" || len(d.Controllers) != 1 || d.Controllers[0].Name != "website" {
				t.Fatalf("shown are %+v", d)
			}
			c := d.Controllers[0]
			if c.State != want || c.Attention != attention {
				t.Errorf("the controller is %q (attention %v), want %q", c.State, c.Attention, want)
			}
			shown := page(t, h)
			wantShown(t, shown, `Controller <bdi>website</bdi> <span class="state`, ">"+want+"</span>")
			if sick := summary(shown) == "1 of 1 controller needs attention." || summary(shown) == "1 of 1 informer and 1 of 1 controller need attention."; sick != attention {
				t.Errorf("with the state %q, the summary counts the controller: %v", want, sick)
			}
			return c
		}
		check("not started", false)
		stop := start(t, &group)
		check("syncing", false)
		release()
		check("standby", false)
		close(elected)
		check("working", false)
		if got := summary(page(t, h)); got != "All is well: 1 informer, 1 watcher, 1 controller." {
			t.Errorf("the summary is %q", got)
		}

		// One conflict does not count, however long ago, and neither does a key that fails at first.
		use(func(context.Context, types.NamespacedName) (time.Duration, error) { return 0, errors.New("no quota") })
		src.Apply(object("a", "2"))
		sleepBubble(4 * time.Minute)
		check("working", false)
		sleepBubble(time.Minute)
		c := check("failing", true)
		if f := c.Failures; len(f) != 1 || f[0].Key != "default/a" || f[0].Error != "no quota" || f[0].Failures < 10 || f[0].Seconds != 300 || !f[0].Attention {
			t.Errorf("the failing keys are %+v", f)
		}
		use(func(ctx context.Context, _ types.NamespacedName) (time.Duration, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		src.Apply(object("b", "1"))
		synctest.Wait()
		src.Apply(object("c", "1"))
		sleepBubble(time.Minute)
		c = check("behind", true)
		if c.Health.Queued != 2 || c.Health.OldestQueuedSeconds != 60 || c.Health.Busy != 1 || len(c.Calls) != 1 || c.Calls[0].Attention {
			t.Errorf("with keys that have waited for a minute: %+v", c)
		}
		sleepBubble(4 * time.Minute)
		c = check("hung", true)
		if calls := c.Calls; len(calls) != 1 || calls[0].Key != "default/b" || calls[0].Seconds != 300 || !calls[0].Attention {
			t.Errorf("the calls are %+v", calls)
		}
		stop()
		check("stopped", true)
	})
}

// controlled returns a page of one controller that has synced and whose figures are c.
func controlled(name string, c enqueue.Health) http.Handler {
	c.Name, c.Started, c.Synced = name, true, true
	return showing(name, c)
}

func TestAControllerNeedsAttentionFromTheBoundsOn(t *testing.T) {
	const just = 5*time.Minute - time.Nanosecond
	call := func(took time.Duration) enqueue.Health {
		return enqueue.Health{Busy: 1, Calls: []enqueue.KeyHealth{{Key: "a", For: took}}}
	}
	failure := func(failures int, lasts time.Duration, gaveUp bool) enqueue.Health {
		return enqueue.Health{Failing: 1, Failures: []enqueue.KeyHealth{
			{Key: "a", Failures: failures, For: lasts, GaveUp: gaveUp, Err: errors.New("no")},
		}}
	}
	most := func(failing, failures, succeeded int, idle time.Duration) enqueue.Health {
		c := enqueue.Health{Failing: failing, Failed: failing * failures, Succeeded: succeeded, LastSuccess: time.Now().Add(-idle)}
		for range min(failing, 10) {
			c.Failures = append(c.Failures, enqueue.KeyHealth{Key: "a", Failures: failures, For: 90 * time.Second, Err: errors.New("no")})
		}
		return c
	}
	for name, test := range map[string]struct {
		health enqueue.Health
		want   string
	}{
		"a call of five minutes":                    {call(5 * time.Minute), "hung"},
		"a shorter call":                            {call(just), "working"},
		"a wait of a minute":                        {enqueue.Health{Queued: 1, OldestQueued: time.Minute}, "behind"},
		"a shorter wait":                            {enqueue.Health{Queued: 1, OldestQueued: time.Minute - 1}, "working"},
		"a key that fails for five minutes":         {failure(4, 5*time.Minute, false), "failing"},
		"a key that fails for less":                 {failure(4, just, false), "working"},
		"a key with three conflicts":                {failure(3, time.Hour, false), "working"},
		"a key that was given up at once":           {failure(1, 0, true), "failing"},
		"nothing that has ever succeeded":           {enqueue.Health{Failed: 1, Failing: 1}, "failing"},
		"most keys failing often":                   {most(120, 4, 1, 0), "failing"},
		"most keys failing a few times":             {most(120, 3, 1, 0), "working"},
		"a few of many keys failing often":          {most(9, 40, 1000, time.Second), "working"},
		"no success since several keys fail":        {most(9, 40, 1000, 2*time.Minute), "failing"},
		"no success since one key fails":            {most(1, 40, 1000, 2*time.Minute), "working"},
		"a standby":                                 {enqueue.Health{Standby: true, Queued: 1000}, "standby"},
		"a standby whose key had failed before":     {enqueue.Health{Standby: true, Failing: 1}, "standby"},
		"a controller that dropped keys on standby": {enqueue.Health{Dropped: 3}, "working"},
	} {
		c := look(t, controlled("website", test.health)).Controllers[0]
		if c.State != test.want || c.Attention != (test.want != "working" && test.want != "standby") {
			t.Errorf("%s: it is %q (attention %v), want %q", name, c.State, c.Attention, test.want)
		}
	}
}

func TestThePageShowsAControllerAsSuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shown := page(t, controlled("website", enqueue.Health{
			Workers: 4, Queued: 7, OldestQueued: 90 * time.Second, Busy: 1, Calls: []enqueue.KeyHealth{{Key: "shop/web", For: 6 * time.Minute}},
			Failing: 2, LastSuccess: time.Now().Add(-time.Hour), Succeeded: 1200, Failed: 30, GaveUp: 3, Deletes: 5, Dropped: 9,
			Failures: []enqueue.KeyHealth{
				{Key: "shop/a", Failures: 12, For: 7 * time.Minute, NextTry: time.Now().Add(20 * time.Second), Err: errors.New("no quota")},
				{Key: "shop/b", Failures: 1, For: time.Second, GaveUp: true, Err: errors.New("bad spec")},
			},
		}))
		wantShown(t, shown,
			"<dd>7, the oldest for 1 min 30 s</dd>", "<dd>1 of 4 workers</dd>", "<dd>1 h 0 min ago</dd>", "<dd>1200</dd>", "<dd>30</dd>", "<dd>3</dd>",
			"<dt>Failing keys</dt><dd>2</dd>", "<dt>Deletes not reconciled</dt><dd>5</dd>", "<dt>Dropped on standby</dt><dd>9</dd>",
			`<tr class="attention"><th scope="row"><bdi>shop/web</bdi></th><td data-label="State">is reconciled</td><td data-label="For" class="number">6 min 0 s</td>`,
			`<tr class="attention"><th scope="row"><bdi>shop/a</bdi></th><td data-label="State">fails</td><td data-label="For" class="number">7 min 0 s</td><td data-label="Failures" class="number">12</td><td data-label="Next try">in 20 s</td>`,
			`<tr class="attention"><th scope="row"><bdi>shop/b</bdi></th><td data-label="State">given up</td><td data-label="For" class="number">1 s</td><td data-label="Failures" class="number">1</td><td data-label="Next try"></td>`,
			`<th scope="rowgroup" colspan="5"><bdi>no quota</bdi></th>`, `<th scope="rowgroup" colspan="5"><bdi>bad spec</bdi></th>`,
		)
		wantHidden(t, shown, "Last contact", "Resource version", "objects", "It has no watchers.")
	})
}

func TestTheJSONOfAControllerHasTheFieldsThatAreDocumented(t *testing.T) {
	h := showing("website", enqueue.Health{Name: "website", Reason: errors.New("no"), Calls: []enqueue.KeyHealth{{Key: "a"}}, Failures: []enqueue.KeyHealth{{Key: "a"}}})
	var answer struct{ Controllers []map[string]json.RawMessage }
	var calls, failures []map[string]json.RawMessage
	must(t, json.Unmarshal(get(h, "/?format=json").Body.Bytes(), &answer))
	c := answer.Controllers[0]
	must(t, errors.Join(json.Unmarshal(c["calls"], &calls), json.Unmarshal(c["failures"], &failures)))
	equal(t, "the fields", fields(c), "attention calls error failures health name state")
	equal(t, "the fields of a call", fields(calls[0]), "attention key seconds")
	equal(t, "the fields of a failure", fields(failures[0]), "attention error failures gaveUp key seconds")
}
