package restart_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func TestUnhandledDeletesAreDeliveredAtTheNextStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := informertest.NewSource(objects("a", "b", "c")...), informertest.NewDurable()
		var errs errorLog
		block := make(chan struct{})
		slow := &recorder{Hook: func(_ context.Context, e event) error {
			if e.Type == informer.EventDeleted {
				<-block
			}
			return nil
		}}
		inf, _, stop := begun(t, src, options{Durable: store, ErrorHandler: errs.Handle})
		addWatcher(t, inf, slow, informer.WatcherOptions{})
		synctest.Wait()
		for _, name := range []string{"a", "b"} {
			_, _ = src.Delete(keyOf(name))
			synctest.Wait()
		}
		_, _ = src.Create(object("a", "2")) // another object of the same name
		sleepBubble(time.Minute)
		equal(t, "tombstones", inf.Health().Tombstones, 2)
		checkKept(t, store, src.ResourceVersion(), "a", "b")
		store.Crash()
		close(block)
		stop()
		if got := errs.Take(); len(got) != 1 || !errors.Is(got[0], fs.ErrClosed) {
			t.Errorf("reported: %v", got)
		}

		store = store.Reopen()
		inf, founder, stop := begun(t, src, options{Durable: store})
		sleepBubble(30 * time.Second)
		late := joined(t, inf)
		sleepBubble(time.Minute)
		later := joined(t, inf)
		synctest.Wait()
		for _, r := range []*recorder{founder, late} {
			checkTold(t, r, "initial deleted a", "initial deleted b", "initial added a", "initial added c")
			checkView(t, r, src)
		}
		checkTold(t, later, "initial added a", "initial added c")
		equal(t, "tombstones", inf.Health().Tombstones, 0)
		stop()
		checkKept(t, store, src.ResourceVersion())
	})
}

func TestTombstonesWaitForEveryRegisteredWatcher(t *testing.T) {
	for name, opts := range map[string]informer.WatcherOptions{
		"plain":   {},
		"workers": {Workers: 4},
		"retry":   {Retry: informer.Backoff(time.Minute, time.Minute, 10)},
		"merging": {MaxBacklog: 1},
	} {
		inBubble(t, name, func(t *testing.T) {
			src, store := informertest.NewSource(objects("a", "b")...), informertest.NewDurable()
			var broken atomic.Bool
			block := make(chan struct{})
			w := &recorder{Hook: func(_ context.Context, e event) error {
				if broken.Load() && e.Type == informer.EventDeleted {
					if opts.Retry != nil {
						return errors.New("not yet")
					}
					<-block
				}
				return nil
			}}
			inf := newInformer(t, src, options{Durable: store, ErrorHandler: ignore})
			reg := addWatcher(t, inf, w, opts)
			other := addWatcher(t, inf, &recorder{}, informer.WatcherOptions{})
			informertest.Run(t, inf)
			keptAfter := func(d time.Duration, names ...string) {
				t.Helper()
				sleepBubble(d)
				checkKept(t, store, src.ResourceVersion(), names...)
			}
			broken.Store(true)
			_, _ = src.Delete(keyOf("a"))
			keptAfter(10*time.Second, "a")
			other.Remove()
			keptAfter(10*time.Second, "a")
			broken.Store(false)
			close(block)
			keptAfter(2 * time.Minute)
			block = make(chan struct{})
			broken.Store(true)
			_, _ = src.Delete(keyOf("b"))
			keptAfter(10*time.Second, "b")
			reg.Remove() // no watcher is left
			keptAfter(10*time.Second, "b")
			heir := &recorder{}
			addWatcher(t, inf, heir, opts)
			keptAfter(10*time.Second, "b")
			checkTold(t, heir, "initial deleted b")
			keptAfter(time.Minute)
			close(block)
		})
	}
}

// The handlers register after the informer has synced, as controllers do in a manager.
func TestUndeliveredDeletesGoToTheFirstHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := lived(t, options{}, "a", "b", "c")
		_, _ = src.Delete(keyOf("a"))
		stop := informertest.Run(t, newInformer(t, src, options{Durable: store}))
		sleepBubble(time.Hour)
		stop()
		checkKept(t, store, src.ResourceVersion(), "a")

		_, _ = src.Delete(keyOf("b"))
		store = store.Reopen()
		inf := newInformer(t, src, options{Durable: store})
		stop = informertest.Run(t, inf)
		sleepBubble(time.Hour)
		handlers := make([][]string, 2)
		for n := range handlers {
			note := func(event string, obj any) {
				cm := obj.(configMap)
				handlers[n] = append(handlers[n], event+" "+cm.Name+"@"+cm.ResourceVersion)
			}
			_, err := inf.SharedIndexInformer().AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
				AddFunc: func(obj any, isInInitialList bool) { note(fmt.Sprintf("add, initial %v:", isInInitialList), obj) },
				DeleteFunc: func(obj any) {
					if tomb, ok := obj.(cache.DeletedFinalStateUnknown); ok {
						note("tombstone", tomb.Obj)
						return
					}
					note("delete", obj)
				},
			})
			must(t, err)
			sleepBubble(20 * time.Second)
		}
		_, _ = src.Delete(keyOf("c"))
		sleepBubble(time.Minute)
		for _, got := range handlers {
			equal(t, "tombstones", sorted(got[:2]), "[tombstone a@1001 tombstone b@1002]")
			equal(t, "events after them", got[2:], "[add, initial true: c@1003 delete c@1006]")
		}
		stop()
		checkKept(t, store, src.ResourceVersion())
	})
}

