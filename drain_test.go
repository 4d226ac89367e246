package informer_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// handling is a recorder that counts its calls that were not interrupted.
type handling struct {
	recorder
	handled atomic.Int64
}

// waiting is the number of events that wait for a watcher that takes eventTime for each, 10 s
// for all.
const waiting, eventTime = 2000, 5 * time.Millisecond

// waitingFor makes events wait for a slow watcher. It returns when the watcher is called.
func waitingFor(t *testing.T, queue informer.QueueKind, drain time.Duration, opts informer.WatcherOptions) (r *handling, src *source, j *journal, stop func()) {
	t.Helper()
	src, r, j = informertest.NewSource[configMap](), &handling{}, &journal{}
	inf := newInformer(t, src, options{Queue: queue, DrainTimeout: drain, Observer: j.observer()})
	r.Hook = func(ctx context.Context, _ event) error {
		select {
		case <-time.After(eventTime):
			r.handled.Add(1)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	opts.Name, opts.MaxBacklog = "slow", -1
	addWatcher(t, inf, r, opts)
	stop = start(t, inf)
	<-inf.Synced()
	for n := range waiting {
		src.Apply(object(fmt.Sprint("o", n), ""))
	}
	// No time passes here in the bubble, so nearly all events still wait.
	noError(t, inf.WaitForVersion(t.Context(), "", src.ResourceVersion()))
	return r, src, j, stop
}

func TestWaitingEventsAreDeliveredWithinTheDrainTimeout(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		for workers := range 3 {
			r, src, j, stop := waitingFor(t, queue, time.Minute, informer.WatcherOptions{Workers: workers})
			before, begun := r.handled.Load(), time.Now()
			stop()
			if before > 10 || r.handled.Load() != waiting {
				t.Errorf("%d events before and %d after the stop", before, r.handled.Load())
			}
			if took := time.Since(begun); took > 11*time.Second || took < 4*time.Second {
				t.Errorf("draining took %v", took)
			}
			expect(t, j, &j.undelivered)
			checkView(t, &r.recorder, src)
		}
	})
}

func TestEventsLeftAtTheStopAreCounted(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		for name, drain := range map[string]time.Duration{"no drain": 0, "too short": time.Second} {
			for workers := range 3 {
				r, _, j, stop := waitingFor(t, queue, drain, informer.WatcherOptions{Workers: workers})
				equal(t, "stopping took", took(stop), drain)
				handled := int(r.handled.Load())
				if calls, most := len(r.Events()), handled+max(1, workers); calls > most {
					t.Errorf("%s, %d workers: called again after the calls under way were interrupted: %d times, at most %d", name, workers, calls, most)
				}
				expect(t, j, &j.undelivered, informer.BacklogInfo{Informer: "ConfigMap", Watcher: "slow", Events: waiting - handled})
			}
		}
	})
}

func TestTheCtxOfCallsIsAliveWhileDraining(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", ""), object("b", ""), object("c", ""))
		inf := newInformer(t, src, options{Queue: queue, DrainTimeout: time.Hour})
		ended := 0
		handle := func(ctx context.Context, _ event) error {
			time.Sleep(time.Minute)
			if ctx.Err() != nil {
				ended++
			}
			return nil
		}
		reg := addWatcher(t, inf, informer.WatcherFunc[configMap](handle), informer.WatcherOptions{})
		stop := start(t, inf)
		<-inf.Synced()
		go stop()
		sleepBubble(90 * time.Second)
		if s := reg.Stats(); ended != 0 || s.Delivered != 1 || s.Pending != 2 {
			t.Errorf("while draining, %d calls with an ended ctx: %+v", ended, s)
		}
		reg.Remove()
		<-reg.Stopped()
		equal(t, "calls whose ctx Remove ended", ended, 1)
		equal(t, "draining, with its only watcher removed", took(stop), 0)
	})
}

