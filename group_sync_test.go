package informer_test

import (
	"context"
	"errors"
	"fmt"
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

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

func TestAKindWhoseCRDIsMissingHoldsUpNoOtherAndSyncsWhenItAppears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, src, widgets := newGroup(t), informertest.NewSource(object("a", "1")), informertest.NewSource[*corev1.Pod]()
		forbid(widgets, apierrors.NewGenericServerResponse(404, "list", schema.GroupResource{Group: "example.com", Resource: "widgets"}, "", "", 0, true))
		var r recorder
		inf := newInformer(t, src, options{})
		addWatcher(t, inf, &r, informer.WatcherOptions{})
		missing := podInformer(t, widgets, "Widget")
		add(t, g, missing, inf)
		startGroup(t, g)

		r.Expect(t, "added default/a")
		err := g.WaitForSync(within(t, hour))
		e := mustBeLate(t, err, "Widget: the first list")
		var why *informer.WatchError
		if !apierrors.IsNotFound(err) || !errors.As(e.Reason, &why) || why.Resource != "Widget" {
			t.Errorf("WaitForSync: %v", err)
		}
		src.Apply(object("a", "2"))
		r.Expect(t, "updated default/a")

		widgets.Heal()
		mustSync(t, g)
	})
}

func TestWaitForSyncNoticesWhenRunBeginsAndWhenAMemberFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failure, fail := errors.New("mine"), make(chan struct{})
		g := &informer.Group{ErrorHandler: quiet}
		add(t, g, &stub{name: "broken", run: func(context.Context) error { <-fail; return failure }})
		done := askSync(t, g) // the member has synced; only Run is missing
		stop := startGroup(t, g)
		noError(t, <-done)
		add(t, g, &stub{name: "late", sync: neverSyncs})
		done = askSync(t, g)
		close(fail)
		fails(t, <-done, failure)
		fails(t, stop(), failure)
	})
}

func TestWaitForSyncOfAGroupThatStopsReportsThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for late, members := range map[string][]informer.Member{
			"a member (it has none)": nil,
			"m":                      {&stub{name: "m", sync: neverSyncs}, &stub{name: "fine"}},
		} {
			g := newGroup(t)
			add(t, g, members...)
			stop := startGroup(t, g)
			done := askSync(t, g)
			noError(t, stop())
			for _, err := range []error{<-done, g.WaitForSync(t.Context())} {
				fails(t, mustBeLate(t, err, late).Err, informer.ErrStopped)
			}
		}
	})
}

// hooked is a ctx that calls look before each call of Err.
type hooked struct {
	context.Context
	look func()
}

func (h *hooked) Err() error {
	h.look()
	return h.Context.Err()
}

func TestWaitForSyncIsNotMisledByAMemberRemovedWhileItLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, stopped := newGroup(t), make(chan struct{})
		leaver := &stub{
			run:  func(ctx context.Context) error { <-ctx.Done(); close(stopped); return nil },
			sync: func(context.Context) error { <-stopped; return informer.ErrStopped },
		}
		add(t, g, leaver)
		startGroup(t, g)
		ctx := &hooked{t.Context(), func() {}}
		done := asking(func() error { return g.WaitForSync(ctx) })
		pending(t, "WaitForSync", done)
		ctx.look = sync.OnceFunc(func() { // by now WaitForSync has the members, but not their answers
			noError(t, g.Remove(leaver))
			synctest.Wait()
		})
		add(t, g, &stub{name: "fine"})
		noError(t, <-done)
	})
}

func TestWaitForSyncWaitsForMembersAddedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		first, heal := refused(t, "first")
		second, healSecond := refused(t, "second")
		add(t, g, &stub{name: "fine"}, first)
		startGroup(t, g)
		done := askSync(t, g)
		add(t, g, second)
		sleepBubble(hour)
		heal()
		sleepBubble(hour)
		pending(t, "WaitForSync", done)
		healSecond()
		noError(t, <-done)
	})
}

func TestWaitForSyncNoLongerWaitsForRemovedMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		run, release := lingers()
		late, later := &stub{name: "late", sync: neverSyncs, run: run}, podInformer(t, informertest.NewSource[*corev1.Pod](), "later")
		never, _ := refused(t, "never")
		add(t, g, late, &stub{name: "other"}, later, never)
		startGroup(t, g)
		done := askSync(t, g)
		noError(t, g.Remove(never)) // the WaitForSync of this member then fails
		pending(t, "WaitForSync", done)
		removed := asking(func() error { return g.Remove(late) })
		noError(t, <-done) // although late has not stopped yet
		pending(t, "Remove", removed)
		release()
		noError(t, <-removed)
	})
}

