package restart_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// Faults that TestHistories has found, one test for each.

// bury adds tombstones to store: one for each of uids, all of objects called name.
func bury(t *testing.T, store *durable, name string, uids ...types.UID) {
	t.Helper()
	for _, uid := range uids {
		obj := object(name, "1")
		obj.UID, obj.ResourceVersion = uid, "1"
		if err := store.Apply(t.Context(), []informer.Change{testkit.Burying(obj)}, ""); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEachOfSeveralTombstonesOfANameIsTold(t *testing.T) {
	for name, opts := range map[string]informer.WatcherOptions{
		"plain": {}, "merging": {MaxBacklog: 1}, "workers": {Workers: 2}, "retry": {Retry: informer.Backoff(time.Second, time.Second, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := informertest.NewDurable()
				bury(t, store, "a", "one", "two", "three")
				inf := newInformer(t, informertest.NewSource(object("a", "1")), options{Durable: store})
				r := &recorder{}
				addWatcher(t, inf, r, opts)
				informertest.Run(t, inf)
				synctest.Wait()
				if got := told(r); len(got) != 4 || got[3] != "initial added a" {
					t.Errorf("the watcher got %v", got)
				}
			})
		})
	}
}

func TestADeleteIsNotMergedWithTheAddOfWhatWasKnownBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(numbered(10)...)
		store := informertest.NewDurable()
		oneRun(t, src, store, options{})
		store = store.Reopen()
		for i := range 10 {
			_, _ = src.Delete(keyOf(fmt.Sprintf("o%03d", i)))
		}
		inf := newInformer(t, src, options{Durable: store})
		hold := make(chan struct{})
		r := &recorder{Hook: func(context.Context, event) error { <-hold; return nil }}
		addWatcher(t, inf, r, informer.WatcherOptions{Workers: 2})
		start(t, inf)
		sleepBubble(time.Second) // all objects are deleted; both workers hang in the add of one
		close(hold)
		sleepBubble(time.Minute)
		var deleted []string
		for _, e := range r.Events() {
			if e.Type == informer.EventDeleted {
				deleted = append(deleted, e.Key().Name)
			}
		}
		if len(deleted) != 10 {
			t.Errorf("the watcher got deletes only of %v", sorted(deleted))
		}
		checkView(t, r, src)
		checkKept(t, store, src.ResourceVersion())
	})
}

// TestWhatAStopKeepsFromBeingHandledIsToldAgain stops an informer before a watcher has handled
// a delete. The next process must deliver that delete.
func TestWhatAStopKeepsFromBeingHandledIsToldAgain(t *testing.T) {
	blocks := func(ctx context.Context, _ event) error { <-ctx.Done(); return ctx.Err() }
	fails := func(context.Context, event) error { return errors.New("not yet") }
	for name, c := range map[string]struct {
		opts  informer.WatcherOptions
		drain time.Duration
		hook  func(context.Context, event) error
	}{
		"a call is interrupted":                     {informer.WatcherOptions{}, 0, blocks},
		"a call is interrupted, with RecoverPanics": {informer.WatcherOptions{RecoverPanics: true}, 0, blocks},
		"a call is interrupted after a drain":       {informer.WatcherOptions{}, time.Minute, blocks},
		"a worker is interrupted":                   {informer.WatcherOptions{Workers: 2}, 0, blocks},
		"a retry is given up":                       {informer.WatcherOptions{Retry: informer.Backoff(time.Second, time.Second, 0)}, time.Minute, fails},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := informertest.NewSource(object("a", "1"))
				store := informertest.NewDurable()
				inf := newInformer(t, src, options{Durable: store, DrainTimeout: c.drain, ErrorHandler: func(context.Context, error) {}})
				deleted := &recorder{Hook: func(ctx context.Context, e event) error {
					if e.Type == informer.EventDeleted {
						return c.hook(ctx, e)
					}
					return nil
				}}
				addWatcher(t, inf, deleted, c.opts)
				stop := informertest.Run(t, inf)
				_, _ = src.Delete(keyOf("a"))
				sleepBubble(2 * time.Minute)
				stop()
				checkKept(t, store, src.ResourceVersion(), "a")
				if got := told(oneRun(t, src, store.Reopen(), options{})); !slices.Contains(got, "initial deleted a") {
					t.Errorf("the watcher of the next process got %v", got)
				}
			})
		})
	}
}

