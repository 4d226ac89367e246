package informer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

func TestHealthShowsHowFarAnInformerHasCome(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		src.SetFaults(informertest.Faults{HoldLists: true})
		inf := newInformer(t, src, options{Queue: queue, WatchList: informer.WatchListOff})
		goroutines := make(chan struct{})
		informer.HoldListeners(inf, goroutines)
		addWatcher(t, inf, &recorder{}, informer.WatcherOptions{})
		check := func(when string, want informer.Health) {
			t.Helper()
			synctest.Wait()
			got := inf.Health()
			got.LastList, got.LastContact, got.LastProgress, got.Watchers = time.Time{}, time.Time{}, time.Time{}, nil
			want.Name, want.Store = "ConfigMap", "in memory"
			if want.Synced {
				want.Objects = 1
			}
			if weighed := got.Memory.Objects > 0 && got.Memory.ListPeak > 0; weighed != want.Synced {
				t.Errorf("%s: %v", when, got.Memory)
			}
			got.Memory = informer.MemoryHealth{}
			equal(t, when, got, want)
		}
		check("before Run", informer.Health{})
		stop := start(t, inf)
		check("while no listener is live", informer.Health{})
		close(goroutines)
		check("during the first list", informer.Health{Started: true})
		src.Heal()
		check("synced", informer.Health{Started: true, Synced: true, Watching: true, ResourceVersion: src.ResourceVersion()})
		src.Apply(object("a", "2"))
		check("after a change", informer.Health{Started: true, Synced: true, Watching: true, ResourceVersion: src.ResourceVersion()})
		last := src.ResourceVersion()
		stop()
		src.Apply(object("a", "3"))
		check("stopped", informer.Health{Started: true, Stopped: true, Synced: true, ResourceVersion: last})
	})
}

func TestHealthShowsWhenTheSourceWasHeardOfLast(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"), object("b", "1"))
		src.SetFaults(informertest.Faults{ListDelay: time.Minute})
		inf := newInformer(t, src, options{Queue: queue, WatchList: informer.WatchListOff, PageSize: 1, ErrorHandler: quiet})
		sleepBubble(hour)
		start(t, inf)
		check := func(when string, list, contact time.Duration) {
			t.Helper()
			synctest.Wait()
			if h := inf.Health(); ago(h.LastList) != list || ago(h.LastContact) != contact {
				t.Errorf("%s: the last list was %v ago, not %v, the last contact %v, not %v", when, ago(h.LastList), list, ago(h.LastContact), contact)
			}
		}
		if h := inf.Health(); !h.LastList.IsZero() || !h.LastContact.IsZero() {
			t.Errorf("during the first list it has heard of its source: %+v", h)
		}
		sleepBubble(time.Minute)
		if h := inf.Health(); !h.LastList.IsZero() || ago(h.LastContact) != 0 {
			t.Errorf("after the first page of the first list: %+v", h)
		}
		sleepBubble(time.Minute)
		check("listed", 0, 0)
		sleepBubble(time.Minute)
		check("a minute later", time.Minute, time.Minute)
		src.Apply(object("a", "2"))
		check("after an event", time.Minute, 0)
		sleepBubble(time.Minute)
		check("again a minute later", 2*time.Minute, time.Minute)
		src.Bookmark()
		check("after a bookmark", 2*time.Minute, 0)
		src.Expire()
		opened(t, src)
		check("listed again", 0, 0)
		sleepBubble(time.Minute)
		unreachable(src)
		sleepBubble(hour)
		check("an hour after the connection broke, which is not a contact", hour+time.Minute, hour+time.Minute)
		src.Heal()
		opened(t, src)
		check("with a new watch, that is quiet", ago(inf.Health().LastList), 0)
	})
}

