package enqueue_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
)

// A key that fails waits only for its rate limiter, also with a single worker.
func TestAFailingKeyDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, enqueue.Options{Name: "pod"}, func(_ context.Context, key string) (time.Duration, error) {
			if key == "bad" {
				return time.Nanosecond, errors.New("no")
			}
			return 0, nil
		})
		for _, key := range []string{"bad", "a", "b"} {
			r.queue.Add(key)
		}
		r.expect(t, "bad@0", "a@0", "b@0")
		time.Sleep(2 * time.Second)
		r.queue.Add("a")
		time.Sleep(5 * time.Second)
		r.expect(t, "bad@1", "a@2", "bad@3", "bad@7")
		r.expectErrors(t, "pod bad: no", "pod bad: no (failure 2)", "pod bad: no (failure 3)", "pod bad: no (failure 4)")
		r.stopped(t)
	})
}

// A success resets the count of failures, and so the wait after the next failure.
func TestSuccessForgetsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var healthy atomic.Bool
		r := start(t, enqueue.Options{}, func(context.Context, string) (time.Duration, error) {
			if !healthy.Load() {
				return 0, errors.New("no")
			}
			return 0, nil
		})
		r.queue.Add("k")
		time.Sleep(3500 * time.Millisecond)
		healthy.Store(true)
		time.Sleep(time.Hour)
		r.expect(t, "k@0", "k@1", "k@3", "k@7")
		r.expectErrors(t, "reconcile k: no", "reconcile k: no (failure 2)", "reconcile k: no (failure 3)")
		healthy.Store(false)
		r.queue.Add("k")
		time.Sleep(1500 * time.Millisecond)
		r.expect(t, "k@3603.5", "k@3604.5")
		r.expectErrors(t, "reconcile k: no", "reconcile k: no (failure 2)")
		r.stopped(t)
	})
}

// A later time does not postpone an earlier one that was asked for. A success that asks for
// another time forgets the failures before it.
func TestTheEarlierTimeStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		returns := []struct {
			again time.Duration
			err   error
		}{
			{err: errors.New("no")}, {err: errors.New("no")}, {again: time.Hour}, {again: 10 * time.Hour}, {err: errors.New("no")}, {},
		}
		r := start(t, enqueue.Options{}, func(context.Context, string) (time.Duration, error) {
			next := returns[0]
			returns = returns[1:]
			return next.again, next.err
		})
		r.queue.Add("k")
		time.Sleep(time.Minute)
		r.queue.Add("k")
		time.Sleep(24 * time.Hour)
		r.expect(t, "k@0", "k@1", "k@3", "k@60", "k@3603", "k@3604")
		r.expectErrors(t, "reconcile k: no", "reconcile k: no (failure 2)", "reconcile k: no")
		r.stopped(t)
	})
}

// A conflict is retried like any failure. It is reported if it was not the first failure.
func TestAConflictIsReportedIfItGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conflicts := 0
		r := start(t, enqueue.Options{}, func(context.Context, string) (time.Duration, error) {
			if conflicts--; conflicts >= 0 {
				return 0, fmt.Errorf("status: %w", apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "p", errors.New("too old")))
			}
			return 0, nil
		})
		conflicts = 1
		r.queue.Add("a")
		time.Sleep(time.Minute)
		r.expect(t, "a@0", "a@1")
		r.expectErrors(t)
		conflicts = 2
		r.queue.Add("b")
		time.Sleep(time.Minute)
		r.expect(t, "b@60", "b@61", "b@63")
		r.expectErrors(t, `reconcile b: status: Operation cannot be fulfilled on pods "p": too old (failure 2)`)
		r.stopped(t)
	})
}

// A key that fails for the first time does not wait for the many failures of other keys.
func TestAFailureWaitsForItselfAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := enqueue.NewQueue[string]("")
		ctx, stop := context.WithCancel(t.Context())
		calls := map[string]int{}
		done := make(chan error)
		go func() {
			done <- enqueue.Run(ctx, synced{}, queue, func(_ context.Context, key string) (time.Duration, error) {
				calls[key]++
				return 0, errors.New("no")
			}, enqueue.Options{ErrorHandler: func(context.Context, error) {}})
		}()
		for n := range 1000 {
			queue.Add(fmt.Sprint(n))
		}
		time.Sleep(time.Second)
		queue.Add("new")
		time.Sleep(36 * time.Millisecond)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if calls["new"] != 4 { // at once, and after 5, 15 and 35 ms
			t.Errorf("%d calls for a new key within 36 ms, want 4", calls["new"])
		}
	})
}

// uncounted is a rate limiter that counts nothing, like the bucket for all keys.
type uncounted struct{}

func (uncounted) When(string) time.Duration { return time.Second }
func (uncounted) Forget(string)             {}
func (uncounted) NumRequeues(string) int    { return 0 }

