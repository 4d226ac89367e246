package restart_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func TestChangesOfOneObjectInOneBatchBuildOnEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := informertest.NewSource(objects("slow", "a")...), informertest.NewDurable()
		inf, r := watched(t, src, options{Durable: store})
		release := holdApply(store)
		src.Apply(object("slow", "2"))
		synctest.Wait()
		n := store.Calls("apply")
		_, _ = src.Delete(keyOf("a"))
		for _, value := range []string{"2", "3"} {
			src.Apply(object("a", value))
			src.Apply(object("b", value))
		}
		_, _ = src.Delete(keyOf("b"))
		synctest.Wait()
		release()
		synctest.Wait()
		checkView(t, r, src)
		checkStore(t, inf, src)
		equal(t, "batches", store.Calls("apply")-n, 1)
		noError(t, store.Err())
		checkTold(t, r, "initial added a", "initial added slow", "watch updated slow",
			"watch deleted a", "watch added a", "watch added b", "watch updated a", "watch updated b", "watch deleted b")
	})
}

// holdApply makes Apply block until release is called.
func holdApply(store *durable) (release func()) {
	hold := make(chan struct{})
	store.Fail(func(op, _ string) error {
		if op == "apply" {
			<-hold
		}
		return nil
	})
	return func() { close(hold) }
}

func TestALateWatcherDoesNotGetDeletesThatOthersHaveYetToHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := informertest.NewSource(objects("a", "b", "c")...), informertest.NewDurable()
		stop := informertest.Run(t, newInformer(t, src, options{Durable: store}))
		_, _ = src.Delete(keyOf("a"))
		synctest.Wait()
		stop()
		store = store.Reopen()
		inf := newInformer(t, src, options{Durable: store})
		block := make(chan struct{})
		addWatcher(t, inf, &recorder{Hook: func(context.Context, event) error { <-block; return nil }}, informer.WatcherOptions{})
		start(t, inf)
		synctest.Wait()
		_, _ = src.Delete(keyOf("b"))
		sleepBubble(30 * time.Second)
		soon := joined(t, inf)
		sleepBubble(time.Minute)
		late := joined(t, inf)
		synctest.Wait()
		checkKept(t, store, src.ResourceVersion(), "a", "b")
		checkTold(t, soon, "initial deleted a", "initial added c")
		checkTold(t, late, "initial added c")
		close(block)
	})
}

// inOrder is a durable store that records the names of the objects that Apply is given.
type inOrder struct {
	*durable
	keys []string
}

func (s *inOrder) Apply(ctx context.Context, changes []informer.Change, bookmark string) error {
	for _, c := range changes {
		s.keys = append(s.keys, c.Object.GetName())
	}
	return s.durable.Apply(ctx, changes, bookmark)
}

// A reflector passes on a streamed list in the order of a map. A store on disk would be slow
// to write the objects in that order.
func TestAListReachesADurableInTheOrderOfItsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(numbered(100)...)
		store := &inOrder{durable: informertest.NewDurable()}
		inf := running(t, src, options{Durable: store})
		checkStore(t, inf, src)
		equal(t, "keys in Apply", store.keys, sorted(store.keys))
	})
}

func TestAChangeOfARefusedBatchNotStoredAtTheStopIsNotDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := informertest.NewSource(object("slow", "1")), informertest.NewDurable()
		inf, r, stop := begun(t, src, options{Durable: store, DrainTimeout: time.Minute, ErrorHandler: ignore})
		synctest.Wait()
		hold, held := make(chan struct{}), true
		answers := []error{nil, errRefuses, errRefuses, errRefuses} // for slow, the batch, a half of it, and only bad
		store.Fail(func(op, _ string) error {
			if op != "apply" {
				return nil
			}
			if held {
				held = false
				<-hold
			}
			if len(answers) == 0 {
				return errDown
			}
			err := answers[0]
			answers = answers[1:]
			return err
		})
		src.Apply(object("slow", "2"))
		synctest.Wait()
		for _, obj := range objects("bad", "b", "c") {
			src.Apply(obj)
		}
		synctest.Wait()
		close(hold)
		synctest.Wait()
		before := inf.ResourceVersion()
		stop()
		equal(t, "version at the stop, which the store has", inf.ResourceVersion(), before)
		checkTold(t, r, "initial added slow", "watch updated slow")
	})
}

