package informer_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
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
		if e := r.Events()[3]; e.Old.Data["value"] != "still" {
			t.Errorf("leaving was told with an Old of %s", e.Old.Data["value"])
		}
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
	_ = no.Delete(t.Context(), event{Type: informer.EventDeleted, Old: known, FinalStateUnknown: true})
	_ = no.Delete(t.Context(), event{Type: informer.EventDeleted, Old: object("b", ""), FinalStateUnknown: true})
	if got := r.Events(); len(got) != 1 || got[0].Key() != keyOf("b") {
		t.Errorf("told %v", got)
	}
}

func TestWatcherFuncsIgnoresWhatIsNil(t *testing.T) {
	var calls []informer.EventType
	f := func(_ context.Context, e event) error {
		calls = append(calls, e.Type)
		return errors.New("returned")
	}
	added := event{Type: informer.EventAdded, New: object("a", "1")}
	updated := event{Type: informer.EventUpdated, Old: added.New, New: object("a", "2")}
	deleted := event{Type: informer.EventDeleted, Old: updated.New}
	for _, tc := range []struct {
		w    informer.WatcherFuncs[configMap]
		want informer.EventType
	}{
		{informer.WatcherFuncs[configMap]{}, 0},
		{informer.WatcherFuncs[configMap]{AddFunc: f}, informer.EventAdded},
		{informer.WatcherFuncs[configMap]{UpdateFunc: f}, informer.EventUpdated},
		{informer.WatcherFuncs[configMap]{DeleteFunc: f}, informer.EventDeleted},
	} {
		calls = nil
		errs := []error{tc.w.Add(t.Context(), added), tc.w.Update(t.Context(), updated), tc.w.Delete(t.Context(), deleted)}
		for i, err := range errs {
			if called := informer.EventType(i+1) == tc.want; called != (err != nil) {
				t.Errorf("with a function for %v: call %d returned %v", tc.want, i, err)
			}
		}
		if tc.want != 0 && (len(calls) != 1 || calls[0] != tc.want) {
			t.Errorf("with a function for %v: called %v", tc.want, calls)
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
	if got := informer.EventType(9).String() + informer.Origin(9).String(); got != "EventType(9)Origin(9)" {
		t.Error(got)
	}
}

// catching calls CatchUp of a registration in a goroutine of its own. The result is buffered.
func catching(ctx context.Context, reg *informer.Registration) <-chan error {
	done := make(chan error, 1)
	go func() { done <- reg.CatchUp(ctx) }()
	return done
}

// expectWaiting fails the test unless CatchUp goes on waiting.
func expectWaiting(t *testing.T, done <-chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		t.Fatalf("CatchUp has returned %v", err)
	default:
	}
}

// expectCaught fails the test unless CatchUp has returned want, without any time passing.
func expectCaught(t *testing.T, done <-chan error, want error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		if !errors.Is(err, want) {
			t.Fatalf("CatchUp has returned %v, want %v", err, want)
		}
	default:
		t.Fatal("CatchUp still waits")
	}
}

// gated is a watcher whose calls wait until a value is sent for each of them. A value is the result
// of its call.
type gated chan error

func (g gated) watcher() informer.WatcherFunc[configMap] {
	return func(context.Context, event) error { return <-g }
}

func TestCatchUpWaitsForTheChangesThatTheStoreHas(t *testing.T) {
	for name, opts := range map[string]informer.WatcherOptions{"plain": {}, "workers": {Workers: 3}, "merging": {MaxBacklog: 1}} {
		t.Run(name, func(t *testing.T) {
			eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
				src, errs := informertest.NewSource[configMap](), errorLog{}
				inf := newInformer(t, src, options{Queue: queue, ErrorHandler: errs.Handle})
				informertest.Run(t, inf)
				calls := make(gated)
				reg := addWatcher(t, inf, calls.watcher(), opts)
				expectCaught(t, catching(t.Context(), reg), nil)
				src.Apply(object("a", "1"))
				synctest.Wait()
				first, second := catching(t.Context(), reg), catching(t.Context(), reg)
				expectWaiting(t, first)
				src.Apply(object("b", "1"))
				synctest.Wait()
				later := catching(t.Context(), reg)
				calls <- nil
				expectCaught(t, first, nil)
				expectCaught(t, second, nil)
				expectWaiting(t, later)
				calls <- errors.New("it failed, and is given up")
				expectCaught(t, later, nil)
				over, cancel := context.WithCancel(t.Context())
				cancel()
				expectCaught(t, catching(over, reg), nil)
			})
		})
	}
}

