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
	"enqueue.NewController(reconcile) returns again": extremes.Number("", inBubble(reconcilesAgain)),
}

type reconcile = func(ctx context.Context, key string) (time.Duration, error)

// reconcilesAtOnce checks how many keys are reconciled at once.
func reconcilesAtOnce(t *testing.T, opts enqueue.Options) error {
	var now, most atomic.Int32
	return controlling(t, opts, func(context.Context, string) (time.Duration, error) {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		time.Sleep(time.Second)
		return 0, nil
	}, func(src *source) {
		src.Apply(object("a", "1"))
		src.Apply(object("b", "1"))
		testkit.SleepBubble(hour)
		if want := min(2, max(1, opts.Workers)); int(most.Load()) != want {
			t.Errorf("%d keys were reconciled at once, want %d", most.Load(), want)
		}
	})
}

// drainsTheQueue checks that a stop waits for a call and for the keys in the queue.
func drainsTheQueue(t *testing.T, opts enqueue.Options) error {
	var calls []string
	var stopped time.Time
	err := controlling(t, opts, func(ctx context.Context, key string) (time.Duration, error) {
		calls = append(calls, key)
		select {
		case <-time.After(hour):
			return 0, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}, func(src *source) {
		src.Apply(object("slow", "1"))
		src.Apply(object("waits", "1"))
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
	return nil
}

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
	return controlling(t, opts, func(ctx context.Context, _ string) (time.Duration, error) {
		began := time.Now()
		select {
		case <-ctx.Done():
		case <-time.After(hour):
		}
		took = time.Since(began)
		return 0, ctx.Err()
	}, func(src *source) {
		src.Apply(object("a", "1"))
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
	return controlling(t, opts, func(context.Context, string) (time.Duration, error) {
		calls++
		return 0, errors.New("always")
	}, func(src *source) {
		src.Apply(object("a", "1"))
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

// reconcilesAgain checks that a key comes again after a time, or at once if the time is past.
func reconcilesAgain(t *testing.T, again time.Duration) error {
	calls := map[string]int{}
	return controlling(t, enqueue.Options{}, func(_ context.Context, key string) (time.Duration, error) {
		if calls[key]++; key == "a" && calls[key] < 3 {
			return again, nil
		}
		return 0, nil
	}, func(src *source) {
		src.Apply(object("a", "1"))
		testkit.SleepBubble(time.Minute)
		src.Apply(object("b", "1"))
		testkit.SleepBubble(time.Minute)
		want := 1
		if again < 0 {
			want = 3
		}
		if calls["a"] != want || calls["b"] != 1 {
			t.Errorf("the calls were %v, want %d for a and 1 for b", calls, want)
		}
		src.Apply(object("a", "2"))
		testkit.SleepBubble(time.Minute)
		if calls["a"] != want+1 {
			t.Errorf("%d calls after an event, want %d", calls["a"], want+1)
		}
	})
}
