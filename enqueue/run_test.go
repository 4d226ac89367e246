package enqueue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
)

// synced is informers that have synced long ago.
type synced struct{}

func (synced) WaitForSync(context.Context) error { return nil }

// running is a Run of a test, over keys that are strings.
type running struct {
	queue  workqueue.TypedRateLimitingInterface[string]
	errors []string // what ErrorHandler was told
	stop   context.CancelFunc
	done   chan error // Run has returned

	mu    sync.Mutex // protects the rest
	calls []string   // key@seconds since the start
	born  time.Time
}

// start runs reconcile in the bubble of t, until the test ends. Retries come after 1 s,
// 2 s, 4 s and so on.
func start(t *testing.T, opts enqueue.Options, reconcile func(ctx context.Context, key string) (time.Duration, error)) *running {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Hour)
	r := &running{queue: workqueue.NewTypedRateLimitingQueue(limiter), done: make(chan error, 1), born: time.Now()}
	opts.ErrorHandler = func(_ context.Context, err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.errors = append(r.errors, err.Error())
	}
	ctx, cancel := context.WithCancel(t.Context())
	r.stop = cancel
	go func() {
		r.done <- enqueue.Run(ctx, synced{}, r.queue, func(ctx context.Context, key string) (time.Duration, error) {
			r.mu.Lock()
			r.calls = append(r.calls, fmt.Sprintf("%s@%v", key, time.Since(r.born).Seconds()))
			r.mu.Unlock()
			return reconcile(ctx, key)
		}, opts)
	}()
	t.Cleanup(cancel)
	return r
}

// expect waits until nothing moves, and checks what was called since the last time.
func (r *running) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.calls, want) {
		t.Errorf("calls %q, want %q", r.calls, want)
	}
	r.calls = nil
}

// expectErrors checks what was reported since the last time.
func (r *running) expectErrors(t *testing.T, want ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.errors, want) {
		t.Errorf("reported %q, want %q", r.errors, want)
	}
	r.errors = nil
}

// stopped stops Run and checks that it returns nil without any time passing.
func (r *running) stopped(t *testing.T) {
	t.Helper()
	r.stop()
	synctest.Wait()
	select {
	case err := <-r.done:
		if err != nil {
			t.Errorf("Run returned %v", err)
		}
	default:
		t.Error("Run has not returned")
	}
}

// Ten updates of an object while it is being reconciled lead to exactly one more call,
// through a real informer, and never to two at once.
func TestTenUpdatesMeanwhileAreOneMoreReconcile(t *testing.T) {
	for _, workers := range []int{1, 8} {
		t.Run(fmt.Sprintf("workers=%d", workers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				queue := enqueue.NewQueue[types.NamespacedName]("")
				inf, src := informertest.Start[*corev1.Pod](t)
				if _, err := inf.AddWatcher(enqueue.Object[*corev1.Pod](queue), informer.WatcherOptions{}); err != nil {
					t.Fatal(err)
				}
				var calls, now atomic.Int32
				seen := ""
				release := make(chan struct{})
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error)
				go func() {
					done <- enqueue.Run(ctx, inf, queue, func(_ context.Context, key types.NamespacedName) (time.Duration, error) {
						if now.Add(1) > 1 {
							t.Error("two calls for one object at once")
						}
						defer now.Add(-1)
						calls.Add(1)
						p, _, err := inf.Get(key)
						seen = p.Spec.NodeName
						<-release
						return 0, err
					}, enqueue.Options{Workers: workers})
				}()
				src.Apply(pod("p"))
				synctest.Wait()
				if n := calls.Load(); n != 1 {
					t.Fatalf("%d calls for an add", n)
				}
				for n := range 10 {
					src.Apply(pod("p", func(p *corev1.Pod) { p.Spec.NodeName = fmt.Sprint(n) }))
					synctest.Wait() // each update is an event of its own
				}
				close(release)
				synctest.Wait()
				if n := calls.Load(); n != 2 || seen != "9" {
					t.Errorf("%d calls, the last for state %q, want 2 and 9", n, seen)
				}
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A key that fails waits for the rate limiter alone, also with a single worker.
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

// After a success the failures are counted, and waited for, anew.
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

func TestAgainAfterATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var again time.Duration
		r := start(t, enqueue.Options{}, func(context.Context, string) (time.Duration, error) {
			defer func() { again = 0 }()
			return again, nil
		})
		r.queue.Add("never")
		time.Sleep(time.Hour)
		r.expect(t, "never@0")
		again = 5 * time.Minute
		r.queue.Add("later")
		time.Sleep(time.Hour)
		r.expect(t, "later@3600", "later@3900")
		again = -time.Second // what was to be done a second ago
		r.queue.Add("now")
		time.Sleep(time.Hour)
		r.expect(t, "now@7200", "now@7200")
		again = 5 * time.Minute
		r.queue.Add("sooner")
		time.Sleep(time.Minute)
		r.queue.Add("sooner")
		time.Sleep(time.Hour)
		r.expect(t, "sooner@10800", "sooner@10860", "sooner@11100")
		r.stopped(t)
	})
}