func TestHealthShowsWhenTheStoreGotOn(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		store := informertest.NewStore(nil)
		inf := newInformer(t, src, options{Queue: queue, Store: store})
		sleepBubble(hour)
		start(t, inf)
		check := func(when string, progress time.Duration, queued, objects int) {
			t.Helper()
			synctest.Wait()
			if h := inf.Health(); ago(h.LastProgress) != progress || h.Queued != queued || h.Objects != objects {
				t.Errorf("%s: the last progress was %v ago, not %v, %d are queued, not %d, %d objects are there, not %d",
					when, ago(h.LastProgress), progress, h.Queued, queued, h.Objects, objects)
			}
		}
		check("synced", 0, 0, 1)
		sleepBubble(time.Minute)
		src.Bookmark()
		check("after a bookmark", 0, 0, 1)
		release := store.Hang()
		for n := range 3 {
			src.Apply(object(fmt.Sprint("b", n), "1"))
		}
		sleepBubble(time.Minute)
		check("while the store hangs", time.Minute, 3, 1)
		release()
		check("when it continues", 0, 0, 4)
		remove(t, src, "b0")
		sleepBubble(time.Second)
		check("a second after a delete", time.Second, 0, 3)
	})
}

func TestHealthShowsASourceThatFailsUntilItWorks(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		inf := runWith(t, queue, src, informertest.NewStore(nil))
		check := func(when string, watching bool, want error) {
			t.Helper()
			failures := 0
			for _, r := range src.Requests() {
				if failures++; r.Err == nil {
					failures = 0 // only failures in a row count
				}
			}
			h := inf.Health()
			if h.Watching != watching || h.SourceFailures != failures || !errors.Is(h.SourceError, want) || (want == nil) != (h.SourceError == nil) {
				t.Errorf("%s after %d failures: watching %v, %v, %d failures", when, failures, h.Watching, h.SourceError, h.SourceFailures)
			}
		}
		check("at first", true, nil)
		for range 2 {
			sleepBubble(10 * time.Second)
			unreachable(src)
			synctest.Wait()
			check("at once", false, syscall.ECONNREFUSED)
			sleepBubble(hour)
			check("in an hour", false, syscall.ECONNREFUSED)
			src.Heal()
			opened(t, src)
			src.Bookmark()
			synctest.Wait()
			check("when it works again", true, nil)
		}
		var failed *informer.WatchError
		src.SetFaults(informertest.Faults{RejectWatchList: true})
		src.Fail("list", apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", nil), -1)
		src.Expire()
		sleepBubble(hour)
		if h := inf.Health(); !errors.As(h.SourceError, &failed) || failed.Op != "list" || !apierrors.IsForbidden(h.SourceError) || h.SourceFailures < 50 {
			t.Errorf("with LIST forbidden it shows %v, %d failures", h.SourceError, h.SourceFailures)
		}
	})
}

func TestHealthShowsAStoreThatFailsUntilItWorks(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src, store := informertest.NewSource(object("a", "1")), informertest.NewStore(nil)
		inf := runWith(t, queue, src, store)
		noError(t, inf.Health().StoreError)
		full := errors.New("the disk is full")
		for _, op := range []string{"get", "update"} {
			store.Fail(failOn(op, full))
			before := store.Calls("get")
			src.Apply(object("a", op))
			sleepBubble(hour)
			attempts := store.Calls("get") - before // each attempt begins with a Get
			var failed *informer.StoreError
			h := inf.Health()
			if !errors.As(h.StoreError, &failed) || failed.Op != op || failed.Key != "default/a" || !errors.Is(failed, full) || failed.Failures != attempts || h.StoreBusy != 0 {
				t.Errorf("after %d attempts of a %s that fails: %+v, busy for %v", attempts, op, h.StoreError, h.StoreBusy)
			}
			store.Heal()
			sleepBubble(time.Minute)
			noError(t, inf.Health().StoreError)
		}
	})
}

func TestHealthCountsChangesThatTheStoreRefuses(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src, store := informertest.NewSource(object("a", "1")), informertest.NewStore(nil)
		inf := runWith(t, queue, src, store)
		store.Fail(func(op, _ string) error {
			if op == "get" {
				return nil
			}
			return fmt.Errorf("too large: %w", informer.ErrPermanent)
		})
		for n := range 3 {
			if h := inf.Health(); h.Refused != n || h.StoreError != nil || h.ResourceVersion != src.ResourceVersion() {
				t.Errorf("after %d refusals: %d, %v, at version %s", n, h.Refused, h.StoreError, h.ResourceVersion)
			}
			src.Apply(object("a", fmt.Sprint("too large ", n)))
			synctest.Wait()
		}
	})
}

