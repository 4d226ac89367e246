package enqueue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
)

// If the queue is shut down, Run reconciles the keys in it, also under load, and returns.
func TestAQueueThatIsShutDownIsEmptied(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0)) // decides which goroutine gets mu
			var mu sync.Mutex
			seen, bad := map[string]bool{}, 0
			chance := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return random.IntN(n)
			}
			r := start(t, enqueue.Options{Workers: 1 + chance(8)}, func(ctx context.Context, key string) (time.Duration, error) {
				time.Sleep(time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				if ctx.Err() != nil {
					bad++
				}
				seen[key] = true
				if random.IntN(4) == 0 {
					return 0, errors.New("no")
				}
				return time.Duration(random.IntN(3) - 1), nil
			})
			added := map[string]bool{}
			for range 300 {
				key := fmt.Sprint(chance(100))
				r.queue.Add(key)
				added[key] = true
				time.Sleep(time.Duration(chance(300)) * time.Microsecond)
			}
			r.queue.ShutDown()
			if err := <-r.done; err != nil {
				t.Error(err)
			}
			if len(seen) != len(added) || bad > 0 {
				t.Errorf("seed %d: %d keys of %d were reconciled, and %d calls had a ctx that had ended", seed, len(seen), len(added), bad)
			}
		})
	}
}

// endless is a ctx of another type than those of package context, which starts a goroutine for
// each ctx that is made from an endless one, until that ctx is cancelled.
type endless struct {
	context.Context
	done chan struct{}
}

func (e endless) Done() <-chan struct{} { return e.done }

// If somebody else shuts the queue down, the ctx of Run lives on, and Run leaves nothing behind
// at it: a program may run any number of queues under one ctx.
func TestARunThatIsOverLeavesNothingAtItsContext(t *testing.T) {
	for _, drain := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			ctx := endless{t.Context(), make(chan struct{})}
			defer close(ctx.done)
			others := goleak.IgnoreCurrent()
			queue := enqueue.NewQueue[string]("")
			queue.Add("k")
			err := enqueue.Run(ctx, synced{}, queue, func(context.Context, string) (time.Duration, error) {
				queue.ShutDown()
				return 0, nil
			}, enqueue.Options{DrainTimeout: drain})
			if err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute) // the goroutines of the queue end
			if left := goleak.Find(others); left != nil {
				t.Errorf("with DrainTimeout %v: %v", drain, left)
			}
		})
	}
}

// Without DrainTimeout the end of ctx ends calls and queue, even if keys wait for a retry, for
// their time or for a worker.
func TestAStopDuringARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, enqueue.Options{}, func(ctx context.Context, key string) (time.Duration, error) {
			switch key {
			case "fails":
				return 0, errors.New("no")
			case "later":
				return time.Minute, nil
			}
			<-ctx.Done()
			return 0, fmt.Errorf("asking: %w", ctx.Err())
		})
		for _, key := range []string{"fails", "later", "blocks", "waits"} {
			r.queue.Add(key)
		}
		r.expect(t, "fails@0", "later@0", "blocks@0")
		r.expectErrors(t, "reconcile fails: no")
		r.stopped(t)
		r.expect(t)
		r.expectErrors(t) // a cancelled call is no failure
	})
}

// With DrainTimeout calls go on, and the keys in the queue are reconciled. Keys that wait for
// a later time are not.
func TestAStopThatDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, enqueue.Options{DrainTimeout: 10 * time.Second}, func(ctx context.Context, key string) (time.Duration, error) {
			if key == "fails" {
				return 0, errors.New("no")
			}
			select {
			case <-time.After(2 * time.Second):
			case <-ctx.Done():
			}
			return 0, ctx.Err()
		})
		for _, key := range []string{"a", "b", "c", "fails"} {
			r.queue.Add(key)
		}
		r.expect(t, "a@0")
		r.stop()
		synctest.Wait()
		r.queue.Add("too late")
		if err := <-r.done; err != nil {
			t.Error(err)
		}
		r.expect(t, "b@2", "c@4", "fails@6")
		r.expectErrors(t, "reconcile fails: no (given up)")
	})
}

