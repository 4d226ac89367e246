package prometheus_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/shards"
)

// ofSet expects these values of metrics of the set "s". Names are without "informer_shards_".
func (r *rig) ofSet(want values) {
	r.t.Helper()
	for name, value := range want {
		r.expect("informer_shards_"+name+"{", values{`set="s"}`: value})
	}
}

func TestASetIsShownByItsName(t *testing.T) {
	bubble(t, []configMap{object("a", "1")}, func(r *rig, src *informertest.Source[configMap]) {
		client, leases := fake.NewClientset(), informertest.NewSource[*coordinationv1.Lease]()
		leases.Serve(&client.Fake, "leases", &coordinationv1.LeaseList{})
		var cut atomic.Bool
		refuse := func(clienttesting.Action) (bool, runtime.Object, error) {
			return cut.Load(), nil, errors.New("cut off")
		}
		client.PrependReactor("update", "leases", refuse)
		client.PrependReactor("create", "leases", refuse)
		leases.Fail("list", errors.New("not yet"), 1)
		set, err := shards.New(client.CoordinationV1().Leases("default"), shards.Options{Name: "s", Identity: "r", Buckets: 8})
		if err != nil {
			r.t.Fatal(err)
		}
		inf, hold := r.add(src, options{}), make(chan struct{})
		r.control(inf, enqueue.Options{Name: "q", Shards: set}, func(context.Context, string) (time.Duration, error) { <-hold; return 0, nil })
		if err := r.group.Add(set); err != nil {
			r.t.Fatal(err)
		}
		settle(0)
		r.ofSet(values{"joined": 0, "session": 0, "source_failures": 1, "unowned": 0})
		settle(time.Minute)
		r.ofSet(values{
			"joined": 1, "stopped": 0, "session": 1, "source_failures": 0, "replicas": 1, "buckets": 8, "owned": 8, "catching_up": 0, "catching_up_seconds": 0,
			"draining": 0, "draining_seconds": 0, "unowned": 0, "unowned_seconds": 0, "unserved": 0, "unserved_seconds": 0, "taken_total": 8, "released_total": 0,
			"lost_sessions_total": 0, "lost_calls": 0,
		})
		all := scrape(r.t, r.registry)
		if shown := having(all, `informer="s"`); len(shown) > 0 {
			r.t.Errorf("the set is shown as an informer: %v", shown)
		}
		if n := len(having(all, "informer_shards_")); n != 19 {
			r.t.Errorf("the set has %d series: %v", n, having(all, "informer_shards_"))
		}

		leases.Fail("watch", errors.New("cut off"), -1)
		leases.Fail("list", errors.New("cut off"), -1)
		cut.Store(true)
		leases.Disconnect()
		settle(20 * time.Second) // the call ignores its ctx
		r.ofSet(values{"joined": 1, "session": 0, "owned": 0, "lost_sessions_total": 1, "lost_calls": 1})
		close(hold)
		settle(0)
		r.ofSet(values{"lost_calls": 0})
		if failures := scrape(r.t, r.registry)[`informer_shards_source_failures{set="s"}`]; failures < 2 {
			r.t.Errorf("the replica is cut off, and %v requests have failed in a row", failures)
		}
		if err := r.group.Remove(set); err != nil {
			r.t.Fatal(err)
		}
		if left := having(scrape(r.t, r.registry), "informer_shards_"); len(left) > 0 {
			r.t.Errorf("when the set has gone, there are %v", left)
		}
	})
}

func TestSetsOfOneNameAreOneSeries(t *testing.T) {
	a := shards.Health{
		Name: "s", Synced: true, SourceFailures: 1, Session: "x", Replicas: 3, Buckets: 64, Owned: 20, CatchingUp: 1, CatchingUpFor: 6 * time.Second, Unserved: 3, UnservedFor: 8 * time.Second, Draining: 2, DrainingFor: 3 * time.Second,
		Unowned: 4, UnownedFor: 5 * time.Second, Taken: 6, Released: 7, LostSessions: 8, LostCalls: 9,
	}
	b := shards.Health{
		Name: "s", Stopped: true, SourceFailures: 10, Replicas: 2, Buckets: 16, Owned: 10, CatchingUp: 10, CatchingUpFor: 7 * time.Second, Unserved: 2, UnservedFor: 9 * time.Second, Draining: 20, DrainingFor: 2 * time.Second,
		Unowned: 3, UnownedFor: 50 * time.Second, Taken: 60, Released: 70, LostSessions: 80, LostCalls: 90,
	}
	want := values{
		"joined": 0, "stopped": 1, "session": 0, "source_failures": 11, "replicas": 2, "buckets": 64, "owned": 30, "catching_up": 11, "catching_up_seconds": 7,
		"draining": 22, "draining_seconds": 3, "unowned": 4, "unowned_seconds": 50, "unserved": 3, "unserved_seconds": 9, "taken_total": 66, "released_total": 77,
		"lost_sessions_total": 88, "lost_calls": 99,
	}
	for range 10 { // the order of a map differs each time
		all := scrape(t, registered(fixed(a, b, informer.Health{Name: "s", Objects: 5}, enqueue.Health{Name: "s", Busy: 6})))
		labelled(t, all, `{set="s"}`, "informer_shards_", want)
		if all[`informer_objects{informer="s"}`] != 5 || all[`informer_reconcile_busy{queue="s"}`] != 6 {
			t.Errorf("the informer and the controller of the same name: %v", all)
		}
	}
}
