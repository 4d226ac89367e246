package informer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// inBubble runs a test in a bubble of its own.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// stub is a Member of which a test says how it behaves. By default it does what an
// informer does that syncs when it is run.
type stub struct {
	name string
	run  func(ctx context.Context) error
	sync func(ctx context.Context) error
}

func (s *stub) Run(ctx context.Context) error {
	if s.run != nil {
		return s.run(ctx)
	}
	<-ctx.Done()
	return nil
}

func (s *stub) WaitForSync(ctx context.Context) error {
	if s.sync != nil {
		return s.sync(ctx)
	}
	return nil
}

func (s *stub) Name() string { return s.name }

func (s *stub) MemberHealth() informer.MemberHealth { return informer.Health{Name: s.name} }

// healthOf returns the Health that g shows of an informer, and the zero Health if it shows none.
func healthOf(g *informer.Group, name string) informer.Health {
	h, _ := g.Health()[name].(informer.Health)
	return h
}

// neverSyncs is the WaitForSync of a stub.
func neverSyncs(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// lingers returns a Run that goes on after its ctx has ended, until release.
func lingers() (run func(context.Context) error, release func()) {
	released := make(chan struct{})
	return func(ctx context.Context) error {
		<-ctx.Done()
		<-released
		return nil
	}, func() { close(released) }
}

// newGroup returns a group that fails the test on errors that it does not expect.
func newGroup(t *testing.T) *informer.Group {
	return &informer.Group{ErrorHandler: func(_ context.Context, err error) { t.Errorf("unexpected error: %v", err) }}
}

func add(t *testing.T, g *informer.Group, members ...informer.Member) {
	t.Helper()
	for _, m := range members {
		if err := g.Add(m); err != nil {
			t.Fatal(err)
		}
	}
}

// startGroup runs g, and returns a function that stops it and returns what Run did.
// The end of the test calls it too.
func startGroup(t *testing.T, g *informer.Group) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { _ = stop() })
	synctest.Wait()
	return stop
}

func mustSync(t *testing.T, m interface{ WaitForSync(context.Context) error }) {
	t.Helper()
	if err := m.WaitForSync(within(t, hour)); err != nil {
		t.Fatal(err)
	}
}

// mustStop fails the test unless nothing went wrong.
func mustStop(t *testing.T, stop func() error) {
	t.Helper()
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
}

// mustBeLate fails the test unless err is the *SyncError of a WaitForSync that was
// given up, and returns what is in it.
func mustBeLate(t *testing.T, err error, late ...string) informer.SyncError {
	t.Helper()
	var e *informer.SyncError
	if !errors.As(err, &e) {
		t.Fatalf("WaitForSync: %v, want a *SyncError", err)
	}
	if diff := cmp.Diff(late, e.Late); diff != "" {
		t.Errorf("late (-want +got):\n%s", diff)
	}
	if text := err.Error(); !strings.HasPrefix(text, "informer Group: ") || strings.Contains(text, "\n") {
		t.Errorf("the error reads %q", text)
	}
	return *e
}

// pending fails the test if done has something to say.
func pending(t *testing.T, what string, done <-chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		t.Fatalf("%s has returned %v", what, err)
	default:
	}
}

// asking calls f, and returns where its result will be.
func asking(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

func podInformer(t *testing.T, src *informertest.Source[*corev1.Pod], name string) *informer.CustomCacheInformer[*corev1.Pod] {
	t.Helper()
	inf, err := informer.NewFrom(src, informer.Options[*corev1.Pod]{Name: name, ErrorHandler: func(context.Context, error) {}})
	if err != nil {
		t.Fatal(err)
	}
	return inf
}

// forbid lets every request to src fail with err.
func forbid[T informer.Object](src *informertest.Source[T], err error) {
	src.Fail("list", err, -1)
	src.Fail("watch", err, -1)
}

func TestAGroupRunsItsMembersAndWaitsForThem(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := newGroup(t)
		maps, pods := newInformer(t, informertest.NewSource(object("a", "1")), options{}), podInformer(t, informertest.NewSource[*corev1.Pod](), "")
		add(t, g, maps, pods)
		stop := startGroup(t, g)
		mustSync(t, g)
		if !maps.HasSynced() || !pods.HasSynced() {
			t.Error("WaitForSync has returned too soon")
		}
		mustStop(t, stop)
		for name, h := range g.Health() {
			if !h.(informer.Health).Stopped {
				t.Errorf("%s has not stopped", name)
			}
		}
	})
}

