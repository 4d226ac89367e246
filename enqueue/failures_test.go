package enqueue_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// result is a result of a call.
type result struct {
	again time.Duration
	err   error
}

// returning returns a function whose calls have these results, and then nothing.
func returning(results ...result) func(context.Context, string) (time.Duration, error) {
	return func(context.Context, string) (time.Duration, error) {
		if len(results) == 0 {
			return 0, nil
		}
		next := results[0]
		results = results[1:]
		return next.again, next.err
	}
}

// Events put the key k into the queue at once and after a minute. After the second, waiting keys wait
// for their time.
func TestTheResultOfACallDecidesAboutTheNext(t *testing.T) {
	const ms = time.Millisecond
	no, bad := errors.New("no"), fmt.Errorf("bad: %w", informer.ErrPermanent)
	conflict := fmt.Errorf("status: %w", apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "p", errors.New("old")))
	hours := enqueue.Options{BaseDelay: time.Hour}
	for name, test := range map[string]struct {
		opts    enqueue.Options
		results []result
		waiting int
		calls   string
		errors  []string
	}{
		"nothing":                           {calls: "k@0 k@60"},
		"again":                             {results: []result{{again: 5 * time.Second}}, calls: "k@0 k@5 k@60"},
		"again at once":                     {results: []result{{again: -time.Second}}, calls: "k@0 k@0 k@60"},
		"again, replaced by nothing":        {results: []result{{again: time.Hour}}, calls: "k@0 k@60"},
		"again, replaced by a later time":   {results: []result{{again: time.Hour}, {again: 3 * time.Hour}}, waiting: 1, calls: "k@0 k@60 k@10860"},
		"again, replaced by an earlier one": {results: []result{{again: time.Hour}, {again: 20 * time.Minute}}, waiting: 1, calls: "k@0 k@60 k@1260"},
		"again, and then it is given up":    {results: []result{{again: time.Hour}, {err: bad}}, calls: "k@0 k@60", errors: []string{"k: bad: permanent failure (given up)"}},
		"a failure, replaced by nothing":    {opts: hours, results: []result{{err: no}}, calls: "k@0 k@60", errors: []string{"k: no"}},
		"a failure, replaced by a later time": {
			opts: hours, results: []result{{err: no}, {again: 3 * time.Hour}}, waiting: 1, calls: "k@0 k@60 k@10860", errors: []string{"k: no"}},
		"a failure, and then it is given up": {
			opts: hours, results: []result{{err: no}, {err: bad}}, calls: "k@0 k@60", errors: []string{"k: no", "k: bad: permanent failure (given up after 2 failures)"}},
		"failures, which a success forgets": {results: []result{{err: no}, {err: no}, {again: 10 * time.Second}, {err: no}}, calls: "k@0 k@1 k@3 k@13 k@14 k@60",
			errors: []string{"k: no", "k: no (failure 2)", "k: no"}},
		"a permanent failure, which ends the count": {results: []result{{err: no}, {err: bad}, {err: no}}, waiting: 1, calls: "k@0 k@1 k@60 k@61",
			errors: []string{"k: no", "k: bad: permanent failure (given up after 2 failures)", "k: no"}},
		"the attempts are over": {opts: enqueue.Options{MaxAttempts: 2}, results: []result{{again: 24 * time.Hour}, {err: no}, {err: no}}, waiting: 1, calls: "k@0 k@60 k@61",
			errors: []string{"k: no", "k: no (given up after 2 failures)"}},
		"NotFound": {results: []result{{err: apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "p")}}, calls: "k@0 k@1 k@60",
			errors: []string{`k: pods "p" not found`}},
		"a conflict": {results: []result{{err: conflict}}, calls: "k@0 k@1 k@60"},
		"two conflicts": {results: []result{{err: conflict}, {err: conflict}}, calls: "k@0 k@1 k@3 k@60",
			errors: []string{`k: status: Operation cannot be fulfilled on pods "p": old (failure 2)`}},
		"a conflict that is the end": {results: []result{{err: errors.Join(conflict, informer.ErrPermanent)}}, calls: "k@0 k@60",
			errors: []string{"k: status: Operation cannot be fulfilled on pods \"p\": old\npermanent failure (given up)"}},
		"at once, again and again": { // as seldom as a key that fails, and a failure in between does not reset the count
			opts:    enqueue.Options{MaxDelay: 30 * ms},
			results: append(append(slices.Repeat([]result{{again: -1}}, 5), result{again: 4 * ms, err: no}), result{again: -1}, result{again: 4 * ms}, result{again: time.Second}, result{again: 4 * ms}),
			calls:   "k@0 k@0 k@0.01 k@0.03 k@0.06 k@0.09 k@0.095 k@0.125 k@0.155 k@1.155 k@1.159 k@60", errors: []string{"k: no"},
		},
	} {
		testkit.InBubble(t, name, func(t *testing.T) {
			r := start(t, test.opts, returning(test.results...))
			r.add("k")
			time.Sleep(time.Minute)
			r.add("k")
			synctest.Wait()
			if h := r.Health(); h.Waiting != test.waiting {
				t.Errorf("%d keys wait for their time, want %d", h.Waiting, test.waiting)
			}
			time.Sleep(100 * time.Hour)
			r.expect(strings.Fields(test.calls)...)
			r.expectErrors(test.errors...)
			if h := r.Health(); h.Waiting != 0 {
				t.Errorf("in the end %d keys wait for their time", h.Waiting)
			}
		})
	}
}

