package enqueue_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func TestHealthOfAController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocked := make(chan struct{})
		r := prepare(t, enqueue.Options{Workers: 2, MaxAttempts: 3}, func(_ context.Context, key string) (time.Duration, error) {
			switch key {
			case "a":
				return 0, errors.New("no luck")
			case "b":
				<-blocked
			}
			return 0, nil
		}, pod("a"), pod("b"), pod("c"))
		if h := r.Health(); h.Started || h.Stopped || h.Synced || h.Workers != 2 {
			t.Errorf("before Run Health is %+v", h)
		}
		r.run(t.Context())
		time.Sleep(time.Minute)
		h := r.Health()
		if h.Busy != 1 || len(h.Calls) != 1 || h.Calls[0].Key != "b" || h.Calls[0].For < 50*time.Second {
			t.Errorf("calls under way: %d, %v, want b for a minute", h.Busy, h.Calls)
		}
		if h.Failing != 1 || len(h.Failures) != 1 || h.Failures[0].Key != "a" || h.Failures[0].Failures != 3 || !h.Failures[0].GaveUp || h.Failures[0].Err.Error() != "no luck" {
			t.Errorf("failing: %d, %+v, want a, given up after 3 attempts", h.Failing, h.Failures)
		}
		if h.Succeeded != 1 || h.Failed != 3 || h.GaveUp != 1 || h.Queued != 0 || time.Since(h.LastSuccess) > time.Minute {
			t.Errorf("Health is %+v", h)
		}
		r.expectErrors("a: no luck", "a: no luck (failure 2)", "a: no luck (given up after 3 failures)")
		r.add("d", "e", "f")
		close(blocked)
		time.Sleep(time.Second)
		if h := r.Health(); h.Busy != 0 || h.Succeeded != 5 || h.OldestQueued != 0 {
			t.Errorf("at rest Health is %+v", h)
		}
		r.stop()
		r.wait()
		if h := r.Health(); !h.Stopped || !errors.Is(h.Ready(), informer.ErrStopped) || !strings.HasPrefix(h.Ready().Error(), "controller website: ") {
			t.Errorf("after the stop: %v", h.Ready())
		}
		if err := r.Run(t.Context()); !errors.Is(err, informer.ErrAlreadyRun) {
			t.Errorf("a second Run returned %v, want ErrAlreadyRun", err)
		}
	})
}

func TestHealthShowsWhenAKeyIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		hold := make(chan struct{})
		r := start(t, enqueue.Options{MaxAttempts: 13}, func(context.Context, string) (time.Duration, error) {
			if calls.Add(1) > 12 {
				<-hold
			}
			return 0, errors.New("no luck")
		})
		r.add("k")
		next := func() time.Time { synctest.Wait(); return r.Health().Failures[0].NextTry }
		for synctest.Wait(); calls.Load() < 12; {
			before, pause := calls.Load(), time.Until(next())
			time.Sleep(pause - 1)
			synctest.Wait()
			early := calls.Load()
			time.Sleep(time.Nanosecond)
			if synctest.Wait(); pause <= 0 || early != before || calls.Load() != before+1 {
				t.Fatalf("after %d calls the next try is in %v, before it there are %d, and then %d", before, pause, early, calls.Load())
			}
		}
		time.Sleep(time.Until(next()))
		during := next()
		close(hold)
		if after := next(); !during.IsZero() || !after.IsZero() || calls.Load() != 13 {
			t.Errorf("during the last of %d calls the next try is at %v, and after it at %v", calls.Load(), during, after)
		}
	})
}

func TestKeysThatWaitAreCountedWithTheirAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		step := make(chan struct{})
		r := start(t, enqueue.Options{}, func(context.Context, string) (time.Duration, error) { <-step; return 0, nil })
		r.add("a", "b", "c")
		for _, want := range []int{2, 1, 0} {
			time.Sleep(time.Minute)
			if h := r.Health(); h.Queued != want || (want > 0) != (h.OldestQueued >= time.Minute) {
				t.Errorf("%d keys wait, the oldest for %v, want %d", h.Queued, h.OldestQueued, want)
			}
			step <- struct{}{}
		}
	})
}

func TestHealthCountsCallsByHowLongTheyTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := map[string]time.Duration{"a": 0, "b": 100 * time.Microsecond, "c": 100*time.Microsecond + 1, "d": 7 * time.Minute, "e": time.Hour}
		r := start(t, enqueue.Options{}, func(_ context.Context, key string) (time.Duration, error) {
			time.Sleep(took[key])
			if key == "e" {
				return 0, informer.ErrPermanent
			}
			return 0, nil
		})
		r.add("a", "b", "c", "d", "e")
		time.Sleep(2 * time.Hour)
		h := r.Health()
		if want := [13]int{0: 2, 1: 1, 12: 2}; h.Took != want || h.TookSum != time.Hour+7*time.Minute+200*time.Microsecond+1 {
			t.Errorf("calls by their time: %v, together %v, want %v", h.Took, h.TookSum, want)
		}
	})
}

func TestHealthOfAControllerAsJSON(t *testing.T) {
	h := enqueue.Health{
		Name: "website", Started: true, Late: []string{"informer pods"}, Reason: errors.New("forbidden"), Workers: 2, OldestQueued: 250 * time.Millisecond,
		Calls: []enqueue.KeyHealth{{Key: "secret"}}, Stuck: 1500 * time.Millisecond, Succeeded: 3, Again: 1,
	}
	const want = `{"name":"website","started":true,"stopped":false,"synced":false,"late":["informer pods"],"standby":false,"workers":2,"queued":0,"waiting":0,` +
		`"busy":0,"failing":0,"succeeded":3,"again":1,"failed":0,"gaveUp":0,"deletes":0,"oldestQueuedSeconds":0.25,"stuckSeconds":1.5}`
	if text, err := json.Marshal(h); err != nil || string(text) != want {
		t.Errorf("%s, %v, want\n%s", text, err, want)
	}
}

// curious is a key whose text asks for the Health of its controller.
type curious struct{ health func() }

func (k *curious) String() string { k.health(); return "curious" }

func TestTheTextOfAKeyMayAskForHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := newPods(t, "pods", informertest.NewSource(pod("p")))
		called := &curious{}
		c, err := enqueue.NewController(func(ctx context.Context, _ *curious) (time.Duration, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}, enqueue.Options{Name: "website"}, enqueue.Watches(pods, func(context.Context, *corev1.Pod) ([]*curious, error) { return []*curious{called}, nil }))
		testkit.Must(t, err)
		succeeded := -1
		called.health = func() {
			called.health = func() {}
			succeeded = c.Health().Succeeded
		}
		runGroup(t, &informer.Group{}, pods, c)
		time.Sleep(time.Second)
		if h := c.Health(); len(h.Calls) != 1 || h.Calls[0].Key != "curious" || succeeded != 0 {
			t.Errorf("calls %v, and String saw %d successes, want the call of curious and 0", h.Calls, succeeded)
		}
	})
}
