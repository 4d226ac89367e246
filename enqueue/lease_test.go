package enqueue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// leader is an elected controller of 100 Pods with calls of a second.
type leader struct {
	*running
	quit context.CancelCauseFunc // ends the program
	lose func()

	mu     sync.Mutex // protects the rest
	ended  time.Time  // the lease is lost, or the program stops
	late   int        // calls that began after that
	causes []error    // of the ctxs of calls that were cancelled
}

func startLeader(t *testing.T, opts enqueue.Options, wired bool) *leader {
	elected, lost := make(chan struct{}), make(chan struct{})
	close(elected)
	opts.Elected = elected
	if wired {
		opts.Lost = lost
	}
	l := &leader{lose: func() { close(lost) }}
	var pods []*corev1.Pod
	for i := range 100 {
		pods = append(pods, pod(fmt.Sprint("p", i)))
	}
	l.running = prepare(t, opts, func(ctx context.Context, _ string) (time.Duration, error) {
		l.mu.Lock()
		if !l.ended.IsZero() {
			l.late++
		}
		l.mu.Unlock()
		select {
		case <-time.After(time.Second):
			return 0, nil
		case <-ctx.Done():
			l.mu.Lock()
			defer l.mu.Unlock()
			l.causes = append(l.causes, context.Cause(ctx))
			return 0, context.Cause(ctx)
		}
	}, pods...)
	ctx, quit := context.WithCancelCause(t.Context())
	l.quit = quit
	l.run(ctx)
	return l
}

// end notes the time, and ends the leader.
func (l *leader) end(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = time.Now()
	f()
}

// DrainTimeout is for a stop with the lease still held. From the loss of the lease on, no call begins.
func TestNoCallBeginsWithoutTheLease(t *testing.T) {
	for name, test := range map[string]struct {
		wired bool // Options.Lost is set
		end   func(l *leader)
		late  int           // calls that may begin
		lasts time.Duration // until Run returns
		lost  bool          // Run returns ErrLeaseLost
		held  bool          // no call is cancelled by a lost lease
	}{
		"the lease is lost":                         {wired: true, end: func(l *leader) { l.end(l.lose) }, lost: true},
		"the program stops, the lease is not wired": {end: func(l *leader) { l.end(func() { l.quit(nil) }) }},
		"the cause":         {wired: true, end: func(l *leader) { l.end(func() { l.quit(fmt.Errorf("oh: %w", informer.ErrLeaseLost)) }) }},
		"the program stops": {wired: true, end: func(l *leader) { l.end(func() { l.quit(nil) }) }, late: 8, lasts: 4 * time.Second, held: true},
		"the lease is lost during the drain": {wired: true, end: func(l *leader) {
			l.quit(nil)
			time.Sleep(2 * time.Second)
			l.end(l.lose)
		}},
	} {
		testkit.InBubble(t, name, func(t *testing.T) {
			l := startLeader(t, enqueue.Options{DrainTimeout: 4 * time.Second, Workers: 2}, test.wired)
			time.Sleep(10*time.Second + time.Second/2)
			test.end(l)
			err := <-l.done
			l.mu.Lock()
			defer l.mu.Unlock()
			if lasts := time.Since(l.ended); l.late != test.late || lasts != test.lasts {
				t.Errorf("%d calls began, and Run returned after %v, want %d and %v", l.late, lasts, test.late, test.lasts)
			}
			if errors.Is(err, informer.ErrLeaseLost) != test.lost || err != nil && !test.lost {
				t.Errorf("Run returned %v", err)
			}
			if len(l.causes) != 2 || errors.Is(l.causes[0], informer.ErrLeaseLost) == test.held {
				t.Errorf("the causes are %v", l.causes)
			}
			if h := l.Health(); h.Failed > 0 {
				t.Errorf("%d cancelled calls are failures", h.Failed)
			}
		})
	}
}

