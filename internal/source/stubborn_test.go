package source_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// The sources of these tests do not answer like an API server.

// stubborn is a source whose list has one object, and whose watches do what the test defines
// in watched.
type stubborn struct {
	listErr error
	version string // version of the list
	watched func(opts metav1.ListOptions, w *watch.FakeWatcher)
	lists   atomic.Int64
	watches atomic.Int64
}

func (s *stubborn) lw() cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			s.lists.Add(1)
			if s.listErr != nil {
				return nil, s.listErr
			}
			return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: s.version}, Items: []corev1.ConfigMap{*at(object("a", "1"), "5")}}, nil
		},
		WatchFuncWithContext: func(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			s.watches.Add(1)
			w := watch.NewFakeWithChanSize(100, false)
			s.watched(opts, w)
			return w, nil
		},
	}
}

func at(obj configMap, version string) configMap {
	obj.ResourceVersion = version
	return obj
}

func streams(opts metav1.ListOptions) bool {
	return opts.SendInitialEvents != nil && *opts.SendInitialEvents
}

func TestAStreamThatEndsEarlyIsReportedAndListed(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		s := &stubborn{version: "9", watched: func(opts metav1.ListOptions, w *watch.FakeWatcher) {
			w.Add(at(object("a", "1"), "5"))
			if streams(opts) {
				w.Stop()
			}
		}}
		var errs errorLog
		inf := newInformer(t, s.lw(), options{Queue: queue, ErrorHandler: errs.Handle})
		stop := start(t, inf)
		if err := inf.WaitForSync(within(t, time.Minute)); err != nil {
			t.Error(err)
		}
		if got := errs.Take(); len(got) != 1 || !strings.Contains(got[0].Error(), "before it was complete") {
			t.Errorf("reported %v", got)
		}
		stop()
	})
}

func TestAWatchThatBringsSomethingAndEndsIsNotOpenedWithoutPause(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		s := &stubborn{version: "9", watched: func(_ metav1.ListOptions, w *watch.FakeWatcher) {
			w.Modify(at(object("a", "2"), "10"))
			w.Stop()
		}}
		inf := newInformer(t, s.lw(), options{Queue: queue, WatchList: informer.WatchListOff})
		stop := start(t, inf)
		sleepBubble(time.Minute)
		if got := s.watches.Load(); got < 30 || got > 62 {
			t.Errorf("%d watches in a minute", got)
		}
		stop()
	})
}

func TestWatchesThatEndAtOnceAreReported(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		s := &stubborn{version: "9", watched: func(_ metav1.ListOptions, w *watch.FakeWatcher) { w.Stop() }}
		var errs errorLog
		inf := newInformer(t, s.lw(), options{Queue: queue, WatchList: informer.WatchListOff, ErrorHandler: errs.Handle})
		stop := start(t, inf)
		sleepBubble(hour)
		if got := errs.Take(); len(got) != 1 || !strings.Contains(got[0].Error(), "end as soon as") {
			t.Errorf("reported %v", got)
		}
		stop()
	})
}

func TestAWatchThatOnlyBringsChangesIsNoStreamOfTheFirstState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stubborn{version: "9"}
		s.watched = func(opts metav1.ListOptions, w *watch.FakeWatcher) {
			if streams(opts) { // like a proxy that drops parameters it does not know
				for n := range 20 {
					time.AfterFunc(time.Duration(n)*9*time.Second, func() {
						if !w.IsStopped() {
							w.Modify(at(object("a", fmt.Sprint(n)), fmt.Sprint(10+n)))
						}
					})
				}
			}
		}
		inf := newInformer(t, s.lw(), options{})
		stop := start(t, inf)
		if err := inf.WaitForSync(within(t, time.Minute)); err != nil {
			t.Error(err)
		}
		stop()
	})
}

func TestAListThatIsAlwaysExpiredIsNamed(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		s := &stubborn{listErr: apierrors.NewResourceExpired("too old, always")}
		var errs errorLog
		inf := newInformer(t, s.lw(), options{Queue: queue, WatchList: informer.WatchListOff, ErrorHandler: errs.Handle})
		stop := start(t, inf)
		if err := inf.WaitForSync(within(t, hour)); err == nil || !strings.Contains(err.Error(), "too old, always") {
			t.Errorf("waiting ended with %v", err)
		}
		if got := errs.Take(); len(got) != 1 {
			t.Errorf("reported %v", got)
		}
		stop()
	})
}

