package informer_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// journal keeps all calls of an Observer.
type journal struct {
	mu          sync.Mutex // protects the rest
	lists       []informer.ListInfo
	watches     []informer.WatchInfo
	stores      []informer.StoreInfo
	applied     []informer.ApplyInfo
	handled     []informer.HandledInfo
	merged      []informer.BacklogInfo
	lagging     []informer.BacklogInfo
	undelivered []informer.BacklogInfo
}

func (j *journal) observer() *informer.Observer {
	return &informer.Observer{
		List:        into(j, &j.lists),
		Watch:       into(j, &j.watches),
		Store:       into(j, &j.stores),
		Apply:       into(j, &j.applied),
		Handled:     into(j, &j.handled),
		Merged:      into(j, &j.merged),
		Lagging:     into(j, &j.lagging),
		Undelivered: into(j, &j.undelivered),
	}
}

func into[I any](j *journal, all *[]I) func(I) {
	return func(info I) {
		j.mu.Lock()
		defer j.mu.Unlock()
		*all = append(*all, info)
	}
}

// expect waits until the bubble is idle. It fails the test unless *all has received exactly
// want since the last call. Errors are compared with errors.Is.
func expect[I any](t *testing.T, j *journal, all *[]I, want ...I) {
	t.Helper()
	synctest.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	if diff := cmp.Diff(want, *all, cmpopts.EquateErrors(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%T (-want +got)\n%s", *all, diff)
	}
	*all = nil
}

// observed runs an informer named "i" with j as its observer. It ignores reported errors.
func observed(t *testing.T, j *journal, src *source, opts options) (inf *ci, stop func()) {
	t.Helper()
	opts.Name, opts.Observer, opts.ErrorHandler = "i", j.observer(), quiet
	inf = newInformer(t, src, opts)
	stop = start(t, inf)
	synctest.Wait()
	return inf, stop
}

func TestAnObserverSeesEachPageOfAList(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"), object("b", "1"), object("c", "1"), object("d", "1"), object("e", "1"))
		src.SetFaults(informertest.Faults{ListDelay: time.Second})
		src.Fail("list", syscall.ECONNREFUSED, 1)
		var j journal
		observed(t, &j, src, options{Queue: queue, WatchList: informer.WatchListOff, PageSize: 2})
		sleepBubble(time.Minute)
		expect(t, &j, &j.lists,
			informer.ListInfo{Informer: "i", Took: time.Second, Err: syscall.ECONNREFUSED},
			informer.ListInfo{Informer: "i", Took: time.Second, Objects: 2},
			informer.ListInfo{Informer: "i", Took: time.Second, Objects: 2},
			informer.ListInfo{Informer: "i", Took: time.Second, Objects: 1})
	})
}

func TestAnObserverSeesHowEachWatchEnds(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"), object("b", "1"))
		var j journal
		_, stop := observed(t, &j, src, options{Queue: queue})
		sleepBubble(time.Minute)
		src.Apply(object("a", "2"))
		src.Bookmark()
		expect(t, &j, &j.watches)
		src.Expire()
		expired := apierrors.NewResourceExpired("The resourceVersion for the provided watch is too old.")
		synctest.Wait()
		if len(j.watches) != 1 || !apierrors.IsResourceExpired(j.watches[0].Err) {
			t.Fatalf("of a watch that expires it got %v", j.watches)
		}
		j.watches[0].Err = expired // an equal status of the server, but another pointer
		expect(t, &j, &j.watches, informer.WatchInfo{Informer: "i", Streaming: true, Events: 3 + 2 + 1, Took: time.Minute, Err: expired})

		opened(t, src) // with a stream again
		requests := src.Requests()
		timeout := time.Duration(*requests[len(requests)-1].Options.TimeoutSeconds) * time.Second
		sleepBubble(timeout)
		expect(t, &j, &j.watches, informer.WatchInfo{Informer: "i", Streaming: true, Events: 3, Took: timeout})

		sleepBubble(time.Minute)
		src.Fail("watch", syscall.ECONNREFUSED, 1)
		src.Disconnect()
		expect(t, &j, &j.watches, informer.WatchInfo{Informer: "i", Took: time.Minute}, informer.WatchInfo{Informer: "i", Err: syscall.ECONNREFUSED})
		opened(t, src)
		src.Apply(object("a", "3"))
		sleepBubble(time.Second)
		stop()
		expect(t, &j, &j.watches, informer.WatchInfo{Informer: "i", Events: 1, Took: time.Second})
	})
}

