package informer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2/ktesting"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

func TestASourceThatAnswersAgainIsNotFailingEvenIfItIsQuiet(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		inf := runWith(t, queue, src, informertest.NewStore(nil))
		sleepBubble(time.Minute)
		unreachable(src)
		sleepBubble(hour)
		src.Heal()
		sleepBubble(24 * hour) // hundreds of watches open, last as long as they should, and end without an error
		noError(t, inf.Health().SourceError)
	})
}

func TestASlowStoreIsNotTakenForOneThatHangs(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src, store := informertest.NewSource(many(256)...), informertest.NewStore(nil)
		store.Delay(time.Second)
		inf := newInformer(t, src, options{Queue: queue, Store: store})
		start(t, inf)
		for range 600 {
			sleepBubble(time.Second)
			if err := inf.Health().Live(); err != nil {
				t.Fatalf("each operation takes 1 s: %v", err)
			}
		}
		sleepBubble(400 * time.Second)
	})
}

func TestAnErrorHandlerThatBlocksIsNotTakenForTheStore(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src, store, hold := informertest.NewSource(object("a", "1")), informertest.NewStore(nil), make(chan struct{})
		inf := newInformer(t, src, options{Queue: queue, Store: store, ErrorHandler: func(context.Context, error) { <-hold }})
		start(t, inf)
		synctest.Wait()
		store.Fail(func(op, key string) error { return errors.New("down") })
		src.Apply(object("a", "2"))
		sleepBubble(6 * time.Minute)
		if h := inf.Health(); h.Live() != nil || h.StoreBusy != 0 {
			t.Errorf("no operation is under way: busy for %v, live: %v", h.StoreBusy, h.Live())
		}
		close(hold)
	})
}

func TestTheReflectorIsThreeLevelsQuieterAlsoAboutWatchList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, lw := range map[string]cache.ListerWatcher{
			"WatchListOff": informertest.NewSource(object("a", "1")), "a fake": informer.ListWatch(fake.NewClientset().CoreV1().ConfigMaps("")),
		} {
			inf := newInformer(t, lw, options{WatchList: informer.WatchListOff})
			stop, lines := startLogged(t, inf)
			synctest.Wait()
			stop()
			for _, e := range lines() {
				if e.Type == ktesting.LogInfo && e.Verbosity <= 2 && !documentedLines(t, "doc.go")[lineOf(e)] {
					t.Errorf("%s: V(%d) %s", name, e.Verbosity, e.Message)
				}
			}
		}
	})
}

func TestASilentStreamHasDeliveredNothing(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		src.SetFaults(informertest.Faults{IgnoreWatchList: true})
		var j journal
		observed(t, &j, src, options{Queue: queue})
		sleepBubble(time.Minute)
		if w := j.watches; len(w) == 0 || w[0].Events != 0 {
			t.Errorf("%+v", w)
		}
	})
}

func TestAWatchIsTimedFromTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		lw := &cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				return &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				time.Sleep(30 * time.Second)
				return watch.NewFake(), nil
			},
		}
		var j journal
		inf := newInformer(t, lw, options{Observer: j.observer(), WatchList: informer.WatchListOff})
		stop := start(t, inf)
		sleepBubble(time.Minute)
		stop()
		if w := j.watches; len(w) != 1 || w[0].Took != time.Since(begun) {
			t.Errorf("%+v, not %v", w, time.Since(begun))
		}
	})
}

func TestNoCallBeginsWithACtxThatIsDone(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		for range 50 {
			src := informertest.NewSource(object("a", "1"), object("b", "1"), object("c", "1"), object("d", "1"))
			inf := newInformer(t, src, options{Queue: queue})
			addWatcher(t, inf, informer.WatcherFunc[configMap](func(ctx context.Context, _ event) error {
				noError(t, ctx.Err())
				<-ctx.Done()
				return nil
			}), informer.WatcherOptions{})
			stop := start(t, inf)
			synctest.Wait()
			stop()
		}
	})
}

func TestAStoreThatFailsAndThenHangsIsNamedAsHanging(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src, store, hold := informertest.NewSource(object("a", "1")), informertest.NewStore(nil), make(chan struct{})
		inf := runWith(t, queue, src, store)
		calls := 0
		store.Fail(func(op, key string) error {
			if calls++; calls == 1 {
				return errors.New("connection reset")
			}
			<-hold
			return nil
		})
		src.Apply(object("a", "2"))
		sleepBubble(hour)
		if h := inf.Health(); !strings.Contains(h.StoreError.Error(), "has not returned") {
			t.Errorf("busy for %v: %v; live: %v", h.StoreBusy, h.StoreError, h.Live())
		}
		close(hold)
	})
}