func TestAnotherFailureOfTheSameRequestIsReportedToo(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		var errs errorLog
		inf := newInformer(t, src, options{Queue: queue, WatchList: informer.WatchListOff, ErrorHandler: errs.Handle})
		for port := range 5 {
			src.Fail("list", fmt.Errorf("from port %d: %w", port, errors.New("refused at 10:0"+fmt.Sprint(port))), 1)
		}
		src.Fail("list", errors.New("certificate has expired"), 5)
		start(t, inf)
		if err := inf.WaitForSync(within(t, hour)); err != nil {
			t.Error(err)
		}
		if got := errs.Take(); len(got) != 2 {
			t.Errorf("reported %v", got)
		}
	})
}

func TestAVersionIsNotReachedByTheObjectsThatAWatchFromNoVersionBeginsWith(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		watches := make(chan *watch.FakeWatcher, 1)
		s := &stubborn{version: "", watched: func(_ metav1.ListOptions, w *watch.FakeWatcher) {
			w.Add(at(object("a", "1"), "20"))
			watches <- w
		}}
		var errs errorLog
		inf := newInformer(t, s.lw(), options{Queue: queue, WatchList: informer.WatchListOff, ErrorHandler: errs.Handle})
		stop := start(t, inf)
		w := <-watches
		synctest.Wait()
		if got := inf.ResourceVersion(); got != "" {
			t.Errorf("ResourceVersion is %s although more objects of the first state must come", got)
		}
		w.Add(at(object("b", "1"), "10"))
		w.Modify(at(object("b", "2"), "21"))
		synctest.Wait()
		if got := inf.ResourceVersion(); got != "21" {
			t.Errorf("ResourceVersion is %s after the first change, 21", got)
		}
		stop()
	})
}

func TestWaitForEndsWithItsCtxAlsoIfThereIsAlwaysMoreToRead(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		inf, src := startWith(t, queue, object("a", "1"))
		var writing sync.WaitGroup
		defer writing.Wait()
		writing.Go(func() {
			for n := range 60 {
				src.Apply(object("a", fmt.Sprint("v", n)))
				time.Sleep(time.Second / 2)
			}
		})
		begin := time.Now()
		err := inf.WaitFor(within(t, 10*time.Second), keyOf("a"), func(configMap, bool) bool {
			time.Sleep(time.Second) // slower than the writes, so that events always wait
			return false
		})
		if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took > 12*time.Second {
			t.Errorf("returned after %v: %v", took, err)
		}
	})
}

// TestAStoreThatIsDownDoesNotKeepTheReflectorFromItsWatch expects the reflector to read its
// watch while the store is down, once it has a whole list. A server ends a watch that is not read, and the next list
// would merge the changes that came in the meantime.
func TestAStoreThatIsDownDoesNotKeepTheReflectorFromItsWatch(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		const objects = 500
		src := informertest.NewSource[configMap]()
		for n := range objects {
			src.Apply(small(n, 0))
		}
		store := informertest.NewStore(nil)
		store.Fail(func(string, string) error { return errDown })
		inf := newInformer(t, src, options{
			Queue: queue, Store: store, WatchList: informer.WatchListOff, Intake: informer.IntakeWhole,
			ErrorHandler: func(context.Context, error) {},
		})
		var w recorder
		addWatcher(t, inf, &w, informer.WatcherOptions{MaxBacklog: -1})
		start(t, inf)
		if err := src.WaitForWatches(within(t, 2*time.Second), 1); err != nil {
			t.Error(err)
		}
		store.Heal()
		<-inf.Synced()
		if lists := len(src.Requests()); lists != 2 {
			t.Errorf("%d requests, want one list and one watch", lists)
		}
		synctest.Wait()
		checkView(t, &w, src)
	})
}

// TestChangesOfASlowStoreAreToldWithoutWaitingForTheNext expects an event soon after each
// write. Publishing several changes together saves time only with a fast store.
func TestChangesOfASlowStoreAreToldWithoutWaitingForTheNext(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		const changes, each = 50, 10 * time.Millisecond // each operation takes 10 ms; a change needs a get and a write
		src, store := informertest.NewSource[configMap](), informertest.NewStore(nil)
		inf := newInformer(t, src, options{Queue: queue, Store: store})
		var told []time.Time
		addWatcher(t, inf, informer.WatcherFunc[configMap](func(context.Context, event) error {
			told = append(told, time.Now())
			return nil
		}), informer.WatcherOptions{MaxBacklog: -1})
		start(t, inf)
		<-inf.Synced()
		store.Delay(each)
		begun := time.Now()
		for n := range changes {
			src.Apply(object(fmt.Sprint(n), "1"))
		}
		sleepBubble(time.Minute)
		if len(told) != changes {
			t.Fatalf("the watcher got %d events for %d changes", len(told), changes)
		}
		for n, at := range told {
			// Two more operations may come first: the check that the first object is found by
			// its key, and the bookmark of the list.
			if late := at.Sub(begun) - time.Duration(2*n+2)*each; late > 2*each {
				t.Errorf("the event of change %d came %v after its write", n, late)
			}
		}
	})
}

