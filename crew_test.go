package informer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
		begun := time.Now()
		for n := range objects {
			src.Apply(object(fmt.Sprint("o", n), "first"))
		}
		for reg.Stats().Pending > 0 || len(r.View()) < objects {
			sleepBubble(time.Millisecond)
		}
		if took, want := time.Since(begun), (objects/workers+2)*time.Millisecond; took > want {
			t.Errorf("%d objects, 1 ms each, took %d workers %v", objects, workers, took)
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
		if most != workers {
			t.Errorf("%d objects were handled at once, want %d", most, workers)
		}
		checkView(t, &r, src)
		if s := reg.Stats(); s.Pending != 0 || s.OldestWaiting != 0 {
			t.Errorf("in the end: %+v", s)
		}
	})
}

// attempt is one call of a watcher.
type attempt struct {
	at   time.Duration
	what string
}

// attempts records each call of a watcher. failures holds, for each value of an object, how many
// calls fail.
type attempts struct {
	begun    time.Time
	failures map[string]int
	err      error
	made     []attempt
}

func (a *attempts) handle(_ context.Context, e event) error {
	value := e.Object().Data["value"]
	a.made = append(a.made, attempt{time.Since(a.begun), fmt.Sprintf("%s %s %s", e.Type, e.Key().Name, value)})
	if a.failures[value] == 0 {
		return nil
	}
	a.failures[value]--
	return a.err
}

func (a *attempts) check(t *testing.T, want ...attempt) {
	t.Helper()
	if fmt.Sprint(a.made) != fmt.Sprint(want) {
		t.Errorf("the calls were\n%v, want\n%v", a.made, want)
	}
	a.made = nil
}

// retried runs an informer with one watcher, and records the watcher's calls in a. It returns
// the source, the registration and the reported errors.
func retried(t *testing.T, queue informer.QueueKind, a *attempts, opts informer.WatcherOptions) (*source, *informer.Registration, *errorLog) {
	t.Helper()
	var errs errorLog
	src := informertest.NewSource[configMap]()
	inf := newInformer(t, src, options{Queue: queue, ErrorHandler: errs.Handle})
	a.err = cmpOr(a.err, errors.New("no luck"))
	reg := addWatcher(t, inf, informer.WatcherFunc[configMap](a.handle), opts)
	informertest.Run(t, inf)
	a.begun = time.Now()
	return src, reg, &errs
}

func cmpOr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func TestAnObjectThatFailsThreeTimesIsDeliveredAFourth(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		a := &attempts{failures: map[string]int{"1": 3}}
		src, reg, errs := retried(t, queue, a, informer.WatcherOptions{Retry: informer.Backoff(time.Second, time.Minute, 0)})
		src.Apply(object("a", "1"))
		synctest.Wait()
		src.Apply(object("b", "2"))
		synctest.Wait()
		if s := reg.Stats(); s.Pending != 1 || s.Delivered != 1 {
			t.Errorf("while one object waits for its retry: %+v", s)
		}
		sleepBubble(time.Hour)
		if len(a.made) != 5 || a.made[1] != (attempt{0, "added b 2"}) {
			t.Fatalf("the other object waited: %v", a.made)
		}
		for n, least := range []time.Duration{1: 0, 2: time.Second, 3: 3 * time.Second, 4: 7 * time.Second} {
			if n == 0 {
				continue
			}
			c := a.made[n]
			if n == 1 {
				c = a.made[0]
			}
			if c.what != "added a 1" || c.at < least || c.at > least+least/10+time.Second/10 {
				t.Errorf("attempt %d is %v, want it at %v or up to a tenth later", n, c, least)
			}
		}
		if s := reg.Stats(); s.Pending != 0 || s.Delivered != 2 || s.Retried != 3 || s.Failed != 0 {
			t.Errorf("in the end: %+v", s)
		}
		checkEventErrors(t, errs, "watcher WatcherFunc-1: added default/a: no luck, failures 1, gave up false")
	})
}

func checkEventErrors(t *testing.T, errs *errorLog, want ...string) {
	t.Helper()
	var got []string
	for _, err := range errs.Take() {
		var failed *informer.EventError
		if !errors.As(err, &failed) {
			t.Errorf("reported %v", err)
			continue
		}
		got = append(got, fmt.Sprintf("%v, failures %d, gave up %v", err, failed.Failures, failed.GaveUp))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("reported\n%q, want\n%q", got, want)
	}
}

