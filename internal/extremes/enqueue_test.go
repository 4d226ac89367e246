package extremes_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/internal/extremes"
	"github.com/customcacheinformer/informer/internal/testkit"
)

var enqueueTrials = map[string]extremes.Trial{
	"enqueue.Options.Workers":               extremes.Field("max -1 min", nil, inBubble(reconcilesAtOnce)),
	"enqueue.Options.DrainTimeout":          extremes.Field("-1 min", nil, inBubble(drainsTheQueue)),
	"enqueue.Run(reconcile) returns again":  extremes.Number("", inBubble(reconcilesAgain)),
	"enqueue.NewQueue().AddAfter(duration)": extremes.Number("", inBubble(addsAfter)),
}

// ready stands for informers that have synced.
type ready struct{}

func (ready) WaitForSync(context.Context) error { return nil }

type (
	queue     = workqueue.TypedRateLimitingInterface[string]
	reconcile = func(ctx context.Context, key string) (time.Duration, error)
)

// reconciling calls Run. Unless Run returns at once, it calls during, and then ends Run's ctx. It
// returns the result of Run.
func reconciling(t *testing.T, opts enqueue.Options, f reconcile, during func(queue)) error {
	q := enqueue.NewQueue[string]("")
	defer q.ShutDown()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		var err error
		if panicked := panics(func() { err = enqueue.Run(ctx, ready{}, q, f, opts) }); panicked != nil {
			t.Errorf("Run panicked: %v", panicked)
		}
		done <- err
	}()
	synctest.Wait()
	select {
	case err := <-done:
		cancel()
		return err
	default:
	}
	during(q)
	cancel()
	return <-done
}

// reconcilesAtOnce checks how many keys are reconciled at once.
func reconcilesAtOnce(t *testing.T, opts enqueue.Options) error {
	var now, most atomic.Int32
	return reconciling(t, opts, func(context.Context, string) (time.Duration, error) {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		time.Sleep(time.Second)
		return 0, nil
	}, func(q queue) {
		q.Add("a")
		q.Add("b")
		testkit.SleepBubble(hour)
		if want := min(2, max(1, opts.Workers)); int(most.Load()) != want {
			t.Errorf("%d keys were reconciled at once, want %d", most.Load(), want)
		}
	})
}

// drainsTheQueue checks that a stop waits for a call and for the keys in the queue, and that Run
// leaves nothing behind if somebody else shuts the queue down.
func drainsTheQueue(t *testing.T, opts enqueue.Options) error {
	var calls []string
	var stopped time.Time
	err := reconciling(t, opts, func(ctx context.Context, key string) (time.Duration, error) {
		calls = append(calls, key)
		select {
		case <-time.After(hour):
			return 0, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}, func(q queue) {
		q.Add("slow")
		q.Add("waits")
		synctest.Wait()
		stopped = time.Now()
	})
	if err != nil {
		return err
	}
	want, wantTook := "[slow waits]", 2*hour
	if opts.DrainTimeout == 0 {
		want, wantTook = "[slow]", 0
	}
	if took := time.Since(stopped); fmt.Sprint(calls) != want || took != wantTook {
		t.Errorf("the calls were %v, and the stop took %v, want %s and %v", calls, took, want, wantTook)
	}

	// While a context of another type has children, there is a goroutine that waits for it. So
	// a child that is left behind ends the bubble with a deadlock.
	q := enqueue.NewQueue[string]("")
	q.Add("last")
	nop := func(context.Context, string) (time.Duration, error) { q.ShutDown(); return 0, nil }
	return enqueue.Run(otherContext{context.Background(), make(chan struct{})}, ready{}, q, nop, opts)
}

// otherContext is a context of a type that package context does not know.
type otherContext struct {
	context.Context
	done chan struct{} // never closed
}

func (c otherContext) Done() <-chan struct{} { return c.done }

// reconcilesAgain checks that a key comes again after a time, or at once if the time is past.
func reconcilesAgain(t *testing.T, again time.Duration) error {
	calls := map[string]int{}
	return reconciling(t, enqueue.Options{}, func(_ context.Context, key string) (time.Duration, error) {
		if calls[key]++; key == "a" && calls[key] < 3 {
			return again, nil
		}
		return 0, nil
	}, func(q queue) {
		q.Add("a")
		testkit.SleepBubble(time.Minute)
		q.Add("b")
		testkit.SleepBubble(time.Minute)
		want := 1
		if again < 0 {
			want = 3
		}
		if calls["a"] != want || calls["b"] != 1 {
			t.Errorf("the calls were %v, want %d for a and 1 for b", calls, want)
		}
		q.Add("a")
		synctest.Wait()
		if calls["a"] != want+1 {
			t.Errorf("%d calls after an event, want %d", calls["a"], want+1)
		}
	})
}

// addsAfter checks that a key comes after a time, and another one meanwhile.
func addsAfter(t *testing.T, d time.Duration) error {
	calls := map[string]int{}
	return reconciling(t, enqueue.Options{ErrorHandler: func(context.Context, error) {}}, func(_ context.Context, key string) (time.Duration, error) {
		if calls[key]++; key == "b" && calls[key] == 1 {
			return 0, errors.New("once")
		}
		return 0, nil
	}, func(q queue) {
		q.AddAfter("a", d)
		q.Add("b")
		testkit.SleepBubble(time.Minute)
		want := 1
		if d > 0 {
			want = 0
		}
		if calls["a"] != want || calls["b"] != 2 {
			t.Errorf("the calls were %v, want %d for a and 2 for b", calls, want)
		}
	})
}
