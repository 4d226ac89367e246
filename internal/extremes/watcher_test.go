package extremes_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/extremes"
	"github.com/customcacheinformer/informer/internal/testkit"
)

var watcherTrials = map[string]extremes.Trial{
	"informer.WatcherOptions.MaxBacklog":   extremes.Field("", nil, inBubble(keepsABacklog)),
	"informer.WatcherOptions.Workers":      extremes.Field("max -1 min", nil, inBubble(sharesTheWork)),
	"informer.WatcherOptions.ResyncPeriod": extremes.Field("-1 min", nil, inBubble(isNotResynced)),
	"informer.RetryPolicy returns wait":    extremes.Number("", inBubble(retries)),

	"informer.Backoff(base)": extremes.Number("0 -1 min", inBubble(func(t *testing.T, base time.Duration) error {
		return backsOff(t, base, max(base, time.Minute), 0)
	})),
	"informer.Backoff(limit)": extremes.Number("0 -1 min", inBubble(func(t *testing.T, limit time.Duration) error {
		return backsOff(t, time.Second, limit, 0)
	})),
	"informer.RetryPolicy(failures)": extremes.Number("", func(t *testing.T, failures int) error {
		wait, again := informer.Backoff(time.Second, time.Minute, 0)(failures, nil)
		if wait < time.Second || wait > 66*time.Second || !again {
			t.Errorf("it waits %v, and tries again: %v", wait, again)
		}
		return nil
	}),
	"informer.Backoff(attempts)": extremes.Number("-1 min", inBubble(func(t *testing.T, attempts int) error {
		return backsOff(t, time.Second, time.Minute, attempts)
	})),
}

// watched returns an informer over a source with the objects a and b, and one watcher. The
// informer is not run yet.
func watched(t *testing.T, w informer.ResourceWatcher[configMap], opts informer.WatcherOptions) (*testkit.Informer, *source, error) {
	src := informertest.NewSource(object("a", "1"), object("b", "1"))
	inf := testkit.NewInformer(t, src, options{ErrorHandler: testkit.Ignore, DrainTimeout: time.Minute})
	_, err := inf.AddWatcher(w, opts)
	return inf, src, err
}

// keepsABacklog checks that a watcher which blocks for a while then gets every event, because
// fewer wait than the default of MaxBacklog. The first events wait in the state and the others in
// the log.
func keepsABacklog(t *testing.T, opts informer.WatcherOptions) error {
	release := make(chan struct{})
	r := recorder{Hook: func(context.Context, event) error { <-release; return nil }}
	inf, src, err := watched(t, &r, opts)
	if err != nil {
		return err
	}
	stop := testkit.Start(t, inf)
	want := []string{"added default/a", "added default/b"}
	for n := range 600 { // more than one chunk of the log
		synctest.Wait() // so that each is an event of its own
		src.Apply(object("a", fmt.Sprint("v", n)))
		want = append(want, "updated default/a")
	}
	synctest.Wait()
	close(release)
	r.Expect(t, want...)
	if n := inf.Health().Watchers[0].Merged; n > 0 {
		t.Errorf("%d events were merged", n)
	}
	if _, err := src.Delete(testkit.KeyOf("a")); err != nil {
		t.Error(err)
	}
	r.Expect(t, "deleted default/a")
	stop()
	return nil
}

// sharesTheWork checks for how many objects a watcher is called at once.
func sharesTheWork(t *testing.T, opts informer.WatcherOptions) error {
	var now, most atomic.Int32
	r := recorder{Hook: func(context.Context, event) error {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		time.Sleep(time.Second)
		return nil
	}}
	inf, src, err := watched(t, &r, opts)
	if err != nil {
		return err
	}
	stop := testkit.Start(t, inf)
	r.Expect(t, "added default/a", "added default/b")
	src.Apply(object("a", "2"))
	r.Expect(t, "updated default/a")
	stop()
	if want := min(2, max(1, opts.Workers)); int(most.Load()) != want {
		t.Errorf("the watcher was called for %d objects at once, want %d", most.Load(), want)
	}
	return nil
}

// isNotResynced checks that a watcher gets changes, and no resync.
func isNotResynced(t *testing.T, opts informer.WatcherOptions) error {
	var r recorder
	inf, src, err := watched(t, &r, opts)
	if err != nil {
		return err
	}
	stop := testkit.Start(t, inf)
	r.Expect(t, "added default/a", "added default/b")
	for n := range 3 {
		testkit.SleepBubble(hour)
		r.Expect(t)
		src.Apply(object("a", fmt.Sprint("v", n)))
		r.Expect(t, "updated default/a")
	}
	stop()
	return nil
}

// retries checks that a watcher gets an event again after wait, or at once if wait is not more
// than 0, and that it gets other events meanwhile.
func retries(t *testing.T, wait time.Duration) error {
	calls := map[string]int{}
	w := informer.WatcherFunc[configMap](func(_ context.Context, e event) error {
		name := e.Key().Name
		if calls[name]++; name == "a" && calls[name] < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	inf, src, err := watched(t, w, informer.WatcherOptions{Retry: func(int, error) (time.Duration, bool) { return wait, true }})
	if err != nil {
		return err
	}
	stop := testkit.Start(t, inf)
	testkit.SleepBubble(hour)
	src.Apply(object("b", "2"))
	testkit.SleepBubble(hour)
	before := calls["a"]
	if calls["b"] != 2 {
		t.Errorf("%d calls for another object, want 2", calls["b"])
	}
	waiting := slices.Contains(inf.Health().Watchers[0].Retries, "default/a")
	stop()
	if want := 3; wait <= 0 && (before != want || waiting) {
		t.Errorf("%d calls, and an event still waits: %v, want %d", before, waiting, want)
	}
	if wait > 0 && (before != 1 || calls["a"] != 2 || !waiting) {
		t.Errorf("%d calls and %d in the drain, and the event waits: %v, want 1 and 1 more", before, calls["a"]-before, waiting)
	}
	return nil
}

// backsOff checks how often the result of Backoff makes an informer try an event in an hour.
func backsOff(t *testing.T, base, limit time.Duration, attempts int) error {
	var retry informer.RetryPolicy
	if err := panics(func() { retry = informer.Backoff(base, limit, attempts) }); err != nil {
		return err
	}
	calls := 0
	w := informer.WatcherFunc[configMap](func(_ context.Context, e event) error {
		if e.Key().Name == "b" {
			return nil
		}
		if calls++; calls > 10_000 { // time does not go on by itself
			return informer.ErrPermanent
		}
		return errors.New("no")
	})
	inf, _, err := watched(t, w, informer.WatcherOptions{Retry: retry})
	if err != nil {
		return err
	}
	stop := testkit.Start(t, inf)
	testkit.SleepBubble(hour)
	least, most := 55, 65 // one a minute, and some more before the pause has grown
	switch {
	case base > hour:
		least, most = 1, 1
	case limit > hour:
		least, most = 11, 12
	}
	if calls < least || calls > most {
		t.Errorf("%d attempts within an hour, want %d to %d", calls, least, most)
	}
	stop()
	return nil
}