func TestAnObserverSeesEachAttemptOnTheStore(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src, store := informertest.NewSource(object("a", "1")), informertest.NewStore(nil)
		var j journal
		observed(t, &j, src, options{Queue: queue, Store: store})
		info := func(op, key string, took time.Duration, failures int) informer.StoreInfo {
			i := informer.StoreInfo{Informer: "i", Op: op, Key: key, Took: took, Failures: failures}
			if failures > 0 {
				i.Err = syscall.ENOSPC
			}
			return i
		}
		expect(t, &j, &j.stores, info("get", "default/a", 0, 0), info("add", "default/a", 0, 0))

		store.Delay(time.Second)
		failures := 0
		store.Fail(func(op, _ string) error {
			failures++
			return errorIf(failures == 1 || op == "update" && failures < 6, syscall.ENOSPC)
		})
		src.Apply(object("a", "2"))
		sleepBubble(time.Minute)
		expect(t, &j, &j.stores,
			info("get", "default/a", time.Second, 1),
			info("get", "default/a", time.Second, 0),
			info("update", "default/a", time.Second, 1),
			info("update", "default/a", 2*time.Second, 2), // gets the object first
			info("update", "default/a", 2*time.Second, 0))

		store.Heal()
		_, _ = src.Delete(keyOf("a"))
		expect(t, &j, &j.stores, info("get", "default/a", 0, 0), info("delete", "default/a", 0, 0))
	})
}

// A Durable has a change when it has the batch.
func TestTheDelayOfAnEventIncludesThatOfTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := informertest.NewSource[configMap](), informertest.NewDurable()
		var j journal
		observed(t, &j, src, options{Durable: store})
		start := time.Now()
		store.Fail(func(op, _ string) error {
			return errorIf(op == "apply" && time.Since(start) < time.Minute, syscall.ENOSPC)
		})
		src.Apply(object("a", "1"))
		sleepBubble(time.Hour)
		if len(j.applied) != 1 || j.applied[0].Lag < time.Minute {
			t.Errorf("the store had the change after a minute: %+v", j.applied)
		}
	})
}

func TestAnObserverSeesEachEventAndItsDelay(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src, store := informertest.NewSource(object("a", "1"), object("b", "1")), informertest.NewStore(nil)
		var j journal
		observed(t, &j, src, options{Queue: queue, Store: store})
		info := func(name string, typ informer.EventType, origin informer.Origin, lag time.Duration) informer.ApplyInfo {
			return informer.ApplyInfo{Informer: "i", Key: "default/" + name, Type: typ, Origin: origin, Lag: lag}
		}
		byKey := func(a, b informer.ApplyInfo) int { return strings.Compare(a.Key, b.Key) }
		slices.SortFunc(j.applied, byKey)
		expect(t, &j, &j.applied, info("a", informer.EventAdded, informer.OriginInitial, 0), info("b", informer.EventAdded, informer.OriginInitial, 0))

		store.Delay(time.Second)
		src.Apply(object("a", "2"))
		expect(t, &j, &j.applied)
		sleepBubble(time.Minute)
		expect(t, &j, &j.applied, info("a", informer.EventUpdated, informer.OriginWatch, 2*time.Second)) // one second to get, one to write

		store.Heal()
		store.Fail(func(op, key string) error {
			if op == "get" {
				return nil
			}
			return informer.ErrPermanent
		})
		src.Apply(object("a", "refused"))
		expect(t, &j, &j.applied)

		store.Heal()
		src.Apply(object("a", "3"))
		expect(t, &j, &j.applied, info("a", informer.EventUpdated, informer.OriginWatch, 0))
		src.SetFaults(informertest.Faults{Mute: true})
		_, _ = src.Delete(keyOf("b"))
		src.Apply(object("c", "1"))
		src.Expire()
		src.SetFaults(informertest.Faults{})
		store.Delay(time.Second)
		sleepBubble(time.Minute)
		slices.SortFunc(j.applied, byKey)
		if len(j.applied) == 2 && j.applied[1].Lag > 0 { // the lag depends on the queue
			j.applied[1].Lag = hour
		}
		expect(t, &j, &j.applied, info("b", informer.EventDeleted, informer.OriginRelist, 0), info("c", informer.EventAdded, informer.OriginRelist, hour))
	})
}