func TestWaitForSyncNamesAllLateMembersAndTheirReasons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g informer.Group
		store, full := informertest.NewStore(nil), errors.New("disk full")
		store.Fail(func(string, string) error { return full })
		stored := newInformer(t, informertest.NewSource(object("a", "1")), options{Store: store, ErrorHandler: quiet})
		slow := newInformer(t, informertest.NewSource(object("a", "1")), options{Name: "slow"})
		r := recorder{Hook: func(ctx context.Context, _ event) error { <-ctx.Done(); return nil }}
		addWatcher(t, slow, &r, informer.WatcherOptions{Name: "w"})
		pods, _ := refused(t, "")
		add(t, &g, pods, stored, &stub{name: "fine"}, slow, &stub{name: "mute", sync: neverSyncs})
		startGroup(t, &g)
		err := g.WaitForSync(within(t, time.Minute))
		e := mustBeLate(t, err, "Pod: the first list", "ConfigMap: the first list", `slow: watcher "w" (called for default/a)`, "mute")
		var why *informer.WatchError
		var broken *informer.StoreError
		if !errors.Is(e.Err, context.DeadlineExceeded) || !apierrors.IsForbidden(err) || !errors.As(e.Reason, &why) || !errors.As(e.Reason, &broken) || !errors.Is(err, full) {
			t.Errorf("WaitForSync: %v", err)
		}
	})
}

func TestWaitForSyncOfASyncedGroupSucceedsAlsoIfCtxOrTheGroupIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		add(t, g, newInformer(t, informertest.NewSource(object("a", "1")), options{}))
		stop := startGroup(t, g)
		mustSync(t, g)
		noError(t, g.WaitForSync(within(t, 0)))
		noError(t, stop())
		noError(t, g.WaitForSync(t.Context()))
	})
}

func TestWaitForSyncOfAGroupInACallbackIsAnErrorAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		pods, _ := refused(t, "")
		inf := newInformer(t, informertest.NewSource(object("a", "1")), options{})
		answers := make(chan error, 1)
		addWatcher(t, inf, informer.WatcherFunc[configMap](func(ctx context.Context, _ event) error {
			time.Sleep(time.Millisecond) // by then, the Run of the other member has been called
			answers <- g.WaitForSync(ctx)
			return nil
		}), informer.WatcherOptions{Name: "waits"})
		add(t, g, pods, inf)
		startGroup(t, g)
		err := <-answers
		mustBeLate(t, err, "Pod: the first list", `ConfigMap: watcher "waits" (called for default/a)`)
		says(t, err, "in the callback of a watcher")
	})
}

func TestWaitForSyncReturnsTheErrorOfAMemberAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, mine := newGroup(t), errors.New("mine")
		add(t, g, &stub{name: "late", sync: neverSyncs}, &stub{name: "m", sync: func(context.Context) error { return mine }})
		startGroup(t, g)
		err := g.WaitForSync(t.Context())
		mustBeLate(t, err, "late", "m")
		fails(t, err, mine)
	})
}

// grouped is a member that is a group.
type grouped struct {
	stub
	*informer.Group
}

func (g *grouped) Run(ctx context.Context) error         { return g.Group.Run(ctx) }
func (g *grouped) WaitForSync(ctx context.Context) error { return g.Group.WaitForSync(ctx) }