func TestALeaseLostBeforeTheWorkMakesNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := make(chan struct{})
		close(lost)
		l := startLeader(t, enqueue.Options{Lost: lost}, false)
		if err := <-l.done; !errors.Is(err, informer.ErrLeaseLost) || len(l.calls) > 0 {
			t.Errorf("Run returned %v after %d calls", err, len(l.calls))
		}
	})
}

// A program must end soon after the loss, whatever its controller waits for.
func TestALostLeaseEndsTheWaitsBeforeTheWork(t *testing.T) {
	const informers, reads, election, keys = "for an informer", "for Options.Reads", "for the election", "for the keys of all objects"
	for _, waits := range []string{informers, reads, election, keys} {
		testkit.InBubble(t, waits, func(t *testing.T) {
			elected, lost := make(chan struct{}), make(chan struct{})
			opts := enqueue.Options{Elected: elected, Lost: lost}
			if waits != election {
				close(elected)
			}
			if waits == reads {
				opts.Reads = []informer.Member{newPods(t, "never run", informertest.NewSource[*corev1.Pod]())}
			}
			r := prepare(t, opts, returning(), pod("a"))
			switch waits {
			case informers:
				r.source.SetFaults(informertest.Faults{HoldLists: true, RejectWatchList: true})
			case keys:
				r.keys = func(ctx context.Context, _ *corev1.Pod) ([]string, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				}
			}
			r.run(t.Context())
			testkit.SleepBubble(time.Minute)
			close(lost)
			synctest.Wait()
			select {
			case err := <-r.done:
				if !errors.Is(err, informer.ErrLeaseLost) {
					t.Errorf("Run returned %v", err)
				}
			default:
				t.Error("Run goes on")
			}
			r.expect()
		})
	}
}

// A success after the loss does not count: another replica may have begun meanwhile.
func TestASuccessWithoutTheLeaseHandlesNoDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		p := newProgram(t, pod("a"))
		ended := c.join(p, "first")
		p.start()
		p.use(func(ctx context.Context, _ string, _ int) (time.Duration, error) {
			<-ctx.Done()
			return 0, nil
		})
		p.delete("a")
		c.down.Store(true)
		if err := <-ended; !errors.Is(err, informer.ErrLeaseLost) {
			t.Errorf("the program returned %v", err)
		}
		p.tombstones(1)
	})
}

// The first cause of a ctx stays, so it does not show a loss in the middle of a stop.
func TestALeaseLostDuringAStopIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		p := newProgram(t, pod("a"))
		p.opts.DrainTimeout = time.Minute
		p.use(func(ctx context.Context, _ string, _ int) (time.Duration, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		ended := c.join(p, "first")
		p.start()
		go p.stop()
		time.Sleep(time.Second)
		began := time.Now()
		c.down.Store(true)
		if err := <-ended; !errors.Is(err, informer.ErrLeaseLost) || time.Since(began) > 15*time.Second {
			t.Errorf("the program returned %v after %v", err, time.Since(began))
		}
		synctest.Wait()
	})
}

// A replica with a call that ignores its ctx neither works nor stands for election.
func TestAHungCallDoesNotKeepALostReplicaAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		p := newProgram(t, pod("a"))
		ended := c.join(p, "first")
		release := make(chan struct{})
		p.use(func(context.Context, string, int) (time.Duration, error) {
			<-release
			return 0, nil
		})
		p.start()
		c.down.Store(true)
		time.Sleep(30 * time.Second)
		select {
		case err := <-ended:
			if !errors.Is(err, informer.ErrLeaseLost) || !strings.Contains(err.Error(), "a call has not returned") {
				t.Errorf("the program returned %v", err)
			}
		default:
			t.Error("the program has not ended")
		}
		if err := p.group.Live(); err != nil { // a program that is wired in another way
			t.Errorf("Live fails at once: %v", err)
		}
		time.Sleep(time.Minute)
		if err := p.group.Live(); err == nil || !strings.Contains(err.Error(), "controller website: for 1m") {
			t.Errorf("Live: %v", err)
		}
		close(release)
		synctest.Wait()
		if err := p.group.Live(); err != nil {
			t.Errorf("Live after the call has returned: %v", err)
		}
	})
}

