package enqueue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
)

// synced stands for informers that have synced.
type synced struct{}

func (synced) WaitForSync(context.Context) error { return nil }

// running is a call of Run in a test, with strings as keys.
type running struct {
	queue  workqueue.TypedRateLimitingInterface[string]
	errors []string // the errors that ErrorHandler got
	stop   context.CancelFunc
	done   chan error // gets the result of Run

	mu    sync.Mutex // protects the fields below
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

// expect waits until nothing moves, and checks the calls since the last check.
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

// expectErrors checks the errors that were reported since the last check.
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

// Ten updates of an object while it is being reconciled lead to exactly one more call, and
// never to two calls at once. The events come through a real informer.
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
					synctest.Wait() // wait, so that each update is an event of its own
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
		again = -time.Second // the key was due a second ago
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

// At most as many keys as there are workers are reconciled at once.
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

// Run calls nothing before the informers and their watchers have synced.
func TestRunWaitsForSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := enqueue.NewQueue[types.NamespacedName]("")
		src := informertest.NewSource(pod("a"), pod("b"))
		src.SetFaults(informertest.Faults{HoldLists: true, RejectWatchList: true})
		release := func() { src.SetFaults(informertest.Faults{}) }
		inf, err := informer.NewFrom(src, informer.Options[*corev1.Pod]{})
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

// Run returns an error if informers stop before they have synced. It returns none if ctx ends,
// but the log then names the informer that was late.
func TestInformersThatDoNotSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
		for _, cause := range []string{"ctx ends", "the informer stops"} {
			queue := enqueue.NewQueue[string]("")
			src := informertest.NewSource[*corev1.Pod]()
			src.SetFaults(informertest.Faults{HoldLists: true, RejectWatchList: true})
			inf, err := informer.NewFrom(src, informer.Options[*corev1.Pod]{})
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
				if want := `Stopped before the workers have started queue="pod" reason="informer Pod: context canceled`; err != nil || !strings.Contains(log, want) {
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

// Whether calls fail, panic or ask for another time, a key never has more than one call at
// once, and after the last event of each key there is a call that succeeds.
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
