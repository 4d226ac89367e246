package informer_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// always is a Retry function: it retries after one second, without end.
func always(int, error) (time.Duration, bool) { return time.Second, true }

func TestWorkersHandleManyObjectsAtOnceAndNeverOneTwice(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		const workers, objects, rounds = 8, 50, 20
		src := informertest.NewSource[configMap]()
		inf := newInformer(t, src, options{Queue: queue})
		var mu sync.Mutex
		busy, most := map[string]bool{}, 0
		r := recorder{Hook: func(_ context.Context, e event) error {
			mu.Lock()
			if busy[e.Key().Name] {
				t.Errorf("two calls for %s at the same time", e.Key())
			}
			busy[e.Key().Name] = true
			most = max(most, len(busy))
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			delete(busy, e.Key().Name)
			mu.Unlock()
			return nil
		}}
		reg := addWatcher(t, inf, &r, informer.WatcherOptions{Workers: workers})
		informertest.Run(t, inf)
		for n := range objects {
			src.Apply(object(fmt.Sprint("o", n), "first"))
		}
		sleepBubble((objects/workers + 2) * time.Millisecond)
		if s := reg.Stats(); s.Pending > 0 || len(r.View()) < objects || most != workers {
			t.Errorf("%d objects of 1 ms each, %d of them at once: %+v", len(r.View()), most, s)
		}
		for n := range rounds * objects {
			if n%7 == 6 {
				_, _ = src.Delete(keyOf(fmt.Sprint("o", n%objects)))
			} else {
				src.Apply(object(fmt.Sprint("o", n%objects), fmt.Sprint(n)))
			}
			if n%objects == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		sleepBubble(time.Minute)
		equal(t, "objects handled at once", most, workers)
		checkView(t, &r, src)
		if s := reg.Stats(); s.Pending != 0 || s.OldestWaiting != 0 {
			t.Errorf("in the end: %+v", s)
		}
	})
}

// attempt is one call of a watcher, or one change of an object.
type attempt struct {
	at   time.Duration
	what string
}