// A time that was asked for earlier stays; one that is later does not put it off. A
// success that asks for another time forgets the failures before it.
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

// A conflict is tried again as any failure, and reported when it was not the first.
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

// Many failures of others do not make a key wait that fails for the first time.
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
		if calls["new"] != 4 { // at once, after 5, 15 and 35 ms
			t.Errorf("%d calls for a new key within 36 ms, want 4", calls["new"])
		}
	})
}

// uncounted is a rate limiter that counts nothing, as the one with a bucket for all keys.
type uncounted struct{}

func (uncounted) When(string) time.Duration { return time.Second }
func (uncounted) Forget(string)             {}
func (uncounted) NumRequeues(string) int    { return 0 }

// Where nobody counts, or it is the last attempt, a conflict is reported at once.
func TestAConflictThatMayNotBeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conflict := apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "p", errors.New("too old"))
		for _, test := range []struct {
			limiter workqueue.TypedRateLimiter[string]
			err     error
			want    int
		}{
			{uncounted{}, conflict, 60},
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

// NotFound is a failure like others: what was to be changed has gone, and the next
// attempt finds that it has.
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

// What fails for good after it has failed otherwise is forgotten, with its count.
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

// As many keys as there are workers are reconciled at once, and no more.
func TestWorkers(t *testing.T) {
	for workers, want := range map[int]int{0: 1, 1: 1, 3: 3} {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, enqueue.Options{Workers: workers}, func(ctx context.Context, _ string) (time.Duration, error) {
				<-ctx.Done()
				return 0, ctx.Err()
			})
			for n := range 5 {
				r.queue.Add(fmt.Sprint(n))
			}
			synctest.Wait()
			r.mu.Lock()
			if len(r.calls) != want {
				t.Errorf("%d calls at once with %d workers", len(r.calls), workers)
			}
			r.mu.Unlock()
			r.stopped(t)
		})
	}
}

// Without RecoverPanics a panic ends the process: of a test, another one.
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

// Without an ErrorHandler, failures are logged, with the stack of a panic.
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

// Nothing is called before the informers, and their watchers, have synced.
func TestRunWaitsForSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := enqueue.NewQueue[types.NamespacedName]("")
		src := informertest.NewSource(pod("a"), pod("b"))
		release := src.HoldList()
		src.SetWatchList(informertest.WatchListRejected)
		inf, err := informer.New(src, informer.Options[*corev1.Pod]{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := inf.AddWatcher(enqueue.Object[*corev1.Pod](queue), informer.WatcherOptions{}); err != nil {
			t.Fatal(err)
		}
		var group informer.Group
		if err := group.Add(inf); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var informers sync.WaitGroup
		informers.Go(func() { _ = group.Run(ctx) })
		queue.Add(types.NamespacedName{Name: "early"})
		var calls atomic.Int32
		informers.Go(func() {
			err := enqueue.Run(ctx, &group, queue, func(context.Context, types.NamespacedName) (time.Duration, error) {
				if n := queue.Len(); calls.Add(1) == 1 && n != 2 {
					t.Errorf("%d keys wait at the first call, want 2", n)
				}
				return 0, nil
			}, enqueue.Options{})
			if err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Minute)
		if calls.Load() > 0 {
			t.Error("called before the informer has synced")
		}
		release()
		synctest.Wait()
		if calls.Load() != 3 {
			t.Errorf("%d calls, want 3", calls.Load())
		}
		stop()
		informers.Wait()
	})
}