func TestCatchUpWaitsForTheInitialState(t *testing.T) {
	for name, opts := range map[string]informer.WatcherOptions{"plain": {}, "workers": {Workers: 2}} {
		t.Run(name, func(t *testing.T) {
			eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
				inf, _ := startWith(t, queue, object("a", "1"), object("b", "1"), object("c", "1"))
				calls := make(gated)
				reg := addWatcher(t, inf, calls.watcher(), opts)
				done := catching(t.Context(), reg)
				for range 3 {
					expectWaiting(t, done)
					calls <- nil
				}
				expectCaught(t, done, nil)
			})
		})
	}
}

func TestCatchUpWaitsForARetry(t *testing.T) {
	for name, initial := range map[string]bool{"of the initial state": true, "of a change": false} {
		t.Run(name, func(t *testing.T) {
			eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
				src, errs := informertest.NewSource[configMap](), errorLog{}
				inf := newInformer(t, src, options{Queue: queue, ErrorHandler: errs.Handle})
				informertest.Run(t, inf)
				if initial {
					src.Apply(object("a", "1"))
					synctest.Wait()
				}
				calls := make(gated)
				reg := addWatcher(t, inf, calls.watcher(), informer.WatcherOptions{
					Retry: func(failures int, _ error) (time.Duration, bool) { return hour, failures < 3 },
				})
				if !initial {
					src.Apply(object("a", "1"))
					synctest.Wait()
				}
				done := catching(t.Context(), reg)
				for range 2 {
					calls <- errors.New("not yet")
					expectWaiting(t, done)
					sleepBubble(hour)
				}
				calls <- errors.New("for the last time")
				expectCaught(t, done, nil)
			})
		})
	}
}

func TestCatchUpBeforeRunWaitsForTheInitialState(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		store := newPlainStore(object("a", "1"))
		inf := newInformer(t, informertest.NewSource(object("a", "1")), options{Queue: queue, Store: store})
		calls := make(gated)
		reg := addWatcher(t, inf, calls.watcher(), informer.WatcherOptions{})
		done := catching(t.Context(), reg)
		expectWaiting(t, done)
		start(t, inf)
		expectWaiting(t, done)
		calls <- nil
		expectCaught(t, done, nil)
		close(calls)
	})
}

func TestCatchUpBeforeRunOfAnEmptyStoreWaitsForRunAlone(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		src.SetFaults(informertest.Faults{HoldLists: true})
		release := func() { src.SetFaults(informertest.Faults{}) }
		inf := newInformer(t, src, options{Queue: queue, WatchList: informer.WatchListOff})
		reg := addWatcher(t, inf, &recorder{}, informer.WatcherOptions{})
		done := catching(t.Context(), reg)
		expectWaiting(t, done)
		start(t, inf)
		expectCaught(t, done, nil)
		release()
	})
}

func TestCatchUpEndsWithItsCtxTheRegistrationOrTheInformer(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		inf := newInformer(t, src, options{Queue: queue, Name: "things"})
		stop := informertest.Run(t, inf)
		hanging := informer.WatcherFunc[configMap](func(ctx context.Context, _ event) error { <-ctx.Done(); return ctx.Err() })
		one := addWatcher(t, inf, hanging, informer.WatcherOptions{Name: "one"})
		two := addWatcher(t, inf, hanging, informer.WatcherOptions{Workers: 2})
		ctx, cancel := context.WithTimeout(t.Context(), hour)
		defer cancel()
		ends := catching(ctx, one)
		expectWaiting(t, ends)
		sleepBubble(hour)
		if err := <-ends; !errors.Is(err, context.DeadlineExceeded) || err.Error() != "informer things: CatchUp of watcher one: context deadline exceeded" {
			t.Errorf("after the end of its ctx, CatchUp returned %v", err)
		}
		removed := catching(t.Context(), one)
		expectWaiting(t, removed)
		one.Remove()
		expectCaught(t, removed, informer.ErrStopped)
		expectCaught(t, catching(t.Context(), one), informer.ErrStopped)

		calls := make(gated) // a call that does not look at its ctx
		deaf := addWatcher(t, inf, calls.watcher(), informer.WatcherOptions{})
		removed = catching(t.Context(), deaf)
		expectWaiting(t, removed)
		deaf.Remove()
		expectCaught(t, removed, informer.ErrStopped)
		close(calls)

		stopped := catching(t.Context(), two)
		expectWaiting(t, stopped)
		stop()
		expectCaught(t, stopped, informer.ErrStopped)
		expectCaught(t, catching(t.Context(), two), informer.ErrStopped)

		never := newInformer(t, src, options{Queue: queue})
		reg := addWatcher(t, never, &recorder{}, informer.WatcherOptions{})
		removed = catching(t.Context(), reg)
		expectWaiting(t, removed)
		reg.Remove()
		expectCaught(t, removed, informer.ErrStopped)
	})
}

