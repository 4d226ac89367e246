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

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

func TestAKindWhoseCRDIsMissingHoldsUpNobodyAndSyncsWhenItAppears(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g, src, widgets := newGroup(t), informertest.NewSource(object("a", "1")), informertest.NewSource[*corev1.Pod]()
		forbid(widgets, apierrors.NewGenericServerResponse(404, "list", schema.GroupResource{Group: "example.com", Resource: "widgets"}, "", "", 0, true))
		var r recorder
		inf := newInformer(t, src, options{})
		addWatcher(t, inf, &r, informer.WatcherOptions{})
		missing := podInformer(t, widgets, "Widget")
		add(t, g, missing, inf)
		stop := startGroup(t, g)

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
		mustStop(t, stop)
	})
}

func TestWaitForSyncWaitsForRunAndForAMember(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := newGroup(t)
		err := g.WaitForSync(within(t, time.Minute))
		if e := mustBeLate(t, err, "Run", "a member (it has none)"); !errors.Is(e.Err, context.DeadlineExceeded) || e.Reason != nil {
			t.Errorf("empty and not running: %v", err)
		}

		done := asking(func() error { return g.WaitForSync(t.Context()) })
		pending(t, "WaitForSync", done)
		stop := startGroup(t, g)
		pending(t, "WaitForSync of an empty group", done)
		mustBeLate(t, g.WaitForSync(within(t, time.Minute)), "a member (it has none)")

		add(t, g, newInformer(t, informertest.NewSource(object("a", "1")), options{}))
		if err := <-done; err != nil {
			t.Error(err)
		}
		mustStop(t, stop)
	})
}

func TestWaitForSyncWaitsForRunAlsoIfTheMembersHaveSynced(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := newGroup(t)
		add(t, g, &stub{})
		done := asking(func() error { return g.WaitForSync(t.Context()) })
		pending(t, "WaitForSync", done)
		mustBeLate(t, g.WaitForSync(within(t, time.Minute)), "Run")
		inf := newInformer(t, informertest.NewSource(object("a", "1")), options{})
		add(t, g, inf)
		mustBeLate(t, g.WaitForSync(within(t, time.Minute)), "Run", "ConfigMap: Run, the first list")
		stop := startGroup(t, g)
		if err := <-done; err != nil || !inf.HasSynced() {
			t.Errorf("WaitForSync: %v", err)
		}
		mustStop(t, stop)
	})
}

func TestWaitForSyncNoticesWhenRunBeginsAndWhenAMemberFails(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var g informer.Group
		failure, fail := errors.New("mine"), make(chan struct{})
		g.ErrorHandler = func(context.Context, error) {}
		add(t, &g, &stub{name: "broken", run: func(context.Context) error { <-fail; return failure }})
		wait := func() error { return g.WaitForSync(t.Context()) }
		done := asking(wait)
		pending(t, "WaitForSync", done) // the member has synced; only Run is missing
		stop := startGroup(t, &g)
		if err := <-done; err != nil {
			t.Error(err)
		}
		add(t, &g, &stub{name: "late", sync: neverSyncs})
		done = asking(wait)
		pending(t, "WaitForSync", done)
		close(fail)
		if err := <-done; !errors.Is(err, failure) {
			t.Errorf("WaitForSync: %v", err)
		}
		_ = stop()
	})
}

