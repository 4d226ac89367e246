package prometheus_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/metrics/prometheus"
)

func TestRetriesAreCountedWhenTheyAreMade(t *testing.T) {
	type attempt struct {
		failures int
		err      error
		want     float64 // number of retries after it
	}
	temporary, refused := syscall.ENOSPC, fmt.Errorf("too large: %w", informer.ErrPermanent)
	for name, attempts := range map[string][]attempt{
		"succeeds":                  {{0, nil, 0}, {0, nil, 0}},
		"fails twice":               {{1, temporary, 0}, {2, temporary, 1}, {0, nil, 2}, {0, nil, 2}},
		"is refused":                {{1, refused, 0}, {0, nil, 0}},
		"fails, and is refused":     {{1, temporary, 0}, {2, refused, 1}, {0, nil, 1}},
		"fails for two at one time": {{1, temporary, 0}, {1, temporary, 0}, {0, nil, 1}, {0, nil, 2}, {0, nil, 2}},
	} {
		m := fixed(informer.Health{Name: "i"})
		registry, failed := registered(m), 0
		for n, a := range attempts {
			m.Observer().Store(informer.StoreInfo{Informer: "i", Op: "get", Failures: a.failures, Err: a.err, Took: time.Second})
			if a.err != nil {
				failed++
			}
			all := scrape(t, registry)
			want := values{"errors_total": float64(failed), "retries_total": a.want, "duration_seconds_count": float64(n + 1), "duration_seconds_sum": float64(n + 1)}
			for metric, want := range want {
				of(t, all, "informer_store_"+metric, values{"informer_store_" + metric + `{informer="i",op="get"}`: want})
			}
			if t.Failed() {
				t.Fatalf("an operation that %s, attempt %d", name, n+1)
			}
		}
	}
}

func TestAnUnknownOperationOrEventIsNoNewSeries(t *testing.T) {
	m := fixed(informer.Health{Name: "i"})
	o := m.Observer()
	for _, op := range []string{"get", "add", "update", "delete", "list", "bookmark", "scan", "apply", "forget", "resume", "tombstones", "compact", "\xff"} {
		o.Store(informer.StoreInfo{Informer: "i", Op: op})
	}
	for _, info := range []informer.ApplyInfo{{}, {Type: 4}, {Type: 255, Origin: 255}, {Type: informer.EventAdded, Origin: informer.OriginResync}} {
		info.Informer = "i"
		o.Apply(info)
	}
	o.Watch(informer.WatchInfo{Informer: "i", Events: -1})
	all := scrape(t, registered(m))
	counters := having(all, "events_total")
	for _, name := range counters {
		if all[name] != 0 {
			t.Errorf("%s is %v", name, all[name])
		}
	}
	if n := len(having(all, "informer_store_errors_total")); len(counters) != 3*3+1+1 || n != 11+1 || all[`informer_store_duration_seconds_count{informer="i",op="other"}`] != 2 {
		t.Errorf("%d counters of events, %d operations: %v", len(counters), n, all)
	}
}

func TestAnInformerWithAnObserverOfItsOwnHasOnlyTheFiguresOfHealth(t *testing.T) {
	bubble(t, []configMap{object("a", "1")}, func(r *rig, src *informertest.Source[configMap]) {
		r.add(src, options{Observer: &informer.Observer{}})
		r.add(src, options{Name: "both", Observer: informer.Tee(&informer.Observer{}, r.metrics.Observer())})
		sleepBubble(time.Minute)
		all := scrape(t, r.registry)
		of(t, all, "informer_synced", values{`informer_synced{informer="i"}`: 1, `informer_synced{informer="both"}`: 1})
		of(t, all, "informer_event_lag_seconds_count", values{`informer_event_lag_seconds_count{informer="both"}`: 1})
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
