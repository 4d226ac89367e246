package informer_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

func TestSelectTurnsEnteringAndLeavingIntoAddAndDelete(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("in", "yes"), object("out", "no"))
		inf := newInformer(t, src, options{Queue: queue})
		var r recorder
		addWatcher(t, inf, informer.Select(&r, func(obj configMap) bool { return obj.Labels["value"] != "no" }), informer.WatcherOptions{})
		informertest.Run(t, inf)
		r.Expect(t, "added default/in")
		src.Apply(object("out", "yes"))
		r.Expect(t, "added default/out")
		src.Apply(object("out", "still"))
		r.Expect(t, "updated default/out")
		src.Apply(object("out", "no"))
		r.Expect(t, "deleted default/out")
		equal(t, "Old at the leave", r.Events()[3].Old.Data["value"], "still")
		unselected := object("out", "no")
		unselected.Data["value"] = "changed"
		src.Apply(unselected)
		_, _ = src.Delete(keyOf("out"))
		_, _ = src.Delete(keyOf("in"))
		r.Expect(t, "deleted default/in")
		r.Expect(t)
	})
}

func TestSelectPassesADeleteOfWhichOnlyTheKeyIsKnown(t *testing.T) {
	var r recorder
	no := informer.Select(&r, func(configMap) bool { return false })
	known := object("a", "1")
	known.ResourceVersion = "5"
	for _, old := range []configMap{known, object("b", "")} {
		_ = no.Delete(t.Context(), event{Type: informer.EventDeleted, Old: old, FinalStateUnknown: true})
	}
	if got := r.Events(); len(got) != 1 || got[0].Key() != keyOf("b") {
		t.Errorf("got %v", got)
	}
}

func TestWatcherFuncsIgnoresNilFunctions(t *testing.T) {
	f := func(_ context.Context, e event) error { return errors.New(e.Type.String()) }
	for called, w := range map[informer.EventType]informer.WatcherFuncs[configMap]{
		0:                     {},
		informer.EventAdded:   {AddFunc: f},
		informer.EventUpdated: {UpdateFunc: f},
		informer.EventDeleted: {DeleteFunc: f},
	} {
		for typ, call := range map[informer.EventType]func(context.Context, event) error{
			informer.EventAdded: w.Add, informer.EventUpdated: w.Update, informer.EventDeleted: w.Delete,
		} {
			err := call(t.Context(), event{Type: typ})
			if (typ == called) != (err != nil) || err != nil && err.Error() != typ.String() {
				t.Errorf("with a function for %v, the call for %v returned %v", called, typ, err)
			}
		}
	}
}

func TestAnEventKnowsItsObjectAndKey(t *testing.T) {
	a, b := object("a", "1"), object("a", "2")
	for _, tc := range []struct {
		e    event
		want configMap
		says string
	}{
		{event{Type: informer.EventAdded, New: a}, a, "added"},
		{event{Type: informer.EventUpdated, Old: a, New: b}, b, "updated"},
		{event{Type: informer.EventDeleted, Old: b}, b, "deleted"},
	} {
		if tc.e.Object() != tc.want || tc.e.Key() != keyOf("a") || tc.e.Type.String() != tc.says {
			t.Errorf("%v %v is of %v", tc.e.Type, tc.e.Key(), tc.e.Object())
		}
	}
	equal(t, "unknown values", informer.EventType(9).String()+informer.Origin(9).String(), "EventType(9)Origin(9)")
}

// catching calls CatchUp of a registration in a goroutine of its own. The result is buffered.
func catching(ctx context.Context, reg *informer.Registration) <-chan error {
	return asking(func() error { return reg.CatchUp(ctx) })
}

// expectCaught fails the test unless CatchUp has returned want, without any time passing.
func expectCaught(t *testing.T, done <-chan error, want error) {
	t.Helper()
	synctest.Wait()
	if len(done) == 0 {
		t.Fatal("CatchUp still waits")
	}
	if err := <-done; !errors.Is(err, want) {
		t.Fatalf("CatchUp has returned %v, want %v", err, want)
	}
}

// gated adds a watcher whose calls wait until a value is sent for each of them. A value is the result
// of its call.
func gated(t *testing.T, inf *ci, opts informer.WatcherOptions) (chan<- error, *informer.Registration) {
	t.Helper()
	calls := make(chan error)
	return calls, addWatcher(t, inf, informer.WatcherFunc[configMap](func(context.Context, event) error { return <-calls }), opts)
}

// eachListener runs a test with watchers that get their events in different ways, each time in a bubble of its own.
func eachListener(t *testing.T, test func(t *testing.T, opts informer.WatcherOptions)) {
	t.Helper()
	for name, opts := range map[string]informer.WatcherOptions{"plain": {}, "workers": {Workers: 3}, "merging": {MaxBacklog: 1}} {
		inBubble(t, name, func(t *testing.T) { test(t, opts) })
	}
}