func TestAStopSoonAfterTheStartForgetsNothingOfBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := lived(t, options{}, "a", "b")
		_, _ = src.Delete(keyOf("a"))
		stop := informertest.Run(t, newInformer(t, src, options{Durable: store}))
		synctest.Wait()
		stop()
		store = store.Reopen()
		_, _, stop = begun(t, src, options{Durable: store})
		synctest.Wait()
		_, _ = src.Delete(keyOf("b"))
		synctest.Wait()
		stop()
		checkKept(t, store, src.ResourceVersion(), "a") // kept: more watchers may register. That of b was handled
	})
}

// A watcher is added while the first delete without a watcher is on its way.
func TestAWatcherThatIsAddedDuringADeleteGetsTheDelete(t *testing.T) {
	for name, want := range map[string][]string{
		"before the store has it": {"initial added a", "watch deleted a"},
		"after the store has it":  {"initial added a", "watch deleted a"},
		"after the log has it":    {"initial deleted a"},
	} {
		inBubble(t, name, func(t *testing.T) {
			src, store := lived(t, options{}, "a")
			var inf *ci
			heir := &recorder{}
			once := sync.OnceFunc(func() {
				addWatcher(t, inf, heir, informer.WatcherOptions{})
				sleepBubble(time.Second) // it reads the tombstones meanwhile
			})
			join := func(when string, is bool) {
				if is && when == name {
					once()
				}
			}
			inf = running(t, src, options{Durable: store, Observer: &informer.Observer{Apply: func(a informer.ApplyInfo) {
				join("after the log has it", a.Type == informer.EventDeleted)
			}}})
			store.Fail(func(op, key string) error { join("before the store has it", op == "apply"); return nil })
			store.FailAfter(func(op, key string) error { join("after the store has it", op == "apply"); return nil })
			_, _ = src.Delete(keyOf("a"))
			sleepBubble(10 * time.Second)
			checkTold(t, heir, want...)
		})
	}
}

// An object is deleted, comes back when the server is restored from a backup, and is deleted
// again.
func TestAnEarlierTombstoneIsInheritedAlthoughTheObjectWasDeletedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := lived(t, options{}, "a")
		backup := src.ResourceVersion()
		_, _ = src.Delete(keyOf("a"))
		stop := informertest.Run(t, newInformer(t, src, options{Durable: store}))
		synctest.Wait()
		stop()
		checkKept(t, store, src.ResourceVersion(), "a")

		must(t, src.Restore(backup))
		store = store.Reopen()
		inf, _ := watched(t, src, options{Durable: store, ErrorHandler: ignore})
		_, _ = src.Delete(keyOf("a"))
		sleepBubble(30 * time.Second)
		heir := joined(t, inf)
		synctest.Wait()
		checkTold(t, heir, "initial deleted a")
		sleepBubble(2 * time.Minute)
		checkKept(t, store, src.ResourceVersion())
	})
}

func TestATombstoneOfAnotherTypeIsReportedAndTheOthersAreDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := informertest.NewSource(object("a", "1")), informertest.NewDurable()
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "secret", UID: "s"}}
		gone := object("gone", "1")
		gone.UID = "g"
		for _, obj := range []informer.AnyObject{secret, gone} {
			must(t, store.Apply(t.Context(), []informer.Change{testkit.Burying(obj)}, ""))
		}
		var errs errorLog
		inf, r := watched(t, src, options{Durable: store, ErrorHandler: errs.Handle})
		synctest.Wait()
		got := errs.Take()
		equal(t, "reports", len(got), 1)
		errorSays(t, errors.Join(got...), "a tombstone: *v1.Secret")
		checkTold(t, r, "initial deleted gone", "initial added a")
		testkit.AtMost(t, "tombstones that wait for watchers", inf.Health().Tombstones, 1)
	})
}
