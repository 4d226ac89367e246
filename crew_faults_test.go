package informer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// TestNoRetryIsForgotten runs on real goroutines and real time. client-go's delaying queue
// drops a delay if an earlier one for the same key is about to end.
func TestNoRetryIsForgotten(t *testing.T) {
	const objects = 500
	rounds := longOrShort(10, 3)
	src := informertest.NewSource[configMap]()
	inf := newInformer(t, src, options{ErrorHandler: quiet})
	var heals atomic.Bool
	type call struct {
		value  string
		failed bool
	}
	calls := make(chan call)
	addWatcher(t, inf, informer.WatcherFunc[configMap](func(ctx context.Context, e event) error {
		c := call{value: e.New.Data["value"], failed: !heals.Load()}
		select {
		case calls <- c:
		case <-ctx.Done():
		}
		return errorIf(c.failed, errors.New("no luck"))
	}), informer.WatcherOptions{Workers: 4, Retry: func(int, error) (time.Duration, bool) { return 5 * time.Millisecond, true }})
	informertest.Run(t, inf)
	for round := range rounds {
		heals.Store(false)
		written := make(chan struct{})
		go func() {
			defer close(written)
			for n := range 2 * objects {
				src.Apply(object(fmt.Sprint("o", n%objects), fmt.Sprint(round, n)))
			}
		}()
		for range 6 * objects {
			<-calls
		}
		<-written
		heals.Store(true)
		waiting := map[string]bool{}
		for n := range objects {
			waiting[fmt.Sprint(round, objects+n)] = true
		}
		// A call that began before heals was set fails, and one with an older value may still come.
		for patience := time.After(5 * time.Minute); len(waiting) > 0; {
			select {
			case c := <-calls:
				if !c.failed {
					delete(waiting, c.value)
				}
			case <-patience:
				t.Fatalf("round %d: %d of %d objects were never retried", round, len(waiting), objects)
			}
		}
	}
}

func TestANestedSelectionGetsTheEndToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "AB"))
		inf := newInformer(t, src, options{ErrorHandler: quiet})
		has, fail := false, false
		w := informer.WatcherFunc[configMap](func(_ context.Context, e event) error {
			if fail {
				fail = false
				return errors.New("without effect")
			}
			has = e.Type != informer.EventDeleted
			return nil
		})
		with := func(letter string) func(configMap) bool {
			return func(obj configMap) bool { return strings.Contains(obj.Data["value"], letter) }
		}
		addWatcher(t, inf, informer.Select(informer.Select(w, with("B")), with("A")), informer.WatcherOptions{Retry: always})
		informertest.Run(t, inf)
		synctest.Wait()
		fail = true
		src.Apply(object("a", "A")) // leaves the inner selection; that delete fails
		sleepBubble(time.Second / 2)
		src.Apply(object("a", "")) // leaves the outer selection too
		sleepBubble(time.Hour)
		equal(t, "the watcher has an object that has left", has, false)
	})
}

// The function of Select is asked between two attempts, too.
func TestAPanicOfSelectBeforeARetryIsRecovered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, errs := informertest.NewSource(object("a", "1")), &errorLog{}
		inf := newInformer(t, src, options{ErrorHandler: errs.Handle})
		fails := informer.WatcherFunc[configMap](func(context.Context, event) error { return errors.New("no luck") })
		addWatcher(t, inf, informer.Select(fails, func(obj configMap) bool {
			if obj.Data["value"] == "2" {
				panic("a field that is missing")
			}
			return true
		}), informer.WatcherOptions{RecoverPanics: true, Retry: informer.Backoff(time.Minute, time.Minute, 3)})
		informertest.Run(t, inf)
		synctest.Wait()
		src.Apply(object("a", "2"))
		sleepBubble(time.Hour)
		var panicked *informer.PanicError
		if all := errs.Take(); !errors.As(all[len(all)-1], &panicked) {
			t.Errorf("the last error is %v", all[len(all)-1])
		}
	})
}

// The add has failed. The store loses the object, and its delete cannot be transformed.
func TestSelectIsNotAskedForAnObjectOfWhichOnlyTheKeyIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := informertest.NewSource(object("a", "1")), cache.NewStore(cache.MetaNamespaceKeyFunc)
		var broken error
		inf := newInformer(t, src, options{Store: store, ErrorHandler: quiet, Transform: func(obj configMap) (configMap, error) { return obj, broken }})
		var got []string
		fails := informer.WatcherFunc[configMap](func(_ context.Context, e event) error {
			got = append(got, e.Type.String()+" "+e.Object().Data["value"])
			return errors.New("no luck")
		})
		addWatcher(t, inf, informer.Select(fails, func(obj configMap) bool { return obj.Data["value"] == "1" }),
			informer.WatcherOptions{Retry: informer.Backoff(time.Minute, time.Minute, 3)})
		informertest.Run(t, inf)
		synctest.Wait()
		broken = errors.New("broken")
		noError(t, store.Delete(object("a", "1")))
		_, err := src.Delete(keyOf("a"))
		noError(t, err)
		sleepBubble(time.Hour)
		equal(t, "events", fmt.Sprint(got), "[added 1 deleted 1 deleted 1 deleted 1]")
	})
}