func TestAnObserverSeesEachCallOfAWatcher(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		var j journal
		inf, _ := observed(t, &j, src, options{Queue: queue})
		failing := errors.New("not now")
		left := 2 // number of failures left
		watcher := &recorder{Hook: func(context.Context, event) error {
			time.Sleep(time.Second)
			left--
			return errorIf(left >= 0, failing)
		}}
		again := func(failures int, _ error) (time.Duration, bool) { return time.Minute, failures < 3 }
		reg := addWatcher(t, inf, watcher, informer.WatcherOptions{Name: "w", Retry: again})
		added := informer.HandledInfo{Informer: "i", Watcher: "w", Key: keyOf("a"), Type: informer.EventAdded, Origin: informer.OriginInitial, Took: time.Second}
		with := func(h informer.HandledInfo, failures int, err error, gaveUp bool) informer.HandledInfo {
			h.Failures, h.Err, h.GaveUp = failures, err, gaveUp
			return h
		}
		sleepBubble(hour)
		expect(t, &j, &j.handled, with(added, 1, failing, false), with(added, 2, failing, false), with(added, 2, nil, false))

		left = 3
		src.Apply(object("a", "2"))
		sleepBubble(hour)
		updated := with(added, 0, nil, false)
		updated.Type, updated.Origin = informer.EventUpdated, informer.OriginWatch
		expect(t, &j, &j.handled, with(updated, 1, failing, false), with(updated, 2, failing, false), with(updated, 3, failing, true))

		reg.Remove()
		<-reg.Stopped()
		left = 1
		addWatcher(t, inf, watcher, informer.WatcherOptions{Name: "w"})
		sleepBubble(hour)
		src.Apply(object("a", "3"))
		sleepBubble(hour)
		expect(t, &j, &j.handled, with(added, 1, failing, true), updated)
	})
}

func TestAnObserverSeesAWatcherFallBehindAndCatchUp(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource[configMap]()
		var j journal
		inf, _ := observed(t, &j, src, options{Queue: queue})
		hold := make(chan struct{})
		watcher := informer.WatcherFunc[configMap](func(context.Context, event) error {
			<-hold
			time.Sleep(time.Second)
			return nil
		})
		reg := addWatcher(t, inf, watcher, informer.WatcherOptions{Name: "w", MaxBacklog: 2})
		change := func(value int) { src.Apply(object("a", fmt.Sprint(value))); synctest.Wait() }
		for value := range 3 { // one is being handled, two wait
			change(value)
		}
		expect(t, &j, &j.merged)
		expect(t, &j, &j.lagging)
		change(3) // the three waiting events are merged into one
		change(4)
		expect(t, &j, &j.merged, informer.BacklogInfo{Informer: "i", Watcher: "w", Events: 2})
		expect(t, &j, &j.lagging, informer.BacklogInfo{Informer: "i", Watcher: "w", Events: 2, Lagging: true})
		if got := reg.Stats(); got.Merged != 2 || got.Pending != 3 || !got.Lagging {
			t.Errorf("the figures are %+v", got)
		}
		close(hold)
		sleepBubble(time.Minute)
		equal(t, "lagging when it has caught up", reg.Stats().Lagging, false)
		expect(t, &j, &j.merged)
		expect(t, &j, &j.lagging, informer.BacklogInfo{Informer: "i", Watcher: "w"})
	})
}

func TestAnObserverSeesHowMuchWasNotDelivered(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		const objects, changes = 5, 7
		src := informertest.NewSource[configMap]()
		for n := range objects {
			src.Apply(object(fmt.Sprint("o", n), "1"))
		}
		var j journal
		inf, stop := observed(t, &j, src, options{Queue: queue})
		join := func(name string, call func(ctx context.Context) error) (*recorder, *informer.Registration) {
			r := &recorder{Hook: func(ctx context.Context, _ event) error { return call(ctx) }}
			return r, addWatcher(t, inf, r, informer.WatcherOptions{Name: name, MaxBacklog: -1})
		}
		join("gave up", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		ended, _ := join("came to an end", func(ctx context.Context) error { <-ctx.Done(); return nil })
		join("quick", func(context.Context) error { return nil })
		_, removed := join("removed", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		removed.Remove()
		for n := range changes {
			src.Apply(object("o0", fmt.Sprint("change ", n)))
		}
		expect(t, &j, &j.undelivered)
		stop()
		expect(t, &j, &j.undelivered,
			informer.BacklogInfo{Informer: "i", Watcher: "came to an end", Events: objects + changes - len(ended.Events())},
			informer.BacklogInfo{Informer: "i", Watcher: "gave up", Events: objects + changes})
		for _, h := range j.handled {
			if h.Watcher == "gave up" {
				t.Errorf("of a call that was cut short it got %+v", h)
			}
		}
	})
}

