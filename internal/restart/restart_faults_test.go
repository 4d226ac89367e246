package restart_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// Faults that TestHistories has found, one test for each.

func TestEachOfSeveralTombstonesOfANameIsDelivered(t *testing.T) {
	for name, opts := range map[string]informer.WatcherOptions{
		"plain": {}, "merging": {MaxBacklog: 1}, "workers": {Workers: 2}, "retry": {Retry: informer.Backoff(time.Second, time.Second, 0)},
	} {
		inBubble(t, name, func(t *testing.T) {
			store := informertest.NewDurable()
			for _, uid := range []types.UID{"one", "two", "three"} {
				obj := object("a", "1")
				obj.UID, obj.ResourceVersion = uid, "1"
				must(t, store.Apply(t.Context(), []informer.Change{testkit.Burying(obj)}, ""))
			}
			inf := newInformer(t, informertest.NewSource(object("a", "1")), options{Durable: store})
			r := &recorder{}
			addWatcher(t, inf, r, opts)
			informertest.Run(t, inf)
			synctest.Wait()
			checkTold(t, r, "initial deleted a", "initial deleted a", "initial deleted a", "initial added a")
		})
	}
}

func TestADeleteIsNotMergedWithTheAddOfAnObjectKnownBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := lived(t, options{}, "a", "b", "c", "d", "e", "f")
		for _, obj := range src.Objects() {
			_, _ = src.Delete(keyOf(obj.Name))
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
		equal(t, "deletes", sorted(deleted), "[a b c d e f]")
		checkView(t, r, src)
		checkKept(t, store, src.ResourceVersion())
	})
}

// TestEventsThatAStopLeavesUnhandledAreDeliveredAgain stops an informer before a watcher has handled
// a delete. The next process must deliver that delete.
func TestEventsThatAStopLeavesUnhandledAreDeliveredAgain(t *testing.T) {
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
		inBubble(t, name, func(t *testing.T) {
			src, store := informertest.NewSource(object("a", "1")), informertest.NewDurable()
			inf := newInformer(t, src, options{Durable: store, DrainTimeout: c.drain, ErrorHandler: ignore})
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
	}
}

// stubbornStore fails every batch of changes. A bookmark without changes it always takes, even
// if ctx is done.
type stubbornStore struct{ *durable }

func (s stubbornStore) Apply(_ context.Context, changes []informer.Change, bookmark string) error {
	if len(changes) > 0 {
		return errors.New("not now")
	}
	return s.durable.Apply(context.Background(), changes, bookmark)
}

func TestAfterABatchThatAStopHasCutOffNothingIsAppliedOrTold(t *testing.T) {
	for name, exact := range map[string]bool{"with a bookmark": true, "without": false} {
		inBubble(t, name, func(t *testing.T) {
			src, store := lived(t, options{}, "a")
			at := src.ResourceVersion()
			_, r, stop := begun(t, src, options{Durable: stubbornStore{store}, DrainTimeout: time.Minute, ErrorHandler: ignore, Transform: testkit.NotBad})
			synctest.Wait()
			if !exact {
				_, _ = src.Create(object("b", "bad"))
				sleepBubble(time.Second)
				at = ""
			}
			_, _ = src.Update(object("a", "2"))
			sleepBubble(time.Minute)
			stop()
			checkKept(t, store, at)
			checkTold(t, r, "initial added a")
		})
	}
}

func TestWithoutABookmarkAContentIsNotJudgedByItsVersion(t *testing.T) {
	for name, refused := range map[string]bool{"every write succeeds": false, "another object is refused": true} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, opts options, _ string) {
				src, store := informertest.NewSource(objects("a", "b")...), informertest.NewDurable()
				backup := src.ResourceVersion()
				_, _ = src.Update(object("a", "2"))
				oneRun(t, src, store, opts)
				must(t, store.Apply(t.Context(), nil, "")) // removes the bookmark, as a refusal does
				must(t, src.Restore(backup))
				_, _ = src.Update(object("a", "3")) // gets the version that the object in the store has
				if refused {
					_, _ = src.Create(object("bad", "1"))
				}
				opts.Durable, opts.ErrorHandler = &pickyDurable{durable: store.Reopen()}, ignore
				_, r := watched(t, src, opts)
				sleepBubble(time.Minute)
				equal(t, "a", r.View()[keyOf("a")].Data["value"], "3")
				checkTold(t, r, "initial added a", "initial added b", "initial updated a")
			})
		})
	}
}

func TestTombstonesThatCannotBeReadDoNotMoveTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := informertest.NewSource(numbered(5)...), informertest.NewDurable()
		store.Fail(func(op, _ string) error {
			if op == "tombstones" && store.Calls(op) > 1 { // the first call is the informer's own at its start
				return errors.New("cannot be read")
			}
			return nil
		})
		inf := newInformer(t, src, options{Durable: store, ErrorHandler: ignore})
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

// TestAServerThatWentBackIsAskedForItsNewestState restores a server, which then reaches the
// version of the bookmark, or passes it, before it is listed. The version of the list by itself does
// not show that the server went back.
func TestAServerThatWentBackIsAskedForItsNewestState(t *testing.T) {
	for _, further := range []int{0, 3} {
		t.Run(fmt.Sprint(further, " versions further"), func(t *testing.T) {
			bothWays(t, func(t *testing.T, opts options, _ string) {
				src, store := informertest.NewSource(objects("a", "b")...), informertest.NewDurable()
				backup := src.ResourceVersion()
				_, _ = src.Update(object("a", "2"))
				_, _ = src.Update(object("b", "2"))
				oneRun(t, src, store, opts)
				must(t, src.Restore(backup))
				_, _ = src.Update(object("a", "3")) // gets the version of the lost update
				n := len(src.Requests())
				var errs errorLog
				opts.Durable, opts.ErrorHandler = store.Reopen(), errs.Handle
				_, r := watched(t, hasty{src, func() {
					_, _ = src.Update(object("b", "3"))
					for i := range further {
						_, _ = src.Update(object("b", fmt.Sprint("later ", i)))
					}
				}}, opts)
				sleepBubble(time.Minute)
				checkView(t, r, src)
				for _, obj := range src.Objects() {
					equal(t, obj.Name, r.View()[keyOf(obj.Name)].Data["value"], obj.Data["value"])
				}
				asked := src.Requests()[n+1].Options
				equal(t, "version of the list", asked.ResourceVersion+string(asked.ResourceVersionMatch), "")
				equal(t, "reports", len(errs.Take()), 1)
			})
		})
	}
}