// stubbornStore fails every batch of changes. A bookmark without changes it always takes, even
// if ctx has ended.
type stubbornStore struct{ *durable }

func (s stubbornStore) Apply(_ context.Context, changes []informer.Change, bookmark string) error {
	if len(changes) > 0 {
		return errors.New("not now")
	}
	return s.durable.Apply(context.Background(), changes, bookmark)
}

func TestAfterABatchThatAStopHasCutOffNothingIsAppliedOrTold(t *testing.T) {
	for name, exact := range map[string]bool{"with a bookmark": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := informertest.NewSource(object("a", "1"))
				store := informertest.NewDurable()
				oneRun(t, src, store, options{})
				at := src.ResourceVersion()
				store = store.Reopen()
				inf := newInformer(t, src, options{
					Durable: stubbornStore{store}, DrainTimeout: time.Minute, ErrorHandler: func(context.Context, error) {},
					Transform: func(obj configMap) (configMap, error) {
						if obj.Name == "bad" {
							return nil, errors.New("no")
						}
						return obj, nil
					},
				})
				r := &recorder{}
				addWatcher(t, inf, r, informer.WatcherOptions{})
				stop := informertest.Run(t, inf)
				if !exact {
					_, _ = src.Create(object("bad", "1"))
					sleepBubble(time.Second)
					at = ""
				}
				_, _ = src.Update(object("a", "2"))
				sleepBubble(time.Minute)
				stop()
				checkKept(t, store, at)
				if got := told(r); !slices.Equal(got, []string{"initial added a"}) {
					t.Errorf("the watcher got %v", got)
				}
			})
		})
	}
}

func TestWithoutABookmarkAContentIsNotJudgedByItsVersion(t *testing.T) {
	bothWays(t, func(t *testing.T, opts options, _ string) {
		src := informertest.NewSource(object("a", "1"), object("b", "1"))
		backup := src.ResourceVersion()
		_, _ = src.Update(object("a", "2"))
		store := informertest.NewDurable()
		oneRun(t, src, store, opts)
		if err := store.Apply(t.Context(), nil, ""); err != nil { // removes the bookmark, as a refusal does
			t.Fatal(err)
		}
		store = store.Reopen()
		if err := src.Restore(backup); err != nil {
			t.Fatal(err)
		}
		_, _ = src.Update(object("a", "3")) // gets the version that the object in the store has
		r := oneRun(t, src, store, opts)
		if got := r.View()[keyOf("a")].Data["value"]; got != "3" {
			t.Errorf("a is %q", got)
		}
		if got := told(r); len(got) != 3 {
			t.Errorf("the watcher got events without a change: %v", got)
		}
	})
}

func TestTombstonesThatCannotBeReadDoNotMoveTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(numbered(5)...)
		store := informertest.NewDurable()
		store.Fail(func(op, _ string) error {
			if op == "tombstones" && store.Calls(op) > 1 { // the first call is the informer's own at its start
				return errors.New("cannot be read")
			}
			return nil
		})
		var errs errorLog
		inf := newInformer(t, src, options{Durable: store, ErrorHandler: errs.Handle})
		r := &recorder{}
		reg := addWatcher(t, inf, r, informer.WatcherOptions{MaxBacklog: 1})
		start(t, inf)
		sleepBubble(time.Minute)
		_, _ = src.Delete(keyOf("o003"))
		sleepBubble(time.Minute)
		store.Heal()
		<-reg.Synced()
		sleepBubble(time.Minute)
		checkView(t, r, src)
	})
}