func TestAWaitingRetryIsTriedOnceMoreWhileDraining(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("heals", ""), object("stays broken", ""))
		var errs errorLog
		var j journal
		inf := newInformer(t, src, options{Queue: queue, DrainTimeout: time.Hour, Observer: j.observer(), ErrorHandler: errs.Handle})
		calls := map[string]int{}
		reg := addWatcher(t, inf, informer.WatcherFunc[configMap](func(_ context.Context, e event) error {
			if calls[e.Key().Name]++; calls[e.Key().Name] == 2 && e.Key().Name == "heals" {
				return nil
			}
			return errors.New("no luck")
		}), informer.WatcherOptions{Retry: func(int, error) (time.Duration, bool) { return 24 * time.Hour, true }})
		stop := start(t, inf)
		<-reg.Synced()
		if d := took(stop); d != 0 || calls["heals"] != 2 || calls["stays broken"] != 2 {
			t.Errorf("after %v the calls were %v", d, calls)
		}
		equal(t, "in the end", reg.Stats(), informer.WatcherStats{Name: "WatcherFunc-1", Synced: true, Delivered: 1, Retried: 2, Pending: 1})
		expect(t, &j, &j.undelivered, informer.BacklogInfo{Informer: "ConfigMap", Watcher: "WatcherFunc-1", Events: 1})
		equal(t, "errors, one for each and one for giving up", len(errs.Take()), 3)
	})
}

func TestDrainingIsOverAsSoonAsNothingWaits(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		inf := newInformer(t, informertest.NewSource(object("a", "")), options{Queue: queue, DrainTimeout: time.Hour})
		addWatcher(t, inf, &recorder{}, informer.WatcherOptions{})
		addWatcher(t, inf, &recorder{}, informer.WatcherOptions{Workers: 4, ResyncPeriod: time.Minute})
		stop := start(t, inf)
		sleepBubble(time.Minute)
		equal(t, "draining", took(stop), 0)
	})
}

// panicky panics for one object.
func panicky(_ context.Context, e event) error {
	if e.Key().Name == "bad" {
		panic("what a pity")
	}
	return nil
}

func TestARecoveredPanicIsAnErrorAndNothingMore(t *testing.T) {
	for name, opts := range map[string]informer.WatcherOptions{
		"plain": {}, "workers": {Workers: 4}, "retry": {Retry: informer.Backoff(time.Second, time.Second, 2)},
	} {
		eachQueueOf(t, name, func(t *testing.T, queue informer.QueueKind) {
			src := informertest.NewSource(object("a", ""), object("bad", ""), object("c", ""))
			var errs errorLog
			inf := newInformer(t, src, options{Queue: queue, ErrorHandler: errs.Handle})
			var other recorder
			addWatcher(t, inf, &other, informer.WatcherOptions{})
			opts.RecoverPanics = true
			opts.OnSynced = func(context.Context) { panic("this too") }
			reg := addWatcher(t, inf, informer.WatcherFunc[configMap](panicky), opts)
			informertest.Run(t, inf)
			sleepBubble(time.Minute)
			checkView(t, &other, src)
			if s := reg.Stats(); !s.Synced || s.Delivered != 2 || s.Failed != 1 || s.Pending != 0 {
				t.Errorf("in the end: %+v", s)
			}
			watcher, onSynced := 0, 0
			for _, err := range errs.Take() {
				var failed *informer.EventError
				var panicked *informer.PanicError
				switch {
				case !errors.As(err, &failed) || !errors.As(err, &panicked):
					t.Errorf("reported %v", err)
				case panicked.Value == "what a pity" && failed.Key == keyOf("bad") && strings.Contains(string(panicked.Stack), "panicky"):
					watcher++
				case panicked.Value == "this too" && strings.Contains(err.Error(), "OnSynced"):
					onSynced++
				default:
					t.Errorf("reported %v", err)
				}
			}
			if watcher != 1 && name != "retry" || onSynced != 1 {
				t.Errorf("reported %d panics of the watcher and %d of OnSynced", watcher, onSynced)
			}
		})
	}
}