func TestCatchUpWaitsForTheChangesThatTheStoreHas(t *testing.T) {
	eachListener(t, func(t *testing.T, opts informer.WatcherOptions) {
		src := informertest.NewSource[configMap]()
		inf := running(t, src, options{ErrorHandler: quiet})
		calls, reg := gated(t, inf, opts)
		expectCaught(t, catching(t.Context(), reg), nil)
		src.Apply(object("a", "1"))
		synctest.Wait()
		first, second := catching(t.Context(), reg), catching(t.Context(), reg)
		pending(t, "CatchUp", first)
		src.Apply(object("b", "1"))
		synctest.Wait()
		later := catching(t.Context(), reg)
		calls <- nil
		expectCaught(t, first, nil)
		expectCaught(t, second, nil)
		pending(t, "CatchUp", later)
		calls <- errors.New("it failed, and is given up")
		expectCaught(t, later, nil)
		expectCaught(t, catching(within(t, 0), reg), nil)
	})
}

func TestCatchUpWaitsForTheInitialState(t *testing.T) {
	eachListener(t, func(t *testing.T, opts informer.WatcherOptions) {
		inf, _ := startWith(t, informer.QueueAuto, object("a", "1"), object("b", "1"), object("c", "1"))
		calls, reg := gated(t, inf, opts)
		done := catching(t.Context(), reg)
		for range 3 {
			pending(t, "CatchUp", done)
			calls <- nil
		}
		expectCaught(t, done, nil)
	})
}

func TestCatchUpWaitsForARetry(t *testing.T) {
	for name, initial := range map[string]bool{"of the initial state": true, "of a change": false} {
		inBubble(t, name, func(t *testing.T) {
			src := informertest.NewSource[configMap]()
			inf := running(t, src, options{ErrorHandler: quiet})
			if initial {
				src.Apply(object("a", "1"))
				synctest.Wait()
			}
			calls, reg := gated(t, inf, informer.WatcherOptions{
				Retry: func(failures int, _ error) (time.Duration, bool) { return hour, failures < 3 },
			})
			if !initial {
				src.Apply(object("a", "1"))
				synctest.Wait()
			}
			done := catching(t.Context(), reg)
			for range 2 {
				calls <- errors.New("not yet")
				pending(t, "CatchUp", done)
				sleepBubble(hour)
			}
			calls <- errors.New("for the last time")
			expectCaught(t, done, nil)
		})
	}
}

// The initial state is in the store. CatchUp does not wait for the first list, which hangs.
func TestCatchUpBeforeRunWaitsForTheInitialState(t *testing.T) {
	for name, state := range map[string][]configMap{"an object": {object("a", "1")}, "empty": nil} {
		eachQueueOf(t, name, func(t *testing.T, queue informer.QueueKind) {
			src := informertest.NewSource(object("a", "1"))
			src.SetFaults(informertest.Faults{HoldLists: true})
			inf := newInformer(t, src, options{Queue: queue, Store: newPlainStore(state...), WatchList: informer.WatchListOff})
			calls, reg := gated(t, inf, informer.WatcherOptions{})
			done := catching(t.Context(), reg)
			pending(t, "CatchUp", done)
			start(t, inf)
			if len(state) > 0 {
				pending(t, "CatchUp", done)
				calls <- nil
			}
			expectCaught(t, done, nil)
			close(calls)
			src.SetFaults(informertest.Faults{})
		})
	}
}

func TestCatchUpEndsWithItsCtxTheRegistrationOrTheInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"))
		inf := newInformer(t, src, options{Name: "things"})
		stop := informertest.Run(t, inf)
		calls, one := gated(t, inf, informer.WatcherOptions{Name: "one"}) // its call does not look at its ctx
		ends := catching(within(t, hour), one)
		pending(t, "CatchUp", ends)
		sleepBubble(hour)
		if err := <-ends; !errors.Is(err, context.DeadlineExceeded) || err.Error() != "informer things: CatchUp of watcher one: context deadline exceeded" {
			t.Errorf("after the end of its ctx, CatchUp returned %v", err)
		}
		removed := catching(t.Context(), one)
		pending(t, "CatchUp", removed)
		one.Remove()
		expectCaught(t, removed, informer.ErrStopped)
		expectCaught(t, catching(t.Context(), one), informer.ErrStopped)
		close(calls)

		hanging := informer.WatcherFunc[configMap](func(ctx context.Context, _ event) error { <-ctx.Done(); return ctx.Err() })
		two := addWatcher(t, inf, hanging, informer.WatcherOptions{Workers: 2})
		stopped := catching(t.Context(), two)
		pending(t, "CatchUp", stopped)
		stop()
		expectCaught(t, stopped, informer.ErrStopped)
		expectCaught(t, catching(t.Context(), two), informer.ErrStopped)

		never := addWatcher(t, newInformer(t, src, options{}), &recorder{}, informer.WatcherOptions{})
		removed = catching(t.Context(), never)
		pending(t, "CatchUp", removed)
		never.Remove()
		expectCaught(t, removed, informer.ErrStopped)
	})
}