func TestANewerEventJoinsTheOneThatWaits(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		a := &attempts{failures: map[string]int{"1": 1, "3": 2}}
		src, reg, errs := retried(t, queue, a, informer.WatcherOptions{Retry: always})
		src.Apply(object("a", "1"))
		sleepBubble(time.Second / 2)
		src.Apply(object("a", "2"))
		sleepBubble(time.Second / 4)
		src.Apply(object("a", "3"))
		sleepBubble(time.Hour)
		a.check(t, attempt{0, "added a 1"}, attempt{time.Second, "added a 3"}, attempt{2 * time.Second, "added a 3"}, attempt{3 * time.Second, "added a 3"})
		checkEventErrors(t, errs,
			"watcher WatcherFunc-1: added default/a: no luck, failures 1, gave up false",
			"watcher WatcherFunc-1: added default/a: no luck, failures 1, gave up false") // a new count
		if s := reg.Stats(); s.Pending != 0 || s.Delivered != 1 || s.Merged != 2 {
			t.Errorf("in the end: %+v", s)
		}
	})
}

func TestAnEventThatComesDuringACallThatFailsWaitsToo(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		a := &attempts{failures: map[string]int{"1": 1}}
		src := informertest.NewSource[configMap]()
		inf := newInformer(t, src, options{Queue: queue, ErrorHandler: func(context.Context, error) {}})
		a.err = errors.New("no luck")
		addWatcher(t, inf, informer.WatcherFunc[configMap](func(ctx context.Context, e event) error {
			err := a.handle(ctx, e)
			time.Sleep(time.Minute)
			return err
		}), informer.WatcherOptions{Retry: func(int, error) (time.Duration, bool) { return time.Hour, true }})
		informertest.Run(t, inf)
		a.begun = time.Now()
		src.Apply(object("a", "1"))
		sleepBubble(time.Second)
		src.Apply(object("a", "2"))
		sleepBubble(24 * hour)
		a.check(t, attempt{0, "added a 1"}, attempt{time.Hour + time.Minute, "added a 2"})
	})
}

func TestSyncedComesAlsoIfTheFirstAttemptFailsAndSomethingNewerIsThere(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		store := newPlainStore(src.Objects()...)
		src.Apply(object("a", "2")) // the first list contains this version
		inf := newInformer(t, src, options{Queue: queue, Store: store, ErrorHandler: func(context.Context, error) {}})
		calls := 0
		reg := addWatcher(t, inf, informer.WatcherFunc[configMap](func(context.Context, event) error {
			time.Sleep(time.Second)
			if calls++; calls == 1 {
				return errors.New("no luck")
			}
			return nil
		}), informer.WatcherOptions{Retry: always})
		informertest.Run(t, inf)
		if s := reg.Stats(); !s.Synced || calls != 1 {
			t.Errorf("after %d calls: %+v", calls, s)
		}
	})
}

func TestTheDeleteOfAnObjectWhoseAddFailedComes(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		a := &attempts{failures: map[string]int{"1": 1}}
		src, _, _ := retried(t, queue, a, informer.WatcherOptions{Retry: always})
		src.Apply(object("a", "1"))
		sleepBubble(time.Second / 2)
		_, _ = src.Delete(keyOf("a"))
		sleepBubble(time.Hour)
		a.check(t, attempt{0, "added a 1"}, attempt{time.Second, "deleted a 1"})
	})
}

func TestErrPermanentEndsTheRetries(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		a := &attempts{failures: map[string]int{"1": 5}, err: fmt.Errorf("not like this: %w", informer.ErrPermanent)}
		src, reg, errs := retried(t, queue, a, informer.WatcherOptions{Retry: always})
		src.Apply(object("a", "1"))
		sleepBubble(time.Hour)
		a.check(t, attempt{0, "added a 1"})
		checkEventErrors(t, errs, "watcher WatcherFunc-1: added default/a: not like this: permanent failure (given up), failures 1, gave up true")
		src.Apply(object("a", "2"))
		sleepBubble(time.Hour)
		a.check(t, attempt{time.Hour, "updated a 2"})
		if s := reg.Stats(); s.Failed != 1 || s.Delivered != 1 || s.Pending != 0 {
			t.Errorf("in the end: %+v", s)
		}
	})
}