func TestAMemberThatIsAddedWhileTheGroupRunsIsRunAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := newGroup(t)
		add(t, g, newInformer(t, informertest.NewSource(object("a", "1")), options{}))
		stop := startGroup(t, g)
		mustSync(t, g)
		pods := podInformer(t, informertest.NewSource[*corev1.Pod](), "")
		add(t, g, pods)
		mustSync(t, pods)
		mustStop(t, stop)
		if !pods.Health().Stopped {
			t.Error("Run has not stopped the member")
		}
	})
}

func TestAddRefusesWhatCannotBeAMember(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var g informer.Group
		inf := newInformer(t, informertest.NewSource[configMap](), options{})
		add(t, &g, inf)
		type value struct {
			*stub
			_ []int
		}
		for says, m := range map[string]informer.Member{
			"informer: Group: Add: the member is nil":                           nil,
			"informer: Group: Add: the member is a nil *informer_test.stub":     (*stub)(nil),
			"informer: Group: Add: the member is a nil *informer.CustomCacheIn": (*ci)(nil),
			"informer: Group: Add: ConfigMap is already a member":               inf,
			"cannot be compared: use a pointer":                                 value{stub: &stub{}},
		} {
			if err := g.Add(m); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%v, want %q", err, says)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := asking(func() error { return g.Run(ctx) })
		pending(t, "Run", done)
		if err := g.Add(inf); err == nil {
			t.Error("a member was added again while the group runs")
		}
		cancel()
		if err := g.Add(&stub{}); !errors.Is(err, informer.ErrStopped) { // before Run has come to notice
			t.Errorf("Add to a group that has stopped: %v", err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestAGroupRunsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var g informer.Group
		stop := startGroup(t, &g)
		if err := g.Run(t.Context()); !errors.Is(err, informer.ErrAlreadyRun) || !strings.HasPrefix(err.Error(), "informer: Group: ") {
			t.Errorf("while running: %v", err)
		}
		mustStop(t, stop)
		if err := g.Run(t.Context()); !errors.Is(err, informer.ErrAlreadyRun) {
			t.Errorf("after it had stopped: %v", err)
		}
	})
}

func TestRunOfAGroupWithAnEndedCtxStopsTheMembers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g, src := newGroup(t), informertest.NewSource(object("a", "1"))
		inf := newInformer(t, src, options{})
		reg := addWatcher(t, inf, &recorder{}, informer.WatcherOptions{})
		add(t, g, inf)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := g.Run(ctx); err != nil {
			t.Error(err)
		}
		<-reg.Stopped()
		if got := src.Requests(); len(got) > 0 {
			t.Errorf("requests: %v", got)
		}
		if err := g.Add(&stub{}); !errors.Is(err, informer.ErrStopped) {
			t.Errorf("Add: %v", err)
		}
		if err := g.WaitForSync(t.Context()); !errors.Is(err, informer.ErrStopped) {
			t.Errorf("WaitForSync: %v", err)
		}
	})
}

