package prometheus_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

type values = map[string]float64

// of expects these values of metrics of the informer "i". Names are without "informer_".
func (r *rig) of(want values) {
	r.t.Helper()
	for name, value := range want {
		r.expect("informer_"+name+"{", values{`informer="i"}`: value})
	}
}

// none expects that the informer "i" does not have these metrics now.
func (r *rig) none(names ...string) {
	r.t.Helper()
	for _, name := range names {
		r.expect("informer_"+name+"{", values{})
	}
}

// ofWatcher expects these values of metrics of its watcher "w".
func (r *rig) ofWatcher(want values) {
	r.t.Helper()
	for name, value := range want {
		r.expect("informer_watcher_"+name+"{", values{`informer="i",watcher="w"}`: value})
	}
}

func number(t *testing.T, version string) float64 {
	t.Helper()
	n, err := strconv.Atoi(version)
	if err != nil {
		t.Fatal(err)
	}
	return float64(n)
}

func TestItIsShownHowFarAnInformerHasCome(t *testing.T) {
	bubble(t, []configMap{object("a", "1"), object("b", "1")}, func(r *rig, src *informertest.Source[configMap]) {
		begun := float64(time.Now().Unix())
		src.SetFaults(informertest.Faults{ListDelay: 10 * time.Second})
		store := informertest.NewStore(nil)
		r.add(src, options{Store: store, WatchList: informer.WatchListOff})
		settle(5 * time.Second)
		r.of(values{"synced": 0, "watching": 0, "objects": 0, "queued_changes": 0, "source_failures": 0})
		r.none("last_list_timestamp_seconds", "last_contact_timestamp_seconds", "last_progress_timestamp_seconds", "resource_version")

		settle(5 * time.Second)
		r.of(values{
			"synced": 1, "watching": 1, "objects": 2, "resource_version": number(r.t, src.ResourceVersion()),
			"last_list_timestamp_seconds": begun + 10, "last_contact_timestamp_seconds": begun + 10, "last_progress_timestamp_seconds": begun + 10,
		})

		settle(time.Minute)
		src.Bookmark()
		settle(1500 * time.Millisecond)
		release := store.Hang()
		src.Apply(object("c", "1"))
		settle(time.Minute)
		r.of(values{
			"objects": 2, "resource_version": number(r.t, src.ResourceVersion()) - 1, "last_list_timestamp_seconds": begun + 10,
			"last_contact_timestamp_seconds": begun + 71.5, "last_progress_timestamp_seconds": begun + 70,
		})
		release()
		settle(0)
		r.of(values{
			"objects": 3, "resource_version": number(r.t, src.ResourceVersion()), "last_list_timestamp_seconds": begun + 10,
			"last_contact_timestamp_seconds": begun + 71.5, "last_progress_timestamp_seconds": begun + 131.5,
		})
	})
}

func TestFailuresOfTheSourceAreShownUntilItWorks(t *testing.T) {
	bubble(t, nil, func(r *rig, src *informertest.Source[configMap]) {
		r.add(src, options{})
		settle(time.Minute)
		src.Fail("watch", syscall.ECONNREFUSED, -1)
		src.Disconnect()
		settle(time.Hour)
		failed := 0
		for _, request := range src.Requests() {
			if errors.Is(request.Err, syscall.ECONNREFUSED) {
				failed++
			}
		}
		if failed < 10 {
			r.t.Errorf("only %d requests have failed", failed)
		}
		r.of(values{"synced": 1, "watching": 0, "source_failures": float64(failed)})
		src.Heal()
		settle(time.Hour)
		r.of(values{"watching": 1, "source_failures": 0})
	})
}

func TestAStoreThatFailsHangsOrRefusesIsShown(t *testing.T) {
	bubble(t, []configMap{object("a", "1")}, func(r *rig, src *informertest.Source[configMap]) {
		store := informertest.NewStore(nil)
		r.add(src, options{Store: store})
		settle(time.Minute)
		r.of(values{"store_failing": 0, "store_busy_seconds": 0, "refused_changes_total": 0, "queued_changes": 0})

		store.Fail(func(string, string) error { return syscall.ENOSPC })
		for _, name := range []string{"b", "c", "d"} {
			src.Apply(object(name, "1"))
		}
		settle(time.Minute)
		r.of(values{"store_failing": 1, "store_busy_seconds": 0, "queued_changes": 3, "objects": 1})
		store.Heal()
		settle(time.Minute)
		r.of(values{"store_failing": 0, "queued_changes": 0, "objects": 4})

		release := store.Hang()
		src.Apply(object("a", "2"))
		settle(7 * time.Second)
		r.of(values{"store_failing": 0, "store_busy_seconds": 7})
		settle(7 * time.Second)
		r.of(values{"store_failing": 1, "store_busy_seconds": 14})
		release()

		settle(0)
		store.Fail(func(op, _ string) error {
			if op == "get" {
				return nil
			}
			return fmt.Errorf("too large: %w", informer.ErrPermanent)
		})
		src.Apply(object("a", "3"))
		src.Apply(object("b", "3"))
		settle(time.Minute)
		r.of(values{"store_failing": 0, "store_busy_seconds": 0, "refused_changes_total": 2})
	})
}