func TestHealthHasFiguresOfEachWatcherByName(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"), object("b", "1"))
		inf := runWith(t, queue, src, informertest.NewStore(nil))
		hold := make(chan struct{})
		slow := addWatcher(t, inf, &recorder{Hook: func(_ context.Context, e event) error {
			if e.Key() == keyOf("c") {
				<-hold
			}
			return nil
		}}, informer.WatcherOptions{Name: "slow"})
		addWatcher(t, inf, &recorder{Hook: func(context.Context, event) error {
			return fmt.Errorf("never pleased: %w", informer.ErrPermanent)
		}}, informer.WatcherOptions{Name: "picky"})
		t.Cleanup(slow.Remove)
		synctest.Wait()
		src.Apply(object("c", "1"))
		src.Apply(object("a", "3"))
		sleepBubble(time.Minute)
		picky := informer.WatcherHealth{WatcherStats: informer.WatcherStats{Name: "picky", Synced: true, Failed: 4}}
		want := []informer.WatcherHealth{picky, {
			WatcherStats: informer.WatcherStats{Name: "slow", Synced: true, Delivered: 2, Pending: 2, OldestWaiting: time.Minute},
			Calls:        []string{"default/c"},
		}}
		for range 10 { // the order could be right by chance
			equal(t, "watchers", inf.Health().Watchers, want)
		}
		close(hold)
		slow.Remove()
		equal(t, "once it is removed", inf.Health().Watchers, []informer.WatcherHealth{picky})
	})
}

func TestEverythingAnswersAtOnceWhileTheStoreHangs(t *testing.T) {
	for op := range storeCalls {
		t.Run(op, func(t *testing.T) {
			eachQueue(t, func(t *testing.T, queue informer.QueueKind) { throughAHang(t, queue, op) })
		})
	}
}