func TestADeleteThatStandsForSeveralEventsOfASelectionSaysSo(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "yes"))
		inf := newInformer(t, src, options{Queue: queue, ErrorHandler: quiet})
		var told []event
		w := informer.WatcherFunc[configMap](func(_ context.Context, e event) error {
			told = append(told, e)
			return errorIf(len(told) == 1, errors.New("after it took effect"))
		})
		addWatcher(t, inf, informer.Select(w, func(obj configMap) bool { return obj.Data["value"] != "no" }),
			informer.WatcherOptions{Retry: informer.Backoff(time.Hour, time.Hour, 0)})
		informertest.Run(t, inf)
		synctest.Wait()
		src.Apply(object("a", "still"))
		src.Apply(object("a", "no"))
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if len(told) != 2 || told[1].Type != informer.EventDeleted || !told[1].Merged {
			t.Errorf("the events: %+v", told)
		}
	})
}

func TestWithRetryAloneThereIsOneCallAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"))
		store := newPlainStore(src.Objects()...)
		src.SetFaults(informertest.Faults{ListDelay: 10*time.Second + 300*time.Millisecond}) // so that OnSynced comes between retries
		inf := newInformer(t, src, options{Store: store, WatchList: informer.WatchListOff, ErrorHandler: quiet})
		var in atomic.Int32
		call := func(context.Context) {
			if in.Add(1) > 1 {
				t.Error("two calls at the same time")
			}
			time.Sleep(time.Second)
			in.Add(-1)
		}
		reg := addWatcher(t, inf, informer.WatcherFunc[configMap](func(ctx context.Context, _ event) error {
			call(ctx)
			return errors.New("no luck")
		}), informer.WatcherOptions{Retry: always, OnSynced: call})
		start(t, inf)
		<-reg.Synced()
		sleepBubble(time.Minute)
	})
}

func TestADrainBeforeTheStartIsOverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf := newInformer(t, informertest.NewSource(object("a", "")), options{DrainTimeout: time.Hour})
		addWatcher(t, inf, &recorder{}, informer.WatcherOptions{})
		release := make(chan struct{})
		informer.HoldListeners(inf, release)
		stop := start(t, inf)
		synctest.Wait()
		begun := time.Now()
		go stop()
		synctest.Wait()
		close(release)
		stop()
		equal(t, "stopping took", time.Since(begun), 0)
	})
}

// hangingList is a store whose List reads the objects at once. If gate is set, List returns them
// only when that channel is closed.
type hangingList struct {
	*informertest.Store
	gate atomic.Pointer[chan struct{}]
}

func (s *hangingList) List() []any {
	all := s.Store.List()
	if gate := s.gate.Load(); gate != nil {
		<-*gate
	}
	return all
}

func TestAResyncThatCannotBeDoesNotEndTheDrain(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", ""))
		store := &hangingList{Store: informertest.NewStore(nil)}
		var j journal
		inf := newInformer(t, src, options{Queue: queue, Store: store, DrainTimeout: time.Hour, ErrorHandler: quiet, Observer: j.observer()})
		var r recorder
		addWatcher(t, inf, &r, informer.WatcherOptions{ResyncPeriod: time.Minute})
		stop := start(t, inf)
		<-inf.Synced()
		sleepBubble(30 * time.Second)
		gate := make(chan struct{})
		store.gate.Store(&gate)
		sleepBubble(40 * time.Second) // now the resync lists the store
		src.Apply(object("b", ""))
		synctest.Wait()
		store.Fail(failOn("add", errors.New("disk full"))) // the get before it works, so that the change has begun
		src.Apply(object("c", ""))
		synctest.Wait()
		close(gate)
		synctest.Wait()
		stop()
		if len(r.View()) != 2 || len(j.undelivered) != 0 {
			t.Errorf("the watcher knows %d objects, undelivered: %v", len(r.View()), j.undelivered)
		}
	})
}

func TestARetryThatWasDecidedBeforeTheDrainIsCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf := newInformer(t, informertest.NewSource(object("a", "")), options{
			DrainTimeout: time.Minute, ErrorHandler: func(context.Context, error) { time.Sleep(time.Second) },
		})
		calls := 0
		addWatcher(t, inf, informer.WatcherFunc[configMap](func(context.Context, event) error {
			calls++
			return errorIf(calls == 1, errors.New("no luck"))
		}), informer.WatcherOptions{Retry: informer.Backoff(time.Hour, time.Hour, 0)})
		stop := start(t, inf)
		<-inf.Synced()
		sleepBubble(time.Second / 2) // the error handler still runs; the retry is already decided
		if d := took(stop); calls != 2 || d > time.Second {
			t.Errorf("%d calls, stopping took %v", calls, d)
		}
	})
}

func TestWaitForSyncNamesTheCallOfOnSynced(t *testing.T) {
	for _, workers := range []int{0, 2} {
		inBubble(t, fmt.Sprint(workers, " workers"), func(t *testing.T) {
			hold := make(chan struct{})
			inf := newInformer(t, informertest.NewSource(object("a", "")), options{})
			addWatcher(t, inf, &recorder{}, informer.WatcherOptions{Name: "w", Workers: workers, OnSynced: func(context.Context) { <-hold }})
			start(t, inf)
			says(t, inf.WaitForSync(within(t, time.Minute)), `watcher "w" (called for OnSynced)`)
			close(hold)
		})
	}
}