// A store on disk may need 10 ms for each call of Apply.
func TestARefusedChangeOfALargeBatchIsFoundInFewWrites(t *testing.T) {
	const changes = 1000
	for _, bad := range []int{0, 1, changes / 2, changes - 1} {
		synctest.Test(t, func(t *testing.T) {
			src := informertest.NewSource(object("slow", "1"))
			store := &pickyDurable{durable: informertest.NewDurable()}
			var errs errorLog
			inf := newInformer(t, src, options{Durable: store, ErrorHandler: errs.Handle})
			r := &recorder{}
			addWatcher(t, inf, r, informer.WatcherOptions{MaxBacklog: -1})
			informertest.Run(t, inf)
			release := holdApply(store.durable)
			src.Apply(object("slow", "2"))
			synctest.Wait()
			var want []string
			for n := range changes {
				name := fmt.Sprintf("o-%03d", n)
				if n == bad {
					name = "bad"
				} else {
					want = append(want, "watch added "+name)
				}
				src.Apply(object(name, "1"))
			}
			synctest.Wait()
			before := store.calls
			release()
			sleepBubble(time.Minute)
			if got := told(r); !slices.Equal(got[2:], want) {
				t.Errorf("bad is number %d: the watcher got %d events, want the other %d in their order:\n%s", bad, len(got)-2, len(want), cmp.Diff(want, got[2:]))
			}
			if errs := errs.Take(); len(errs) != 1 || inf.Health().Refused != 1 {
				t.Errorf("bad is number %d: reported: %v; Health counts %d refused changes", bad, errs, inf.Health().Refused)
			}
			testkit.AtMost(t, fmt.Sprintf("calls of Apply for one batch of which number %d is bad", bad), store.calls-before, 30)
		})
	}
}

func TestAWatcherJoinsWhileADurableHangsInTheMiddleOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := informertest.NewSource(object("slow", "1")), informertest.NewDurable()
		inf, _ := watched(t, src, options{Durable: store})
		release, hang := holdApply(store), make(chan struct{})
		src.Apply(object("slow", "2"))
		synctest.Wait()
		src.Apply(object("a", "1"))
		src.Apply(object("b", "1"))
		synctest.Wait()
		store.Fail(func(op, key string) error {
			if op == "get" && key == "default/b" {
				<-hang
			}
			return nil
		})
		release()
		synctest.Wait()
		r := &recorder{}
		reg := addWatcher(t, inf, r, informer.WatcherOptions{})
		synctest.Wait()
		equal(t, "joined while the store hangs", channel.Closed(reg.Synced()), true)
		close(hang)
		synctest.Wait()
		checkView(t, r, src)
	})
}

// slowDurable takes 10 ms for each Apply, and notes whenever the informer shows a version that
// the store does not have yet.
type slowDurable struct {
	*durable
	inf      *ci // nil at first
	bookmark string
	calls    int
	early    []string
}

func (s *slowDurable) Apply(ctx context.Context, changes []informer.Change, bookmark string) error {
	time.Sleep(10 * time.Millisecond)
	if s.calls++; s.inf != nil && s.inf.ResourceVersion() != s.bookmark {
		s.early = append(s.early, fmt.Sprintf("%s at %s", s.inf.ResourceVersion(), s.bookmark))
	}
	err := s.durable.Apply(ctx, changes, bookmark)
	if err == nil {
		s.bookmark = bookmark
	}
	return err
}

// The source sends more changes than the gate has room for, while the store is slow.
func TestUnderLoadAnInformerShowsNoVersionThatItsDurableDoesNotHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"))
		store := &slowDurable{durable: informertest.NewDurable()}
		inf, r := watched(t, src, options{Durable: store})
		store.inf = inf
		for i := range 5000 {
			src.Apply(object(fmt.Sprintf("object-%d", i), "1"))
		}
		sleepBubble(hour)
		checkView(t, r, src)
		if len(store.early) > 0 || store.calls < 5 {
			t.Errorf("%d calls of Apply; the informer showed a version of the next batch: %q", store.calls, store.early)
		}
	})
}
