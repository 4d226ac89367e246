package restart_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/channel"
)

func TestChangesOfOneObjectInOneBatchBuildOnEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("slow", "1"), object("a", "1"))
		store := informertest.NewDurable()
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
		if got := store.Calls("apply") - n; got != 1 {
			t.Errorf("the store was given the changes in %d batches, not in one", got)
		}
		if err := store.Err(); err != nil {
			t.Error(err)
		}
		want := []string{
			"watch updated slow",
			"watch deleted a", "watch added a", "watch added b", "watch updated a", "watch updated b", "watch deleted b",
		}
		if diff := cmp.Diff(want, told(r)[2:]); diff != "" {
			t.Errorf("events of the watcher (-want +got):\n%s", diff)
		}
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

// overtaken is a source that calls pass when it has answered a probe. pass makes changes that
// bring a restored server past the version of the bookmark again.
type overtaken struct {
	*source
	pass func()
}

func (o *overtaken) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list, err := o.source.ListWithContext(ctx, opts)
	if opts.Limit == 1 {
		o.pass()
	}
	return list, err
}

func TestAServerThatWentBackIsNotTrustedThoughItIsAheadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"), object("b", "1"))
		backup := src.ResourceVersion()
		src.Apply(object("a", "2"))
		store := informertest.NewDurable()
		oneRun(t, src, store, options{})
		if err := src.Restore(backup); err != nil {
			t.Fatal(err)
		}
		var errs errorLog
		inf := newInformer(t, &overtaken{src, func() {
			src.Apply(object("a", "another 2")) // has the version of the lost update
			src.Apply(object("b", "2"))
			src.Apply(object("b", "3"))
		}}, options{Durable: store.Reopen(), ErrorHandler: errs.Handle})
		r := &recorder{}
		addWatcher(t, inf, r, informer.WatcherOptions{})
		informertest.Run(t, inf)
		synctest.Wait()
		if got := r.View()[keyOf("a")].Data["value"]; got != "another 2" {
			t.Errorf("a is %q", got)
		}
		if got := errs.Take(); len(got) != 1 {
			t.Errorf("reported: %v", got)
		}
	})
}

func TestWhoJoinsLateIsNotToldWhatOthersHaveYetToHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"), object("b", "1"), object("c", "1"))
		store := informertest.NewDurable()
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
		soon, late := &recorder{}, &recorder{}
		addWatcher(t, inf, soon, informer.WatcherOptions{})
		sleepBubble(time.Minute)
		addWatcher(t, inf, late, informer.WatcherOptions{})
		synctest.Wait()
		checkKept(t, store, src.ResourceVersion(), "a", "b")
		if diff := cmp.Diff([]string{"initial deleted a", "initial added c"}, told(soon)); diff != "" {
			t.Errorf("events of the watcher that joined early (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"initial added c"}, told(late)); diff != "" {
			t.Errorf("events of the watcher that joined late (-want +got):\n%s", diff)
		}
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
		src := informertest.NewSource[*corev1.ConfigMap]()
		var want []string
		for n := range 100 {
			name := fmt.Sprintf("o-%02d", n)
			src.Apply(object(name, "1"))
			want = append(want, name)
		}
		store := &inOrder{durable: informertest.NewDurable()}
		inf := newInformer(t, src, options{Durable: store})
		informertest.Run(t, inf)
		checkStore(t, inf, src)
		if diff := cmp.Diff(want, store.keys); diff != "" {
			t.Errorf("keys in Apply (-want +got):\n%s", diff)
		}
	})
}

func TestAChangeOfARefusedBatchThatIsNotStoredAtTheStopIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("slow", "1"))
		store := informertest.NewDurable()
		var errs errorLog
		inf := newInformer(t, src, options{Durable: store, ErrorHandler: errs.Handle, DrainTimeout: time.Minute})
		r := &recorder{}
		addWatcher(t, inf, r, informer.WatcherOptions{})
		stop := start(t, inf)
		synctest.Wait()
		hold, held := make(chan struct{}), true
		answers := []error{nil, errRefuses, errRefuses, errRefuses} // for slow, the batch, a half of it, and bad alone
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
		src.Apply(object("bad", "1"))
		src.Apply(object("b", "1"))
		src.Apply(object("c", "1"))
		synctest.Wait()
		close(hold)
		synctest.Wait()
		before := inf.ResourceVersion()
		stop()
		if got := inf.ResourceVersion(); got != before {
			t.Errorf("the informer stops at version %s, but its store has reached only %s", got, before)
		}
		if diff := cmp.Diff([]string{"initial added slow", "watch updated slow"}, told(r)); diff != "" {
			t.Errorf("events of the watcher (-want +got):\n%s", diff)
		}
	})
}

// countingDurable counts the calls of Apply of a store that refuses the object "bad".
type countingDurable struct {
	*pickyDurable
	calls int
}

func (s *countingDurable) Apply(ctx context.Context, changes []informer.Change, bookmark string) error {
	s.calls++
	return s.pickyDurable.Apply(ctx, changes, bookmark)
}

// A store on disk may need 10 ms for each call of Apply.
func TestARefusedChangeOfALargeBatchIsFoundInFewWrites(t *testing.T) {
	const objects = 1000
	for _, bad := range []int{0, 1, objects / 2, objects - 1} {
		synctest.Test(t, func(t *testing.T) {
			src := informertest.NewSource(object("slow", "1"))
			store := &countingDurable{pickyDurable: &pickyDurable{durable: informertest.NewDurable()}}
			var errs errorLog
			inf := newInformer(t, src, options{Durable: store, ErrorHandler: errs.Handle})
			r := &recorder{}
			addWatcher(t, inf, r, informer.WatcherOptions{MaxBacklog: -1})
			informertest.Run(t, inf)
			release := holdApply(store.durable)
			src.Apply(object("slow", "2"))
			synctest.Wait()
			var want []string
			for n := range objects {
				name := fmt.Sprintf("o-%03d", n)
				if n == bad {
					name = "bad"
				} else {
					want = append(want, "watch added "+name)
				}
				src.Apply(object(name, "1"))
			}
			synctest.Wait()
			store.calls = 0
			release()
			sleepBubble(time.Minute)
			if got := told(r); !slices.Equal(got[2:], want) {
				t.Errorf("bad is number %d: the watcher was told %d events, want the other %d in their order:\n%s", bad, len(got)-2, len(want), cmp.Diff(want, got[2:]))
			}
			if errs := errs.Take(); len(errs) != 1 || inf.Health().Refused != 1 {
				t.Errorf("bad is number %d: reported: %v; Health counts %d refused changes", bad, errs, inf.Health().Refused)
			}
			if store.calls > 30 {
				t.Errorf("bad is number %d: Apply was called %d times for one batch of %d changes", bad, store.calls, objects)
			}
		})
	}
}

func TestAWatcherJoinsWhileADurableHangsInTheMiddleOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("slow", "1"))
		store := informertest.NewDurable()
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
		if !channel.Closed(reg.Synced()) {
			t.Error("the join waits for the store")
		}
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