func TestCatchUpGoesOnWhileTheInformerDrains(t *testing.T) {
	for name, opts := range map[string]informer.WatcherOptions{"plain": {}, "workers": {Workers: 2}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inf := newInformer(t, informertest.NewSource(object("a", "1")), options{DrainTimeout: hour})
				stop := informertest.Run(t, inf)
				calls := make(gated)
				reg := addWatcher(t, inf, calls.watcher(), opts)
				done := catching(t.Context(), reg)
				expectWaiting(t, done)
				go stop()
				expectWaiting(t, done)
				calls <- nil
				expectCaught(t, done, nil)
				stop()
				expectCaught(t, catching(t.Context(), reg), nil)
			})
		})
	}
}

func TestCatchUpInTheWatchersOwnCallbackIsAnErrorAtOnce(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		inf, src := startWith(t, queue)
		var own, other *informer.Registration
		results := make(chan error, 2)
		other = addWatcher(t, inf, &recorder{}, informer.WatcherOptions{})
		own = addWatcher(t, inf, informer.WatcherFunc[configMap](func(ctx context.Context, _ event) error {
			results <- own.CatchUp(ctx)
			results <- other.CatchUp(ctx)
			return nil
		}), informer.WatcherOptions{})
		src.Apply(object("a", "1"))
		if err := <-results; err == nil || !strings.Contains(err.Error(), "in the callback") {
			t.Errorf("in its own callback, CatchUp returned %v", err)
		}
		if err := <-results; err != nil {
			t.Errorf("in another watcher's callback, CatchUp returned %v", err)
		}
	})
}

func TestCatchUpDoesNotTakeARetryThatTheStopPreventsForHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs := errorLog{}
		inf := newInformer(t, informertest.NewSource(object("a", "1")), options{DrainTimeout: time.Minute, ErrorHandler: errs.Handle})
		stop := informertest.Run(t, inf)
		reg := addWatcher(t, inf, informer.WatcherFunc[configMap](func(context.Context, event) error {
			return errors.New("not yet")
		}), informer.WatcherOptions{Retry: func(int, error) (time.Duration, bool) { return hour, true }})
		done := catching(t.Context(), reg)
		expectWaiting(t, done)
		stop()
		expectCaught(t, done, informer.ErrStopped)
	})
}

// The deletes that a Durable has kept are a part of the initial state.
func TestCatchUpWaitsForDeletesOfARunBefore(t *testing.T) {
	for name, opts := range map[string]informer.WatcherOptions{"plain": {}, "workers": {Workers: 2}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src, store := informertest.NewSource(object("a", "1")), informertest.NewDurable()
				inf := newInformer(t, src, options{Durable: store})
				stop := informertest.Run(t, inf)
				if _, err := src.Delete(keyOf("a")); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				stop()
				inf = newInformer(t, src, options{Durable: store.Reopen()})
				calls := make(gated)
				reg := addWatcher(t, inf, calls.watcher(), opts)
				start(t, inf)
				done := catching(t.Context(), reg)
				expectWaiting(t, done)
				calls <- nil
				expectCaught(t, done, nil)
			})
		})
	}
}

func TestCatchUpDoesNotWaitForAResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf, _ := startWith(t, informer.QueueAuto, object("a", "1"))
		calls := make(gated)
		reg := addWatcher(t, inf, calls.watcher(), informer.WatcherOptions{ResyncPeriod: hour})
		calls <- nil
		time.Sleep(hour)
		synctest.Wait()
		if called := inf.Health().Watchers[0].Calls; len(called) != 1 {
			t.Fatalf("the watcher is called for %q", called)
		}
		expectCaught(t, catching(t.Context(), reg), nil)
		close(calls)
	})
}

func TestAfterCatchUpTheWatcherKnowsWhatTheStoreHad(t *testing.T) {
	goOn := func(int, error) (time.Duration, bool) { return time.Millisecond, true }
	for name, opts := range map[string]informer.WatcherOptions{
		"plain": {}, "merging": {MaxBacklog: 3}, "workers": {Workers: 3}, "retry": {Retry: goOn}, "resync": {ResyncPeriod: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
				src, errs := informertest.NewSource(object("a", "0"), object("b", "0")), errorLog{}
				inf := newInformer(t, src, options{Queue: queue, ErrorHandler: errs.Handle})
				informertest.Run(t, inf)
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
								time.Sleep(time.Microsecond)
							}
						}
					})
				}
				busy.Wait()
			})
		})
	}
}