func TestGivingUpIsReported(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		a := &attempts{failures: map[string]int{"1": 99}}
		src, reg, errs := retried(t, queue, a, informer.WatcherOptions{Retry: informer.Backoff(time.Second, 2*time.Second, 3)})
		src.Apply(object("a", "1"))
		sleepBubble(time.Hour)
		if len(a.made) != 3 {
			t.Errorf("%d attempts", len(a.made))
		}
		checkEventErrors(t, errs,
			"watcher WatcherFunc-1: added default/a: no luck, failures 1, gave up false",
			"watcher WatcherFunc-1: added default/a: no luck (given up after 3 failures), failures 3, gave up true")
		if s := reg.Stats(); s.Failed != 1 || s.Retried != 2 || s.Pending != 0 {
			t.Errorf("in the end: %+v", s)
		}
	})
}

func TestSyncedComesAfterOneAttemptAtEverything(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"), object("b", "2"), object("c", "3"))
		inf := newInformer(t, src, options{Queue: queue, ErrorHandler: func(context.Context, error) {}})
		tried := map[string]bool{}
		var syncedAt time.Time
		reg := addWatcher(t, inf, informer.WatcherFunc[configMap](func(_ context.Context, e event) error {
			time.Sleep(time.Second)
			tried[e.Key().Name] = true
			if e.Key().Name == "b" {
				return errors.New("never")
			}
			return nil
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

// TestWhateverFailsTheEndIsRight makes calls fail at random, some before and some after they took
// effect. The calls that took effect must lead to the state of the source.
func TestWhateverFailsTheEndIsRight(t *testing.T) {
	seeds := 40
	if testing.Short() {
		seeds = 8
	}
	for seed := range uint64(seeds) {
		eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
			rnd := &dice{rnd: rand.New(rand.NewPCG(seed, uint64(queue)))}
			src := informertest.NewSource(object("o1", "1"), object("o2", "1"), object("o3", "1"))
			inf := newInformer(t, src, options{Queue: queue, ErrorHandler: func(context.Context, error) {}})
			var mu sync.Mutex
			has := map[string]string{} // UID and version by name
			chance := func(n int) bool { return rnd.IntN(10) < n }
			reg := addWatcher(t, inf, informer.Select(informer.WatcherFunc[configMap](func(_ context.Context, e event) error {
				mu.Lock()
				defer mu.Unlock()
				fails := chance(4)
				if fails && chance(5) {
					return errors.New("without effect")
				}
				if e.Type == informer.EventDeleted {
					delete(has, e.Key().Name)
				} else {
					has[e.Key().Name] = string(e.New.UID) + "@" + e.New.ResourceVersion
				}
				if fails {
					return errors.New("after it took effect")
				}
				return nil
			}), selected), informer.WatcherOptions{
				Workers: 1 + rnd.IntN(4), ResyncPeriod: time.Duration(rnd.IntN(3)) * 50 * time.Second,
				Retry: func(int, error) (time.Duration, bool) { return time.Duration(rnd.IntN(3)) * time.Second, true },
			})
			start(t, inf)
			for range 300 {
				name := fmt.Sprint("o", rnd.IntN(6))
				switch rnd.IntN(5) {
				case 0:
					_, _ = src.Delete(keyOf(name))
				case 1:
					_, _ = src.Delete(keyOf(name))
					src.Apply(object(name, fmt.Sprint(rnd.IntN(10))))
				default:
					src.Apply(object(name, fmt.Sprint(rnd.IntN(10))))
				}
				if pause := rnd.IntN(10); pause < 5 {
					sleepBubble(time.Duration(pause) * 300 * time.Millisecond)
				}
			}
			sleepBubble(time.Hour)
			<-reg.Synced()
			want := map[string]string{}
			for _, obj := range src.Objects() {
				if selected(obj) {
					want[obj.Name] = string(obj.UID) + "@" + obj.ResourceVersion
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if fmt.Sprint(has) != fmt.Sprint(want) {
				t.Fatalf("seed %d: ended with\n%v, want\n%v", seed, has, want)
			}
		})
	}
}

// dice is a random number generator that is safe for concurrent use.
type dice struct {
	mu  sync.Mutex // protects rnd
	rnd *rand.Rand
}

func (d *dice) IntN(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rnd.IntN(n)
}

func selected(obj configMap) bool { return obj.Data["value"] > "4" }
