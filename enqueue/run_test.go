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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	for _, f := range change {
		f(p)
	}
	return p
}

func ownedBy(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, Controller: new(true)}}
	}
}

// running is a controller of Pods, with their names as keys. No group runs it, and its informer ends
// with the test.
type running struct {
	*enqueue.Controller[string]
	t      *testing.T
	source *informertest.Source[*corev1.Pod]
	pods   *podInformer
	keys   func(ctx context.Context, pod *corev1.Pod) ([]string, error)
	feed   context.CancelFunc // ends the informer
	stop   context.CancelFunc // ends the controller
	done   chan error         // gets the result of Run
	born   time.Time

	mu       sync.Mutex // protects the rest
	added    int
	calls    []string // key@seconds since the start
	reported []error  // the errors that ErrorHandler got
}

// prepare makes a controller. Unless opts has pauses, retries come after 1 s, 2 s, 4 s and so on.
func prepare(t *testing.T, opts enqueue.Options, reconcile func(ctx context.Context, key string) (time.Duration, error), pods ...*corev1.Pod) *running {
	t.Helper()
	r := &running{t: t, source: informertest.NewSource(pods...), done: make(chan error, 1), born: time.Now()}
	r.pods = newPods(t, "pods", r.source)
	r.keys = func(_ context.Context, pod *corev1.Pod) ([]string, error) { return []string{pod.Name}, nil }
	opts.Name = "website"
	if opts.BaseDelay == 0 && opts.MaxDelay == 0 {
		opts.BaseDelay, opts.MaxDelay = time.Second, time.Hour
	}
	if opts.ErrorHandler == nil {
		opts.ErrorHandler = func(ctx context.Context, err error) {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				t.Error("CallTimeout has ended the ctx of ErrorHandler")
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.reported = append(r.reported, err)
		}
	}
	var err error
	r.Controller, err = enqueue.NewController(func(ctx context.Context, key string) (time.Duration, error) {
		r.mu.Lock()
		r.calls = append(r.calls, fmt.Sprintf("%s@%v", key, time.Since(r.born).Seconds()))
		r.mu.Unlock()
		return reconcile(ctx, key)
	}, opts, enqueue.Watches(r.pods, func(ctx context.Context, pod *corev1.Pod) ([]string, error) { return r.keys(ctx, pod) }))
	testkit.Must(t, err)
	return r
}

// run runs the informer until the end of the test, and when it has synced, the controller until ctx ends.
func (r *running) run(ctx context.Context) *running {
	feeding, feed := context.WithCancel(r.t.Context())
	ctx, stop := context.WithCancel(ctx)
	r.feed, r.stop = feed, stop
	go func() { _ = r.pods.Run(feeding) }()
	synctest.Wait()
	go func() {
		defer close(r.done)
		r.done <- r.Run(ctx)
	}()
	synctest.Wait()
	r.t.Cleanup(func() {
		stop()
		r.wait()
		feed()
	})
	return r
}

// wait waits until the controller has stopped.
func (r *running) wait() {
	r.t.Helper()
	if err := <-r.done; err != nil {
		r.t.Errorf("Run returned %v", err)
	}
}

func start(t *testing.T, opts enqueue.Options, reconcile func(ctx context.Context, key string) (time.Duration, error)) *running {
	t.Helper()
	return prepare(t, opts, reconcile).run(t.Context())
}

// add has an event put each key into the queue.
func (r *running) add(keys ...string) {
	for _, key := range keys {
		r.mu.Lock()
		r.added++
		version := fmt.Sprint(r.added)
		r.mu.Unlock()
		r.source.Apply(pod(key, func(p *corev1.Pod) { p.Spec.NodeName = version }))
	}
}

// expect waits until nothing moves, and checks the calls since the last check.
func (r *running) expect(want ...string) {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.calls, want) {
		r.t.Errorf("calls %q, want %q", r.calls, want)
	}
	r.calls = nil
}

// expectErrors checks the errors that were reported since the last check.
func (r *running) expectErrors(want ...string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var got []string
	for _, err := range r.reported {
		got = append(got, strings.TrimPrefix(err.Error(), "website "))
	}
	if !slices.Equal(got, want) {
		r.t.Errorf("reported %q, want %q", got, want)
	}
	r.reported = nil
}

// logged returns a ctx whose logger keeps its lines, and a function that returns them.
func logged(ctx context.Context, t *testing.T) (context.Context, func() string) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	return klog.NewContext(ctx, logger), logger.GetSink().(ktesting.Underlier).GetBuffer().String
}

// Ten updates of an object while it is being reconciled lead to exactly one more call, and
// never to two calls at once.
func TestTenUpdatesMeanwhileAreOneMoreReconcile(t *testing.T) {
	for _, workers := range []int{1, 8} {
		synctest.Test(t, func(t *testing.T) {
			var now atomic.Int32
			seen, release := "", make(chan struct{})
			var r *running
			r = start(t, enqueue.Options{Workers: workers}, func(context.Context, string) (time.Duration, error) {
				if now.Add(1) > 1 {
					t.Error("two calls for one object at once")
				}
				defer now.Add(-1)
				p, _, err := r.pods.Get(key{Namespace: "ns", Name: "p"})
				seen = p.Spec.NodeName
				<-release
				return 0, err
			})
			r.add("p")
			r.expect("p@0")
			for range 10 {
				r.add("p")
				synctest.Wait() // so that each update is an event of its own
			}
			close(release)
			if r.expect("p@0"); seen != "11" {
				t.Errorf("with %d workers, the last call is for state %q, want 11", workers, seen)
			}
		})
	}
}

// At most as many keys as there are workers are reconciled at once.
func TestWorkers(t *testing.T) {
	for workers, want := range map[int]int{0: 1, 1: 1, 3: 3} {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, enqueue.Options{Workers: workers}, hangs)
			r.add("0", "1", "2", "3", "4")
			synctest.Wait()
			if h := r.Health(); h.Busy != want || h.Queued != 5-want {
				t.Errorf("%d calls at once with %d workers, and %d keys wait", h.Busy, workers, h.Queued)
			}
		})
	}
}

// Run returns an error if informers stop before they have synced. It returns none if ctx ends,
// but the log then names the informer that was late.
func TestInformersThatDoNotSync(t *testing.T) {
	for _, stops := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := prepare(t, enqueue.Options{}, func(context.Context, string) (time.Duration, error) {
				t.Error("called")
				return 0, nil
			})
			r.source.SetFaults(informertest.Faults{HoldLists: true, RejectWatchList: true})
			ctx, log := logged(t.Context(), t)
			r.run(ctx)
			if stops {
				r.feed()
				err := <-r.done
				if late := new(informer.SyncError); !errors.As(err, &late) || !errors.Is(err, informer.ErrStopped) || !strings.Contains(err.Error(), "website") {
					t.Errorf("the informer stops: Run returned %v", err)
				}
				return
			}
			r.stop()
			synctest.Wait()
			if want := `Stopped before the workers have started queue="website" reason="`; !strings.Contains(log(), want) || !strings.Contains(log(), "informer pods") {
				t.Errorf("ctx ends: the log lacks %s:\n%s", want, log())
			}
		})
	}
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
				r.add(key)
				time.Sleep(time.Duration(chance(1000)) * time.Microsecond)
			}
			time.Sleep(24 * time.Hour)
			mu.Lock()
			defer mu.Unlock()
			for key, state := range wanted {
				if reached[key] != state {
					t.Errorf("seed %d: %s has state %d, want %d", seed, key, reached[key], state)
				}
			}
		})
	}
}
