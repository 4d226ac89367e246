package restart_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// Tests of restarts over a store that outlives the process.

func TestAWarmStartListsNothing(t *testing.T) {
	bothWays(t, func(t *testing.T, opts options, _ string) {
		src, store := lived(t, opts, "kept", "changed", "deleted")
		at, n := src.ResourceVersion(), len(src.Requests())
		checkKept(t, store, at)
		_, _ = src.Update(object("changed", "2"))
		_, _ = src.Delete(keyOf("deleted"))
		_, _ = src.Create(object("created", "1"))
		r := oneRun(t, src, store, opts)
		equal(t, "asked", asked(src, n), "probe, watch from "+at)
		checkTold(t, r, "initial added changed", "initial added deleted", "initial added kept",
			"watch updated changed", "watch deleted deleted", "watch added created")
		checkKept(t, store, src.ResourceVersion())
	})
}

func TestTwoInformersCannotRunOverOneDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := informertest.NewSource(object("a", "1")), informertest.NewDurable()
		first := newInformer(t, src, options{Name: "first", Durable: store})
		stop := informertest.Run(t, first)
		second := newInformer(t, informertest.NewSource[configMap](), options{Name: "second", Durable: store})
		reg := addWatcher(t, second, &recorder{}, informer.WatcherOptions{})
		equal(t, "Run", second.Run(t.Context()), "informer second: informer first runs over the same Options.Durable")
		<-reg.Stopped()
		errorIs(t, second.WaitForSync(t.Context()), informer.ErrStopped)
		checkStore(t, first, src)
		stop()
		oneRun(t, src, store, options{Name: "third"})
	})
}

func TestAWarmStartIsSyncedOnceTheWatchIsAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := lived(t, options{}, "a")
		src.Fail("watch", errors.New("no"), 1)
		var errs errorLog
		inf := newInformer(t, src, options{Durable: store, ErrorHandler: errs.Handle})
		start(t, inf)
		synctest.Wait()
		checkStore(t, inf, src) // the stored objects can be read already
		equal(t, "synced without a watch", inf.HasSynced(), false)
		must(t, inf.WaitForSync(within(t, 10*time.Second)))
		equal(t, "ResourceVersion", inf.ResourceVersion(), src.ResourceVersion())
		equal(t, "reports", len(errs.Take()), 1)
	})
}

func TestAnExpiredBookmarkCostsOneList(t *testing.T) {
	for name, refuse := range map[string]bool{"in the stream": false, "as the answer": true} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, opts options, full string) {
				src, store := lived(t, opts, "kept", "deleted")
				at, n := src.ResourceVersion(), len(src.Requests())
				_, _ = src.Delete(keyOf("deleted"))
				_, _ = src.Create(object("created", "1"))
				src.Compact()
				src.SetFaults(informertest.Faults{RefuseExpired: refuse})
				r := oneRun(t, src, store, opts)
				want := "probe, watch from " + at + " gone, " + full
				if full == "list" {
					want += ", watch from " + src.ResourceVersion()
				}
				equal(t, "asked", asked(src, n), want)
				checkTold(t, r, "initial added created", "initial added deleted", "initial added kept", "initial deleted deleted")
				checkKept(t, store, src.ResourceVersion())
			})
		})
	}
}

// unraised sends a delete with the last version of the object, as servers without etcd do.
type unraised struct {
	*source
	last string
}

func (s unraised) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	w, err := s.source.WatchWithContext(ctx, opts)
	if err != nil {
		return nil, err
	}
	return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
		if obj, ok := e.Object.(configMap); ok && e.Type == watch.Deleted {
			e.Object = obj.DeepCopy()
			e.Object.(configMap).ResourceVersion = s.last
		}
		return e, true
	}), nil
}

func TestAWarmStartTakesADeleteWithTheVersionOfTheObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := lived(t, options{}, "a", "b")
		obj, _ := src.Get(keyOf("a"))
		_, _ = src.Delete(keyOf("a"))
		inf, r, _ := begun(t, unraised{src, obj.ResourceVersion}, options{Durable: store})
		sleepBubble(time.Minute)
		checkTold(t, r, "initial added a", "initial added b", "watch deleted a")
		checkStore(t, inf, src)
	})
}

func TestARefusedChangeIsFoundInItsBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(objects("a", "bad", "c")...)
		store := &pickyDurable{durable: informertest.NewDurable()}
		var errs errorLog
		inf, r, stop := begun(t, src, options{Durable: store, ErrorHandler: errs.Handle})
		synctest.Wait()
		_, _ = src.Update(object("a", "2"))
		_, _ = src.Update(object("bad", "2"))
		sleepBubble(time.Minute)
		noError(t, r.Err())
		checkTold(t, r, "initial added a", "initial added c", "watch updated a")
		for _, err := range errs.Take() {
			var serr *informer.StoreError
			if !errors.As(err, &serr) || serr.Op != "apply" || serr.Key != "default/bad" || !serr.GaveUp {
				t.Errorf("reported: %v", err)
			}
		}
		equal(t, "refused changes", inf.Health().Refused, 2)
		// The late watcher syncs only if the log reaches the position begun.
		<-addWatcher(t, inf, &recorder{}, informer.WatcherOptions{}).Synced()
		stop()
		// The store lacks an object, so it must not keep a bookmark: the next start must list.
		checkKept(t, store.durable, "")
		store.durable, store.takes = store.Reopen(), true
		n := len(src.Requests())
		inf, _ = watched(t, src, options{Durable: store})
		synctest.Wait()
		checkStore(t, inf, src)
		equal(t, "asked", asked(src, n), "list, watch from "+src.ResourceVersion())
		checkKept(t, store.durable, src.ResourceVersion())
	})
}

// pickyDurable refuses the object "bad".
type pickyDurable struct {
	*durable
	takes bool
	calls int // of Apply
}

func (s *pickyDurable) Apply(ctx context.Context, changes []informer.Change, bookmark string) error {
	s.calls++
	for _, c := range changes {
		if c.Object.(configMap).Name == "bad" && !s.takes {
			return errRefuses
		}
	}
	return s.durable.Apply(ctx, changes, bookmark)
}

// lagging is a store whose bookmark is older than some of its objects.
type lagging struct {
	*durable
	at string
}

func (s lagging) Resume(context.Context) (string, error) { return s.at, nil }

func TestAResumedWatchSkipsEventsThatAreNotNewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := informertest.NewSource(objects("a", "b")...), informertest.NewDurable()
		at := src.ResourceVersion()
		_, _ = src.Update(object("a", "2"))
		_, _ = src.Delete(keyOf("b"))
		_, _ = src.Create(object("b", "2"))
		oneRun(t, src, store, options{})
		_, _ = src.Update(object("a", "3"))
		_, r := watched(t, src, options{Durable: lagging{store.Reopen(), at}})
		synctest.Wait()
		checkView(t, r, src)
		checkTold(t, r, "initial added a", "initial added b", "watch updated a")
	})
}

func TestADurableNeedsRealFIFO(t *testing.T) {
	_, err := informer.NewFrom(informertest.NewSource[configMap](), options{Durable: informertest.NewDurable(), Queue: informer.QueueDeltaFIFO})
	errorSays(t, err, "Options.Queue")
}

// The informer waits for a store that cannot be read at the start. It reports the error of the
// store once, and once more if it is stopped before the store can be read.
func TestAStoreThatCannotBeReadAtTheStartIsWaitedFor(t *testing.T) {
	for _, op := range []string{"resume", "tombstones", "scan"} {
		for cause, heals := range map[error]bool{informer.ErrPermanent: true, errDown: false} {
			inBubble(t, fmt.Sprint(op, "/", cause), func(t *testing.T) {
				src, store := lived(t, options{}, "a")
				store.Fail(failOn(op, fmt.Errorf("cannot %s: %w", op, cause)))
				n := len(src.Requests())
				var errs errorLog
				inf, _, stop := begun(t, src, options{Durable: store, ErrorHandler: errs.Handle})
				sleepBubble(time.Minute)
				if inf.HasSynced() || len(src.Requests()) > n {
					t.Error("continued without the store")
				}
				errorSays(t, inf.Health().StoreError, "cannot "+op)
				want := 1
				if heals {
					store.Heal()
					must(t, inf.WaitForSync(within(t, time.Minute)))
					checkStore(t, inf, src)
				} else {
					stop()
					want = 2
				}
				got := errs.Take()
				equal(t, "reports", len(got), want)
				for _, err := range got {
					if !heals && !errors.Is(err, cause) || !strings.Contains(err.Error(), op) {
						t.Errorf("reported: %v", err)
					}
				}
			})
		}
	}
}