func TestWaitForSyncOfAGroupThatStopsSaysSo(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for late, members := range map[string][]informer.Member{
			"a member (it has none)": nil,
			"m":                      {&stub{name: "m", sync: neverSyncs}, &stub{name: "fine"}},
		} {
			g := newGroup(t)
			add(t, g, members...)
			stop := startGroup(t, g)
			done := asking(func() error { return g.WaitForSync(t.Context()) })
			pending(t, "WaitForSync", done)
			mustStop(t, stop)
			for when, err := range map[string]error{"at": <-done, "after": g.WaitForSync(t.Context())} {
				if e := mustBeLate(t, err, late); !errors.Is(e.Err, informer.ErrStopped) {
					t.Errorf("%s the stop: %v", when, err)
				}
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

func TestWaitForSyncIsNotMisledByAMemberThatIsRemovedWhileItLooks(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g, stopped := newGroup(t), make(chan struct{})
		leaver := &stub{
			run:  func(ctx context.Context) error { <-ctx.Done(); close(stopped); return nil },
			sync: func(context.Context) error { <-stopped; return informer.ErrStopped },
		}
		add(t, g, leaver)
		stop := startGroup(t, g)
		ctx := &hooked{t.Context(), func() {}}
		done := asking(func() error { return g.WaitForSync(ctx) })
		pending(t, "WaitForSync", done)
		ctx.look = sync.OnceFunc(func() { // by now WaitForSync has the members, but not their answers
			if err := g.Remove(leaver); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		})
		add(t, g, &stub{name: "fine"})
		if err := <-done; err != nil {
			t.Error(err)
		}
		mustStop(t, stop)
	})
}

func TestWaitForSyncWaitsForWhoIsAddedMeanwhile(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g, src := newGroup(t), informertest.NewSource(object("a", "1"))
		var pods [2]*informertest.Source[*corev1.Pod]
		for i := range pods {
			pods[i] = informertest.NewSource[*corev1.Pod]()
			forbid(pods[i], forbidden("pods"))
		}
		add(t, g, newInformer(t, src, options{}), podInformer(t, pods[0], "first"))
		stop := startGroup(t, g)
		done := asking(func() error { return g.WaitForSync(t.Context()) })
		pending(t, "WaitForSync", done)
		add(t, g, podInformer(t, pods[1], "second"))
		sleepBubble(hour)
		pods[0].Heal()
		sleepBubble(hour)
		pending(t, "WaitForSync", done)
		pods[1].Heal()
		if err := <-done; err != nil {
			t.Error(err)
		}
		mustStop(t, stop)
	})
}

func TestWaitForSyncNoLongerWaitsForWhoIsRemoved(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := newGroup(t)
		run, release := lingers()
		late, later := &stub{name: "late", sync: neverSyncs, run: run}, podInformer(t, informertest.NewSource[*corev1.Pod](), "later")
		src := informertest.NewSource[*corev1.Pod]()
		forbid(src, forbidden("pods"))
		never := podInformer(t, src, "never")
		add(t, g, late, &stub{name: "other"}, later, never)
		stop := startGroup(t, g)
		done := asking(func() error { return g.WaitForSync(t.Context()) })
		pending(t, "WaitForSync", done)
		if err := g.Remove(never); err != nil { // the WaitForSync of this member then fails
			t.Fatal(err)
		}
		pending(t, "WaitForSync", done)
		removed := asking(func() error { return g.Remove(late) })
		if err := <-done; err != nil { // although late has not stopped yet
			t.Error(err)
		}
		pending(t, "Remove", removed)
		release()
		if err := <-removed; err != nil {
			t.Error(err)
		}
		mustStop(t, stop)
	})
}

func TestWaitForSyncNamesEverybodyWhoIsLateAndWhy(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var g informer.Group
		pods, store := informertest.NewSource[*corev1.Pod](), informertest.NewStore(nil)
		forbid(pods, forbidden("pods"))
		full := errors.New("disk full")
		store.Fail(func(string, string) error { return full })
		quiet := func(context.Context, error) {}
		stored := newInformer(t, informertest.NewSource(object("a", "1")), options{Store: store, ErrorHandler: quiet})
		slow := newInformer(t, informertest.NewSource(object("a", "1")), options{Name: "slow"})
		r := recorder{Hook: func(ctx context.Context, _ event) error { <-ctx.Done(); return nil }}
		addWatcher(t, slow, &r, informer.WatcherOptions{Name: "w"})
		add(t, &g, podInformer(t, pods, ""), stored, &stub{name: "fine"}, slow, podInformer(t, pods, "second"), &stub{name: "mute", sync: neverSyncs})
		stop := startGroup(t, &g)

		late := []string{"Pod: the first list", "ConfigMap: the first list", `slow: watcher "w" (called for default/a)`, "second: the first list", "mute"}
		check := func(err, cause error) {
			t.Helper()
			e := mustBeLate(t, err, late...)
			var why *informer.WatchError
			var broken *informer.StoreError
			if !errors.Is(e.Err, cause) || !apierrors.IsForbidden(err) || !errors.As(e.Reason, &why) || !errors.As(e.Reason, &broken) || !errors.Is(err, full) {
				t.Errorf("WaitForSync: %v", err)
			}
		}
		check(g.WaitForSync(within(t, time.Minute)), context.DeadlineExceeded)
		done := asking(func() error { return g.WaitForSync(t.Context()) })
		pending(t, "WaitForSync", done)
		late[2] = `slow: watcher "w"` // the stop has ended the call of this watcher
		mustStop(t, stop)
		if err := <-done; !errors.Is(err, informer.ErrStopped) {
			t.Errorf("when the group stops, WaitForSync returns %v", err)
		}
		if err := g.WaitForSync(t.Context()); !errors.Is(err, informer.ErrStopped) {
			t.Errorf("after the stop, WaitForSync returns %v", err)
		}
	})
}

