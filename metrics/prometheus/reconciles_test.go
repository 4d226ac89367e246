package prometheus_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/metrics/prometheus"
)

// control adds a controller of the objects of inf to the group.
func (r *rig) control(inf *ci, opts enqueue.Options, reconcile func(ctx context.Context, name string) (time.Duration, error)) *enqueue.Controller[types.NamespacedName] {
	r.t.Helper()
	c, err := enqueue.NewController(func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
		return reconcile(ctx, key.Name)
	}, opts, enqueue.For(inf))
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.group.Add(c); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// ofQueue expects these values of metrics of the controller "q". Names are without
// "informer_reconcile_".
func (r *rig) ofQueue(want values) {
	r.t.Helper()
	for name, value := range want {
		r.expect("informer_reconcile_"+name+"{", values{`queue="q"}`: value})
	}
}

func TestAControllerIsShownByItsQueue(t *testing.T) {
	bubble(t, []configMap{object("a", "1")}, func(r *rig, src *informertest.Source[configMap]) {
		begun := float64(time.Now().Unix())
		src.SlowList(10 * time.Second)
		inf := r.add(src, options{WatchList: informer.WatchListOff, Store: informertest.NewDurable()})
		elected, hold := make(chan struct{}), make(chan struct{})
		c := r.control(inf, enqueue.Options{Name: "q", Workers: 2, Elected: elected, StandbyDeletes: 1}, func(_ context.Context, name string) (time.Duration, error) {
			switch name {
			case "hangs":
				<-hold
			case "fails":
				return 0, errors.New("no")
			}
			return 0, nil
		})
		settle(5 * time.Second)
		r.ofQueue(values{"synced": 0, "stopped": 0, "standby": 1, "workers": 2, "busy": 0, "queued": 0})
		r.expect("informer_reconcile_last_success_timestamp_seconds", values{})
		settle(5 * time.Second)
		for _, name := range []string{"b", "c", "d"} { // a standby keeps one of their deletes
			src.Apply(object(name, "1"))
			settle(time.Second)
			_, _ = src.Delete(keyOf(name))
		}
		settle(7 * time.Second)
		r.ofQueue(values{"synced": 1, "standby": 1, "dropped_total": 2, "deletes": 1, "queued": 1, "oldest_queued_seconds": 0})
		close(elected)
		settle(0)
		r.ofQueue(values{"standby": 0, "deletes": 0, "queued": 0, "last_success_timestamp_seconds": begun + 20, "duration_seconds_count": 2})

		src.Apply(object("fails", "1"))
		settle(time.Minute)
		r.ofQueue(values{"failing": 1, "longest_failing_seconds": 60, "busy": 0, "longest_call_seconds": 0})
		src.Apply(object("hangs", "1"))
		settle(time.Second)
		src.Apply(object("hangs", "2"))
		settle(6 * time.Second)
		r.ofQueue(values{"busy": 1, "longest_call_seconds": 7, "last_success_timestamp_seconds": begun + 20})
		close(hold)
		settle(0)
		r.ofQueue(values{"busy": 0, "longest_call_seconds": 0, "last_success_timestamp_seconds": begun + 87})

		all := scrape(r.t, r.registry)
		if shown := having(all, `informer="q"`); len(shown) > 0 {
			r.t.Errorf("the controller is shown as an informer: %v", shown)
		}
		for _, key := range []string{"hangs", "fails", "default"} {
			if shown := having(all, key); len(shown) > 0 {
				r.t.Errorf("the key %q is in %v", key, shown)
			}
		}
		if n := len(having(all, "informer_reconcile_")); n != 14+4+2 {
			r.t.Errorf("the controller has %d series: %v", n, having(all, "informer_reconcile_"))
		}
		if err := r.group.Remove(c); err != nil {
			r.t.Fatal(err)
		}
		if left := having(scrape(r.t, r.registry), "informer_reconcile_"); len(left) > 0 {
			r.t.Errorf("when the controller has gone, there are %v", left)
		}
		r.of(values{"synced": 1, "objects": 3})
		if n := r.metrics.KeptInVectors(); n != r.metrics.KeptSeries() {
			r.t.Errorf("%d series are kept in vectors, and %d are known", n, r.metrics.KeptSeries())
		}
	})
}

func TestAQueueThatGrowsIsShown(t *testing.T) {
	bubble(t, []configMap{object("a", "1"), object("b", "1"), object("c", "1")}, func(r *rig, src *informertest.Source[configMap]) {
		inf := r.add(src, options{})
		hold := make(chan struct{})
		r.control(inf, enqueue.Options{Name: "q"}, func(context.Context, string) (time.Duration, error) { <-hold; return 0, nil })
		settle(9 * time.Second)
		r.ofQueue(values{"queued": 2, "oldest_queued_seconds": 9, "busy": 1, "workers": 1})
		close(hold)
		settle(0)
		r.ofQueue(values{"queued": 0, "oldest_queued_seconds": 0, "busy": 0})
	})
}