// A conflict is reported from the second in a row on, also if the rate limiter does not count,
// and at once if this is the last attempt.
func TestAConflictThatMayNotBeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conflict := apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "p", errors.New("too old"))
		for _, test := range []struct {
			limiter workqueue.TypedRateLimiter[string]
			err     error
			want    int
		}{
			{uncounted{}, conflict, 59},
			{workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Hour), errors.Join(conflict, informer.ErrPermanent), 1},
		} {
			ctx, stop := context.WithCancel(t.Context())
			queue := workqueue.NewTypedRateLimitingQueue(test.limiter)
			var reports atomic.Int32
			done := make(chan error)
			go func() {
				done <- enqueue.Run(ctx, synced{}, queue, func(context.Context, string) (time.Duration, error) {
					return 0, test.err
				}, enqueue.Options{ErrorHandler: func(context.Context, error) { reports.Add(1) }})
			}()
			queue.Add("k")
			time.Sleep(59500 * time.Millisecond)
			if n := reports.Load(); int(n) != test.want {
				t.Errorf("%v: %d reports in a minute, want %d", test.err, n, test.want)
			}
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// NotFound is a failure like any other: the object to change has gone, and the next attempt
// sees that.
func TestNotFoundIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := false
		r := start(t, enqueue.Options{}, func(context.Context, string) (time.Duration, error) {
			if !gone {
				gone = true
				return 0, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "p")
			}
			return 0, nil
		})
		r.queue.Add("p")
		time.Sleep(time.Minute)
		r.expect(t, "p@0", "p@1")
		r.expectErrors(t, `reconcile p: pods "p" not found`)
		r.stopped(t)
	})
}

func TestAPermanentFailureWaitsForAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, enqueue.Options{}, func(context.Context, string) (time.Duration, error) {
			return time.Minute, fmt.Errorf("spec.host: %w", informer.ErrPermanent)
		})
		r.queue.Add("k")
		time.Sleep(time.Hour)
		r.expect(t, "k@0")
		r.queue.Add("k")
		r.expect(t, "k@3600")
		r.expectErrors(t, "reconcile k: spec.host: permanent failure (given up)", "reconcile k: spec.host: permanent failure (given up)")
		r.stopped(t)
	})
}

// A permanent failure after other failures is forgotten, and so is its count.
func TestAFailureThatBecomesPermanent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		r := start(t, enqueue.Options{}, func(context.Context, string) (time.Duration, error) {
			if calls.Add(1) == 2 {
				return 0, fmt.Errorf("spec.host: %w", informer.ErrPermanent)
			}
			return 0, errors.New("no")
		})
		r.queue.Add("k")
		time.Sleep(time.Hour)
		r.queue.Add("k")
		r.expect(t, "k@0", "k@1", "k@3600")
		r.expectErrors(t, "reconcile k: no", "reconcile k: spec.host: permanent failure (given up after 2 failures)", "reconcile k: no")
		r.stopped(t)
	})
}

// Without RecoverPanics a panic ends the process. The test therefore starts another process.
func TestAPanicEndsTheProcess(t *testing.T) {
	const inside = "ENQUEUE_PANICS"
	if os.Getenv(inside) == "" {
		child := exec.Command(os.Args[0], "-test.run=^TestAPanicEndsTheProcess$")
		child.Env = append(os.Environ(), inside+"=1")
		if out, err := child.CombinedOutput(); err == nil || !strings.Contains(string(out), "panic: oh no") {
			t.Errorf("the process ended with %v:\n%s", err, out)
		}
		return
	}
	queue := enqueue.NewQueue[string]("")
	queue.Add("k")
	err := enqueue.Run(t.Context(), synced{}, queue, func(context.Context, string) (time.Duration, error) {
		panic("oh no")
	}, enqueue.Options{})
	t.Log("Run has returned", err)
}

// Without an ErrorHandler, failures are logged. For a panic the log has the stack.
func TestFailuresAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
		ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
		queue := enqueue.NewQueue[string]("")
		queue.Add("fails")
		queue.Add("panics")
		done := make(chan error)
		go func() {
			done <- enqueue.Run(ctx, synced{}, queue, func(_ context.Context, key string) (time.Duration, error) {
				if key == "panics" {
					panic("oh no")
				}
				return 0, fmt.Errorf("for good: %w", informer.ErrPermanent)
			}, enqueue.Options{Name: "pod", RecoverPanics: true})
		}()
		synctest.Wait()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
		for _, want := range []string{
			`Reconciling has failed err="for good: permanent failure" queue="pod" key="fails" failures=1 gaveUp=true`,
			`Reconciling has failed err="panic: oh no" queue="pod" key="panics" failures=1 gaveUp=false`,
			`TestFailuresAreLogged`, // in the stack
		} {
			if !strings.Contains(log, want) {
				t.Errorf("the log lacks %s:\n%s", want, log)
			}
		}
	})
}

func TestAPanicIsAnErrorIfToldSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported error
		first := true
		queue := enqueue.NewQueue[string]("")
		ctx, stop := context.WithCancel(t.Context())
		queue.Add("k")
		err := enqueue.Run(ctx, synced{}, queue, func(context.Context, string) (time.Duration, error) {
			if first {
				first = false
				panic("oh no")
			}
			stop()
			return 0, nil
		}, enqueue.Options{RecoverPanics: true, ErrorHandler: func(_ context.Context, err error) { reported = err }})
		if err != nil {
			t.Error(err)
		}
		var panicked *informer.PanicError
		if !errors.As(reported, &panicked) || panicked.Value != "oh no" || !strings.Contains(string(panicked.Stack), "TestAPanicIsAnError") {
			t.Errorf("reported %v", reported)
		}
		var failed *enqueue.Error
		if !errors.As(reported, &failed) || failed.Key != any("k") || failed.Failures != 1 || failed.GaveUp {
			t.Errorf("reported %#v", failed)
		}
	})
}