func TestWaitForSyncOfASyncedGroupSucceedsAlsoIfCtxOrTheGroupHasEnded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := newGroup(t)
		add(t, g, newInformer(t, informertest.NewSource(object("a", "1")), options{}))
		stop := startGroup(t, g)
		mustSync(t, g)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := g.WaitForSync(ended); err != nil {
			t.Errorf("with an ended ctx: %v", err)
		}
		mustStop(t, stop)
		if err := g.WaitForSync(t.Context()); err != nil {
			t.Errorf("after the stop: %v", err)
		}
	})
}

func TestWaitForSyncOfAGroupInACallbackIsAnErrorAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := newGroup(t)
		pods := informertest.NewSource[*corev1.Pod]()
		forbid(pods, forbidden("pods"))
		inf := newInformer(t, informertest.NewSource(object("a", "1")), options{})
		answers := make(chan error, 1)
		addWatcher(t, inf, informer.WatcherFunc[configMap](func(ctx context.Context, _ event) error {
			time.Sleep(time.Millisecond) // by then, the Run of the other member has been called
			answers <- g.WaitForSync(ctx)
			return nil
		}), informer.WatcherOptions{Name: "waits"})
		add(t, g, podInformer(t, pods, ""), inf)
		stop := startGroup(t, g)
		err := <-answers
		mustBeLate(t, err, "Pod: the first list", `ConfigMap: watcher "waits" (called for default/a)`)
		if !strings.Contains(err.Error(), "in the callback of a watcher") {
			t.Errorf("WaitForSync: %v", err)
		}
		mustStop(t, stop)
	})
}

func TestWaitForSyncReturnsWhatAMembersOwnReturnsAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g, mine := newGroup(t), errors.New("mine")
		add(t, g, &stub{name: "late", sync: neverSyncs}, &stub{name: "m", sync: func(context.Context) error { return mine }})
		stop := startGroup(t, g)
		err := g.WaitForSync(t.Context())
		if mustBeLate(t, err, "late", "m"); !errors.Is(err, mine) {
			t.Errorf("WaitForSync: %v", err)
		}
		mustStop(t, stop)
	})
}

// waiter is an informer or a group.
type waiter interface{ WaitForSync(context.Context) error }

// grouped is a member that is a group.
type grouped struct {
	stub
	*informer.Group
}

func (g *grouped) Run(ctx context.Context) error         { return g.Group.Run(ctx) }
func (g *grouped) WaitForSync(ctx context.Context) error { return g.Group.WaitForSync(ctx) }