func TestCallsOfReconcileAreCountedByTheirResult(t *testing.T) {
	bubble(t, []configMap{object("a", "1"), object("again", "1"), object("fails", "1"), object("wrong", "1")}, func(r *rig, src *informertest.Source[configMap]) {
		inf := r.add(src, options{})
		calls := map[string]int{}
		r.control(inf, enqueue.Options{Name: "q", MaxAttempts: 4}, func(_ context.Context, name string) (time.Duration, error) {
			time.Sleep(time.Second)
			calls[name]++
			switch {
			case name == "again" && calls[name] < 3:
				return time.Second, nil
			case name == "fails":
				return 0, errors.New("no")
			case name == "wrong":
				return time.Second, fmt.Errorf("never: %w", informer.ErrPermanent)
			}
			return 0, nil
		})
		settle(time.Hour)
		r.expect("informer_reconcile_total", values{
			`{outcome="success",queue="q"}`: 2, `{outcome="again",queue="q"}`: 2, `{outcome="error",queue="q"}`: 3, `{outcome="gaveup",queue="q"}`: 2,
		})
		r.ofQueue(values{"duration_seconds_count": 9, "duration_seconds_sum": 9, "failing": 2})
	})
}

func TestControllersOfOneNameAreOneSeries(t *testing.T) {
	early, late := time.Unix(1000, 0), time.Unix(2000, 0)
	call := func(took ...time.Duration) (all []informer.ReconcileCall) {
		for _, d := range took {
			all = append(all, informer.ReconcileCall{Took: d})
		}
		return all
	}
	failure := func(lasts time.Duration) []informer.ReconcileFailure {
		return []informer.ReconcileFailure{{For: lasts}}
	}
	a := informer.Health{Name: "q", Synced: true, Stopped: true, Controller: &informer.ControllerHealth{
		Workers: 1, Queued: 2, OldestQueued: 3 * time.Second, Waiting: 1, Busy: 4, Calls: call(50*time.Second, 6*time.Second), Failing: 7, Failures: failure(8 * time.Second),
		LastSuccess: late, Deletes: 9, Dropped: 10,
	}}
	b := informer.Health{Name: "q", Controller: &informer.ControllerHealth{
		Workers: 10, Queued: 20, OldestQueued: 30 * time.Second, Waiting: 2, Busy: 40, Calls: call(5 * time.Second), Failing: 70, Failures: failure(80 * time.Second),
		LastSuccess: early, Deletes: 90, Dropped: 100, Standby: true,
	}}
	want := values{
		"synced": 0, "stopped": 1, "standby": 1, "workers": 11, "queued": 22, "waiting": 3, "oldest_queued_seconds": 30, "busy": 44, "longest_call_seconds": 50,
		"failing": 77, "longest_failing_seconds": 80, "last_success_timestamp_seconds": 1000, "deletes": 99, "dropped_total": 110,
	}
	for range 10 { // the order of a map differs each time
		got := values{}
		for name, value := range scrape(t, registered(fixed(a, b, informer.Health{Name: "q", Objects: 5}))) {
			if short, ok := strings.CutSuffix(name, `{queue="q"}`); ok {
				got[strings.TrimPrefix(short, "informer_reconcile_")] = value
			}
			if name == `informer_objects{informer="q"}` && value != 5 {
				t.Errorf("the informer of the same name has %v objects", value)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestNoNameOfAControllerBreaksAScrapeAndTheirNumberStaysBounded(t *testing.T) {
	var health []informer.Health
	for _, name := range hostile {
		health = append(health, informer.Health{Name: name, Controller: &informer.ControllerHealth{}})
	}
	m := fixed(health...)
	o, registry := m.Observer(), registered(m)
	for range 2 {
		for _, name := range hostile {
			o.Reconciled(informer.ReconciledInfo{Controller: name, Key: name, Took: -time.Second, Err: errors.New("\xff")})
		}
		if n := len(having(scrape(t, registry), "informer_reconcile_busy")); n != 12 { // four are the same as valid UTF-8
			t.Errorf("%d controllers are shown", n)
		}
	}
	gone := prometheus.New(func() map[string]informer.Health { return nil })
	for n := range 1000 {
		gone.Observer().Reconciled(informer.ReconciledInfo{Controller: fmt.Sprint("q", n)})
		if kept := gone.Kept(); kept > 101 {
			t.Fatalf("%d entries are kept", kept)
		}
	}
	if all := scrape(t, registered(gone)); len(all) > 0 || gone.KeptInVectors() != 0 {
		t.Errorf("when none is there, there are %v", all)
	}
}

func TestAControllerThatComesWhileHealthIsAskedIsNotSwept(t *testing.T) {
	comes := func() {}
	m := prometheus.New(func() map[string]informer.Health { comes(); return nil })
	o, registry := m.Observer(), registered(m)
	o.Reconciled(informer.ReconciledInfo{Controller: "gone"})
	comes = func() { o.Reconciled(informer.ReconciledInfo{Controller: "new"}) }
	all := scrape(t, registry)
	if all[`informer_reconcile_total{outcome="success",queue="new"}`] != 1 || len(having(all, `"gone"`)) > 0 {
		t.Errorf("there are %v", all)
	}
	comes = func() {}
	if left := scrape(t, registry); len(left) > 0 {
		t.Errorf("at the next scrape there are still %v", left)
	}
}
