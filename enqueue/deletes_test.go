package enqueue_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// reconcileFunc is called with the number of the call for the name, from 1.
type reconcileFunc func(ctx context.Context, name string, call int) (time.Duration, error)

func succeed(context.Context, string, int) (time.Duration, error) { return 0, nil }

func fail(context.Context, string, int) (time.Duration, error) { return 0, errors.New("no luck") }

// program is a program with one informer over a Durable and a controller. It can be stopped and
// started again.
type program struct {
	t       *testing.T
	source  *informertest.Source[*corev1.Pod]
	durable *informertest.Durable
	opts    enqueue.Options
	// sources returns the sources of the controller; nil stands for the Pods themselves.
	sources func(pods *podInformer) []enqueue.Source[key]
	run     func(ctx context.Context, group *informer.Group) error

	mu        sync.Mutex // protects reconcile and calls
	reconcile reconcileFunc
	calls     []string // the names for which reconcile was called since the start

	pods       *podInformer
	group      *informer.Group
	controller *enqueue.Controller[key]
	stop       func() // ends the group and waits for it
}

func newProgram(t *testing.T, pods ...*corev1.Pod) *program {
	return &program{
		t: t, source: informertest.NewSource(pods...), durable: informertest.NewDurable(), opts: enqueue.Options{Name: "website"},
		reconcile: succeed, run: func(ctx context.Context, group *informer.Group) error { return group.Run(ctx) },
	}
}

// watches has the controller use a Watches with keys.
func (p *program) watches(opts informer.WatcherOptions, keys func(ctx context.Context, pod *corev1.Pod) ([]key, error)) {
	p.sources = func(pods *podInformer) []enqueue.Source[key] {
		return []enqueue.Source[key]{enqueue.Watches(pods, keys).With(opts)}
	}
}

// start starts the program and waits until it has nothing to do.
func (p *program) start() {
	p.t.Helper()
	var err error
	p.pods, err = informer.NewFrom(p.source, informer.Options[*corev1.Pod]{Durable: p.durable})
	testkit.Must(p.t, err)
	sources := []enqueue.Source[key]{enqueue.For(p.pods)}
	if p.sources != nil {
		sources = p.sources(p.pods)
	}
	p.calls = nil
	opts := p.opts
	if opts.ErrorHandler == nil {
		opts.ErrorHandler = testkit.Ignore
	}
	p.controller, err = enqueue.NewController(func(ctx context.Context, key key) (time.Duration, error) {
		p.mu.Lock()
		p.calls = append(p.calls, key.Name)
		n := len(slices.DeleteFunc(slices.Clone(p.calls), func(name string) bool { return name != key.Name }))
		reconcile := p.reconcile
		p.mu.Unlock()
		return reconcile(ctx, key.Name, n)
	}, opts, sources...)
	testkit.Must(p.t, err)
	p.group = &informer.Group{}
	testkit.Must(p.t, errors.Join(p.group.Add(p.controller), p.group.Add(p.pods)))
	ctx, cancel := context.WithCancel(p.t.Context())
	done := make(chan error, 1)
	go func() { done <- p.run(ctx, p.group) }()
	p.stop = sync.OnceFunc(func() { cancel(); testkit.NoError(p.t, <-done) })
	p.t.Cleanup(p.stop)
	p.rest()
}

// use has reconcile called from now on.
func (p *program) use(reconcile reconcileFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reconcile = reconcile
}

// rest waits until everything is delivered, and until the informer has looked for tombstones that it
// can forget.
func (p *program) rest() {
	time.Sleep(3 * time.Second)
	synctest.Wait()
}

func (p *program) delete(name string) {
	p.t.Helper()
	_, err := p.source.Delete(key{Namespace: "ns", Name: name})
	testkit.Must(p.t, err)
	p.rest()
}

// tombstones checks how many tombstones the store has.
func (p *program) tombstones(want int) {
	p.t.Helper()
	p.rest()
	stored, err := p.durable.Tombstones(p.t.Context())
	testkit.Must(p.t, err)
	if len(stored) != want {
		p.t.Errorf("%d tombstones, want %d", len(stored), want)
	}
}

// called checks for which names reconcile was called since the start, in any order.
func (p *program) called(want ...string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	got := slices.Sorted(slices.Values(p.calls))
	if !slices.Equal(got, want) {
		p.t.Errorf("reconciled %v, want %v", got, want)
	}
}

// Each of these is a way for a call to end that does, or does not, handle a delete.
func TestWhichCallsHandleADelete(t *testing.T) {
	for name, test := range map[string]struct {
		reconcile reconcileFunc
		opts      enqueue.Options
		want      int // tombstones
	}{
		"nil":               {succeed, enqueue.Options{}, 0},
		"nil, again later":  {func(context.Context, string, int) (time.Duration, error) { return time.Hour, nil }, enqueue.Options{}, 1},
		"an error":          {fail, enqueue.Options{}, 1},
		"a permanent error": {func(context.Context, string, int) (time.Duration, error) { return 0, informer.ErrPermanent }, enqueue.Options{}, 0},
		"a panic":           {func(context.Context, string, int) (time.Duration, error) { panic("oh") }, enqueue.Options{RecoverPanics: true}, 1},
		"too many attempts": {fail, enqueue.Options{MaxAttempts: 2}, 1},
		"a call that is cancelled": {func(ctx context.Context, _ string, _ int) (time.Duration, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}, enqueue.Options{}, 1},
		"nil, again at once the first time": {func(_ context.Context, _ string, call int) (time.Duration, error) {
			if call == 2 { // the first is for the add
				return -1, nil
			}
			return 0, nil
		}, enqueue.Options{}, 0},
	} {
		testkit.InBubble(t, name, func(t *testing.T) {
			p := newProgram(t, pod("a"))
			p.opts = test.opts
			p.opts.Name = "website"
			p.start()
			p.use(test.reconcile)
			p.delete("a")
			p.stop()
			p.tombstones(test.want)
			p.use(succeed)
			p.start()
			time.Sleep(time.Minute) // for so long, another watcher could inherit the delete
			p.tombstones(0)
			p.called(slices.Repeat([]string{"a"}, test.want)...)
		})
	}
}