func TestAnInformerThatHasBeenRunCannotBeAdded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := newGroup(t)
		inf := newInformer(t, informertest.NewSource(object("a", "1")), options{})
		add(t, g, inf)
		stop := startGroup(t, g)
		mustSync(t, g)
		if err := g.Remove(inf); err != nil {
			t.Fatal(err)
		}
		elsewhere := newInformer(t, informertest.NewSource(object("a", "1")), options{})
		informertest.Run(t, elsewhere)
		never, ended := newInformer(t, informertest.NewSource[configMap](), options{}), within(t, 0)
		if err := never.Run(ended); err != nil {
			t.Fatal(err)
		}
		for what, m := range map[string]*ci{"removed": inf, "running elsewhere": elsewhere, "run with an ended ctx": never} {
			if err := g.Add(m); !errors.Is(err, informer.ErrAlreadyRun) || !strings.HasPrefix(err.Error(), "informer: Group: Add: ConfigMap: ") {
				t.Errorf("%s: %v", what, err)
			}
		}
		mustStop(t, stop)
	})
}

// A group takes its ErrorHandler and its Observer away from a member that it removes.
func TestAMemberOfAnotherGroupHasThatOnesHandler(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var first, second errorLog
		a, b := &informer.Group{ErrorHandler: first.Handle, Observer: &informer.Observer{}}, &informer.Group{ErrorHandler: second.Handle}
		src := informertest.NewSource[*corev1.Pod]()
		forbid(src, forbidden("pods"))
		pods, err := informer.NewFrom(src, informer.Options[*corev1.Pod]{})
		if err != nil {
			t.Fatal(err)
		}
		add(t, a, pods)
		if err := a.Remove(pods); err != nil {
			t.Fatal(err)
		}
		add(t, b, pods)
		stop := startGroup(t, b)
		sleepBubble(time.Minute)
		mustStop(t, stop)
		if n, m := len(first.Take()), len(second.Take()); n != 0 || m == 0 {
			t.Errorf("the first group's handler was told %d errors, the second's %d", n, m)
		}
	})
}

func TestAGroupIsReadyIfAllMembersAre(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var g informer.Group
		if err := g.Ready(); err == nil || g.Live() != nil {
			t.Errorf("an empty group: ready %v, live %v", err, g.Live())
		}
		good, bad := informertest.NewSource[*corev1.Pod](), informertest.NewSource[*corev1.Pod]()
		forbid(bad, forbidden("pods"))
		pods := podInformer(t, bad, "bad")
		add(t, &g, podInformer(t, good, "good"), pods)
		stop := startGroup(t, &g)
		sleepBubble(time.Minute)
		if err := g.Ready(); !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "good") {
			t.Errorf("ready: %v", err)
		}
		if err := g.Remove(pods); err != nil {
			t.Error(err)
		}
		if err := g.Ready(); err != nil {
			t.Errorf("without the one that is not: %v", err)
		}
		mustStop(t, stop)
		if err := g.Ready(); !errors.Is(err, informer.ErrStopped) {
			t.Errorf("once stopped: %v", err)
		}
	})
}

func TestTheHealthOfAMemberThatHangsShowsInTheGroup(t *testing.T) {
	var g informer.Group
	add(t, &g, &hung{})
	if err := g.Live(); err == nil || !strings.Contains(err.Error(), "has not answered") {
		t.Errorf("live: %v", err)
	}
}

type hung struct{ stub }

func (*hung) MemberHealth() informer.MemberHealth {
	return informer.Health{Name: "hung", StoreBusy: hour}
}