func TestThePausesBetweenAttemptsAreThoseOfTheOptions(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		base, most time.Duration
		calls      string
	}{
		{0, time.Hour, "k@0 k@0.005 k@0.015 k@0.035 k@0.075"},
		{0, 12 * ms, "k@0 k@0.005 k@0.015 k@0.027 k@0.039"},
		{0, ms, "k@0 k@0.001 k@0.002 k@0.003 k@0.004"},
		{time.Second, 3 * time.Second, "k@0 k@1 k@3 k@6 k@9"},
		{time.Second, time.Second, "k@0 k@1 k@2 k@3 k@4"},
		{10 * time.Minute, 0, "k@0 k@600 k@1600 k@2600 k@3600"},
		{time.Hour, 0, "k@0 k@3600 k@7200 k@10800 k@14400"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, enqueue.Options{BaseDelay: test.base, MaxDelay: test.most}, returning(slices.Repeat([]result{{err: errors.New("no")}}, 4)...))
			r.add("k")
			time.Sleep(24 * time.Hour)
			r.expect(strings.Fields(test.calls)...)
		})
	}
}

// A key that fails waits only for itself, also with a single worker.
func TestAFailingKeyDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, enqueue.Options{}, func(_ context.Context, key string) (time.Duration, error) {
			if key == "good" {
				return 0, nil
			}
			return time.Nanosecond, errors.New("no")
		})
		var many []string
		for n := range 1000 {
			many = append(many, fmt.Sprint(n))
		}
		r.add(many...)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		r.calls = nil
		r.add("bad", "good")
		r.expect("bad@20", "good@20")
		time.Sleep(2 * time.Second)
		r.expect("bad@21")
	})
}

// The keys of objects that come and go do not pile up for the time for which calls have asked. The
// keys that wait when the controller stops are dropped.
func TestNothingIsLeftOfGoneObjects(t *testing.T) {
	const n = 1000
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		var gone atomic.Bool
		r := start(t, enqueue.Options{}, func(context.Context, string) (time.Duration, error) {
			if calls.Add(1); gone.Load() {
				return 0, nil
			}
			return 24 * time.Hour, nil
		})
		var keys []string
		for i := range n {
			keys = append(keys, fmt.Sprint(i))
		}
		for _, is := range []bool{false, true, false} {
			gone.Store(is)
			r.add(keys...)
			time.Sleep(time.Minute)
		}
		if h := r.Health(); h.Waiting != n || calls.Load() != 3*n {
			t.Errorf("%d calls, and %d keys wait, want %d and %d", calls.Load(), h.Waiting, 3*n, n)
		}
		gone.Store(true)
		time.Sleep(48 * time.Hour)
		if h := r.Health(); h.Waiting != 0 || calls.Load() != 4*n {
			t.Errorf("%d calls, and %d keys wait, want %d and none", calls.Load(), h.Waiting, 4*n)
		}
	})
}

// A call whose time is over has failed, unless it returns nil.
func TestACallHasATimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		r := start(t, enqueue.Options{CallTimeout: time.Minute}, func(ctx context.Context, _ string) (time.Duration, error) {
			<-ctx.Done()
			if calls++; calls <= 2 {
				return 0, ctx.Err()
			}
			return 0, nil
		})
		r.add("k")
		time.Sleep(time.Hour)
		r.expect("k@0", "k@61", "k@123")
		const over = "k: Options.CallTimeout, 1m0s, is over: context deadline exceeded"
		r.expectErrors(over, over+" (failure 2)")
		if h := r.Health(); h.Failed != 2 || h.Succeeded != 1 {
			t.Errorf("%d failures, %d successes", h.Failed, h.Succeeded)
		}
	})
}

func panics(context.Context, string) (time.Duration, error) { panic("oh no") }

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
	synctest.Test(t, func(t *testing.T) {
		start(t, enqueue.Options{}, panics).add("k")
		synctest.Wait()
	})
}

// Without an ErrorHandler, failures are logged. For a panic the log has the stack.
func TestFailuresAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := newPods(t, "pods", informertest.NewSource(pod("fails"), pod("panics")))
		c := newController(t, func(ctx context.Context, k key) (time.Duration, error) {
			if k.Name == "panics" {
				return panics(ctx, k.Name)
			}
			return 0, fmt.Errorf("for good: %w", informer.ErrPermanent)
		}, enqueue.Options{Name: "website", RecoverPanics: true}, enqueue.For(pods))
		ctx, log := logged(t.Context(), t)
		informertest.Run(t, pods)
		ctx, stop := context.WithTimeout(ctx, time.Millisecond)
		defer stop()
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
		for _, want := range []string{
			`Reconciling has failed err="for good: permanent failure" queue="website" key="ns/fails" failures=1 gaveUp=true`,
			`Reconciling has failed err="panic: oh no" queue="website" key="ns/panics" failures=1 gaveUp=false`,
			`TestFailuresAreLogged`, // in the stack
		} {
			if !strings.Contains(log(), want) {
				t.Errorf("the log lacks %s:\n%s", want, log())
			}
		}
	})
}

func TestAPanicIsAnErrorIfToldSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, enqueue.Options{RecoverPanics: true, MaxAttempts: 1}, panics)
		r.add("k")
		synctest.Wait()
		var panicked *informer.PanicError
		var failed *enqueue.Error
		if err := errors.Join(r.reported...); !errors.As(err, &panicked) || panicked.Value != "oh no" || !strings.Contains(string(panicked.Stack), "enqueue_test.panics") {
			t.Errorf("reported %v", err)
		} else if !errors.As(err, &failed) || failed.Key != any("k") || failed.Failures != 1 || !failed.GaveUp {
			t.Errorf("reported %#v", failed)
		}
	})
}