func TestLiveSeesWorkersThatHang(t *testing.T) {
	for _, test := range []struct {
		workers int
		limit   time.Duration
		pods    int
		want    time.Duration // until Live fails; 0 for never
	}{
		{2, 0, 3, time.Hour}, {2, time.Minute, 3, time.Minute}, {2, -1, 3, 0},
		{2, 0, 2, 0}, // nothing waits for them
		{4, 0, 3, 0}, // one worker is free
	} {
		testkit.InBubble(t, fmt.Sprintf("%+v", test), func(t *testing.T) {
			r := start(t, enqueue.Options{Workers: test.workers, HangTimeout: test.limit}, hangs)
			r.add([]string{"a", "b", "c"}[:test.pods]...)
			synctest.Wait()
			for since := time.Duration(0); since < 24*time.Hour; since += time.Minute {
				if err := r.Health().Live(); (err != nil) != (test.want > 0 && since >= test.want) {
					t.Fatalf("after %v: %v", since, err)
				}
				time.Sleep(time.Minute)
			}
		})
	}
}

// hangs is a call that returns when it must.
func hangs(ctx context.Context, _ string) (time.Duration, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

// One worker hangs. The other one is always in a call or in the ErrorHandler, and keys wait for it.
func TestLiveDoesNotFailWhileOneWorkerContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, enqueue.Options{
			Workers: 2, MaxDelay: time.Second, ErrorHandler: func(context.Context, error) { time.Sleep(10 * time.Minute) },
		}, func(ctx context.Context, key string) (time.Duration, error) {
			if key == "a" {
				return hangs(ctx, key)
			}
			time.Sleep(10 * time.Minute)
			return 0, errors.New("no luck")
		})
		r.add("a", "b", "c", "d")
		for range 24 {
			time.Sleep(15 * time.Minute)
			synctest.Wait()
			if h := r.Health(); h.Live() != nil || h.Queued == 0 {
				t.Fatalf("Live: %v, with %d keys that wait, want no error and some keys", h.Live(), h.Queued)
			}
		}
	})
}

// The cause of a group's end reaches its informers.
func TestWatchersDoNotDrainWithoutTheLease(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			pods, err := informer.NewFrom(informertest.NewSource(pod("a")), informer.Options[*corev1.Pod]{DrainTimeout: time.Hour})
			testkit.Must(t, err)
			_, err = pods.AddWatcher(informer.WatcherFunc[*corev1.Pod](func(ctx context.Context, _ informer.Event[*corev1.Pod]) error {
				select {
				case <-ctx.Done():
				case <-time.After(time.Minute):
				}
				return nil
			}), informer.WatcherOptions{})
			var group informer.Group
			testkit.Must(t, errors.Join(err, group.Add(pods)))
			ctx, end := context.WithCancelCause(t.Context())
			done := make(chan error, 1)
			go func() { done <- group.Run(ctx) }()
			synctest.Wait()
			var cause error
			if lost {
				cause = informer.ErrLeaseLost
			}
			ended := time.Now()
			end(cause)
			if err := <-done; err != nil || (time.Since(ended) == 0) != lost {
				t.Errorf("lost %v: Run returned %v after %v", lost, err, time.Since(ended))
			}
		})
	}
}

