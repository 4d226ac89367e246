package prometheus_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/metrics/prometheus"
)

// counted expects these values of a metric of "i" that has more labels.
func (r *rig) counted(name string, want values) {
	r.t.Helper()
	all := values{}
	for labels, value := range want {
		all[labels+"}"] = value
	}
	r.expect("informer_"+name+`{informer="i",`, all)
}

func TestEventsAreCountedByTypeAndOrigin(t *testing.T) {
	bubble(t, []configMap{object("a", "1"), object("b", "1"), object("c", "1")}, func(r *rig, src *informertest.Source[configMap]) {
		r.add(src, options{})
		settle(time.Minute)
		r.counted("events_total", values{`origin="initial",type="added"`: 3})

		src.Apply(object("a", "2"))
		src.Apply(object("b", "2"))
		src.Apply(object("d", "1"))
		_, _ = src.Delete(keyOf("c"))
		settle(time.Minute)
		src.SetFaults(informertest.Faults{Mute: true})
		src.Apply(object("a", "3"))
		src.Apply(object("e", "1"))
		src.Apply(object("f", "1"))
		_, _ = src.Delete(keyOf("b"))
		src.Expire()
		src.SetFaults(informertest.Faults{})
		settle(time.Minute)
		r.counted("events_total", values{
			`origin="initial",type="added"`:  3,
			`origin="watch",type="updated"`:  2,
			`origin="watch",type="added"`:    1,
			`origin="watch",type="deleted"`:  1,
			`origin="relist",type="updated"`: 1,
			`origin="relist",type="added"`:   2,
			`origin="relist",type="deleted"`: 1,
		})
	})
}

func TestADeleteThatAListHasFoundHasNoLag(t *testing.T) {
	bubble(t, []configMap{object("a", "1"), object("b", "1")}, func(r *rig, src *informertest.Source[configMap]) {
		store := informertest.NewStore(nil)
		r.add(src, options{Store: store})
		settle(time.Minute)
		r.of(values{"event_lag_seconds_count": 2, "event_lag_seconds_sum": 0})
		store.Delay(time.Second)
		src.Apply(object("a", "2"))
		settle(time.Minute)
		r.of(values{"event_lag_seconds_count": 3, "event_lag_seconds_sum": 2}) // one second for the get, one for the write
		store.Delay(0)
		_, _ = src.Delete(keyOf("a"))
		settle(time.Minute)
		r.of(values{"event_lag_seconds_count": 4, "event_lag_seconds_sum": 2})
		src.SetFaults(informertest.Faults{Mute: true})
		_, _ = src.Delete(keyOf("b"))
		src.Expire()
		src.SetFaults(informertest.Faults{})
		settle(time.Minute)
		r.counted("events_total", values{
			`origin="initial",type="added"`: 2, `origin="watch",type="updated"`: 1, `origin="watch",type="deleted"`: 1, `origin="relist",type="deleted"`: 1,
		})
		r.of(values{"event_lag_seconds_count": 4, "event_lag_seconds_sum": 2})
	})
}