func TestASlowStoreDelaysTheStopByOneChange(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		const each = time.Second
		src, store := informertest.NewSource[configMap](), informertest.NewStore(nil)
		inf := newInformer(t, src, options{Queue: queue, Store: store, DrainTimeout: time.Minute})
		var w recorder
		addWatcher(t, inf, &w, informer.WatcherOptions{})
		stop := start(t, inf)
		<-inf.Synced()
		store.Delay(each)
		for n := range 500 {
			src.Apply(object(fmt.Sprint(n), "1"))
		}
		sleepBubble(10*each + each/2)
		begun := time.Now()
		stop()
		if took := time.Since(begun); took > 2*each {
			t.Errorf("stopping took %v", took)
		}
		if stored, told := len(store.ListKeys()), len(w.Events()); stored != told || told < 5 {
			t.Errorf("%d objects are stored, the watcher got %d", stored, told)
		}
	})
}

// TestWhatIsStoredOfAListIsToldWhileTheRestTakesItsTime also checks that the watcher gets the
// stored objects if the informer stops in the middle of the list.
func TestWhatIsStoredOfAListIsToldWhileTheRestTakesItsTime(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"), object("b", "1"), object("c", "1"))
		inf := newInformer(t, src, options{Queue: queue, WatchList: informer.WatchListOff, DrainTimeout: time.Minute, Transform: func(obj configMap) (configMap, error) {
			if obj.Name == "b" {
				time.Sleep(time.Hour)
			}
			return obj, nil
		}})
		var w recorder
		addWatcher(t, inf, &w, informer.WatcherOptions{})
		stop := start(t, inf)
		time.Sleep(time.Minute)
		w.Expect(t, "added default/a")
		stop() // Transform must return first
		if stored, _ := inf.List("", nil); len(stored) != len(w.View()) {
			t.Errorf("%d objects are stored, the watcher got %d", len(stored), len(w.View()))
		}
	})
}

func TestVersionsThatCannotBeComparedCannotBeWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stubborn{version: "v5", watched: func(metav1.ListOptions, *watch.FakeWatcher) {}}
		inf := newInformer(t, s.lw(), options{WatchList: informer.WatchListOff})
		start(t, inf)
		<-inf.Synced()
		if err := inf.WaitForVersion(t.Context(), "", "7"); err == nil || !strings.Contains(err.Error(), "the source's versions cannot be compared") {
			t.Errorf("WaitForVersion: %v", err)
		}
		if err := inf.WaitForVersion(t.Context(), "", ""); err == nil || !strings.Contains(err.Error(), "empty") {
			t.Errorf("of an object without a version: %v", err)
		}
	})
}

// TestAfterTheStopNoFurtherPageIsAskedFor has a source that ignores its ctx. If such a source
// answers after the stop, client-go requests the next page.
func TestAfterTheStopNoFurtherPageIsAskedFor(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"), object("b", "1"), object("c", "1"))
		src.SetFaults(informertest.Faults{HoldLists: true})
		release := func() { src.SetFaults(informertest.Faults{}) }
		deaf := &cache.ListWatch{ListFunc: src.List, WatchFuncWithContext: src.WatchWithContext}
		inf := newInformer(t, deaf, options{Queue: queue, PageSize: 1, WatchList: informer.WatchListOff})
		stop := start(t, inf)
		synctest.Wait()
		go stop()
		synctest.Wait()
		release()
		stop()
		synctest.Wait()
		if got := src.Requests(); len(got) != 1 || got[0].Options.Limit != 1 {
			t.Errorf("asked %d times: %+v", len(got), got)
		}
	})
}

func TestAStopEndsAWatchThatNobodyReads(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		const changes = 3000 // more than an informer takes from a watch while the store is down
		src, store := informertest.NewSource[configMap](), informertest.NewStore(nil)
		inf := newInformer(t, src, options{Queue: queue, Store: store, ErrorHandler: ignore})
		stop := start(t, inf)
		<-inf.Synced()
		opened(t, src)
		store.Fail(func(string, string) error { return errDown })
		for n := range changes {
			src.Apply(small(n, 0))
		}
		sleepBubble(time.Minute)
		if got := inf.Health().Queued; got == 0 || got >= changes {
			t.Errorf("%d of %d changes have been taken from the watch", got, changes)
		}
		begun := time.Now()
		stop()
		if took, open := time.Since(begun), src.Watches(); took > 0 || open > 0 {
			t.Errorf("the stop took %v, and %d watches are open", took, open)
		}
	})
}