func throughAHang(t *testing.T, queue informer.QueueKind, op string) {
	src, store := informertest.NewSource(object("a", "1")), informertest.NewStore(nil)
	inf := newInformer(t, src, options{Queue: queue, Store: store})
	reg := addWatcher(t, inf, &recorder{}, informer.WatcherOptions{Name: "early"})
	atStart := op == "list"
	var release func()
	if atStart {
		release = hangAt(store, op)
	}
	start(t, inf)
	synctest.Wait()
	if !atStart {
		release = hangAt(store, op)
	}
	key := storeCalls[op].key
	storeCalls[op].provoke(src)
	for _, passed := range []time.Duration{9 * time.Second, 11 * time.Second} {
		time.Sleep(passed - inf.Health().StoreBusy)
		begun := time.Now()
		h := inf.Health()
		var hung *informer.StoreError
		if errors.As(h.StoreError, &hung) != (passed > 10*time.Second) || h.StoreBusy != passed {
			t.Errorf("after %v it shows %v, the store is busy for %v", passed, h.StoreError, h.StoreBusy)
		}
		if hung != nil && (hung.Op != op || hung.Key != key || !strings.Contains(hung.Error(), "has not returned for 11s")) {
			t.Errorf("it shows %v", h.StoreError)
		}
		if s := reg.Stats(); s.Synced == atStart || s.Name != "early" || inf.HasSynced() == atStart || (inf.ResourceVersion() == "") != atStart {
			t.Errorf("the informer has synced: %v, at version %q, the watcher: %+v", inf.HasSynced(), inf.ResourceVersion(), s)
		}
		addWatcher(t, inf, &recorder{}, informer.WatcherOptions{Name: "late"})
		equal(t, "the answers took", time.Since(begun), 0)
	}
	err := inf.WaitForSync(within(t, time.Second))
	var late *informer.SyncError
	if want := strings.TrimSpace(op+" "+key) + ": has not returned for "; !errors.As(err, &late) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"late"`) {
		t.Errorf("waiting ended with %v, not %q", err, want)
	}
	release()
	noError(t, inf.WaitForSync(within(t, time.Second)))
	synctest.Wait()
	if h := inf.Health(); h.StoreError != nil || h.StoreBusy != 0 {
		t.Errorf("when it hangs no more: %v, busy for %v", h.StoreError, h.StoreBusy)
	}
}

func TestHealthShowsSinceWhenASourceFailsAndWhenItIsTriedAgain(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		inf := runWith(t, queue, src, informertest.NewStore(nil))
		began := time.Now()
		unreachable(src)
		sleepBubble(hour)
		for range 3 {
			h, asked := inf.Health(), len(src.Requests())
			if late := h.SourceFailingSince.Sub(began); late < 0 || late > 10*time.Second {
				t.Errorf("it fails since %v after the first failure", late)
			}
			pause := time.Until(h.SourceNextTry)
			sleepBubble(pause - 1)
			early := len(src.Requests())
			sleepBubble(1)
			if pause <= 0 || pause > time.Minute || early != asked || len(src.Requests()) == asked {
				t.Fatalf("the next try is in %v, and %d came before", pause, early-asked)
			}
		}
		src.Heal()
		opened(t, src)
		src.Bookmark()
		synctest.Wait()
		if h := inf.Health(); !h.SourceFailingSince.IsZero() || !h.SourceNextTry.IsZero() {
			t.Errorf("when it works again, it fails since %v, and is tried at %v", h.SourceFailingSince, h.SourceNextTry)
		}
	})
}

// decoded returns the value of a JSON text, in which the order of names does not count.
func decoded(t *testing.T, text string) (value any) {
	t.Helper()
	noError(t, json.Unmarshal([]byte(text), &value))
	return value
}

func TestHealthAsJSON(t *testing.T) {
	at := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		health informer.Health
		want   string
	}{
		"in trouble": {informer.Health{
			Name: "Pod", Started: true, Synced: true, LastList: at, LastContact: at.Add(time.Minute), ResourceVersion: "1000",
			SourceError: &informer.WatchError{Op: "watch", Resource: "Pod", Err: errors.New("connection refused")}, SourceFailures: 7, SourceWaiting: time.Minute,
			SourceFailingSince: at, SourceNextTry: at.Add(time.Hour),
			StoreError: &informer.StoreError{Op: "get", Key: "default/a", Err: errors.New(`"disk" full`)}, StoreBusy: 1500 * time.Millisecond, Refused: 2,
			Watchers: []informer.WatcherHealth{{
				WatcherStats: informer.WatcherStats{Name: "w", Pending: 3, Lagging: true, OldestWaiting: 250 * time.Millisecond},
				Calls:        []string{"default/a"}, Retries: []string{"default/b"}, Hung: true, Retrying: true,
			}},
			LastProgress: at.Add(time.Second), Objects: 12, Queued: 4, Store: "in memory",
		}, `{"name":"Pod","started":true,"stopped":false,"synced":true,"watching":false,` +
			`"lastList":"2026-07-01T12:00:00Z","lastContact":"2026-07-01T12:01:00Z","resourceVersion":"1000",` +
			`"lastProgress":"2026-07-01T12:00:01Z","objects":12,"queued":4,` +
			`"sourceError":"watch Pod: connection refused","sourceFailures":7,"sourceWaitingSeconds":60,` +
			`"sourceFailingSince":"2026-07-01T12:00:00Z","sourceNextTry":"2026-07-01T13:00:00Z",` +
			`"storeError":"store: get default/a: \"disk\" full","storeBusySeconds":1.5,"refused":2,` +
			`"watchers":[{"name":"w","synced":false,"pending":3,"delivered":0,"failed":0,"retried":0,"merged":0,"lagging":true,"oldestWaitingSeconds":0.25}]}`},
		"well": {informer.Health{Name: "Pod", Started: true, Stopped: true, Synced: true, Watching: true, Objects: -1, Watchers: []informer.WatcherHealth{}},
			`{"name":"Pod","started":true,"stopped":true,"synced":true,"watching":true,"queued":0,"watchers":[]}`},
		"of nothing": {informer.Health{}, `{"name":"","started":false,"stopped":false,"synced":false,"watching":false,"objects":0,"queued":0,"watchers":[]}`},
	} {
		t.Run(name, func(t *testing.T) {
			text := must(json.Marshal(test.health))
			equal(t, name, decoded(t, string(text)), decoded(t, test.want))
		})
	}
	inf := newInformer(t, informertest.NewSource[configMap](), options{})
	if got, err := json.Marshal(inf.Health()); !strings.Contains(string(got), `"watchers":[]`) || err != nil {
		t.Errorf("of an informer without watchers: %s, %v", got, err)
	}
}
