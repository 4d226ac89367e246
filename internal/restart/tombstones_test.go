package restart_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func TestDeletesThatNobodyHasHandledAreToldAtTheNextStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"), object("b", "1"), object("c", "1"))
		store := informertest.NewDurable()
		var errs errorLog
		inf := newInformer(t, src, options{Durable: store, ErrorHandler: errs.Handle})
		block := make(chan struct{})
		slow := &recorder{Hook: func(ctx context.Context, e event) error {
			if e.Type == informer.EventDeleted {
				<-block
			}
			return nil
		}}
		fast := &recorder{}
		addWatcher(t, inf, slow, informer.WatcherOptions{})
		addWatcher(t, inf, fast, informer.WatcherOptions{})
		stop := informertest.Run(t, inf)
		for _, name := range []string{"a", "b"} {
			_, _ = src.Delete(keyOf(name))
			synctest.Wait()
		}
		_, _ = src.Create(object("a", "2")) // another object of the same name
		sleepBubble(time.Minute)
		if got := inf.Health().Tombstones; got != 2 {
			t.Errorf("Health has %d tombstones", got)
		}
		checkKept(t, store, src.ResourceVersion(), "a", "b")
		store.Crash()
		close(block)
		stop()
		if got := errs.Take(); len(got) != 1 || !errors.Is(got[0], fs.ErrClosed) {
			t.Errorf("reported: %v", got)
		}

		store = store.Reopen()
		inf = newInformer(t, src, options{Durable: store})
		founder, late := &recorder{}, &recorder{}
		addWatcher(t, inf, founder, informer.WatcherOptions{})
		stop = informertest.Run(t, inf)
		sleepBubble(30 * time.Second)
		addWatcher(t, inf, late, informer.WatcherOptions{})
		sleepBubble(time.Minute)
		later := &recorder{}
		addWatcher(t, inf, later, informer.WatcherOptions{})
		synctest.Wait()
		for _, r := range []*recorder{founder, late} {
			got := told(r)
			slices.Sort(got[:2])
			slices.Sort(got[2:])
			if diff := cmp.Diff([]string{"initial deleted a", "initial deleted b", "initial added a", "initial added c"}, got); diff != "" {
				t.Errorf("events of the watcher (-want +got):\n%s", diff)
			}
			checkView(t, r, src)
		}
		checkView(t, later, src)
		if len(later.Events()) != 2 {
			t.Errorf("the watcher that joined later got %v", told(later))
		}
		if got := inf.Health().Tombstones; got != 0 {
			t.Errorf("Health has %d tombstones", got)
		}
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := informertest.NewSource(object("a", "1"), object("b", "1"))
				store := informertest.NewDurable()
				var errs errorLog
				inf := newInformer(t, src, options{Durable: store, ErrorHandler: errs.Handle})
				var broken atomic.Bool
				block := make(chan struct{})
				w := &recorder{Hook: func(ctx context.Context, e event) error {
					if broken.Load() && e.Type == informer.EventDeleted {
						if opts.Retry != nil {
							return errors.New("not yet")
						}
						<-block
					}
					return nil
				}}
				reg := addWatcher(t, inf, w, opts)
				other := addWatcher(t, inf, &recorder{}, informer.WatcherOptions{})
				informertest.Run(t, inf)
				broken.Store(true)
				_, _ = src.Delete(keyOf("a"))
				sleepBubble(10 * time.Second)
				checkKept(t, store, src.ResourceVersion(), "a")
				other.Remove()
				sleepBubble(10 * time.Second)
				checkKept(t, store, src.ResourceVersion(), "a")
				broken.Store(false)
				close(block)
				sleepBubble(2 * time.Minute)
				checkKept(t, store, src.ResourceVersion())
				block = make(chan struct{})
				broken.Store(true)
				_, _ = src.Delete(keyOf("b"))
				sleepBubble(10 * time.Second)
				checkKept(t, store, src.ResourceVersion(), "b")
				reg.Remove() // no watcher is left
				sleepBubble(10 * time.Second)
				checkKept(t, store, src.ResourceVersion(), "b")
				heir := &recorder{}
				addWatcher(t, inf, heir, opts)
				sleepBubble(10 * time.Second)
				if diff := cmp.Diff([]string{"initial deleted b"}, told(heir)); diff != "" {
					t.Errorf("events of the next watcher (-want +got):\n%s", diff)
				}
				checkKept(t, store, src.ResourceVersion(), "b")
				sleepBubble(time.Minute)
				checkKept(t, store, src.ResourceVersion())
				close(block)
			})
		})
	}
}

