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
	"github.com/customcacheinformer/informer/internal/testkit"
)

// must returns v. It is for what a test prepares, and for what cannot fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// equal fails the test unless got is want. Unlike testkit.Equal, it needs equal types and shows only what differs.
func equal[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// stub is a Member whose behavior a test sets. By default it does what an
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

// lingers returns a Run that continues after its ctx ends, until release.
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
		testkit.Must(t, g.Add(m))
	}
}

// startGroup runs g, and returns a function that stops it and returns what Run did.
// The end of the test stops it too. Then Run must not have failed.
func startGroup(t *testing.T, g *informer.Group) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		if ctx.Err() == nil {
			noError(t, stop())
		}
	})
	synctest.Wait()
	return stop
}

// waiter is an informer or a group.
type waiter interface{ WaitForSync(context.Context) error }

func mustSync(t *testing.T, m waiter) {
	t.Helper()
	testkit.Must(t, m.WaitForSync(within(t, hour)))
}

// mustBeLate fails the test unless err is the *SyncError of a WaitForSync that was
// given up, and returns what is in it.
func mustBeLate(t *testing.T, err error, late ...string) informer.SyncError {
	t.Helper()
	var e *informer.SyncError
	if !errors.As(err, &e) {
		t.Fatalf("WaitForSync: %v, want a *SyncError", err)
	}
	equal(t, "late", e.Late, late)
	if text := err.Error(); !strings.HasPrefix(text, "informer Group: ") || strings.Contains(text, "\n") {
		t.Errorf("the error reads %q", text)
	}
	return *e
}

// pending fails the test if done has a value or is closed.
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

// askSync calls the WaitForSync of g, which must not return at once.
func askSync(t *testing.T, g waiter) <-chan error {
	t.Helper()
	done := asking(func() error { return g.WaitForSync(t.Context()) })
	pending(t, "WaitForSync", done)
	return done
}

func podInformer(t *testing.T, src *informertest.Source[*corev1.Pod], name string) *informer.CustomCacheInformer[*corev1.Pod] {
	t.Helper()
	return must(informer.NewFrom(src, informer.Options[*corev1.Pod]{Name: name, ErrorHandler: quiet}))
}

// forbid lets every request to src fail with err.
func forbid[T informer.Object](src *informertest.Source[T], err error) {
	src.Fail("list", err, -1)
	src.Fail("watch", err, -1)
}

// refused returns an informer that may not read its source, until heal.
func refused(t *testing.T, name string) (inf *informer.CustomCacheInformer[*corev1.Pod], heal func()) {
	t.Helper()
	src := informertest.NewSource[*corev1.Pod]()
	forbid(src, forbidden("pods"))
	return podInformer(t, src, name), src.Heal
}

func TestAGroupRunsItsMembersAndWaitsForThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		maps, pods := newInformer(t, informertest.NewSource(object("a", "1")), options{}), podInformer(t, informertest.NewSource[*corev1.Pod](), "")
		add(t, g, maps)
		stop := startGroup(t, g)
		add(t, g, pods) // which runs at once
		mustSync(t, g)
		if !maps.HasSynced() || !pods.HasSynced() {
			t.Error("WaitForSync has returned too soon")
		}
		noError(t, stop())
		if !maps.Health().Stopped || !pods.Health().Stopped {
			t.Error("Run has returned too soon")
		}
	})
}

func TestAddRefusesInvalidMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g informer.Group
		inf := newInformer(t, informertest.NewSource[configMap](), options{})
		add(t, &g, inf)
		type value struct {
			*stub
			_ []int
		}
		for text, m := range map[string]informer.Member{
			"informer: Group: Add: the member is nil":                           nil,
			"informer: Group: Add: the member is a nil *informer_test.stub":     (*stub)(nil),
			"informer: Group: Add: the member is a nil *informer.CustomCacheIn": (*ci)(nil),
			"informer: Group: Add: ConfigMap is already a member":               inf,
			"cannot be compared: use a pointer":                                 value{stub: &stub{}},
		} {
			says(t, g.Add(m), text)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := asking(func() error { return g.Run(ctx) })
		pending(t, "Run", done)
		says(t, g.Add(inf), "already a member")
		cancel()
		fails(t, g.Add(&stub{}), informer.ErrStopped) // before Run notices
		noError(t, <-done)
	})
}

func TestAGroupRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g informer.Group
		stop := startGroup(t, &g)
		for range 2 { // while it runs, and when it has stopped
			err := g.Run(t.Context())
			fails(t, err, informer.ErrAlreadyRun)
			says(t, err, "informer: Group: ")
			noError(t, stop())
		}
	})
}