func TestALongWaitForSyncLogsItsReasonsInOneLine(t *testing.T) {
	newMaps := func(t *testing.T) *ci { return newInformer(t, informertest.NewSource(object("a", "1")), options{}) }
	const isForbidden = "list Pod: pods is forbidden: no such role"
	for name, test := range map[string]struct {
		who    string   // the key and the value that name the waiter
		late   []string // what is late
		reason string   // "" if there is none
		begin  func(t *testing.T) (w waiter, heal func())
	}{
		"an informer that is not run": {"informer ConfigMap", []string{"Run", "the first list"}, "", func(t *testing.T) (waiter, func()) {
			inf := newMaps(t)
			return inf, func() { start(t, inf) }
		}},
		"an informer that is refused": {"informer Pod", []string{"the first list"}, isForbidden, func(t *testing.T) (waiter, func()) {
			g := newGroup(t)
			inf, heal := refused(t, "")
			add(t, g, inf)
			startGroup(t, g)
			return inf, heal
		}},
		"an informer with a watcher that hangs": {"informer ConfigMap", []string{`watcher "w" (called for default/a)`}, "", func(t *testing.T) (waiter, func()) {
			inf, hold := newMaps(t), make(chan struct{})
			addWatcher(t, inf, &recorder{Hook: func(context.Context, event) error { <-hold; return nil }}, informer.WatcherOptions{Name: "w"})
			start(t, inf)
			return inf, func() { close(hold) }
		}},
		"a group that is not run": {"group [ConfigMap m]", []string{"Run", "ConfigMap: Run, the first list"}, "", func(t *testing.T) (waiter, func()) {
			g := newGroup(t)
			add(t, g, newMaps(t), &stub{name: "m"})
			return g, func() { startGroup(t, g) }
		}},
		"a group without members that is not run": {"group []", []string{"Run", "a member (it has none)"}, "", func(t *testing.T) (waiter, func()) {
			g := newGroup(t)
			return g, func() {
				startGroup(t, g)
				add(t, g, newMaps(t))
			}
		}},
		"a group without members": {"group []", []string{"a member (it has none)"}, "", func(t *testing.T) (waiter, func()) {
			g := newGroup(t)
			startGroup(t, g)
			return g, func() { add(t, g, newMaps(t)) }
		}},
		"a group with two that are late": {"group [ConfigMap Pod other]", []string{"Pod: the first list", "other: the first list"}, isForbidden + "; list other: pods is forbidden: no such role", func(t *testing.T) (waiter, func()) {
			g := newGroup(t)
			pods, heal := refused(t, "")
			others, healOthers := refused(t, "other")
			add(t, g, newMaps(t), pods, others)
			startGroup(t, g)
			return g, func() { heal(); healOthers() }
		}},
		"a group in a group": {"group [inner]", []string{"inner: Pod: the first list"}, isForbidden, func(t *testing.T) (waiter, func()) {
			g, inner := newGroup(t), newGroup(t)
			pods, heal := refused(t, "")
			add(t, inner, pods)
			add(t, g, &grouped{stub: stub{name: "inner"}, Group: inner})
			startGroup(t, g)
			return g, heal
		}},
	} {
		inBubble(t, name, func(t *testing.T) {
			ctx, entries := logged(t.Context(), 0)
			log := func() (lines []string) {
				for _, line := range entries() {
					text := line.Message
					for _, v := range line.ParameterKVList {
						text += fmt.Sprintf(" %v", v)
					}
					lines = append(lines, text)
				}
				return lines
			}
			check := func(when string, want ...string) {
				t.Helper()
				synctest.Wait()
				equal(t, "the log "+when, log(), want)
			}
			w, heal := test.begin(t)
			wait := func(d time.Duration) <-chan error {
				ctx, cancel := context.WithTimeout(ctx, d)
				t.Cleanup(cancel)
				return asking(func() error { return w.WaitForSync(ctx) })
			}
			fails(t, <-wait(29*time.Second), context.DeadlineExceeded)
			check("after a wait of 29 s")

			failed := wait(time.Minute)
			waiting := fmt.Sprintf("Still waiting %s late %v", test.who, test.late)
			if test.reason != "" {
				waiting += " reason " + test.reason
			}
			sleepBubble(31 * time.Second)
			check("after 31 s", waiting)
			err := <-failed
			over := fmt.Sprintf("The wait is over %s waited 1m0s err %v", test.who, err)
			check("when it was given up", waiting, over)
			if late := (*informer.SyncError)(nil); !errors.As(err, &late) || !slices.Equal(late.Late, test.late) {
				t.Errorf("the wait was given up with %v", err)
			}

			synced := wait(hour)
			sleepBubble(50 * time.Second)
			heal()
			noError(t, <-synced)
			lines := log()
			last := lines[len(lines)-1]
			if len(lines) != 4 || lines[2] != waiting || !strings.HasPrefix(last, "The wait is over "+test.who+" waited ") || strings.Contains(last, " err ") {
				t.Errorf("in the end the log is %q", lines)
			}
		})
	}
}

func TestNothingOfWaitForSyncRunsAfterItReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		var under atomic.Int32
		slow := func(ctx context.Context) error {
			under.Add(1)
			defer under.Add(-1)
			<-ctx.Done()
			time.Sleep(time.Second)
			return ctx.Err()
		}
		leaver := &stub{name: "leaver", sync: slow}
		add(t, g, leaver, &stub{name: "other"})
		startGroup(t, g)
		if err := g.WaitForSync(within(t, time.Minute)); err == nil || under.Load() != 0 {
			t.Errorf("%d calls are under way after %v", under.Load(), err)
		}
		done := askSync(t, g)
		noError(t, g.Remove(leaver))
		if err := <-done; err != nil || under.Load() != 0 {
			t.Errorf("%d calls are under way after %v", under.Load(), err)
		}
	})
}
