package prometheus_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/shards"
)

// These match no series, and the series of the played group that depend on a random pause.
var (
	nothing = regexp.MustCompile(`^$`)
	random  = regexp.MustCompile(`informer_(last|reconcile_last)_|event_lag_seconds_sum{informer="fails"|watch_duration_seconds_sum{informer="fails"|longest_failing|_memory_bytes|list_peak_bytes`)
)

// Each value of a Health is shown in a metric. Members of one name share a series: counts are added up, and of
// other values the worst is shown.
func TestMembersOfOneNameAreOneSeries(t *testing.T) {
	early, late := time.Unix(1000, 500_000_000), time.Unix(2000, 0)
	calls := func(first, more time.Duration) []enqueue.KeyHealth {
		return []enqueue.KeyHealth{{For: first}, {For: more}}
	}
	stats := func(all ...informer.WatcherStats) (watchers []informer.WatcherHealth) {
		for _, s := range all {
			watchers = append(watchers, informer.WatcherHealth{WatcherStats: s})
		}
		return watchers
	}
	m := fixed(informer.Health{
		Name: "i", Store: "valkey a", Synced: true, Watching: true, Stopped: true, LastList: late, LastContact: early, LastProgress: late, ResourceVersion: "20",
		Objects: 3, Namespaces: []informer.SourceHealth{{Synced: true}, {}, {Synced: true, SourceFailures: 1}}, Clusters: []informer.SourceHealth{{Cluster: "east", Synced: true}, {Cluster: "west"}}, Queued: 4, SourceFailures: 5, SourceWaiting: time.Second, StoreBusy: time.Second, Refused: 6, Foreign: 8, Tombstones: 7,
		Decoding: informer.DecodingHealth{Objects: 9, Left: 10}, Undecodable: 11, Memory: informer.MemoryHealth{Objects: 12, Saved: 13, ListPeak: 14},
		Watchers: stats(
			informer.WatcherStats{Name: "w", Synced: true, Pending: 1, Delivered: 2, Failed: 3, Retried: 4, Merged: 5, OldestWaiting: time.Second},
			informer.WatcherStats{Name: "w", Synced: true, Pending: 10, Delivered: 20, Failed: 30, Retried: 40, Merged: 50, Lagging: true, OldestWaiting: time.Minute},
			informer.WatcherStats{Name: "other", Synced: true}),
	}, informer.Health{
		Name: "i", Store: "valkey b\xff", Watching: true, LastList: early, LastContact: late, LastProgress: late, ResourceVersion: "9",
		Objects: 30, Namespaces: []informer.SourceHealth{{Synced: true, SourceWaiting: time.Minute}}, Queued: 40, SourceFailures: 50, SourceWaiting: time.Minute, StoreError: errors.New("broken"), StoreBusy: time.Minute, Refused: 60, Foreign: 80, Tombstones: 70,
		Decoding: informer.DecodingHealth{Objects: 90, Left: 100}, Undecodable: 110, Memory: informer.MemoryHealth{Objects: 120, Saved: 130, ListPeak: 140},
		Watchers: stats(informer.WatcherStats{Name: "w", Pending: 100, Delivered: 200, Failed: 300, Retried: 400, Merged: 500}),
	}, informer.Health{ // times and versions that no clock and no server of today has
		Name: "odd", Store: "valkey a", ResourceVersion: "123456789012345678901234567890", LastList: time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC), LastContact: time.Unix(-5, 0),
	}, informer.Health{Name: "odd", Store: "valkey a", ResourceVersion: "223456789012345678901234567890", LastList: time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC), LastContact: time.Unix(-5, 0)}, enqueue.Health{
		Name: "q", Synced: true, Stopped: true, Workers: 1, Queued: 2, OldestQueued: 3 * time.Second, Waiting: 1, Busy: 4, Calls: calls(50*time.Second, 6*time.Second), Failing: 7,
		Failures: calls(8*time.Second, time.Second), LastSuccess: late, Deletes: 9, Dropped: 10, Succeeded: 3, Again: 1, Took: [13]int{2: 2}, TookSum: 3 * time.Second,
	}, enqueue.Health{
		Name: "q", Workers: 10, Queued: 20, OldestQueued: 30 * time.Second, Waiting: 2, Busy: 40, Calls: calls(5*time.Second, 0), Failing: 70, Failures: calls(80*time.Second, 0),
		LastSuccess: early, Deletes: 90, Dropped: 100, Standby: true, Failed: 5, GaveUp: 1, Took: [13]int{12: 3}, TookSum: time.Hour,
	}, shards.Health{
		Name: "s", Synced: true, SourceFailures: 1, Session: "x", Replicas: 3, Buckets: 64, Owned: 20, CatchingUp: 1, CatchingUpFor: 6 * time.Second, Unserved: 3, UnservedFor: 8 * time.Second,
		Draining: 2, DrainingFor: 3 * time.Second, Unowned: 4, UnownedFor: 5 * time.Second, Taken: 6, Released: 7, LostSessions: 8, LostCalls: 9,
	}, shards.Health{
		Name: "s", Stopped: true, SourceFailures: 10, Replicas: 2, Buckets: 16, Owned: 10, CatchingUp: 10, CatchingUpFor: 7 * time.Second, Unserved: 2, UnservedFor: 9 * time.Second,
		Draining: 20, DrainingFor: 2 * time.Second, Unowned: 3, UnownedFor: 50 * time.Second, Taken: 60, Released: 70, LostSessions: 80, LostCalls: 90,
	})
	for range 10 { // the order of a map differs each time
		golden(t, scrape(t, registered(m)), "health.txt", nothing)
	}
}

