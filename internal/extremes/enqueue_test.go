package extremes_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/extremes"
	"github.com/customcacheinformer/informer/internal/testkit"
)

var enqueueTrials = map[string]extremes.Trial{
	"enqueue.Options.Workers":      extremes.Field("max -1 min", nil, inBubble(reconcilesAtOnce)),
	"enqueue.Options.DrainTimeout": extremes.Field("-1 min", nil, inBubble(drainsTheQueue)),
	"enqueue.Options.MaxAttempts":  extremes.Field("-1 min", nil, inBubble(goesOnTrying)),
	"enqueue.Options.BaseDelay":    extremes.Field("-1 min", nil, inBubble(pausesBetweenAttempts)),
	"enqueue.Options.MaxDelay":     extremes.Field("-1 min", nil, inBubble(pausesBetweenAttempts)),
	"enqueue.Options.CallTimeout":  extremes.Field("-1 min", nil, inBubble(endsCalls)),
	"enqueue.Options.HangTimeout":  extremes.Field("", nil, inBubble(seesHungWorkers)),
	"enqueue.Options.StandbyDeletes": extremes.Field("-1 min", func() enqueue.Options {
		return enqueue.Options{Elected: make(chan struct{})}
	}, inBubble(keepsDeletesOnStandby)),
	"enqueue.Run(reconcile) returns again": extremes.Number("", inBubble(func(t *testing.T, again time.Duration) error {
		return reconcilesAgain(t, again, func(t *testing.T, f reconcile, during func(add func(key string))) error {
			return reconciling(t, enqueue.Options{}, f, func(q queue) { during(q.Add) })
		})
	})),
	"enqueue.NewController(reconcile) returns again": extremes.Number("", inBubble(func(t *testing.T, again time.Duration) error {
		return reconcilesAgain(t, again, func(t *testing.T, f reconcile, during func(add func(key string))) error {
			return controlling(t, enqueue.Options{}, f, func(src *source) {
				n := 0
				during(func(key string) { n++; src.Apply(object(key, fmt.Sprint(n))) })
			})
		})
	})),
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

// controlling runs a controller of the objects of a source that is empty at first. It calls during,
// and then ends the controller. It returns the error with which the options are refused.
func controlling(t *testing.T, opts enqueue.Options, f reconcile, during func(*source)) error {
	src := informertest.NewSource[configMap]()
	inf := testkit.NewInformer(t, src, options{})
	opts.Name = "controller"
	c, err := enqueue.NewController(func(ctx context.Context, key types.NamespacedName) (time.Duration, error) { return f(ctx, key.Name) }, opts, enqueue.For(inf))
	if err != nil {
		return err
	}
	group := &informer.Group{}
	if err := errors.Join(group.Add(inf), group.Add(c)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- group.Run(ctx) }()
	testkit.SleepBubble(time.Minute)
	during(src)
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
	return nil
}

// endsCalls checks how long the ctx of a call lives.
func endsCalls(t *testing.T, opts enqueue.Options) error {
	var took time.Duration
	opts.ErrorHandler, opts.MaxAttempts = func(context.Context, error) {}, 1
	return reconciling(t, opts, func(ctx context.Context, _ string) (time.Duration, error) {
		began := time.Now()
		select {
		case <-ctx.Done():
		case <-time.After(hour):
		}
		took = time.Since(began)
		return 0, ctx.Err()
	}, func(q queue) {
		q.Add("a")
		testkit.SleepBubble(2 * hour)
		want := hour
		if opts.CallTimeout > 0 {
			want = min(want, opts.CallTimeout)
		}
		if took != want {
			t.Errorf("the ctx of a call lived for %v, want %v", took, want)
		}
	})
}

// seesHungWorkers checks whether Live fails while the only worker hangs for two hours.
func seesHungWorkers(t *testing.T, opts enqueue.Options) error {
	src := informertest.NewSource(object("a", "1"), object("b", "1"))
	inf := testkit.NewInformer(t, src, options{})
	opts.Name = "controller"
	c, err := enqueue.NewController(func(context.Context, types.NamespacedName) (time.Duration, error) {
		time.Sleep(3 * hour)
		return 0, nil
	}, opts, enqueue.For(inf))
	if err != nil {
		return err
	}
	group := &informer.Group{}
	if err := errors.Join(group.Add(inf), group.Add(c)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- group.Run(ctx) }()
	testkit.SleepBubble(2 * hour)
	if err, want := group.Live(), opts.HangTimeout >= 0 && opts.HangTimeout < 2*hour; (err != nil) != want {
		t.Errorf("Live: %v, want an error: %t", err, want)
	}
	cancel()
	return <-done
}

// goesOnTrying checks that a key that fails is not given up.
func goesOnTrying(t *testing.T, opts enqueue.Options) error {
	calls := 0
	opts.ErrorHandler = func(_ context.Context, err error) {
		if failed := new(enqueue.Error); !errors.As(err, &failed) || failed.GaveUp {
			t.Errorf("reported after %d calls: %v", calls, err)
		}
	}
	return reconciling(t, opts, func(context.Context, string) (time.Duration, error) {
		calls++
		return 0, errors.New("always")
	}, func(q queue) {
		q.Add("a")
		testkit.SleepBubble(hour)
		if calls < 10 {
			t.Errorf("%d calls within an hour, want more", calls)
		}
	})
}

// pausesBetweenAttempts checks that a key that fails comes again after its pauses, and another key
// meanwhile.
func pausesBetweenAttempts(t *testing.T, opts enqueue.Options) error {
	opts.ErrorHandler = func(context.Context, error) {}
	calls := map[string]int{}
	return controlling(t, opts, func(_ context.Context, key string) (time.Duration, error) {
		if calls[key]++; key == "a" && calls[key] < 6 {
			return 0, errors.New("not yet")
		}
		return 0, nil
	}, func(src *source) {
		src.Apply(object("a", "1"))
		testkit.SleepBubble(hour)
		src.Apply(object("b", "1"))
		testkit.SleepBubble(time.Minute)
		want := 6
		if opts.BaseDelay > hour {
			want = 1
		}
		if calls["a"] != want || calls["b"] != 1 {
			t.Errorf("the calls were %v, want %d for a and 1 for b", calls, want)
		}
		src.Apply(object("a", "2")) // an event does not wait for the pause
		testkit.SleepBubble(time.Minute)
		if calls["a"] != want+1 {
			t.Errorf("%d calls after an event, want %d", calls["a"], want+1)
		}
	})
}

// keepsDeletesOnStandby checks that a controller on standby keeps all of a few deletes.
func keepsDeletesOnStandby(t *testing.T, opts enqueue.Options) error {
	elected := make(chan struct{})
	opts.Elected, opts.ErrorHandler = elected, fails(t)
	calls := map[string]int{}
	return controlling(t, opts, func(_ context.Context, key string) (time.Duration, error) {
		calls[key]++
		return 0, nil
	}, func(src *source) {
		for _, name := range []string{"a", "b", "c"} {
			src.Apply(object(name, "1"))
			testkit.SleepBubble(time.Minute)
			if _, err := src.Delete(testkit.KeyOf(name)); err != nil {
				t.Fatal(err)
			}
			testkit.SleepBubble(time.Minute)
		}
		if len(calls) > 0 {
			t.Errorf("calls on standby: %v", calls)
		}
		close(elected)
		testkit.SleepBubble(time.Minute)
		if fmt.Sprint(calls) != "map[a:1 b:1 c:1]" {
			t.Errorf("the calls were %v, want one for each deleted object", calls)
		}
	})
}

// reconcilesAgain checks that a key comes again after a time, or at once if the time is past. run
// calls f for the keys that during adds.
func reconcilesAgain(t *testing.T, again time.Duration, run func(t *testing.T, f reconcile, during func(add func(key string))) error) error {
	calls := map[string]int{}
	return run(t, func(_ context.Context, key string) (time.Duration, error) {
		if calls[key]++; key == "a" && calls[key] < 3 {
			return again, nil
		}
		return 0, nil
	}, func(add func(key string)) {
		add("a")
		testkit.SleepBubble(time.Minute)
		add("b")
		testkit.SleepBubble(time.Minute)
		want := 1
		if again < 0 {
			want = 3
		}
		if calls["a"] != want || calls["b"] != 1 {
			t.Errorf("the calls were %v, want %d for a and 1 for b", calls, want)
		}
		add("a")
		testkit.SleepBubble(time.Minute)
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
