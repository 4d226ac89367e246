package informer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/channel"
)

func TestRunTwiceIsAnErrorAtOnce(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		inf := newInformer(t, informertest.NewSource[configMap](), options{Queue: queue})
		stop := start(t, inf)
		synctest.Wait()
		fails(t, inf.Run(t.Context()), informer.ErrAlreadyRun)
		stop()
		fails(t, inf.Run(t.Context()), informer.ErrAlreadyRun)
	})
}

func TestRunWithAnEndedCtxDoesNothing(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src, opts := informertest.NewSource(object("a", "1")), options{Queue: queue}
		if queue == informer.QueueRealFIFO {
			opts.Durable = informertest.NewDurable()
		}
		inf := newInformer(t, src, opts)
		var r recorder
		reg := addWatcher(t, inf, &r, informer.WatcherOptions{})
		noError(t, inf.Run(within(t, 0)))
		<-reg.Stopped()
		synctest.Wait()
		r.Expect(t)
		equal(t, "requests", len(src.Requests()), 0)
		fails(t, inf.WaitForSync(t.Context()), informer.ErrStopped)
		informertest.Run(t, newInformer(t, src, opts)) // the Durable is free
	})
}

func TestAfterTheStopEverythingReportsIt(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		inf := newInformer(t, src, options{Queue: queue})
		var r recorder
		reg := addWatcher(t, inf, &r, informer.WatcherOptions{})
		stop := informertest.Run(t, inf)
		stop()
		<-reg.Stopped()
		src.Apply(object("a", "2"))
		synctest.Wait()
		r.Expect(t, "added default/a")
		r.Expect(t)
		_, add := inf.AddWatcher(&r, informer.WatcherOptions{})
		fails(t, add, informer.ErrStopped)
		fails(t, inf.WaitForVersion(t.Context(), "", "999999"), informer.ErrStopped)
		fails(t, inf.WaitFor(t.Context(), keyOf("a"), func(configMap, bool) bool { return false }), informer.ErrStopped)
		noError(t, inf.WaitForSync(t.Context())) // it had synced
		equal(t, "what was there last", valueOf(inf.Get(keyOf("a"))), "1")
		reg.Remove() // has no effect
		equal(t, "open watches", src.Watches(), 0)
	})
}

func TestRemoveEndsTheCallsAndTheirCtx(t *testing.T) {
	for name, opts := range map[string]informer.WatcherOptions{"plain": {}, "retry": {Retry: always}} {
		inBubble(t, name, func(t *testing.T) {
			src := informertest.NewSource(object("a", "1"))
			inf := newInformer(t, src, options{}) // a report would fail the test
			called, cancelled, release := make(chan struct{}, 1), false, make(chan struct{})
			r := recorder{Hook: func(ctx context.Context, _ event) error {
				called <- struct{}{}
				<-ctx.Done() // ends although the informer keeps running
				cancelled = true
				<-release
				return ctx.Err()
			}}
			opts.OnSynced = func(context.Context) { t.Error("OnSynced is called after Remove") }
			reg := addWatcher(t, inf, &r, opts)
			start(t, inf)
			<-called
			src.Apply(object("b", "1")) // this event waits, and is dropped
			synced := make(chan error, 1)
			go func() { synced <- inf.WaitForSync(t.Context()) }()
			synctest.Wait()
			reg.Remove()
			reg.Remove()
			noError(t, <-synced)
			synctest.Wait()
			if !cancelled || channel.Closed(reg.Stopped()) {
				t.Errorf("during the call: its ctx is done: %v, Stopped: %v", cancelled, channel.Closed(reg.Stopped()))
			}
			close(release)
			<-reg.Stopped()
			synctest.Wait()
			if got := len(r.Events()); got != 1 || channel.Closed(reg.Synced()) || reg.Stats().Synced {
				t.Errorf("%d calls, the second after Remove; stats: %+v", got, reg.Stats())
			}
		})
	}
}

func TestRemoveBeforeRunEndsTheRegistrationAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf := newInformer(t, informertest.NewSource(object("a", "1")), options{})
		var r recorder
		reg := addWatcher(t, inf, &r, informer.WatcherOptions{})
		reg.Remove()
		<-reg.Stopped()
		informertest.Run(t, inf)
		synctest.Wait()
		r.Expect(t)
	})
}

func TestAWatcherRemovedInOnSyncedIsNeverSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf := newInformer(t, informertest.NewSource(object("a", "1")), options{})
		var reg *informer.Registration
		reg = addWatcher(t, inf, &recorder{}, informer.WatcherOptions{OnSynced: func(context.Context) { reg.Remove() }})
		informertest.Run(t, inf)
		<-reg.Stopped()
		equal(t, "Synced is closed", channel.Closed(reg.Synced()), false)
	})
}