func TestCatchUpContinuesWhileTheInformerDrains(t *testing.T) {
	eachListener(t, func(t *testing.T, opts informer.WatcherOptions) {
		inf := newInformer(t, informertest.NewSource(object("a", "1")), options{DrainTimeout: hour})
		stop := informertest.Run(t, inf)
		calls, reg := gated(t, inf, opts)
		done := catching(t.Context(), reg)
		pending(t, "CatchUp", done)
		go stop()
		pending(t, "CatchUp", done)
		calls <- nil
		expectCaught(t, done, nil)
		stop()
		expectCaught(t, catching(t.Context(), reg), nil)
	})
}

func TestCatchUpInTheWatchersOwnCallbackIsAnErrorAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf, src := startWith(t, informer.QueueAuto)
		other := addWatcher(t, inf, &recorder{}, informer.WatcherOptions{})
		var own *informer.Registration
		results := make(chan error, 2)
		own = addWatcher(t, inf, informer.WatcherFunc[configMap](func(ctx context.Context, _ event) error {
			results <- own.CatchUp(ctx)
			results <- other.CatchUp(ctx)
			return nil
		}), informer.WatcherOptions{})
		src.Apply(object("a", "1"))
		says(t, <-results, "in the callback")
		noError(t, <-results)
	})
}

func TestCatchUpDoesNotTakeARetryThatTheStopPreventsForHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf := newInformer(t, informertest.NewSource(object("a", "1")), options{DrainTimeout: time.Minute, ErrorHandler: quiet})
		stop := informertest.Run(t, inf)
		reg := addWatcher(t, inf, informer.WatcherFunc[configMap](func(context.Context, event) error {
			return errors.New("not yet")
		}), informer.WatcherOptions{Retry: informer.Backoff(hour, hour, 0)})
		done := catching(t.Context(), reg)
		pending(t, "CatchUp", done)
		stop()
		expectCaught(t, done, informer.ErrStopped)
	})
}

// The deletes that a Durable has kept are a part of the initial state.
func TestCatchUpWaitsForDeletesOfARunBefore(t *testing.T) {
	eachListener(t, func(t *testing.T, opts informer.WatcherOptions) {
		src, store := informertest.NewSource(object("a", "1")), informertest.NewDurable()
		inf := newInformer(t, src, options{Durable: store})
		stop := informertest.Run(t, inf)
		_, _ = src.Delete(keyOf("a"))
		synctest.Wait()
		stop()
		inf = newInformer(t, src, options{Durable: store.Reopen()})
		calls, reg := gated(t, inf, opts)
		start(t, inf)
		done := catching(t.Context(), reg)
		pending(t, "CatchUp", done)
		calls <- nil
		expectCaught(t, done, nil)
	})
}

func TestCatchUpDoesNotWaitForAResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf, _ := startWith(t, informer.QueueAuto, object("a", "1"))
		calls, reg := gated(t, inf, informer.WatcherOptions{ResyncPeriod: hour})
		calls <- nil
		sleepBubble(hour)
		if called := inf.Health().Watchers[0].Calls; len(called) != 1 {
			t.Fatalf("the watcher is called for %q", called)
		}
		expectCaught(t, catching(t.Context(), reg), nil)
		close(calls)
	})
}

func TestAfterCatchUpTheWatcherHasTheStateOfTheStore(t *testing.T) {
	for name, opts := range map[string]informer.WatcherOptions{
		"plain": {}, "merging": {MaxBacklog: 3}, "workers": {Workers: 3}, "resync": {ResyncPeriod: time.Millisecond},
		"retry": {Retry: informer.Backoff(time.Millisecond, time.Millisecond, 0)},
	} {
		eachQueueOf(t, name, func(t *testing.T, queue informer.QueueKind) {
			src := informertest.NewSource(object("a", "0"), object("b", "0"))
			inf := running(t, src, options{Queue: queue, ErrorHandler: quiet})
			var known sync.Map
			var calls atomic.Int32
			reg := addWatcher(t, inf, informer.WatcherFunc[configMap](func(_ context.Context, e event) error {
				if opts.Retry != nil && calls.Add(1)%3 == 0 {
					return errors.New("every third call fails")
				}
				n, err := strconv.Atoi(e.New.Data["value"])
				known.Store(e.New.Name, n)
				return err
			}), opts)
			var busy sync.WaitGroup
			for _, name := range []string{"a", "b"} {
				for range 2 {
					busy.Go(func() {
						for range 100 {
							obj, _, err := inf.Get(keyOf(name))
							if err == nil {
								err = reg.CatchUp(t.Context())
							}
							if err != nil {
								t.Error(err)
								return
							}
							want, _ := strconv.Atoi(obj.Data["value"])
							if got, _ := known.Load(name); got == nil || got.(int) < want {
								t.Errorf("after CatchUp, the watcher knows %v of %s, which was %d", got, name, want)
							}
						}
					})
				}
				busy.Go(func() {
					for n := range 100 {
						src.Apply(object(name, strconv.Itoa(n+1)))
						if n%10 == 0 {
							time.Sleep(time.Microsecond) // of the bubble's time: the others catch up
						}
					}
				})
			}
			busy.Wait()
		})
	}
}
