package informer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

func TestRunTwiceIsAnErrorAtOnce(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		inf := newInformer(t, informertest.NewSource[configMap](), options{Queue: queue})
		stop := start(t, inf)
		synctest.Wait()
		if err := inf.Run(t.Context()); !errors.Is(err, informer.ErrAlreadyRun) {
			t.Errorf("while running: %v", err)
		}
		stop()
		if err := inf.Run(t.Context()); !errors.Is(err, informer.ErrAlreadyRun) {
			t.Errorf("after it had stopped: %v", err)
		}
	})
}

func TestRunWithAnEndedCtxDoesNothing(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		inf := newInformer(t, src, options{Queue: queue})
		var r recorder
		reg := addWatcher(t, inf, &r, informer.WatcherOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := inf.Run(ctx); err != nil {
			t.Error(err)
		}
		<-reg.Stopped()
		synctest.Wait()
		r.Expect(t)
		if got := src.Requests(); len(got) > 0 {
			t.Errorf("requests: %v", got)
		}
		if err := inf.WaitForSync(t.Context()); !errors.Is(err, informer.ErrStopped) {
			t.Errorf("WaitForSync: %v", err)
		}
	})
}

func TestAfterTheStopEverythingSaysSo(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		inf := newInformer(t, src, options{Queue: queue})
		var r recorder
		reg := addWatcher(t, inf, &r, informer.WatcherOptions{})
		stop := start(t, inf)
		<-reg.Synced()
		stop()
		<-reg.Stopped()
		src.Apply(object("a", "2"))
		synctest.Wait()
		r.Expect(t, "added default/a")
		r.Expect(t)
		if _, err := inf.AddWatcher(&r, informer.WatcherOptions{}); !errors.Is(err, informer.ErrStopped) {
			t.Errorf("AddWatcher: %v", err)
		}
		if err := inf.WaitForVersion(t.Context(), "", "999999"); !errors.Is(err, informer.ErrStopped) {
			t.Errorf("WaitForVersion: %v", err)
		}
		never := func(configMap, bool) bool { return false }
		if err := inf.WaitFor(t.Context(), keyOf("a"), never); !errors.Is(err, informer.ErrStopped) {
			t.Errorf("WaitFor: %v", err)
		}
		if err := inf.WaitForSync(t.Context()); err != nil {
			t.Errorf("it had synced, and WaitForSync returned %v", err)
		}
		if obj, exists, err := inf.Get(keyOf("a")); err != nil || !exists || obj.Data["value"] != "1" {
			t.Errorf("reading what was there last gives %v, %v, %v", obj, exists, err)
		}
		reg.Remove() // has no effect
		if n := src.Watches(); n > 0 {
			t.Errorf("%d watches are still open", n)
		}
	})
}

func TestRemoveEndsTheCallsAndTheirCtx(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		inf := newInformer(t, src, options{Queue: queue})
		called := make(chan struct{}, 1)
		cancelled, release := false, make(chan struct{})
		r := recorder{Hook: func(ctx context.Context, _ event) error {
			called <- struct{}{}
			<-ctx.Done() // ends although the informer keeps running
			cancelled = true
			<-release
			return nil
		}}
		reg := addWatcher(t, inf, &r, informer.WatcherOptions{})
		start(t, inf)
		<-called
		src.Apply(object("b", "1")) // this event waits, and is dropped
		synctest.Wait()
		reg.Remove()
		reg.Remove()
		synctest.Wait()
		if !cancelled {
			t.Error("the ctx of the call is still alive")
		}
		select {
		case <-reg.Stopped():
			t.Error("stopped while a call is under way")
		default:
		}
		close(release)
		<-reg.Stopped()
		synctest.Wait()
		if got := len(r.Events()); got != 1 {
			t.Errorf("%d calls, the second after Remove", got)
		}
		if err := inf.WaitForSync(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestRemoveBeforeRunEndsTheRegistrationAtOnce(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		inf := newInformer(t, informertest.NewSource(object("a", "1")), options{Queue: queue})
		var r recorder
		reg := addWatcher(t, inf, &r, informer.WatcherOptions{})
		reg.Remove()
		<-reg.Stopped()
		informertest.Run(t, inf)
		synctest.Wait()
		r.Expect(t)
	})
}

func TestAWatcherThatIsRemovedInOnSyncedIsNeverSynced(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		inf := newInformer(t, informertest.NewSource(object("a", "1")), options{Queue: queue})
		var r recorder
		var reg *informer.Registration
		reg = addWatcher(t, inf, &r, informer.WatcherOptions{OnSynced: func(context.Context) { reg.Remove() }})
		informertest.Run(t, inf)
		<-reg.Stopped()
		select {
		case <-reg.Synced():
			t.Error("Synced is closed")
		default:
		}
	})
}

