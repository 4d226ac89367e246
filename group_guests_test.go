package informer_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// sharedFunc is the type of cache.Options.NewInformer in controller-runtime.
type sharedFunc = func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer

// runGuest runs an informer that construct makes, until the test ends or stop is called.
func runGuest(t *testing.T, construct sharedFunc, src *source) (stop func()) {
	t.Helper()
	stop = testkit.StartShared(t, construct(src, &corev1.ConfigMap{}, 0, nil))
	synctest.Wait()
	return stop
}

func TestAGroupShowsInformersThatOthersRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var applied, failed atomic.Int64
		group := informer.Group{
			Observer:     &informer.Observer{Apply: func(informer.ApplyInfo) { applied.Add(1) }},
			ErrorHandler: func(context.Context, error) { failed.Add(1) },
		}
		empty := func(want string) {
			t.Helper()
			says(t, group.Ready(), want)
			group.MayBeEmpty = true // as a manager may that waits for its election
			noError(t, group.Ready())
			group.MayBeEmpty = false
		}
		empty("no informers yet")
		src := informertest.NewSource(object("a", "1"), object("b", "1"))
		construct := informer.ClientGo{Group: &group}.NewSharedIndexInformer
		empty("no informers yet")
		first := runGuest(t, construct, src)
		second := runGuest(t, informer.ClientGo{Group: &group, Options: func(runtime.Object) (informer.Options[informer.AnyObject], error) {
			return informer.Options[informer.AnyObject]{Name: "other", Observer: &informer.Observer{}}, nil
		}}.NewSharedIndexInformer, src)
		if h := group.Health(); len(h) != 2 || !healthOf(&group, "ConfigMap").Synced || !healthOf(&group, "other").Synced {
			t.Errorf("it shows %v", h)
		}
		noError(t, errors.Join(group.Ready(), group.Live()))
		equal(t, "events of the informer without an Observer of its own", applied.Load(), 2)
		src.Fail("watch", errors.New("no"), 2) // a stream, which a list replaces, and a watch
		src.Expire()
		opened(t, src)
		equal(t, "the group's ErrorHandler was called", failed.Load() > 0, true)
		first()
		if h := group.Health(); len(h) != 1 || !healthOf(&group, "other").Synced {
			t.Errorf("when one has stopped it shows %v", h)
		}
		second()
		empty("no informers any more, all have stopped or were removed")
	})
}

func TestAGroupNeitherRunsNorAwaitsMembersOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group := newGroup(t)
		late := informer.ClientGo{Group: group}.NewSharedIndexInformer(informertest.NewSource[configMap](), &corev1.ConfigMap{}, 0, nil)
		add(t, group, newInformer(t, informertest.NewSource(object("a", "1")), options{}))
		startGroup(t, group)
		mustSync(t, group)
		if h := group.Health(); len(h) != 2 || !healthOf(group, "ConfigMap").Synced || healthOf(group, "ConfigMap#2").Started || late.HasSynced() {
			t.Errorf("it shows %+v", h)
		}
		says(t, group.Ready(), "has not started")
	})
}

func TestAGroupShowsAnInformerWhoseOptionsAreWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group := informer.Group{ErrorHandler: quiet}
		runGuest(t, informer.ClientGo{Group: &group, Options: func(runtime.Object) (informer.Options[informer.AnyObject], error) {
			return informer.Options[informer.AnyObject]{DrainTimeout: -1}, nil
		}}.NewSharedIndexInformer, informertest.NewSource[configMap]())
		group.MayBeEmpty = true // which does not hide an informer that fails
		says(t, group.Ready(), "DrainTimeout")
	})
}

// TestAGroupForgetsGuestsThatHaveStopped makes, runs and stops informers, as
// controller-runtime does for RemoveInformer. They must leave nothing in the group, even if
// Health is never called.
func TestAGroupForgetsGuestsThatHaveStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var group informer.Group
		construct := informer.ClientGo{Group: &group}.NewSharedIndexInformer
		for range 100 {
			runGuest(t, construct, informertest.NewSource(object("a", "1")))()
		}
		testkit.AtMost(t, "guests that it keeps", informer.Guests(&group), 1)
	})
}