func TestACallThatBeganBeforeTheDeleteDoesNotHandleIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t)
		returns := make(chan error)
		p.use(func(ctx context.Context, _ string, call int) (time.Duration, error) {
			if call == 1 {
				return 0, <-returns
			}
			return 0, errors.New("no luck")
		})
		p.start()
		_, err := p.source.Create(pod("a"))
		testkit.Must(p.t, err)
		p.rest()
		p.delete("a") // while the call for the add is under way
		returns <- nil
		p.tombstones(1)
		if n := p.controller.Health().Failed; n == 0 {
			t.Error("no call began after the delete")
		}
	})
}

// The restore of a backup brings an object back, and it is deleted again during the call for the first
// delete.
func TestADeleteThatComesAgainDuringItsCallIsHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t, pod("a"))
		p.start()
		backup := p.source.ResourceVersion()
		returns := make(chan error)
		p.use(func(_ context.Context, _ string, call int) (time.Duration, error) {
			if call == 2 {
				return 0, <-returns
			}
			return 0, nil
		})
		p.delete("a")
		testkit.Must(p.t, p.source.Restore(backup))
		p.source.Compact() // the version of the informer is that of the undone delete
		p.source.Expire()  // so that the informer lists
		p.rest()
		if n := p.pods.Health().Objects; n != 1 {
			t.Errorf("after the restore, the informer has %d objects", n)
		}
		p.delete("a")
		returns <- errors.New("no luck")
		p.tombstones(0)
		if n := p.controller.Health().Deletes; n != 0 {
			t.Errorf("Health has %d deletes", n)
		}
	})
}

func TestADeleteWaitsForAllOfItsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t, pod("a"))
		p.watches(informer.WatcherOptions{}, func(_ context.Context, pod *corev1.Pod) (keys []key, err error) {
			for _, suffix := range []string{"0", "0", "1", "1", "2", "2"} {
				keys = append(keys, key{Namespace: "ns", Name: pod.Name + suffix})
			}
			return keys, nil
		})
		p.start()
		p.use(func(ctx context.Context, name string, call int) (time.Duration, error) {
			if name == "a1" {
				return fail(ctx, name, call)
			}
			return 0, nil
		})
		p.delete("a")
		p.tombstones(1)
		if h := p.controller.Health(); h.Deletes != 1 || h.Failing != 1 {
			t.Errorf("Health has %d deletes and %d failing keys, want 1 and 1", h.Deletes, h.Failing)
		}
		p.use(succeed)
		time.Sleep(20 * time.Minute) // longer than the longest wait for a retry
		p.tombstones(0)
		if h := p.controller.Health(); h.Deletes != 0 || h.Failing != 0 {
			t.Errorf("Health has %d deletes and %d failing keys, want none", h.Deletes, h.Failing)
		}
	})
}

func TestAPlainWatcherAndEveryControllerMustHandleADelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t, pod("a"))
		p.start()
		blocked, other := make(chan struct{}), errors.New("no luck")
		second, err := enqueue.NewController(func(context.Context, key) (time.Duration, error) { return 0, other },
			enqueue.Options{Name: "second", ErrorHandler: testkit.Ignore}, enqueue.For(p.pods))
		testkit.Must(p.t, err)
		testkit.Must(p.t, p.group.Add(second))
		_, err = p.pods.AddWatcher(informer.WatcherFuncs[*corev1.Pod]{DeleteFunc: func(context.Context, informer.Event[*corev1.Pod]) error {
			<-blocked
			return nil
		}}, informer.WatcherOptions{})
		testkit.Must(p.t, err)
		p.delete("a")
		p.tombstones(1)
		close(blocked)
		p.tombstones(1)
		testkit.Must(p.t, p.group.Remove(second)) // releases its deletes
		p.tombstones(0)
	})
}

func TestAControllerThatWasRemovedKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t, pod("a"))
		p.use(fail)
		p.start()
		p.delete("a")
		testkit.Must(p.t, p.group.Remove(p.controller))
		p.controller.Removed()                                                                       // a second time
		_, err := p.pods.AddWatcher(informer.WatcherFuncs[*corev1.Pod]{}, informer.WatcherOptions{}) // without a watcher nothing is forgotten
		testkit.Must(p.t, err)
		time.Sleep(time.Minute)
		p.tombstones(0)
		if !p.controller.Health().Stopped {
			t.Error("Health does not show the removed controller as stopped")
		}
		if err := p.controller.Run(t.Context()); !errors.Is(err, informer.ErrAlreadyRun) {
			t.Errorf("Run of a removed controller returned %v, want ErrAlreadyRun", err)
		}
	})
}

// Without tombstones nothing can be delivered again. A key that fails for a week must not take memory
// for each of its deletes.
func TestWithoutADurableNoDeleteIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, enqueue.Options{}, func(context.Context, string) (time.Duration, error) { return 0, errors.New("no luck") })
		r.add("a")
		synctest.Wait()
		_, err := r.source.Delete(key{Namespace: "ns", Name: "a"})
		testkit.Must(t, err)
		time.Sleep(time.Second)
		if h := r.Health(); h.Failing != 1 || h.Deletes != 0 {
			t.Errorf("%d keys fail and %d deletes are kept, want 1 and 0", h.Failing, h.Deletes)
		}
	})
}