func TestHealthOfAGroupIsByNameAndCountsGuestsOfOneName(t *testing.T) {
	var g informer.Group
	if got := g.Health(); got == nil || len(got) > 0 {
		t.Errorf("an empty group: %v", got)
	}
	construct := informer.ClientGo{Group: &g}.NewSharedIndexInformer
	for range 2 {
		construct(informertest.NewSource[*corev1.Pod](), &corev1.Pod{}, 0, nil)
	}
	pods := &stub{name: "Pod"}
	add(t, &g, pods, &stub{name: "Pod#2"}, &stub{name: "Node"})
	check := func(want map[string]string) {
		t.Helper()
		got := map[string]string{}
		for name, h := range g.Health() {
			got[name] = h.(informer.Health).Name
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	check(map[string]string{"Pod": "Pod", "Pod#2": "Pod#2", "Node": "Node", "Pod#3": "Pod", "Pod#4": "Pod"})
	if err := g.Remove(pods); err != nil {
		t.Error(err)
	}
	check(map[string]string{"Pod": "Pod", "Pod#2": "Pod#2", "Node": "Node", "Pod#3": "Pod"})
}

func TestAGroupServesTheMembersWithoutAHandlerAndObserverOfTheirOwn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		type count struct{ errs, lists atomic.Int32 }
		counted := func(c *count) (func(context.Context, error), *informer.Observer) {
			return func(context.Context, error) { c.errs.Add(1) }, &informer.Observer{List: func(informer.ListInfo) { c.lists.Add(1) }}
		}
		var group, own, handler, observer count
		var g informer.Group
		g.ErrorHandler, g.Observer = counted(&group)
		member := func(name string, set func(*options)) *ci {
			src := informertest.NewSource(object("a", "1"))
			src.Fail("list", forbidden("configmaps"), 1)
			opts := options{Name: name, WatchList: informer.WatchListOff}
			set(&opts)
			inf, err := informer.NewFrom(src, opts)
			if err != nil {
				t.Fatal(err)
			}
			return inf
		}
		add(t, &g,
			member("group", func(*options) {}),
			member("own", func(o *options) { o.ErrorHandler, o.Observer = counted(&own) }),
			member("handler", func(o *options) { o.ErrorHandler, _ = counted(&handler) }))
		stop := startGroup(t, &g)
		add(t, &g, member("observer", func(o *options) { _, o.Observer = counted(&observer) })) // while it runs
		mustSync(t, &g)
		mustStop(t, stop)
		// Each informer has reported one error and listed twice.
		for what, got := range map[string][2]int32{
			"the group": {group.errs.Load() - 2, group.lists.Load() - 4},
			"own":       {own.errs.Load() - 1, own.lists.Load() - 2},
			"handler":   {handler.errs.Load() - 1, handler.lists.Load()},
			"observer":  {observer.errs.Load(), observer.lists.Load() - 2},
		} {
			if got != [2]int32{} {
				t.Errorf("%s: %d errors and %d lists too many", what, got[0], got[1])
			}
		}
	})
}

func TestAGroupIsUsedFromManyGoroutines(t *testing.T) {
	for range 30 {
		inBubble(t, func(t *testing.T) {
			g := newGroup(t)
			ctx, cancel := context.WithCancel(t.Context())
			stopped := func(err error) {
				if err != nil && !errors.Is(err, informer.ErrStopped) && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
			var all sync.WaitGroup
			for i := range 6 {
				all.Go(func() {
					for n := range 5 {
						m := newInformer(t, informertest.NewSource(object("a", "1")), options{Name: fmt.Sprint(i, n)})
						if err := g.Add(m); err != nil {
							stopped(err)
							return
						}
						if rand.IntN(2) == 0 {
							stopped(m.WaitForSync(ctx))
						}
						all.Go(func() { _ = g.Remove(m) }) // one of the two may come too late
						_ = g.Remove(m)
						if h := m.Health(); h.Started && !h.Stopped {
							t.Error("Remove has returned before the member had stopped")
						}
					}
				})
				all.Go(func() { stopped(g.WaitForSync(ctx)) })
				all.Go(func() { g.Health() })
				all.Go(func() {
					inf, err := informer.GetOrAdd(g, fmt.Sprint(i%2), func() (*ci, error) {
						return newInformer(t, informertest.NewSource(object("a", "1")), options{Name: fmt.Sprint("shared", i%2)}), nil
					})
					if stopped(err); err == nil {
						stopped(inf.WaitForSync(ctx))
						_ = g.Remove(inf)
					}
				})
			}
			done := asking(func() error { return g.Run(ctx) })
			time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
			all.Go(cancel)
			if err := <-done; err != nil {
				t.Error(err)
			}
			all.Wait()
		})
	}
}