// Informers that stop before they have synced are an error; the end of ctx is none, but
// the log says who was late.
func TestInformersThatDoNotSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
		for _, cause := range []string{"ctx ends", "the informer stops"} {
			queue := enqueue.NewQueue[string]("")
			src := informertest.NewSource[*corev1.Pod]()
			src.HoldList()
			src.SetWatchList(informertest.WatchListRejected)
			inf, err := informer.New(src, informer.Options[*corev1.Pod]{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
			feeding, stopInformer := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { _ = inf.Run(feeding) })
			running.Go(func() {
				err = enqueue.Run(ctx, inf, queue, func(context.Context, string) (time.Duration, error) {
					t.Error("called")
					return 0, nil
				}, enqueue.Options{Name: "pod"})
			})
			synctest.Wait()
			var late *informer.SyncError
			if cause == "ctx ends" {
				stop()
				synctest.Wait()
				log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
				if want := `Stopped before the informers have synced queue="pod" reason="informer Pod: context canceled`; err != nil || !strings.Contains(log, want) {
					t.Errorf("%s: Run returned %v, the log is\n%s", cause, err, log)
				}
			} else {
				stopInformer()
				synctest.Wait()
				if !errors.As(err, &late) || !errors.Is(err, informer.ErrStopped) || !strings.HasPrefix(err.Error(), "enqueue: Run: pod: informer Pod") {
					t.Errorf("%s: Run returned %v", cause, err)
				}
			}
			if !queue.ShuttingDown() {
				t.Errorf("%s: the queue is not shut down", cause)
			}
			stop()
			stopInformer()
			running.Wait()
		}
	})
}

func TestRunRefusesBadArguments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := enqueue.NewQueue[string]("")
		defer queue.ShutDown()
		nop := func(context.Context, string) (time.Duration, error) { return 0, nil }
		used := enqueue.NewQueue[string]("")
		used.ShutDown()
		var none *informer.Group
		for want, err := range map[string]error{
			"informers is nil":                         enqueue.Run(t.Context(), nil, queue, nop, enqueue.Options{}),
			"queue is nil":                             enqueue.Run(t.Context(), synced{}, nil, nop, enqueue.Options{}),
			"reconcile is nil":                         enqueue.Run(t.Context(), synced{}, queue, nil, enqueue.Options{}),
			"Options.Workers is -1, less than 0":       enqueue.Run(t.Context(), synced{}, queue, nop, enqueue.Options{Workers: -1}),
			"Options.DrainTimeout is -1s, less than 0": enqueue.Run(t.Context(), synced{}, queue, nop, enqueue.Options{DrainTimeout: -time.Second}),
			"queue has been shut down":                 enqueue.Run(t.Context(), synced{}, used, nop, enqueue.Options{}),
		} {
			if want = "enqueue: Run: " + want; err == nil || err.Error() != want {
				t.Errorf("error %v, want %s", err, want)
			}
		}
		if err := enqueue.Run(t.Context(), none, queue, nop, enqueue.Options{}); err == nil || err.Error() != "enqueue: Run: informers is nil" {
			t.Errorf("a typed nil: %v", err)
		}
		if queue.ShuttingDown() {
			t.Error("a queue that was not run is shut down")
		}
	})
}

// Whatever fails, panics or asks for another time: for one key there is never more than
// one call at once, and after the last event of each there is a call that succeeds.
func TestEveryKeyIsReconciledInTheEnd(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			var mu sync.Mutex
			busy, wanted, reached := map[string]bool{}, map[string]int{}, map[string]int{}
			chance := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return random.IntN(n)
			}
			r := start(t, enqueue.Options{Workers: 1 + chance(8), RecoverPanics: true}, func(_ context.Context, key string) (time.Duration, error) {
				mu.Lock()
				if busy[key] {
					t.Errorf("seed %d: two calls for %s at once", seed, key)
				}
				busy[key] = true
				state := wanted[key]
				mu.Unlock()
				time.Sleep(time.Duration(chance(5)) * time.Millisecond)
				defer func() {
					mu.Lock()
					defer mu.Unlock()
					busy[key] = false
				}()
				switch chance(8) {
				case 0:
					return 0, errors.New("no")
				case 1:
					panic("oh no")
				}
				mu.Lock()
				defer mu.Unlock()
				reached[key] = state
				return time.Duration(random.IntN(3)-1) * time.Millisecond * time.Duration(min(1, state%7)), nil
			})
			for range 500 {
				key := fmt.Sprint(chance(20))
				mu.Lock()
				wanted[key]++
				mu.Unlock()
				r.queue.Add(key)
				time.Sleep(time.Duration(chance(1000)) * time.Microsecond)
			}
			time.Sleep(24 * time.Hour)
			mu.Lock()
			for key, state := range wanted {
				if reached[key] != state {
					t.Errorf("seed %d: %s has state %d, want %d", seed, key, reached[key], state)
				}
			}
			mu.Unlock()
			r.stopped(t)
		})
	}
}