func TestRunOfAGroupWithAnEndedCtxStopsTheMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, src := newGroup(t), informertest.NewSource(object("a", "1"))
		inf := newInformer(t, src, options{})
		reg := addWatcher(t, inf, &recorder{}, informer.WatcherOptions{})
		add(t, g, inf)
		noError(t, g.Run(within(t, 0)))
		<-reg.Stopped()
		equal(t, "requests", len(src.Requests()), 0)
		fails(t, g.Add(&stub{}), informer.ErrStopped)
		fails(t, g.WaitForSync(t.Context()), informer.ErrStopped)
	})
}

func TestAnInformerThatHasBeenRunCannotBeAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		inf := newInformer(t, informertest.NewSource(object("a", "1")), options{})
		add(t, g, inf)
		startGroup(t, g)
		mustSync(t, g)
		noError(t, g.Remove(inf))
		elsewhere := running(t, informertest.NewSource(object("a", "1")), options{})
		never, ended := newInformer(t, informertest.NewSource[configMap](), options{}), within(t, 0)
		noError(t, never.Run(ended))
		for what, m := range map[string]*ci{"removed": inf, "running elsewhere": elsewhere, "run with an ended ctx": never} {
			if err := g.Add(m); !errors.Is(err, informer.ErrAlreadyRun) || !strings.HasPrefix(err.Error(), "informer: Group: Add: ConfigMap: ") {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// A group takes its ErrorHandler and its Observer away from a member that it removes.
func TestAMemberOfAnotherGroupHasThatOnesHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first, second errorLog
		a, b := &informer.Group{ErrorHandler: first.Handle, Observer: &informer.Observer{}}, &informer.Group{ErrorHandler: second.Handle}
		src := informertest.NewSource[*corev1.Pod]()
		forbid(src, forbidden("pods"))
		pods := must(informer.NewFrom(src, informer.Options[*corev1.Pod]{}))
		add(t, a, pods)
		noError(t, a.Remove(pods))
		add(t, b, pods)
		stop := startGroup(t, b)
		sleepBubble(time.Minute)
		noError(t, stop())
		if n, m := len(first.Take()), len(second.Take()); n != 0 || m == 0 {
			t.Errorf("the first group's handler got %d errors, the second's %d", n, m)
		}
	})
}

func TestAGroupIsReadyIfAllMembersAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g informer.Group
		if err := g.Ready(); err == nil || g.Live() != nil {
			t.Errorf("an empty group: ready %v, live %v", err, g.Live())
		}
		pods, _ := refused(t, "bad")
		add(t, &g, podInformer(t, informertest.NewSource[*corev1.Pod](), "good"), pods)
		stop := startGroup(t, &g)
		sleepBubble(time.Minute)
		if err := g.Ready(); !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "good") {
			t.Errorf("ready: %v", err)
		}
		noError(t, g.Remove(pods))
		noError(t, g.Ready())
		noError(t, stop())
		fails(t, g.Ready(), informer.ErrStopped)
	})
}

// unwell is a Member that is not ready, or not live, because of these errors.
type unwell struct {
	stub
	ready, live error
}

func (m *unwell) MemberHealth() informer.MemberHealth { return *m }
func (unwell) HasRun() bool                           { return false }
func (m unwell) Ready() error                         { return m.ready }
func (m unwell) Live() error                          { return m.live }

func TestTheHealthOfAMemberShowsInAGroupWithoutInformers(t *testing.T) {
	g, m := newGroup(t), &unwell{ready: errors.New("has not joined"), live: errors.New("hangs")}
	add(t, g, m)
	fails(t, g.Ready(), m.ready)
	fails(t, g.Live(), m.live)
	m.ready, m.live = nil, nil
	noError(t, errors.Join(g.Ready(), g.Live()))
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
		equal(t, "members", got, want)
	}
	check(map[string]string{"Pod": "Pod", "Pod#2": "Pod#2", "Node": "Node", "Pod#3": "Pod", "Pod#4": "Pod"})
	noError(t, g.Remove(pods))
	check(map[string]string{"Pod": "Pod", "Pod#2": "Pod#2", "Node": "Node", "Pod#3": "Pod"})
}

func TestAGroupServesTheMembersWithoutAHandlerAndObserverOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
			return must(informer.NewFrom(src, opts))
		}
		add(t, &g,
			member("group", func(*options) {}),
			member("own", func(o *options) { o.ErrorHandler, o.Observer = counted(&own) }),
			member("handler", func(o *options) { o.ErrorHandler, _ = counted(&handler) }))
		stop := startGroup(t, &g)
		add(t, &g, member("observer", func(o *options) { _, o.Observer = counted(&observer) })) // while it runs
		mustSync(t, &g)
		noError(t, stop())
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
		synctest.Test(t, func(t *testing.T) {
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
			noError(t, <-done)
			all.Wait()
		})
	}
}