func TestAWaitForSyncThatLastsSaysForWhatAndWhyInOneLine(t *testing.T) {
	refused := func(t *testing.T, name string) (*informer.CustomCacheInformer[*corev1.Pod], *informertest.Source[*corev1.Pod]) {
		src := informertest.NewSource[*corev1.Pod]()
		forbid(src, forbidden("pods"))
		return podInformer(t, src, name), src
	}
	newMaps := func(t *testing.T) *ci { return newInformer(t, informertest.NewSource(object("a", "1")), options{}) }
	const isForbidden = "list Pod: pods is forbidden: no such role"
	for name, test := range map[string]struct {
		who    string   // the key and the value that say who waits
		late   []string // what is late
		reason string   // "" if there is none
		begin  func(t *testing.T) (w waiter, heal func())
	}{
		"an informer that nobody runs": {"informer ConfigMap", []string{"Run", "the first list"}, "", func(t *testing.T) (waiter, func()) {
			inf := newMaps(t)
			return inf, func() { start(t, inf) }
		}},
		"an informer that is refused": {"informer maps", []string{"the first list"}, "list maps: pods is forbidden: no such role", func(t *testing.T) (waiter, func()) {
			src := informertest.NewSource[configMap]()
			forbid(src, forbidden("pods"))
			inf := newInformer(t, src, options{Name: "maps", ErrorHandler: func(context.Context, error) {}})
			start(t, inf)
			return inf, src.Heal
		}},
		"an informer with a watcher that hangs": {"informer ConfigMap", []string{`watcher "w" (called for default/a)`}, "", func(t *testing.T) (waiter, func()) {
			inf, hold := newMaps(t), make(chan struct{})
			addWatcher(t, inf, &recorder{Hook: func(context.Context, event) error { <-hold; return nil }}, informer.WatcherOptions{Name: "w"})
			start(t, inf)
			return inf, func() { close(hold) }
		}},
		"a group that nobody runs": {"group [ConfigMap m]", []string{"Run", "ConfigMap: Run, the first list"}, "", func(t *testing.T) (waiter, func()) {
			g := newGroup(t)
			add(t, g, newMaps(t), &stub{name: "m"})
			return g, func() { startGroup(t, g) }
		}},
		"a group without members": {"group []", []string{"a member (it has none)"}, "", func(t *testing.T) (waiter, func()) {
			g := newGroup(t)
			startGroup(t, g)
			return g, func() { add(t, g, newMaps(t)) }
		}},
		"a group with two that are late": {"group [ConfigMap Pod other]", []string{"Pod: the first list", "other: the first list"}, isForbidden + "; list other: pods is forbidden: no such role", func(t *testing.T) (waiter, func()) {
			g := newGroup(t)
			pods, src := refused(t, "")
			others, src2 := refused(t, "other")
			add(t, g, newMaps(t), pods, others)
			startGroup(t, g)
			return g, func() { src.Heal(); src2.Heal() }
		}},
		"a group in a group": {"group [inner]", []string{"inner: Pod: the first list"}, isForbidden, func(t *testing.T) (waiter, func()) {
			g, inner := newGroup(t), newGroup(t)
			pods, src := refused(t, "")
			add(t, inner, pods)
			add(t, g, &grouped{stub: stub{name: "inner"}, Group: inner})
			startGroup(t, g)
			return g, src.Heal
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
				log := func() (lines []string) {
					for _, line := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
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
					if diff := cmp.Diff(want, log()); diff != "" {
						t.Errorf("%s, the log is (-want +got):\n%s", when, diff)
					}
				}
				w, heal := test.begin(t)
				ctx := klog.NewContext(t.Context(), logger)
				short, cancel := context.WithTimeout(ctx, 29*time.Second)
				defer cancel()
				if err := w.WaitForSync(short); err == nil {
					t.Error("it has synced at once")
				}
				check("after a wait of 29 s")

				long, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				failed := asking(func() error { return w.WaitForSync(long) })
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

				synced := asking(func() error { return w.WaitForSync(ctx) })
				sleepBubble(50 * time.Second)
				heal()
				if err := <-synced; err != nil {
					t.Error(err)
				}
				lines := log()
				last := lines[len(lines)-1]
				if len(lines) != 4 || lines[2] != waiting || !strings.HasPrefix(last, "The wait is over "+test.who+" waited ") || strings.Contains(last, " err ") {
					t.Errorf("in the end the log is %q", lines)
				}
			})
		})
	}
}

func TestNothingOfWaitForSyncGoesOnWhenItHasReturned(t *testing.T) {
	inBubble(t, func(t *testing.T) {
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
		stop := startGroup(t, g)
		if err := g.WaitForSync(within(t, time.Minute)); err == nil || under.Load() != 0 {
			t.Errorf("%d calls are under way after %v", under.Load(), err)
		}
		done := asking(func() error { return g.WaitForSync(t.Context()) })
		pending(t, "WaitForSync", done)
		if err := g.Remove(leaver); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil || under.Load() != 0 {
			t.Errorf("%d calls are under way after %v", under.Load(), err)
		}
		mustStop(t, stop)
	})
}