func TestAttemptsOnTheStoreAreCountedByOperation(t *testing.T) {
	bubble(t, []configMap{object("a", "1")}, func(r *rig, src *informertest.Source[configMap]) {
		store := informertest.NewStore(nil)
		r.add(src, options{Store: store})
		settle(time.Minute)
		store.Delay(time.Second)
		failing := map[string]int{"get": 3, "update": 2}
		looks := 0 // number of gets that check the result of a failed update
		store.Fail(func(op, _ string) error {
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
		src.Apply(object("a", "2"))
		settle(time.Minute)
		r.counted("store_errors_total", values{`op="get"`: 3, `op="update"`: 2, `op="add"`: 0})
		r.counted("store_retries_total", values{`op="get"`: 3, `op="update"`: 2, `op="add"`: 0})
		r.counted("store_duration_seconds_count", values{`op="get"`: 1 + 4, `op="update"`: 3, `op="add"`: 1})
		r.counted("store_duration_seconds_sum", values{`op="get"`: 4, `op="update"`: 1 + 2 + 2, `op="add"`: 0})

		store.Heal()
		_, _ = src.Delete(keyOf("a"))
		settle(time.Minute)
		r.counted("store_retries_total", values{`op="get"`: 3, `op="update"`: 2, `op="add"`: 0, `op="delete"`: 0})
		r.counted("store_duration_seconds_count", values{`op="get"`: 6, `op="update"`: 3, `op="add"`: 1, `op="delete"`: 1})
	})
}

func TestWhatTheStoreRefusesIsAnErrorAndNotRetried(t *testing.T) {
	bubble(t, nil, func(r *rig, src *informertest.Source[configMap]) {
		store := informertest.NewStore(nil)
		r.add(src, options{Store: store})
		settle(time.Minute)
		adds := 0
		store.Fail(func(op, _ string) error {
			if op != "add" {
				return nil
			}
			if adds++; adds == 2 { // a and c are refused at once, b only after a temporary failure
				return syscall.ENOSPC
			}
			return fmt.Errorf("too large: %w", informer.ErrPermanent)
		})
		for _, name := range []string{"a", "b", "c"} {
			src.Apply(object(name, "1"))
			settle(time.Minute)
		}
		store.Heal()
		src.Apply(object("d", "1"))
		settle(time.Minute)
		r.counted("store_errors_total", values{`op="add"`: 4, `op="get"`: 0})
		r.counted("store_retries_total", values{`op="add"`: 1, `op="get"`: 0})
		r.counted("store_duration_seconds_count", values{`op="add"`: 5, `op="get"`: 4})
	})
}

func TestRetriesAreCountedWhenTheyAreMade(t *testing.T) {
	bubble(t, nil, func(r *rig, src *informertest.Source[configMap]) {
		store := informertest.NewStore(nil)
		r.add(src, options{Store: store})
		settle(time.Minute)
		store.Fail(func(op, _ string) error {
			if store.Calls(op) == 1 {
				return syscall.ENOSPC
			}
			store.Hang()
			return nil
		})
		src.Apply(object("a", "1"))
		settle(5 * time.Millisecond)
		r.counted("store_errors_total", values{`op="get"`: 1})
		r.counted("store_retries_total", values{`op="get"`: 0})
		settle(time.Minute)
		store.Heal()
		settle(0)
		r.counted("store_retries_total", values{`op="get"`: 1, `op="add"`: 0})
	})
}

func TestADurableStoreHasOperationsOfItsOwn(t *testing.T) {
	bubble(t, []configMap{object("a", "1")}, func(r *rig, src *informertest.Source[configMap]) {
		inf := r.add(src, options{Durable: informertest.NewDurable()})
		r.join(inf, "w", ignore, watchOpts{})
		settle(time.Minute)
		_, _ = src.Delete(keyOf("a"))
		settle(2 * time.Minute)
		all := scrape(r.t, r.registry)
		for _, op := range []string{"resume", "scan", "tombstones", "apply", "get", "forget"} {
			for _, name := range []string{"duration_seconds_count", "errors_total", "retries_total"} {
				if _, ok := all[fmt.Sprintf("informer_store_%s{informer=%q,op=%q}", name, "i", op)]; !ok {
					r.t.Errorf("there is no informer_store_%s of %s", name, op)
				}
			}
		}
	})
}

func TestAnUnknownOperationOrEventIsNoNewSeries(t *testing.T) {
	m := fixed(informer.Health{Name: "i"})
	o := m.Observer()
	o.Store(informer.StoreInfo{Informer: "i", Op: "compact"})
	o.Store(informer.StoreInfo{Informer: "i", Op: "\xff"})
	for _, op := range []string{"get", "add", "update", "delete", "list", "bookmark", "scan", "apply", "forget", "resume", "tombstones"} {
		o.Store(informer.StoreInfo{Informer: "i", Op: op})
	}
	for _, info := range []informer.ApplyInfo{
		{}, {Type: 4}, {Type: 255, Origin: 255}, {Type: informer.EventAdded, Origin: informer.OriginResync},
	} {
		info.Informer = "i"
		o.Apply(info)
	}
	o.Watch(informer.WatchInfo{Informer: "i", Events: -1})
	all := scrape(t, registered(m))
	for name, value := range all {
		if value != 0 && (len(having(values{name: 0}, "events_total")) > 0) {
			t.Errorf("%s is %v", name, value)
		}
	}
	if n := len(having(all, "events_total")); n != 3*3+1 {
		t.Errorf("%d counters of events", n)
	}
	if got := all[`informer_store_duration_seconds_count{informer="i",op="other"}`]; got != 2 {
		t.Errorf("%v unknown operations are counted", got)
	}
	if n := len(having(all, "informer_store_errors_total")); n != 11+1 {
		t.Errorf("%d operations", n)
	}
}

func TestListsAndWatchesAreCountedByOutcome(t *testing.T) {
	bubble(t, []configMap{object("a", "1"), object("b", "1"), object("c", "1")}, func(r *rig, src *informertest.Source[configMap]) {
		src.SetFaults(informertest.Faults{ListDelay: 2 * time.Second})
		src.Fail("list", syscall.ECONNREFUSED, 2)
		src.Fail("list", apierrors.NewForbidden(pods, "", nil), 1)
		src.Fail("list", apierrors.NewTooManyRequests("later", 1), 1)
		inf := r.add(src, options{WatchList: informer.WatchListOff, PageSize: 2})
		if err := inf.WaitForSync(r.t.Context()); err != nil {
			r.t.Fatal(err)
		}
		settle(0)
		lists := values{`outcome="unavailable"`: 2, `outcome="forbidden"`: 1, `outcome="throttled"`: 1, `outcome="success"`: 2} // the list has two pages
		r.counted("lists_total", lists)
		r.of(values{"list_duration_seconds_count": 6, "list_duration_seconds_sum": 12})
		r.counted("watches_total", values{})

		settle(time.Minute)
		src.Apply(object("a", "2"))
		src.Bookmark()
		settle(0)
		r.of(values{"watch_events_total": 0, "watch_duration_seconds_count": 0})
		src.Expire()
		settle(time.Minute) // the informer lists, and watches again
		r.of(values{"watch_events_total": 3, "watch_duration_seconds_count": 1, "watch_duration_seconds_sum": 60})
		r.counted("watches_total", values{`outcome="expired"`: 1})
		lists[`outcome="success"`] += 2
		r.counted("lists_total", lists)

		src.Fail("watch", apierrors.NewNotFound(pods, ""), 1)
		src.Disconnect()
		settle(time.Minute)
		got := scrape(r.t, r.registry)
		if n := got[`informer_watches_total{informer="i",outcome="success"}`]; n != 1 {
			r.t.Errorf("%v watches have ended well", n)
		}
		if n := got[`informer_watches_total{informer="i",outcome="notfound"}`]; n != 1 {
			r.t.Errorf("%v watches were not found", n)
		}
		r.of(values{"watch_duration_seconds_count": 3})
	})
}

func TestCallsOfAWatcherAreTimed(t *testing.T) {
	bubble(t, []configMap{object("a", "1"), object("b", "1")}, func(r *rig, src *informertest.Source[configMap]) {
		inf := r.add(src, options{})
		r.join(inf, "w", watcher(func(context.Context, event) error { time.Sleep(3 * time.Second); return nil }), watchOpts{})
		settle(time.Minute)
		src.Apply(object("a", "2"))
		settle(time.Minute)
		r.ofWatcher(values{"handling_seconds_count": 3, "handling_seconds_sum": 9})
	})
}

func TestAnInformerWithAnObserverOfItsOwnHasOnlyWhatHealthSays(t *testing.T) {
	bubble(t, []configMap{object("a", "1")}, func(r *rig, src *informertest.Source[configMap]) {
		r.add(src, options{Observer: &informer.Observer{}})
		r.add(src, options{Name: "both", Observer: informer.Tee(&informer.Observer{}, r.metrics.Observer())})
		settle(time.Minute)
		r.expect("informer_synced", values{`{informer="i"}`: 1, `{informer="both"}`: 1})
		r.expect(`informer_event`, values{
			`s_total{informer="both",origin="initial",type="added"}`: 1,
			`_lag_seconds_count{informer="both"}`:                    1,
			`_lag_seconds_sum{informer="both"}`:                      0,
		})
	})
}

func TestAnObserverHasOnlyTheFunctionsThatItNeeds(t *testing.T) {
	m := prometheus.New(func() map[string]informer.MemberHealth { return nil })
	for _, o := range []*informer.Observer{m.Observer(), m.Observer()} {
		if o.List == nil || o.Watch == nil || o.Store == nil || o.Apply == nil || o.Handled == nil ||
			o.Merged != nil || o.Lagging != nil || o.Undelivered != nil {
			t.Errorf("it has %+v", o)
		}
	}
}