// Calls during a drain see new changes: the informers of runDraining, which is in
// docs/operator.md, stop after the workers.
func TestADrainReadsWhatHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(pod("a"), pod("b"))
		inf, err := informer.NewFrom(src, informer.Options[*corev1.Pod]{})
		if err != nil {
			t.Fatal(err)
		}
		queue := enqueue.NewQueue[types.NamespacedName]("")
		if _, err := inf.AddWatcher(enqueue.Object[*corev1.Pod](queue), informer.WatcherOptions{}); err != nil {
			t.Fatal(err)
		}
		var group informer.Group
		if err := group.Add(inf); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var seen []string
		done := make(chan error)
		go func() {
			done <- runDraining(ctx, &group, queue, func(_ context.Context, key types.NamespacedName) (time.Duration, error) {
				time.Sleep(time.Second)
				p, _, err := inf.Get(key)
				seen = append(seen, p.Spec.NodeName)
				return 0, err
			})
		}()
		synctest.Wait()
		stop()
		synctest.Wait() // from now on nothing is added to the queue
		for _, name := range []string{"a", "b"} {
			src.Apply(pod(name, func(p *corev1.Pod) { p.Spec.NodeName = "new" }))
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{"new", "new"}, seen); diff != "" {
			t.Errorf("states read (-want +got):\n%s", diff)
		}
	})
}

func TestADrainThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, enqueue.Options{DrainTimeout: 3 * time.Second}, func(ctx context.Context, _ string) (time.Duration, error) {
			select {
			case <-time.After(2 * time.Second):
			case <-ctx.Done():
			}
			return 0, ctx.Err()
		})
		for _, key := range []string{"a", "b", "c"} {
			r.queue.Add(key)
		}
		synctest.Wait()
		r.stop()
		if err := <-r.done; err != nil {
			t.Error(err)
		}
		r.expect(t, "a@0", "b@2") // b is cancelled after 3 s, and c does not begin
		r.expectErrors(t)
		if after := time.Since(r.born); after != 3*time.Second {
			t.Errorf("Run returned after %v", after)
		}
	})
}

// Once ctx has ended, a call that returns the error of ctx has not failed, but one that
// returns another error has. While ctx lives, context.Canceled is nothing special. The ctx of
// a drain, and of ErrorHandler, has the values of Run's ctx.
func TestErrorsAtAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type name struct{}
		var values, errs []string
		ctx, stop := context.WithCancel(context.WithValue(t.Context(), name{}, "value"))
		queue := enqueue.NewQueue[string]("")
		note := func(ctx context.Context, what string) {
			values = append(values, fmt.Sprint(what, " ", ctx.Value(name{})))
		}
		queue.Add("alive")
		queue.Add("ends")
		done := make(chan error)
		go func() {
			done <- enqueue.Run(ctx, synced{}, queue, func(ctx context.Context, key string) (time.Duration, error) {
				note(ctx, key)
				if key == "alive" {
					return 0, fmt.Errorf("of something else: %w: %w", context.Canceled, informer.ErrPermanent)
				}
				<-ctx.Done()
				return 0, errors.New("and something is wrong")
			}, enqueue.Options{DrainTimeout: time.Second, ErrorHandler: func(ctx context.Context, err error) {
				note(ctx, "ErrorHandler")
				errs = append(errs, err.Error())
			}})
		}()
		synctest.Wait()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{"alive value", "ErrorHandler value", "ends value", "ErrorHandler value"}, values); diff != "" {
			t.Errorf("values of ctx (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{
			"reconcile alive: of something else: context canceled: permanent failure (given up)",
			"reconcile ends: and something is wrong (given up)",
		}, errs); diff != "" {
			t.Errorf("reported (-want +got):\n%s", diff)
		}
	})
}

// Run logs the key of a call that does not return, and waits for the call.
func TestACallThatDoesNotReturnIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
		ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
		queue := enqueue.NewQueue[string]("")
		release := make(chan struct{})
		done := make(chan error)
		go func() {
			done <- enqueue.Run(ctx, synced{}, queue, func(ctx context.Context, key string) (time.Duration, error) {
				klog.FromContext(ctx).Info("In reconcile")
				if key == "ns/stuck" {
					<-release
				}
				return 0, nil
			}, enqueue.Options{Name: "pod", Workers: 2})
		}()
		logged := func() string { return logger.GetSink().(ktesting.Underlier).GetBuffer().String() }
		queue.Add("ns/done")
		queue.Add("ns/stuck")
		synctest.Wait()
		stop()
		time.Sleep(9 * time.Second)
		if log := logged(); strings.Contains(log, "cannot stop") {
			t.Errorf("logged too early:\n%s", log)
		}
		time.Sleep(2 * time.Second)
		select {
		case err := <-done:
			t.Errorf("Run has returned %v", err)
		default:
		}
		close(release)
		if err := <-done; err != nil {
			t.Error(err)
		}
		log := logged()
		for _, want := range []string{
			`In reconcile queue="pod" key="ns/stuck"`,
			`The workers cannot stop until calls return queue="pod" keys=["ns/stuck"]`,
		} {
			if !strings.Contains(log, want) {
				t.Errorf("the log lacks %s:\n%s", want, log)
			}
		}
	})
}