func TestTombstonesAreShownUntilTheirEndIsHandled(t *testing.T) {
	bubble(t, []configMap{object("a", "1"), object("b", "1"), object("c", "1")}, func(r *rig, src *informertest.Source[configMap]) {
		hold := make(chan struct{})
		inf := r.add(src, options{Durable: informertest.NewDurable()})
		r.join(inf, "w", watcher(func(_ context.Context, e event) error {
			if e.Type == informer.EventDeleted {
				<-hold
			}
			return nil
		}), watchOpts{})
		settle(time.Minute)
		r.of(values{"tombstones": 0})
		_, _ = src.Delete(keyOf("a"))
		_, _ = src.Delete(keyOf("b"))
		settle(2 * time.Minute)
		r.of(values{"tombstones": 2, "objects": 1})
		close(hold)
		settle(2 * time.Minute)
		r.of(values{"tombstones": 0})
	})
}

func TestAWatcherThatBlocksIsShown(t *testing.T) {
	bubble(t, []configMap{object("a", "0")}, func(r *rig, src *informertest.Source[configMap]) {
		inf := r.add(src, options{})
		hold := make(chan struct{})
		r.join(inf, "w", watcher(func(context.Context, event) error { <-hold; return nil }), watchOpts{MaxBacklog: 2})
		settle(3 * time.Second)
		r.ofWatcher(values{"synced": 0, "pending": 1, "oldest_waiting_seconds": 3, "lagging": 0, "delivered_total": 0, "merged_total": 0})
		for n := range 2 { // these events wait
			src.Apply(object("a", fmt.Sprint("waits ", n)))
			settle(0)
		}
		r.ofWatcher(values{"pending": 3, "lagging": 0, "merged_total": 0})
		src.Apply(object("a", "too many")) // all waiting events are merged into one
		settle(4 * time.Second)
		r.ofWatcher(values{"pending": 2, "oldest_waiting_seconds": 7, "lagging": 1, "merged_total": 2})
		close(hold)
		settle(time.Minute)
		r.ofWatcher(values{
			"synced": 1, "pending": 0, "oldest_waiting_seconds": 0, "lagging": 0,
			"delivered_total": 2, "merged_total": 2, "failed_total": 0, "retried_total": 0,
		})
	})
}

func TestAWatcherThatFailsIsShown(t *testing.T) {
	bubble(t, []configMap{object("a", "1"), object("b", "1"), object("c", "1")}, func(r *rig, src *informertest.Source[configMap]) {
		inf := r.add(src, options{})
		calls := map[string]int{}
		r.join(inf, "w", watcher(func(_ context.Context, e event) error {
			name := e.Key().Name
			if calls[name]++; name == "a" || name == "b" && calls[name] < 3 {
				return errors.New("not now")
			}
			return nil
		}), watchOpts{Retry: informer.Backoff(time.Second, time.Second, 5)})
		settle(time.Minute)
		r.ofWatcher(values{"delivered_total": 2, "failed_total": 1, "retried_total": 4 + 2})
		r.ofWatcher(values{"handling_seconds_count": 5 + 3 + 1})
	})
}

func TestAStoppedInformerIsShownWhileItIsAMember(t *testing.T) {
	bubble(t, []configMap{object("a", "1")}, func(r *rig, src *informertest.Source[configMap]) {
		inf := r.add(src, options{})
		r.join(inf, "w", ignore, watchOpts{})
		settle(time.Minute)
		r.stop()
		for range 3 { // number of scrapes
			r.of(values{"synced": 1, "watching": 0, "objects": 1, "watch_events_total": 2})
			r.ofWatcher(values{"synced": 1, "delivered_total": 1, "handling_seconds_count": 1})
		}
	})
}