// TestAPanicEndsTheProcess runs itself again, in a process that must die.
func TestAPanicEndsTheProcess(t *testing.T) {
	const variable = "INFORMER_TEST_PANIC"
	transform := func(opts options) func(*testing.T) {
		return func(t *testing.T) {
			opts.Transform = panickyTransform
			_ = newInformer(t, informertest.NewSource(object("bad", "")), opts).Run(t.Context())
		}
	}
	watcher := func(opts informer.WatcherOptions) func(*testing.T) {
		return func(t *testing.T) {
			inf := newInformer(t, informertest.NewSource(object("bad", "")), options{})
			addWatcher(t, inf, informer.WatcherFunc[configMap](panicky), opts)
			_ = inf.Run(t.Context())
		}
	}
	for mode, tc := range map[string]struct {
		run   func(*testing.T)
		where string // the function that panics
	}{
		"a watcher":                   {watcher(informer.WatcherOptions{}), "panicky("},
		"a watcher with workers":      {watcher(informer.WatcherOptions{Workers: 2}), "panicky("},
		"a Transform of a page":       {transform(options{WatchList: informer.WatchListOff}), "panickyTransform("},
		"a Transform in a stream":     {transform(options{WatchList: informer.WatchListOn}), "panickyTransform("},
		"a Transform of a whole list": {transform(options{Intake: informer.IntakeWhole}), "panickyTransform("},
	} {
		if child := os.Getenv(variable); child != "" {
			if child == mode {
				tc.run(t)
			}
			continue
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAPanicEndsTheProcess$")
		cmd.Env = append(os.Environ(), variable+"="+mode)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 {
			t.Errorf("%s: ended with %v", mode, err)
		}
		if !strings.Contains(string(out), "panic: what a pity") || !strings.Contains(string(out), "informer_test."+tc.where) {
			t.Errorf("%s: does not show the panic and where it was:\n%s", mode, out)
		}
	}
}

func panickyTransform(configMap) (configMap, error) { panic("what a pity") }

func TestABlockedWatcherIsSeenInItsStatsAlsoAfterTheStop(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		for workers := range 3 {
			src := informertest.NewSource(object("a", "1"), object("b", "1"))
			inf := newInformer(t, src, options{Queue: queue})
			blocked := &recorder{Hook: func(ctx context.Context, _ event) error { <-ctx.Done(); return ctx.Err() }}
			reg := addWatcher(t, inf, blocked, informer.WatcherOptions{Name: "blocked", Workers: workers})
			stop := start(t, inf)
			sleepBubble(time.Minute)
			src.Apply(object("c", "1"))
			sleepBubble(time.Minute)
			equal(t, "while it is blocked", reg.Stats(), informer.WatcherStats{Name: "blocked", Pending: 3, OldestWaiting: 2 * time.Minute})
			stop()
			time.Sleep(time.Minute)
			equal(t, "after the stop", inf.Health().Watchers[0].WatcherStats, informer.WatcherStats{Name: "blocked", Pending: 3})
		}
	})
}

func TestTheLargestDrainTimeoutLeavesTimeForRetries(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		var j journal
		inf := newInformer(t, informertest.NewSource(object("a", "")), options{
			Queue: queue, DrainTimeout: math.MaxInt64, Observer: j.observer(), ErrorHandler: quiet,
		})
		calls := 0
		addWatcher(t, inf, informer.WatcherFunc[configMap](func(context.Context, event) error {
			calls++
			return errorIf(calls < 5, errors.New("not yet"))
		}), informer.WatcherOptions{Name: "w", Retry: informer.Backoff(time.Hour, time.Hour, 0)})
		stop := start(t, inf)
		synctest.Wait()
		stop()
		equal(t, "calls", calls, 5)
		expect(t, &j, &j.undelivered)
	})
}