func TestAnEventThatFailsIsRetried(t *testing.T) {
	const firstReport = "watcher w: added default/a: no luck, failures 1, gave up false"
	pause := func(d time.Duration) func(int, error) (time.Duration, bool) {
		return func(int, error) (time.Duration, bool) { return d, true }
	}
	for name, tc := range map[string]struct {
		retry    func(int, error) (time.Duration, bool)
		failures map[string]int // how many calls fail, by the value of the object
		err      error
		takes    time.Duration // for one call
		changes  []attempt     // a name and a value, or a name to delete
		want     []attempt
		reports  []string
		stats    informer.WatcherStats // in the end
	}{
		"until it succeeds, and the other object does not wait": {
			retry: always, failures: map[string]int{"1": 3},
			changes: []attempt{{0, "a 1"}, {0, "b 2"}},
			want: []attempt{
				{0, "added a 1"}, {0, "added b 2"}, {time.Second, "added a 1"}, {2 * time.Second, "added a 1"}, {3 * time.Second, "added a 1"},
			},
			reports: []string{firstReport},
			stats:   informer.WatcherStats{Delivered: 2, Retried: 3},
		},
		"newer events join the one that waits": {
			retry: always, failures: map[string]int{"1": 1, "3": 2},
			changes: []attempt{{0, "a 1"}, {time.Second / 2, "a 2"}, {time.Second * 3 / 4, "a 3"}},
			want:    []attempt{{0, "added a 1"}, {time.Second, "added a 3"}, {2 * time.Second, "added a 3"}, {3 * time.Second, "added a 3"}},
			reports: []string{firstReport, firstReport},                         // a new count
			stats:   informer.WatcherStats{Delivered: 1, Merged: 2, Retried: 2}, // a merged event is another one
		},
		"an event that comes during the call waits too": {
			retry: pause(hour), failures: map[string]int{"1": 1}, takes: time.Minute,
			changes: []attempt{{0, "a 1"}, {time.Second, "a 2"}},
			want:    []attempt{{0, "added a 1"}, {hour + time.Minute, "added a 2"}},
			reports: []string{firstReport},
			stats:   informer.WatcherStats{Delivered: 1, Merged: 1},
		},
		"the delete of an object whose add failed comes": {
			retry: always, failures: map[string]int{"1": 1},
			changes: []attempt{{0, "a 1"}, {time.Second / 2, "a"}},
			want:    []attempt{{0, "added a 1"}, {time.Second, "deleted a 1"}},
			reports: []string{firstReport},
			stats:   informer.WatcherStats{Delivered: 1, Merged: 1},
		},
		"ErrPermanent ends the retries": {
			retry: always, failures: map[string]int{"1": 5}, err: fmt.Errorf("not like this: %w", informer.ErrPermanent),
			changes: []attempt{{0, "a 1"}, {hour, "a 2"}},
			want:    []attempt{{0, "added a 1"}, {hour, "updated a 2"}},
			reports: []string{"watcher w: added default/a: not like this: permanent failure (given up), failures 1, gave up true"},
			stats:   informer.WatcherStats{Delivered: 1, Failed: 1},
		},
		"giving up is reported": {
			retry:    func(failures int, _ error) (time.Duration, bool) { return time.Second, failures < 3 },
			failures: map[string]int{"1": 99},
			changes:  []attempt{{0, "a 1"}},
			want:     []attempt{{0, "added a 1"}, {time.Second, "added a 1"}, {2 * time.Second, "added a 1"}},
			reports:  []string{firstReport, "watcher w: added default/a: no luck (given up after 3 failures), failures 3, gave up true"},
			stats:    informer.WatcherStats{Failed: 1, Retried: 2},
		},
		"a wait of centuries is none at all": {
			retry: pause(math.MaxInt64), failures: map[string]int{"1": 1},
			changes: []attempt{{0, "a 1"}, {time.Second, "a 2"}},
			want:    []attempt{{0, "added a 1"}},
			reports: []string{firstReport},
			stats:   informer.WatcherStats{Pending: 1, Merged: 1},
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			var errs errorLog
			src := informertest.NewSource[configMap]()
			inf := newInformer(t, src, options{ErrorHandler: errs.Handle})
			var made []attempt
			begun := time.Now()
			reg := addWatcher(t, inf, informer.WatcherFunc[configMap](func(_ context.Context, e event) error {
				value := e.Object().Data["value"]
				made = append(made, attempt{time.Since(begun), fmt.Sprintf("%s %s %s", e.Type, e.Key().Name, value)})
				time.Sleep(tc.takes) // of the bubble's time: the call lasts
				if tc.failures[value]--; tc.failures[value] < 0 {
					return nil
				}
				return cmp.Or(tc.err, errors.New("no luck"))
			}), informer.WatcherOptions{Name: "w", Retry: tc.retry})
			informertest.Run(t, inf)
			for _, c := range tc.changes {
				sleepBubble(time.Until(begun.Add(c.at)))
				if name, value, apply := strings.Cut(c.what, " "); apply {
					src.Apply(object(name, value))
				} else if _, err := src.Delete(keyOf(name)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			if s := reg.Stats(); tc.err == nil && s.Pending == 0 {
				t.Errorf("nothing waits after the last change: %+v", s)
			}
			sleepBubble(24 * hour)
			if !slices.Equal(made, tc.want) {
				t.Errorf("the calls were\n%v, want\n%v", made, tc.want)
			}
			var reports []string
			for _, err := range errs.Take() {
				var failed *informer.EventError
				if !errors.As(err, &failed) {
					t.Fatalf("reported %v", err)
				}
				reports = append(reports, fmt.Sprintf("%v, failures %d, gave up %v", err, failed.Failures, failed.GaveUp))
			}
			equal(t, "reports", reports, tc.reports)
			s := reg.Stats()
			got := informer.WatcherStats{Pending: s.Pending, Delivered: s.Delivered, Failed: s.Failed, Retried: s.Retried, Merged: s.Merged}
			equal(t, "stats in the end", got, tc.stats)
		})
	}
}

// syncedOverAnOlderStore returns the values with which a watcher is called until it has synced. The store has the
// value 1, and the first list the value 2. Each call takes a second of the bubble, and returns err.
func syncedOverAnOlderStore(t *testing.T, queue informer.QueueKind, opts informer.WatcherOptions, err error) (values []string) {
	t.Helper()
	src := informertest.NewSource(object("a", "1"))
	store := newPlainStore(src.Objects()...)
	src.Apply(object("a", "2"))
	inf := newInformer(t, src, options{Queue: queue, Store: store, ErrorHandler: quiet})
	r := recorder{Hook: func(context.Context, event) error { time.Sleep(time.Second); return err }}
	reg := addWatcher(t, inf, &r, opts)
	start(t, inf)
	<-reg.Synced()
	for _, e := range r.Events() {
		values = append(values, e.New.Data["value"])
	}
	return values
}

func TestWithWorkersSyncedWaitsForTheFirstListToo(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		if told := syncedOverAnOlderStore(t, queue, informer.WatcherOptions{Workers: 2}, nil); !slices.Contains(told, "2") {
			t.Errorf("synced after %q", told)
		}
	})
}

func TestSyncedComesEvenIfTheFirstAttemptFailsAndANewerEventWaits(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		told := syncedOverAnOlderStore(t, queue, informer.WatcherOptions{Retry: always}, errors.New("no luck"))
		equal(t, "attempts before the sync", len(told), 1)
	})
}

func TestSyncedComesAfterOneAttemptAtEverything(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"), object("b", "2"), object("c", "3"))
		inf := newInformer(t, src, options{Queue: queue, ErrorHandler: quiet})
		tried := map[string]bool{}
		var syncedAt time.Time
		reg := addWatcher(t, inf, informer.WatcherFunc[configMap](func(_ context.Context, e event) error {
			time.Sleep(time.Second)
			tried[e.Key().Name] = true
			return errorIf(e.Key().Name == "b", errors.New("never"))
		}), informer.WatcherOptions{Retry: always, OnSynced: func(context.Context) {
			syncedAt = time.Now()
			if len(tried) != 3 {
				t.Errorf("OnSynced comes after %v", tried)
			}
		}})
		start(t, inf)
		begun := time.Now()
		<-reg.Synced()
		if took := time.Since(begun); took > 4*time.Second || syncedAt.IsZero() {
			t.Errorf("synced after %v, OnSynced was called at %v", took, syncedAt)
		}
	})
}