func TestAStoreThatCannotBeReadIsReportedWithItsError(t *testing.T) {
	for _, op := range []string{"resume", "tombstones", "scan"} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := informertest.NewDurable()
				cause := errors.New("the disk is gone")
				store.Fail(func(o, _ string) error {
					if o == op {
						return fmt.Errorf("no: %w", cause)
					}
					return nil
				})
				var errs errorLog
				inf := newInformer(t, informertest.NewSource[configMap](), options{Durable: store, ErrorHandler: errs.Handle})
				stop := start(t, inf)
				sleepBubble(time.Minute)
				stop()
				got := errs.Take()
				for _, err := range got {
					if !errors.Is(err, cause) || !strings.Contains(err.Error(), op) {
						t.Errorf("reported: %v", err)
					}
				}
				if diff := cmp.Diff(2, len(got)); diff != "" { // one for the failure, one when it is given up
					t.Errorf("reports (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestWithoutABookmarkAContentIsNotJudgedByItsVersionThoughAnotherIsRefused(t *testing.T) {
	bothWays(t, func(t *testing.T, opts options, _ string) {
		src := informertest.NewSource(object("a", "1"))
		backup := src.ResourceVersion()
		_, _ = src.Update(object("a", "2"))
		store := informertest.NewDurable()
		oneRun(t, src, store, opts)
		if err := store.Apply(t.Context(), nil, ""); err != nil {
			t.Fatal(err)
		}
		if err := src.Restore(backup); err != nil {
			t.Fatal(err)
		}
		_, _ = src.Update(object("a", "3"))
		_, _ = src.Create(object("bad", "1"))
		opts.Durable, opts.ErrorHandler = &pickyDurable{durable: store.Reopen()}, func(context.Context, error) {}
		_, r := watched(t, src, opts)
		sleepBubble(time.Minute)
		if got := r.View()[keyOf("a")].Data["value"]; got != "3" {
			t.Errorf("a is %q", got)
		}
	})
}

// hasty is a source that changes its state as soon as it has answered the probe.
type hasty struct {
	*source
	probed func()
}

func (s hasty) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list, err := s.source.ListWithContext(ctx, opts)
	if opts.Limit == 1 {
		s.probed()
	}
	return list, err
}

// TestAServerThatWentBackIsAskedForWhatThereIsNow restores a server, which then reaches the
// version of the bookmark before it is listed. The version of the list alone does not show that
// the server went back.
func TestAServerThatWentBackIsAskedForWhatThereIsNow(t *testing.T) {
	bothWays(t, func(t *testing.T, opts options, _ string) {
		src := informertest.NewSource(object("a", "1"), object("b", "1"))
		backup := src.ResourceVersion()
		_, _ = src.Update(object("a", "2"))
		_, _ = src.Update(object("b", "2"))
		store := informertest.NewDurable()
		oneRun(t, src, store, opts)
		if err := src.Restore(backup); err != nil {
			t.Fatal(err)
		}
		_, _ = src.Update(object("a", "3"))
		n := len(src.Requests())
		opts.Durable, opts.ErrorHandler = store.Reopen(), func(context.Context, error) {}
		_, r := watched(t, hasty{src, func() { _, _ = src.Update(object("b", "3")) }}, opts)
		sleepBubble(time.Minute)
		checkView(t, r, src)
		for name, obj := range r.View() {
			if obj.Data["value"] != "3" {
				t.Errorf("%s is %q", name, obj.Data["value"])
			}
		}
		if got := src.Requests()[n+1].Options; got.ResourceVersion != "" || got.ResourceVersionMatch != "" {
			t.Errorf("the list was requested as of %q (%s)", got.ResourceVersion, got.ResourceVersionMatch)
		}
	})
}
