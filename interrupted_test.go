package informer_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

func TestAWaitForAnObjectThatLeavesItsPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(letters("ab")...)
		d := newDivided(src, "ab")
		inf, err := informer.NewFrom(d, options{WatchList: informer.WatchListOff})
		if err != nil {
			t.Fatal(err)
		}
		informertest.Run(t, inf)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		result := make(chan error, 1)
		go func() {
			result <- inf.WaitFor(ctx, keyOf("a"), func(_ configMap, exists bool) bool { return !exists })
		}()
		synctest.Wait()
		d.turn("b")
		time.Sleep(time.Minute)
		_, exists, _ := inf.Get(keyOf("a"))
		equal(t, "exists", exists, false)
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
}

// hangingLW is a source whose answer to a question for its version may not come.
type hangingLW struct {
	*source
	hangs atomic.Bool
}

func (h *hangingLW) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if h.hangs.Load() && opts.Limit == 1 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.source.ListWithContext(ctx, opts)
}

func TestRunEndsDuringAQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lw := &hangingLW{source: informertest.NewSource(letters("ab")...)}
		inf, err := informer.NewFrom(lw, options{WatchList: informer.WatchListOff})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- inf.Run(ctx) }()
		if err := inf.WaitForSync(t.Context()); err != nil {
			t.Fatal(err)
		}
		lw.hangs.Store(true)
		asking, give := context.WithCancel(context.Background())
		go func() { _, _ = inf.ServerVersion(asking, "") }()
		synctest.Wait()
		cancel()
		select {
		case err := <-done:
			noError(t, err)
		case <-time.After(time.Hour):
			t.Error("Run has not returned an hour after its ctx has ended")
		}
		give()
	})
}

func TestLaggingIsNotCalledWithWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(letters("a")...)
		var lagging atomic.Int32
		inf, err := informer.NewFrom(src, options{Queue: informer.QueueRealFIFO, Observer: &informer.Observer{Lagging: func(informer.BacklogInfo) { lagging.Add(1) }}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = inf.AddWatcher(informer.WatcherFunc[configMap](func(context.Context, informer.Event[configMap]) error { return nil }), informer.WatcherOptions{Workers: 2, MaxBacklog: 1})
		if err != nil {
			t.Fatal(err)
		}
		informertest.Run(t, inf)
		synctest.Wait()
		for n := range 3000 {
			src.Apply(object("a", string(rune('b'+n%20))))
		}
		synctest.Wait()
		equal(t, "Lagging was called", int(lagging.Load()), 0)
	})
}

// The server has gone back in time, so the list is compared by contents. The turn comes in the middle of it.
func TestATurnKeepsTheDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(letters("abc")...)
		d := newDivided(src, "abc")
		var relist atomic.Bool
		opts := options{WatchList: informer.WatchListOff, PageSize: 2, Intake: informer.IntakeEarly, ErrorHandler: func(context.Context, error) {}}
		opts.Transform = func(obj configMap) (configMap, error) {
			if obj.Name == "b" && relist.CompareAndSwap(true, false) {
				src.Apply(object("c", "new")) // gets the version of the lost state
				d.turn("abcd")
				time.Sleep(time.Millisecond) // the turn ends the reading
			}
			return obj, nil
		}
		inf, err := informer.NewFrom(d, opts)
		if err != nil {
			t.Fatal(err)
		}
		informertest.Run(t, inf)
		before := src.ResourceVersion()
		src.Apply(object("c", "lost"))
		time.Sleep(time.Second)
		relist.Store(true)
		if err := src.Restore(before); err != nil {
			t.Fatal(err)
		}
		src.Fail("watch", context.DeadlineExceeded, 1)
		time.Sleep(time.Hour)
		obj, _, _ := inf.Get(keyOf("c"))
		equal(t, "interrupted", relist.Load(), false)
		equal(t, "c", obj.Data["value"], "new")
	})
}