func TestACrashInARelistLeavesNoBookmark(t *testing.T) {
	for name, change := range map[string]func(src *source, name string){
		"whose list lacks the objects": func(src *source, name string) { _, _ = src.Delete(keyOf(name)) },
		"whose list has new versions":  func(src *source, name string) { src.Apply(object(name, "2")) },
	} {
		inBubble(t, name, func(t *testing.T) {
			src, store := informertest.NewSource(numbered(1500)...), informertest.NewDurable() // more than one batch
			oneRun(t, src, store, options{})
			store = store.Reopen()
			for _, obj := range src.Objects() {
				change(src, obj.Name)
			}
			src.Expire()
			store.FailAfter(func(op, _ string) error {
				if op == "apply" && store.Calls(op) == 2 { // the first one removes the bookmark
					store.Crash()
				}
				return nil
			})
			_, _, stop := begun(t, src, options{Durable: store, ErrorHandler: ignore})
			sleepBubble(time.Minute)
			stop()
			store = store.Reopen()
			checkBookmark(t, store, "")
			if tombs, _ := store.Tombstones(t.Context()); name == "whose list lacks the objects" && len(tombs) == 0 {
				t.Error("nothing was applied")
			}
			oneRun(t, src, store, options{})
		})
	}
}

// endless is a store whose Apply blocks until the informer stops.
type endless struct{ *durable }

func (s endless) Apply(ctx context.Context, changes []informer.Change, bookmark string) error {
	if len(changes) == 0 {
		return s.durable.Apply(ctx, changes, bookmark)
	}
	<-ctx.Done()
	return fmt.Errorf("interrupted: %w", ctx.Err())
}

func TestAnApplyThatAStopInterruptsIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource[configMap]()
		_, r, stop := begun(t, src, options{Durable: endless{informertest.NewDurable()}})
		synctest.Wait()
		src.Apply(object("a", "1"))
		synctest.Wait()
		stop()
		checkTold(t, r)
	})
}

// If an informer cannot use a part of a list or of a watch, the store keeps no bookmark, and the
// next start lists.
func TestAnUnusableObjectLeavesNoBookmark(t *testing.T) {
	for name, c := range map[string]struct {
		transform     func(configMap) (configMap, error)
		before, while func(src *source)
	}{
		"a transform fails":            {transform: testkit.NotBad, while: func(src *source) { src.Apply(object("a", "bad")) }},
		"a transform fails for a list": {transform: testkit.NotBad, before: func(src *source) { src.Apply(object("b", "bad")) }},
		"a list has an unusable object": {before: func(src *source) {
			src.SetFaults(informertest.Faults{ListItems: []runtime.Object{&corev1.ConfigMap{}}, RejectWatchList: true})
		}},
		"a watch has an object of another type": {while: func(src *source) {
			src.Inject(watch.Event{Type: watch.Modified, Object: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "x", ResourceVersion: "1003"}}})
		}},
		"a list has no version": {before: func(src *source) {
			src.SetFaults(informertest.Faults{OmitListVersion: true, RejectWatchList: true})
		}},
	} {
		inBubble(t, name, func(t *testing.T) {
			src, store := informertest.NewSource(object("a", "1")), informertest.NewDurable()
			if c.before != nil {
				c.before(src)
			}
			var errs errorLog
			stop := informertest.Run(t, newInformer(t, src, options{Durable: store, Transform: c.transform, ErrorHandler: errs.Handle}))
			synctest.Wait()
			if c.while != nil {
				checkKept(t, store, src.ResourceVersion())
				c.while(src)
				synctest.Wait()
			}
			src.Apply(object("c", "1"))
			synctest.Wait()
			stop()
			checkKept(t, store, "")
			if len(errs.Take()) == 0 {
				t.Error("nothing was reported")
			}
		})
	}
}