// everything makes an informer with the given observer, and then everything happen that can be
// observed. It calls made before the informer runs.
func everything(t *testing.T, queue informer.QueueKind, observer *informer.Observer, made func(*ci)) {
	t.Helper()
	src := informertest.NewSource(object("a", "1"))
	inf := newInformer(t, src, options{Queue: queue, Observer: observer, WatchList: informer.WatchListOff})
	made(inf)
	stop := start(t, inf)
	synctest.Wait()
	src.Disconnect()
	held := func(ctx context.Context, _ event) error {
		select {
		case <-ctx.Done():
		case <-time.After(time.Minute):
		}
		return ctx.Err()
	}
	addWatcher(t, inf, informer.WatcherFunc[configMap](held), informer.WatcherOptions{MaxBacklog: 1})
	for n := range 10 {
		sleepBubble(time.Second)
		src.Apply(object("a", fmt.Sprint("change ", n)))
	}
	sleepBubble(hour)
	src.Apply(object("a", "last"))
	synctest.Wait()
	stop()
}

func hooks(o *informer.Observer, f func(name string, hook reflect.Value)) {
	all := reflect.ValueOf(o).Elem()
	for n := range all.NumField() {
		f(all.Type().Field(n).Name, all.Field(n))
	}
}

// observerOf returns an Observer with all functions set. Each calls f with its own name and
// with the name of the informer that its argument carries.
func observerOf(f func(hook, informer string)) *informer.Observer {
	o := &informer.Observer{}
	hooks(o, func(name string, hook reflect.Value) {
		hook.Set(reflect.MakeFunc(hook.Type(), func(args []reflect.Value) []reflect.Value {
			f(name, args[0].Field(0).String())
			return nil
		}))
	})
	return o
}

func TestAnObserverMayAskTheInformerAndIsCopied(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		var asked *ci
		var called sync.Map
		observer := observerOf(func(hook, name string) {
			called.Store(hook, true)
			if h := asked.Health(); h.Name != name {
				t.Errorf("%s has the informer %q, Health of %q", hook, name, h.Name)
			}
			_ = asked.ResourceVersion()
		})
		everything(t, queue, observer, func(inf *ci) {
			asked = inf
			*observer = *observerOf(func(hook, _ string) { t.Errorf("%s was set after New, and is called", hook) })
		})
		hooks(observer, func(name string, _ reflect.Value) {
			if _, ok := called.Load(name); !ok {
				t.Errorf("%s was not called", name)
			}
		})
	})
}

func TestAnInformerWithoutAnObserverWorks(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		everything(t, queue, nil, func(*ci) {})
		everything(t, queue, &informer.Observer{}, func(*ci) {})
		everything(t, queue, informer.Tee(), func(*ci) {})
	})
}

func TestTeeTellsAllInTheirOrder(t *testing.T) {
	var told []string
	teller := func(name string) *informer.Observer {
		return observerOf(func(hook, informer string) {
			told = append(told, fmt.Sprintf("%s is told %s of %s", name, hook, informer))
		})
	}
	all := informer.Tee(nil, teller("first"), &informer.Observer{}, teller("second"))
	hooks(all, func(name string, hook reflect.Value) {
		told = nil
		info := reflect.New(hook.Type().In(0)).Elem()
		info.Field(0).SetString("pods") // the name of the informer or controller
		hook.Call([]reflect.Value{info})
		equal(t, "told", told, []string{"first is told " + name + " of pods", "second is told " + name + " of pods"})
	})
}

func TestTeeHasNoFunctionThatNobodyWants(t *testing.T) {
	apply := &informer.Observer{Apply: func(informer.ApplyInfo) {}}
	for want, observer := range map[string]*informer.Observer{"nothing": informer.Tee(), "nil": informer.Tee(nil, nil), "none": informer.Tee(&informer.Observer{}, nil), "Apply": informer.Tee(apply, nil)} {
		hooks(observer, func(name string, hook reflect.Value) {
			if hook.IsNil() == (name == want) {
				t.Errorf("wanting %s, %s is nil: %v", want, name, hook.IsNil())
			}
		})
	}
}

func TestLaggingIsNotCalledWithWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(letters("a")...)
		var lagging atomic.Int32
		inf := must(informer.NewFrom(src, options{Queue: informer.QueueRealFIFO, Observer: &informer.Observer{Lagging: func(informer.BacklogInfo) { lagging.Add(1) }}}))
		addWatcher(t, inf, &recorder{}, informer.WatcherOptions{Workers: 2, MaxBacklog: 1})
		informertest.Run(t, inf)
		synctest.Wait()
		for n := range 3000 {
			src.Apply(object("a", string(rune('b'+n%20))))
		}
		synctest.Wait()
		equal(t, "Lagging was called", int(lagging.Load()), 0)
	})
}