// The handlers register after the informer has synced, as controllers do in a manager.
func TestWhatNobodyWasToldIsToldToWhoeverRegistersFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"), object("b", "1"), object("c", "1"))
		store := informertest.NewDurable()
		oneRun(t, src, store, options{})
		_, _ = src.Delete(keyOf("a"))
		store = store.Reopen()
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
			if err != nil {
				t.Fatal(err)
			}
			sleepBubble(20 * time.Second)
		}
		_, _ = src.Delete(keyOf("c"))
		sleepBubble(time.Minute)
		for _, got := range handlers {
			slices.Sort(got[:2])
			if diff := cmp.Diff([]string{"tombstone a@1001", "tombstone b@1002", "add, initial true: c@1003", "delete c@1006"}, got); diff != "" {
				t.Errorf("events of a handler (-want +got):\n%s", diff)
			}
		}
		stop()
		checkKept(t, store, src.ResourceVersion())
	})
}

func TestAStopSoonAfterTheStartForgetsNothingOfBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"), object("b", "1"))
		store := informertest.NewDurable()
		oneRun(t, src, store, options{})
		_, _ = src.Delete(keyOf("a"))
		store = store.Reopen()
		stop := informertest.Run(t, newInformer(t, src, options{Durable: store}))
		synctest.Wait()
		stop()
		store = store.Reopen()
		inf := newInformer(t, src, options{Durable: store})
		addWatcher(t, inf, &recorder{}, informer.WatcherOptions{})
		stop = informertest.Run(t, inf)
		_, _ = src.Delete(keyOf("b"))
		synctest.Wait()
		stop()
		checkKept(t, store, src.ResourceVersion(), "a") // kept: more watchers may register
	})
}

func TestACleanStopForgetsWhatWasHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"))
		store := informertest.NewDurable()
		inf := newInformer(t, src, options{Durable: store})
		addWatcher(t, inf, &recorder{}, informer.WatcherOptions{})
		stop := informertest.Run(t, inf)
		_, _ = src.Delete(keyOf("a"))
		synctest.Wait()
		stop()
		checkKept(t, store, src.ResourceVersion())
	})
}

func TestWithoutAWatcherNoTombstoneIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"))
		store := informertest.NewDurable()
		inf := newInformer(t, src, options{Durable: store})
		stop := informertest.Run(t, inf)
		_, _ = src.Delete(keyOf("a"))
		sleepBubble(time.Minute)
		stop()
		checkKept(t, store, src.ResourceVersion(), "a")
	})
}

// An object is deleted, comes back when the server is restored from a backup, and is deleted
// again.
func TestATombstoneOfBeforeIsInheritedThoughTheObjectWasDeletedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"))
		backup := src.ResourceVersion()
		store := informertest.NewDurable()
		oneRun(t, src, store, options{})
		_, _ = src.Delete(keyOf("a"))
		stop := informertest.Run(t, newInformer(t, src, options{Durable: store}))
		synctest.Wait()
		stop()
		checkKept(t, store, src.ResourceVersion(), "a")

		if err := src.Restore(backup); err != nil {
			t.Fatal(err)
		}
		store = store.Reopen()
		var errs errorLog
		inf := newInformer(t, src, options{Durable: store, ErrorHandler: errs.Handle})
		addWatcher(t, inf, &recorder{}, informer.WatcherOptions{})
		informertest.Run(t, inf)
		_, _ = src.Delete(keyOf("a"))
		sleepBubble(30 * time.Second)
		heir := &recorder{}
		addWatcher(t, inf, heir, informer.WatcherOptions{})
		synctest.Wait()
		if diff := cmp.Diff([]string{"initial deleted a"}, told(heir)); diff != "" {
			t.Errorf("events of the next watcher (-want +got):\n%s", diff)
		}
		sleepBubble(2 * time.Minute)
		checkKept(t, store, src.ResourceVersion())
	})
}

func TestATombstoneOfAnotherTypeIsReportedAndTheOthersAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := informertest.NewSource(object("a", "1")), informertest.NewDurable()
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "secret", UID: "s"}}
		gone := object("gone", "1")
		gone.UID = "g"
		for _, obj := range []informer.AnyObject{secret, gone} {
			if err := store.Apply(t.Context(), []informer.Change{testkit.Burying(obj)}, ""); err != nil {
				t.Fatal(err)
			}
		}
		var errs errorLog
		inf := newInformer(t, src, options{Durable: store, ErrorHandler: errs.Handle})
		w := &recorder{}
		addWatcher(t, inf, w, informer.WatcherOptions{})
		informertest.Run(t, inf)
		synctest.Wait()
		if got := errs.Take(); len(got) != 1 || !strings.Contains(got[0].Error(), "a tombstone: *v1.Secret") {
			t.Errorf("reported %v", got)
		}
		for _, e := range w.Events() {
			if e.Key().Name == "secret" {
				t.Errorf("the watcher got a %v event of an object that is no config map", e.Type)
			}
		}
		if got := inf.Health().Tombstones; got > 1 {
			t.Errorf("Health counts %d tombstones that wait for watchers", got)
		}
	})
}