// In this group something of each kind happens: pages, relists and errors of a source, slow, failed and refused
// writes, the end of a tombstone, slow watchers and failed keys.
func TestAPlayedGroupIsShownAsItWas(t *testing.T) {
	bubble(t, []configMap{object("a", "1"), object("b", "1"), object("c", "1")}, func(r *rig, src *informertest.Source[configMap]) {
		src.SetFaults(informertest.Faults{ListDelay: 2 * time.Second})
		store := informertest.NewStore(nil)
		busy := r.add(src, options{Name: "busy", Store: store, WatchList: informer.WatchListOff, PageSize: 2})
		r.join(busy, "slow", watcher(func(context.Context, event) error { time.Sleep(3 * time.Second); return nil }), watchOpts{})

		down, full := informertest.NewSource(object("a", "1")), informertest.NewStore(nil)
		down.Fail("list", syscall.ECONNREFUSED, 2)
		down.Fail("list", apierrors.NewForbidden(pods, "", nil), 1)
		down.Fail("list", apierrors.NewTooManyRequests("later", 1), 1)
		fails := r.add(down, options{Name: "fails", Store: full, WatchList: informer.WatchListOff})
		r.join(fails, "w", watcher(func(_ context.Context, e event) error {
			if e.Key().Name == "d" {
				return errors.New("not now")
			}
			return nil
		}), watchOpts{Retry: informer.Backoff(time.Second, time.Second, 5)})

		keys := informertest.NewSource(object("deleted", "1"), object("again", "1"), object("fails", "1"), object("wrong", "1"))
		durable := r.add(keys, options{Name: "durable", Durable: informertest.NewDurable()})
		client, leases := fake.NewClientset(), informertest.NewSource[*coordinationv1.Lease]()
		leases.Serve(&client.Fake, "leases", &coordinationv1.LeaseList{})
		set, err := shards.New(client.CoordinationV1().Leases("default"), shards.Options{Name: "s", Identity: "r", Buckets: 8})
		must(t, err)
		r.control(durable, enqueue.Options{Name: "q", Workers: 4, MaxAttempts: 4, Shards: set})
		third := &mirror{}
		third.behind.Store(7)
		must(t, errors.Join(r.group.Add(set), r.group.Add(third)))

		sleepBubble(time.Minute)
		store.Delay(time.Second)
		src.Apply(object("a", "2")) // one second for the get, one for the write
		sleepBubble(10 * time.Second)
		store.Delay(0)
		src.Bookmark()
		_, _ = src.Delete(keyOf("a"))
		sleepBubble(10 * time.Second)
		src.SetFaults(informertest.Faults{Mute: true})
		src.Apply(object("b", "2"))
		src.Apply(object("d", "1"))
		_, _ = src.Delete(keyOf("c")) // a list finds it, so it has no lag
		src.Expire()
		src.SetFaults(informertest.Faults{})
		down.Fail("watch", apierrors.NewNotFound(pods, ""), 1)
		down.Disconnect()
		_, _ = keys.Delete(keyOf("deleted"))
		sleepBubble(40 * time.Second)

		full.Delay(time.Second)
		failing := map[string]int{"get": 3, "update": 2}
		looks := 0 // number of gets that check the result of a failed update
		full.Fail(func(op, _ string) error {
			if looks > 0 && op == "get" {
				looks--
				return nil
			}
			if failing[op]--; failing[op] < 0 {
				return nil
			}
			if op == "update" {
				looks++
			}
			return syscall.ENOSPC
		})
		down.Apply(object("a", "2"))
		sleepBubble(20 * time.Second)
		full.Delay(0)
		adds := 0
		full.Fail(func(op, _ string) error {
			if op != "add" {
				return nil
			}
			if adds++; adds == 2 { // x and z are refused at once, y only after a temporary failure
				return syscall.ENOSPC
			}
			return fmt.Errorf("too large: %w", informer.ErrPermanent)
		})
		for _, name := range []string{"x", "y", "z"} {
			down.Apply(object(name, "1"))
			sleepBubble(10 * time.Second)
		}
		full.Heal()
		down.Apply(object("d", "1"))
		sleepBubble(time.Minute) // so long that everything is over, and no watch has reached its time
		all := scrape(t, r.registry)
		golden(t, all, "played.txt", random)
		if shown := append(having(all, "wrong"), having(all, "default")...); len(shown) > 0 {
			t.Errorf("a key is in %v", shown)
		}

		kept := func(name string) int { return len(having(scrape(t, r.registry), name)) }
		before := kept(`"busy"`)
		must(t, errors.Join(r.group.Remove(fails), r.group.Remove(durable), r.group.Remove(set), r.group.Remove(third)))
		if kept(`"fails"`)+kept(`"durable"`)+kept(`"s"`)+kept(`"backup"`) > 0 || kept(`"busy"`) != before || r.metrics.KeptInVectors() != r.metrics.KeptSeries() {
			t.Errorf("there are still %v", having(scrape(t, r.registry), ""))
		}
	})
}