func TestACallbackMayAddRemoveAndStop(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		inf := newInformer(t, src, options{Queue: queue})
		var inner recorder
		var reg *informer.Registration
		ctx, stop := context.WithCancel(t.Context())
		reg = addWatcher(t, inf, informer.WatcherFuncs[configMap]{
			AddFunc: func(context.Context, event) error {
				_, err := inf.AddWatcher(&inner, informer.WatcherOptions{})
				return err
			},
			UpdateFunc: func(context.Context, event) error { reg.Remove(); return nil },
			DeleteFunc: func(context.Context, event) error { return errors.New("called after it had removed itself") },
		}, informer.WatcherOptions{})
		addWatcher(t, inf, informer.WatcherFuncs[configMap]{
			DeleteFunc: func(context.Context, event) error { stop(); return nil },
		}, informer.WatcherOptions{})
		done := asking(func() error { return inf.Run(ctx) })
		inner.Expect(t, "added default/a")
		src.Apply(object("a", "2"))
		<-reg.Stopped()
		_, _ = src.Delete(keyOf("a"))
		noError(t, <-done)
	})
}

func TestRunWaitsForACallUnderWay(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		inf := newInformer(t, informertest.NewSource(object("a", "1"), object("b", "1")), options{Queue: queue})
		called, release := make(chan struct{}, 2), make(chan struct{})
		r := recorder{Hook: func(context.Context, event) error { called <- struct{}{}; <-release; return nil }}
		addWatcher(t, inf, &r, informer.WatcherOptions{})
		stop, stopped := start(t, inf), make(chan struct{})
		<-called
		go func() { stop(); close(stopped) }()
		synctest.Wait()
		equal(t, "Run has returned while a watcher is being called", channel.Closed(stopped), false)
		close(release)
		<-stopped
		equal(t, "calls, of which the second should have been dropped", len(r.Events()), 1)
	})
}

func TestWaitingInOnesOwnCallbackIsAnErrorAtOnce(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		inf := newInformer(t, informertest.NewSource(object("a", "1")), options{Queue: queue})
		var errs []error
		wait := func(ctx context.Context, _ event) error {
			errs = append(errs, inf.WaitForSync(ctx))
			return nil
		}
		addWatcher(t, inf, informer.WatcherFunc[configMap](wait), informer.WatcherOptions{Name: "waits"})
		informertest.Run(t, inf)
		var late *informer.SyncError
		if len(errs) != 1 || !errors.As(errs[0], &late) || !strings.Contains(errs[0].Error(), "in the callback of a watcher") {
			t.Fatalf("WaitForSync returned %v", errs)
		}
		addWatcher(t, inf, informer.WatcherFunc[configMap](wait), informer.WatcherOptions{Name: "waits, too"})
		sleepBubble(time.Minute)
		if len(errs) != 2 || errs[1] == nil {
			t.Errorf("in a later watcher it returned %v", errs[1:])
		}
	})
}

// onValue is a ctx that calls asked whenever its Value method is called.
type onValue struct {
	context.Context
	asked func()
}

func (a onValue) Value(key any) any {
	a.asked()
	return a.Context.Value(key)
}

// TestWaitsForAWatcherOfAnInformerThatStopsReturnThat stops an informer, which removes its
// watchers. The error of a call that waits must name the stop, not the removal.
func TestWaitsForAWatcherOfAnInformerThatStopsReturnThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 30 { // the outcome depends on chance in each round
			inf := newInformer(t, informertest.NewSource(object("a", "1")), options{})
			stuck := func(ctx context.Context, _ event) error { <-ctx.Done(); return nil }
			addWatcher(t, inf, informer.WatcherFunc[configMap](stuck), informer.WatcherOptions{})
			stop := start(t, inf)
			synctest.Wait()
			if err := inf.WaitForSync(onValue{t.Context(), stop}); !errors.Is(err, informer.ErrStopped) {
				t.Fatalf("WaitForSync: %v", err)
			}
		}
	})
}

func TestWaitForLooksAtNothingMoreOnceTheInformerHasStopped(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		inf := newInformer(t, src, options{Queue: queue})
		stop := start(t, inf)
		<-inf.Synced()
		var seen []string
		err := inf.WaitFor(t.Context(), keyOf("a"), func(obj configMap, _ bool) bool {
			seen = append(seen, obj.Data["value"])
			switch len(seen) {
			case 1:
				for _, value := range []string{"2", "3"} {
					src.Apply(object("a", value))
					synctest.Wait()
				}
			case 2:
				stop()
			}
			return false
		})
		fails(t, err, informer.ErrStopped)
		equal(t, "WaitFor has looked at", strings.Join(seen, " "), "1 2")
	})
}