func TestACallbackMayAddRemoveAndStop(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		inf := newInformer(t, src, options{Queue: queue})
		var inner recorder
		var reg *informer.Registration
		ctx, stop := context.WithCancel(t.Context())
		outer := recorder{Hook: func(_ context.Context, e event) error {
			switch e.Type {
			case informer.EventAdded:
				if _, err := inf.AddWatcher(&inner, informer.WatcherOptions{}); err != nil {
					t.Error(err)
				}
			case informer.EventUpdated:
				reg.Remove()
			case informer.EventDeleted:
				t.Error("called after it had removed itself")
			}
			return nil
		}}
		reg = addWatcher(t, inf, &outer, informer.WatcherOptions{})
		last := recorder{Hook: func(_ context.Context, e event) error {
			if e.Type == informer.EventDeleted {
				stop()
			}
			return nil
		}}
		addWatcher(t, inf, &last, informer.WatcherOptions{})
		done := make(chan error)
		go func() { done <- inf.Run(ctx) }()
		inner.Expect(t, "added default/a")
		src.Apply(object("a", "2"))
		<-reg.Stopped()
		_, _ = src.Delete(keyOf("a"))
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestRunWaitsForACallThatIsUnderWay(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		inf := newInformer(t, informertest.NewSource(object("a", "1"), object("b", "1")), options{Queue: queue})
		called, release := make(chan struct{}, 2), make(chan struct{})
		r := recorder{Hook: func(context.Context, event) error { called <- struct{}{}; <-release; return nil }}
		addWatcher(t, inf, &r, informer.WatcherOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- inf.Run(ctx) }()
		<-called
		cancel()
		synctest.Wait()
		select {
		case err := <-done:
			t.Errorf("Run returned %v while a watcher is being called", err)
		default:
		}
		close(release)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := len(r.Events()); got != 1 {
			t.Errorf("%d calls, of which the informer should have dropped the second", got)
		}
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

func TestABlockedWatcherDelaysNobodyAndLosesNothing(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		const changes = 3000
		src := informertest.NewSource(object("a", "0"))
		inf := newInformer(t, src, options{Queue: queue})
		release := make(chan struct{})
		blocked := recorder{Hook: func(context.Context, event) error { <-release; return nil }}
		reg := addWatcher(t, inf, &blocked, informer.WatcherOptions{MaxBacklog: -1})
		var free recorder
		addWatcher(t, inf, &free, informer.WatcherOptions{MaxBacklog: -1})
		start(t, inf)
		begin := time.Now()
		want := []string{"added default/a"}
		free.Expect(t, want...)
		for n := range changes {
			src.Apply(object("a", fmt.Sprint(n+1)))
			free.Expect(t, "updated default/a")
			want = append(want, "updated default/a")
		}
		if took := time.Since(begin); took > 0 {
			t.Errorf("with another watcher blocked, %d events took %v", changes, took)
		}
		close(release)
		blocked.Expect(t, want...)
		checkView(t, &blocked, src)
		<-reg.Synced()
	})
}

func TestAddRemoveAndStopInAnyOrderFromManyGoroutines(t *testing.T) {
	for name, queue := range queues {
		t.Run(name, func(t *testing.T) {
			for range 100 {
				src := informertest.NewSource(object("a", "1"))
				inf := newInformer(t, src, options{Queue: queue})
				ctx, cancel := context.WithCancel(t.Context())
				var all sync.WaitGroup
				for range 8 {
					all.Go(func() {
						var r recorder
						reg, err := inf.AddWatcher(&r, informer.WatcherOptions{})
						if err != nil {
							if !errors.Is(err, informer.ErrStopped) {
								t.Error(err)
							}
							return
						}
						all.Go(reg.Remove)
						<-reg.Stopped()
					})
				}
				all.Go(func() { src.Apply(object("a", "2")) })
				all.Go(func() { _ = inf.Run(ctx) })
				all.Go(cancel)
				all.Wait()
			}
		})
	}
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

// TestWhoWaitsForAWatcherOfAnInformerThatStopsIsToldThat stops an informer, which removes its
// watchers. The error of a call that waits must name the stop, not the removal.
func TestWhoWaitsForAWatcherOfAnInformerThatStopsIsToldThat(t *testing.T) {
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
		if got := strings.Join(seen, " "); !errors.Is(err, informer.ErrStopped) || got != "1 2" {
			t.Errorf("WaitFor has looked at %s: %v", got, err)
		}
	})
}