// control adds a controller of the objects of inf to the group. Each of its calls takes a second.
func (r *rig) control(inf *ci, opts enqueue.Options) {
	r.t.Helper()
	calls := map[string]int{}
	c, err := enqueue.NewController(func(_ context.Context, key types.NamespacedName) (time.Duration, error) {
		r.mu.Lock()
		calls[key.Name]++
		call := calls[key.Name]
		r.mu.Unlock()
		time.Sleep(time.Second)
		switch {
		case key.Name == "again" && call < 3:
			return time.Second, nil
		case key.Name == "fails":
			return 0, errors.New("no")
		case key.Name == "wrong":
			return time.Second, fmt.Errorf("never: %w", informer.ErrPermanent)
		}
		return 0, nil
	}, opts, enqueue.For(inf))
	must(r.t, err)
	must(r.t, r.group.Add(c))
}

func TestCallsOfReconcileAreInTheBucketsOfTheirTime(t *testing.T) {
	families, err := registered(fixed(enqueue.Health{Name: "q", Took: [13]int{0: 1, 1: 2, 11: 3, 12: 4}})).Gather()
	must(t, err)
	var got []uint64
	for _, f := range families {
		if h := f.GetMetric()[0].GetHistogram(); h != nil {
			for _, bucket := range h.GetBucket() {
				got = append(got, bucket.GetCumulativeCount())
			}
			got = append(got, h.GetSampleCount())
		}
	}
	if want := []uint64{1, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 6, 10}; !slices.Equal(got, want) {
		t.Errorf("the counts are %v, want %v", got, want)
	}
}