// The owners have no namespace, and Owners.ClusterScoped is forgotten, or the reverse.
func TestAKeyOfTheWrongScopeIsReportedOnce(t *testing.T) {
	kind := schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}
	clusterScoped := func(pod *corev1.Pod) { pod.Namespace = "" }
	child := ownedBy("owner")
	for name, test := range map[string]struct {
		owners    []*corev1.Pod // ReplicaSets, as far as the controller knows
		scoped    bool
		watches   bool
		want      int64 // calls for the wrong key
		wantError string
	}{
		"ClusterScoped is forgotten": {[]*corev1.Pod{pod("owner", clusterScoped)}, false, false, 0, `controller website: ns/owner: no object of For can have such a key`},
		"ClusterScoped is wrong":     {[]*corev1.Pod{pod("owner")}, true, false, 0, `controller website: /owner: no object of For can have such a key`},
		"with a Watches":             {[]*corev1.Pod{pod("owner", clusterScoped)}, false, true, 3, `controller website: ns/owner: no object`},
		"both scopes":                {[]*corev1.Pod{pod("owner", clusterScoped), pod("other")}, false, false, 3, ""},
		"no object":                  {nil, false, false, 0, ""}, // each scope is as good as the other
		"the right scope":            {[]*corev1.Pod{pod("owner", clusterScoped)}, true, false, 0, ""},
	} {
		testkit.InBubble(t, name, func(t *testing.T) {
			owners := newPods(t, "owners", informertest.NewSource(test.owners...))
			source := informertest.NewSource(pod("child", child))
			children := newPods(t, "children", source)
			sources := []enqueue.Source[key]{enqueue.Owns(children, enqueue.Owners{Kind: kind, ClusterScoped: test.scoped}), enqueue.For(owners)}
			if test.watches {
				sources = append(sources, enqueue.Watches(children, func(context.Context, *corev1.Pod) ([]key, error) { return nil, nil }))
			}
			var reports testkit.ErrorLog
			var wrong atomic.Int64
			c := newController(t, func(_ context.Context, k key) (time.Duration, error) {
				if k.Name == "owner" && len(test.owners) > 0 && k.Namespace != test.owners[0].Namespace {
					wrong.Add(1)
				}
				return 0, nil
			}, enqueue.Options{Name: "website", Workers: 4, ErrorHandler: reports.Handle}, sources...)
			runGroup(t, &informer.Group{}, owners, children, c)
			time.Sleep(time.Minute)
			for range 2 {
				source.Apply(pod("child", child, func(pod *corev1.Pod) { pod.Labels = map[string]string{"at": time.Now().String()} }))
				time.Sleep(time.Minute)
			}
			if wrong.Load() != test.want {
				t.Errorf("%d calls for the wrong key, want %d", wrong.Load(), test.want)
			}
			reported := reports.Take()
			if len(reported) > 1 || (len(reported) == 1) != (test.wantError != "") || !strings.HasPrefix(fmt.Sprint(errors.Join(reported...)), test.wantError) {
				t.Errorf("reported %v, want %q", reported, test.wantError)
			}
		})
	}
}

// A delete from before the start comes without an add, and the objects of the other For have no namespace.
func TestADeleteOfASecondForIsNeverOfTheWrongScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t, pod("a"))
		p.start()
		p.use(fail)
		p.delete("a")
		p.stop()
		p.use(succeed)
		nodes := newPods(t, "nodes", informertest.NewSource(pod("node", func(pod *corev1.Pod) { pod.Namespace = "" })))
		informertest.Run(t, nodes)
		p.sources = func(pods *podInformer) []enqueue.Source[key] {
			return []enqueue.Source[key]{enqueue.For(nodes), enqueue.For(pods)}
		}
		p.start()
		p.called("a", "node")
		time.Sleep(time.Minute) // for so long, another watcher could inherit the delete
		p.tombstones(0)
	})
}

func TestTheScopeOfAnInformerOverNamespacesIsKnown(t *testing.T) {
	pods, err := informer.NewInNamespaces(fake.NewClientset().CoreV1().Pods, []string{"ns", "other"}, informer.Options[*corev1.Pod]{})
	testkit.Must(t, err)
	_, err = enqueue.NewController(nothing, enqueue.Options{Name: "website"},
		enqueue.Owns(pods, enqueue.Owners{Kind: schema.GroupKind{Kind: "Node"}, ClusterScoped: true}), enqueue.For(pods))
	if err == nil || !strings.Contains(err.Error(), "source 1: Owns: no object of For can have such a key") {
		t.Errorf("NewController returned %v", err)
	}
}
