package enqueue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
)

// result is a result of a call.
type result struct {
	again time.Duration
	err   error
}

// planner is a controller of the Pod a, whose calls have these results, and then nothing.
type planner struct {
	t      *testing.T
	source *informertest.Source[*corev1.Pod]
	c      *enqueue.Controller[key]
	born   time.Time
	stop   func() error

	mu      sync.Mutex // protects the rest
	results []result
	calls   []time.Duration // when they began
}

func startPlanner(t *testing.T, opts enqueue.Options, results ...result) *planner {
	p := &planner{t: t, source: informertest.NewSource(pod("a")), born: time.Now(), results: results}
	pods := newPods(t, "pods", p.source)
	opts.Name, opts.ErrorHandler = "website", func(context.Context, error) {}
	p.c = newController(t, func(context.Context, key) (time.Duration, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.calls = append(p.calls, time.Since(p.born))
		if len(p.results) == 0 {
			return 0, nil
		}
		next := p.results[0]
		p.results = p.results[1:]
		return next.again, next.err
	}, opts, enqueue.For(pods))
	p.stop = runGroup(t, &informer.Group{}, pods, p.c)
	return p
}

// expect checks when the calls since the last check began, and how many keys wait for their time.
func (p *planner) expect(waiting int, want ...time.Duration) {
	p.t.Helper()
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Equal(p.calls, want) {
		p.t.Errorf("calls at %v, want %v", p.calls, want)
	}
	if h := p.c.Health(); h.Waiting != waiting {
		p.t.Errorf("%d keys wait for their time, want %d", h.Waiting, waiting)
	}
	p.calls = nil
}

// event has an event put the key into the queue after a time.
func (p *planner) event(after time.Duration) {
	time.Sleep(after)
	p.source.Apply(pod("a", func(pod *corev1.Pod) { pod.Annotations = map[string]string{"at": time.Now().String()} }))
}

// Each result of the second call replaces the time that the first one has set for the key.
func TestTheResultOfACallReplacesWhatWasPlanned(t *testing.T) {
	no := errors.New("no")
	for name, first := range map[string]result{"again": {again: time.Hour}, "a failure": {err: no}} {
		for _, test := range []struct {
			second  result
			waiting int
			want    []time.Duration // the calls after the second one
		}{
			{result{}, 0, nil},
			{result{again: 3 * time.Hour}, 1, []time.Duration{3*time.Hour + time.Minute}},
			{result{again: 20 * time.Minute}, 1, []time.Duration{21 * time.Minute}},
			{result{err: informer.ErrPermanent}, 0, nil},
		} {
			t.Run(fmt.Sprint(name, " and ", test.second), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := startPlanner(t, enqueue.Options{BaseDelay: time.Hour}, first, test.second)
					p.expect(1, 0)
					p.event(time.Minute)
					p.expect(test.waiting, time.Minute)
					time.Sleep(100 * time.Hour)
					p.expect(0, test.want...)
					if err := p.stop(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

func TestAKeyThatIsGivenUpWaitsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		no := errors.New("no")
		p := startPlanner(t, enqueue.Options{MaxAttempts: 2}, result{again: 24 * time.Hour}, result{err: no}, result{err: no})
		p.expect(1, 0)
		p.event(time.Minute)
		time.Sleep(48 * time.Hour)
		p.expect(0, time.Minute, time.Minute+5*time.Millisecond)
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	})
}

// The keys of objects that come and go do not pile up for the time for which calls have asked, also
// with a queue of NewQueue. The keys that wait when the controller stops are dropped.
func TestNothingIsLeftOfGoneObjects(t *testing.T) {
	const n = 1000
	synctest.Test(t, func(t *testing.T) {
		queue := enqueue.NewQueue[int]("")
		var calls, late int
		gone := false
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- enqueue.Run(ctx, synced{}, queue, func(context.Context, int) (time.Duration, error) {
				if calls++; calls > 2*n {
					late++
				}
				if gone {
					return 0, nil
				}
				return 24 * time.Hour, nil
			}, enqueue.Options{})
		}()
		for range 2 {
			for i := range n {
				queue.Add(i)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			gone = true
		}
		time.Sleep(48 * time.Hour)
		synctest.Wait()
		if calls != 2*n || late > 0 {
			t.Errorf("%d calls, %d of them for keys that are gone, want %d and none", calls, late, 2*n)
		}
		gone = false
		for i := range n {
			queue.Add(i)
		}
		time.Sleep(time.Minute)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A key for which calls ask at once is reconciled at once, and then as seldom as one that fails.
func TestAtOnceForEverSlowsDown(t *testing.T) {
	const ms = time.Millisecond
	for _, again := range []time.Duration{-time.Hour, -1, 1, 4 * ms} {
		t.Run(again.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asks := slices.Repeat([]result{{again: again}}, 8)
				asks[5].err = errors.New("no") // a failure in between does not reset the count
				p := startPlanner(t, enqueue.Options{MaxDelay: 30 * ms}, append(asks, result{again: time.Hour}, result{again: again})...)
				time.Sleep(30 * time.Minute)
				first := max(again, 0)
				p.expect(1, 0, first, first+10*ms, first+30*ms, first+60*ms, first+90*ms, first+95*ms, first+125*ms, first+155*ms)
				time.Sleep(time.Hour)
				p.expect(0, first+155*ms+time.Hour, 2*first+155*ms+time.Hour) // the count is reset
				if err := p.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // also with a queue of package workqueue, which counts nothing
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		calls := 0
		queue.Add("a")
		if err := enqueue.Run(ctx, synced{}, queue, func(context.Context, string) (time.Duration, error) { calls++; return -1, nil }, enqueue.Options{}); err != nil {
			t.Error(err)
		}
		if calls < 15 || calls > 30 {
			t.Errorf("%d calls in an hour", calls)
		}
	})
}

// A call whose time is over has failed, unless it returns nil.
func TestACallHasATimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := newPods(t, "pods", informertest.NewSource(pod("a")))
		var reported []string
		calls := 0
		c := newController(t, func(ctx context.Context, _ key) (time.Duration, error) {
			if calls++; calls <= 2 {
				<-ctx.Done()
				return 0, ctx.Err()
			}
			<-ctx.Done()
			return 0, nil
		}, enqueue.Options{
			Name: "website", CallTimeout: time.Minute,
			ErrorHandler: func(_ context.Context, err error) {
				reported = append(reported, fmt.Sprint(time.Now().Second(), " ", err))
			},
		}, enqueue.For(pods))
		stop := runGroup(t, &informer.Group{}, pods, c)
		time.Sleep(time.Hour)
		synctest.Wait()
		want := "website ns/a: Options.CallTimeout, 1m0s, is over: context deadline exceeded"
		if h := c.Health(); h.Failed != 2 || h.Succeeded != 1 || len(reported) != 2 || reported[0] != "0 "+want {
			t.Errorf("%d failures, %d successes, reported %q, want %q", h.Failed, h.Succeeded, reported, want)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
