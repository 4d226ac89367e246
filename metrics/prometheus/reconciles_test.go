package prometheus_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
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
		src.SetFaults(informertest.Faults{ListDelay: 10 * time.Second})
		inf := r.add(src, options{WatchList: informer.WatchListOff, Durable: informertest.NewDurable()})
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
	call := func(took ...time.Duration) (all []enqueue.KeyHealth) {
		for _, d := range took {
			all = append(all, enqueue.KeyHealth{For: d})
		}
		return all
	}
	failure := func(lasts time.Duration) []enqueue.KeyHealth {
		return []enqueue.KeyHealth{{For: lasts}}
	}
	a := enqueue.Health{
		Name: "q", Synced: true, Stopped: true, Workers: 1, Queued: 2, OldestQueued: 3 * time.Second, Waiting: 1, Busy: 4, Calls: call(50*time.Second, 6*time.Second), Failing: 7, Failures: failure(8 * time.Second),
		LastSuccess: late, Deletes: 9, Dropped: 10, Succeeded: 2, Again: 1, Took: [13]int{2: 2}, TookSum: 3 * time.Second,
	}
	b := enqueue.Health{
		Name: "q", Workers: 10, Queued: 20, OldestQueued: 30 * time.Second, Waiting: 2, Busy: 40, Calls: call(5 * time.Second), Failing: 70, Failures: failure(80 * time.Second),
		LastSuccess: early, Deletes: 90, Dropped: 100, Standby: true, Failed: 3, GaveUp: 1, Took: [13]int{12: 3}, TookSum: time.Hour,
	}
	want := values{
		"synced": 0, "stopped": 1, "standby": 1, "workers": 11, "queued": 22, "waiting": 3, "oldest_queued_seconds": 30, "busy": 44, "longest_call_seconds": 50,
		"failing": 77, "longest_failing_seconds": 80, "last_success_timestamp_seconds": 1000, "deletes": 99, "dropped_total": 110, "duration_seconds_count": 5, "duration_seconds_sum": 3603,
	}
	for range 10 { // the order of a map differs each time
		labelled(t, scrape(t, registered(fixed(a, b))), `{queue="q"}`, "informer_reconcile_", want)
	}
}

func TestCallsOfReconcileAreInTheBucketsOfTheirTime(t *testing.T) {
	families, err := registered(fixed(enqueue.Health{Name: "q", Took: [13]int{0: 1, 1: 2, 11: 3, 12: 4}})).Gather()
	if err != nil {
		t.Fatal(err)
	}
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
