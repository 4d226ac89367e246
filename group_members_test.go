package informer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

func TestRunReturnsWhenEveryMemberHasAlsoThoseBeingRemoved(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var g informer.Group
		stayRun, releaseStay := lingers()
		leaveRun, releaseLeave := lingers()
		stay, leave := &stub{name: "stay", run: stayRun}, &stub{name: "leave", run: leaveRun}
		add(t, &g, stay, leave)
		stop := startGroup(t, &g)
		removed := asking(func() error { return g.Remove(leave) })
		pending(t, "Remove", removed)
		done := asking(stop)
		pending(t, "Run", done)
		releaseStay()
		pending(t, "Run", done)
		releaseLeave()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := <-removed; err != nil {
			t.Error(err)
		}
	})
}

func TestAMemberWhoseRunFailsStopsNobodyAndIsReportedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var errs errorLog
		g := informer.Group{ErrorHandler: errs.Handle}
		elsewhere := newInformer(t, informertest.NewSource(object("a", "1")), options{Name: "elsewhere"})
		early := &stub{name: "early", run: func(context.Context) error { return nil }}
		src := informertest.NewSource[*corev1.Pod]()
		forbid(src, forbidden("pods"))
		pods := podInformer(t, src, "")
		add(t, &g, elsewhere, pods, early)
		informertest.Run(t, elsewhere)
		stop := startGroup(t, &g)

		begin := time.Now()
		err := g.WaitForSync(t.Context())
		if took := time.Since(begin); took > 0 {
			t.Errorf("WaitForSync took %v to find out", took)
		}
		e := mustBeLate(t, err, "elsewhere", "Pod: the first list", "early")
		if errors.Is(err, informer.ErrStopped) || errors.Is(err, context.Canceled) || !errors.Is(e.Reason, informer.ErrAlreadyRun) {
			t.Errorf("WaitForSync: %v", err)
		}
		if !strings.Contains(err.Error(), "a member has failed while waiting for") || !strings.Contains(err.Error(), "Run of early: it returned before its ctx had ended") {
			t.Errorf("WaitForSync: %v", err)
		}

		src.Heal()
		mustSync(t, pods)
		sleepBubble(hour)
		var reported []string
		for _, err := range errs.Take() {
			reported = append(reported, err.Error())
		}
		want := []string{
			"informer: Group: Run of early: it returned before its ctx had ended",
			"informer: Group: Run of elsewhere: informer elsewhere: informer has already been run",
		}
		if diff := cmp.Diff(want, sorted(reported)); diff != "" {
			t.Errorf("reported (-want +got):\n%s", diff)
		}
		if err := stop(); !errors.Is(err, informer.ErrAlreadyRun) || !strings.Contains(err.Error(), "Run of early") {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestWithoutAnErrorHandlerAGroupLogsAMemberWhoseRunFails(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var g informer.Group
		failure := errors.New("mine")
		add(t, &g, &stub{name: "broken", run: func(context.Context) error { return failure }})
		logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
		done := asking(func() error { return g.Run(ctx) })
		synctest.Wait()
		lines := logger.GetSink().(ktesting.Underlier).GetBuffer().Data()
		if len(lines) != 1 || lines[0].Err == nil || !errors.Is(lines[0].Err, failure) {
			t.Errorf("logged: %v", lines)
		}
		cancel()
		if err := <-done; !errors.Is(err, failure) {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestTheFieldsOfAGroupMayBeSetUntilItHasItsFirstMember(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var g informer.Group
		stop := startGroup(t, &g)
		waiting := asking(func() error { return g.WaitForSync(within(t, time.Minute)) })
		pending(t, "WaitForSync", waiting)
		construct := informer.ClientGo{Group: &g}.NewSharedIndexInformer
		if err := g.Add(nil); err == nil {
			t.Error("it has taken nil")
		}
		var errs errorLog
		var applied atomic.Int64
		g.ErrorHandler = errs.Handle
		g.Observer = &informer.Observer{Apply: func(informer.ApplyInfo) { applied.Add(1) }}
		runGuest(t, construct, informertest.NewSource(object("a", "1")))
		add(t, &g, newInformer(t, informertest.NewSource(object("a", "1")), options{}))
		if err := <-waiting; err != nil {
			t.Error(err)
		}
		if got := applied.Load(); got != 2 {
			t.Errorf("the observer has seen %d events of 2 informers with an object each", got)
		}
		if told := errs.Take(); len(told) != 0 {
			t.Errorf("it was told %v", told)
		}
		mustStop(t, stop)
	})
}

func TestTheErrorHandlerMayRemoveAMemberThatHasFailed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var g informer.Group
		broken := &stub{name: "broken", run: func(context.Context) error { return errors.New("mine") }}
		g.ErrorHandler = func(context.Context, error) {
			if err := g.Remove(broken); err != nil {
				t.Error(err)
			}
		}
		add(t, &g, broken, &stub{name: "other"})
		stop := startGroup(t, &g)
		mustSync(t, &g)
		mustStop(t, stop) // the error of a removed member does not count
	})
}

func TestMembersAreRemovedOneByOneWhileTheOthersGoOn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const n = 5
		g := newGroup(t)
		var (
			srcs [n]*source
			infs [n]*ci
			recs [n]recorder
			regs [n]*informer.Registration
		)
		for i := range n {
			srcs[i] = informertest.NewSource[configMap]()
			infs[i] = newInformer(t, srcs[i], options{Name: fmt.Sprint("m", i)})
			regs[i] = addWatcher(t, infs[i], &recs[i], informer.WatcherOptions{})
			add(t, g, infs[i])
		}
		stop := startGroup(t, g)
		mustSync(t, g)
		for gone := range n {
			for i := range n {
				srcs[i].Apply(object(fmt.Sprint("round", gone), "1"))
			}
			for i := gone; i < n; i++ {
				recs[i].Expect(t, fmt.Sprint("added default/round", gone))
			}
			if err := g.Remove(infs[gone]); err != nil {
				t.Fatal(err)
			}
			select {
			case <-regs[gone].Stopped():
			default:
				t.Errorf("m%d has not stopped when Remove returns", gone)
			}
			want := []string(nil)
			for i := gone + 1; i < n; i++ {
				want = append(want, fmt.Sprint("m", i))
			}
			if diff := cmp.Diff(want, slices.Sorted(maps.Keys(g.Health()))); diff != "" {
				t.Errorf("members (-want +got):\n%s", diff)
			}
		}
		synctest.Wait()
		for i := range n {
			recs[i].Expect(t)
		}
		mustStop(t, stop)
	})
}

func TestRemoveWaitsForTheMember(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := newGroup(t)
		run, release := lingers()
		m, other := &stub{name: "m", run: run}, &stub{name: "other"}
		add(t, g, m, other)
		stop := startGroup(t, g)
		first, second := asking(func() error { return g.Remove(m) }), asking(func() error { return g.Remove(m) })
		pending(t, "Remove", first)
		pending(t, "the second Remove", second)
		if _, shown := g.Health()["m"]; shown {
			t.Error("Health shows a member that is being removed")
		}
		mustSync(t, g) // WaitForSync does not wait for it
		if err := g.Add(m); err == nil {
			t.Error("it was added again before it had stopped")
		}
		release()
		if err := errors.Join(<-first, <-second); err != nil {
			t.Error(err)
		}
		if err := g.Remove(m); err == nil || !strings.Contains(err.Error(), "informer: Group: Remove: m is not a member") {
			t.Errorf("the third Remove: %v", err)
		}
		mustStop(t, stop)
	})
}

func TestAMemberNeedsANameOfItsOwnUntilItIsRemoved(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g, says := newGroup(t), `another member has the name "ConfigMap": set Options.Name`
		run, release := lingers()
		first, unnamed := &stub{name: "ConfigMap", run: run}, newInformer(t, informertest.NewSource(object("a", "1")), options{})
		add(t, g, first)
		stop := startGroup(t, g)
		if err := g.Add(unnamed); err == nil || err.Error() != "informer: Group: Add: "+says {
			t.Errorf("Add: %v", err)
		}
		shared := func() (*ci, error) { return informer.GetOrAdd(g, "", func() (*ci, error) { return unnamed, nil }) }
		if inf, err := shared(); inf != nil || err == nil || err.Error() != "informer: Group: GetOrAdd: "+says {
			t.Errorf("GetOrAdd: %v, %v", inf, err)
		}
		if h := g.Health(); len(h) != 1 || unnamed.Health().Started {
			t.Errorf("a refused informer is a member: %v", h)
		}
		add(t, g, newInformer(t, informertest.NewSource(object("a", "1")), options{Name: "other"}))
		removed := asking(func() error { return g.Remove(first) })
		pending(t, "Remove", removed)
		if _, err := shared(); err != nil { // the leaver's name is free, although it still runs
			t.Errorf("GetOrAdd during Remove: %v", err)
		}
		mustSync(t, g)
		if h := g.Health(); len(h) != 2 || !healthOf(g, "ConfigMap").Synced {
			t.Errorf("members: %v", h)
		}
		release()
		if err := <-removed; err != nil {
			t.Error(err)
		}
		mustStop(t, stop)
	})
}

func TestRemoveBeforeRunOnlyTakesOut(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g, src := newGroup(t), informertest.NewSource(object("a", "1"))
		inf := newInformer(t, src, options{})
		add(t, g, inf, &stub{})
		if err := g.Remove(inf); err != nil {
			t.Fatal(err)
		}
		stop := startGroup(t, g)
		mustSync(t, g)
		if got := src.Requests(); len(got) > 0 {
			t.Errorf("it has been run: %v", got)
		}
		add(t, g, inf)
		mustSync(t, inf)
		mustStop(t, stop)
	})
}

func TestRemoveOfWhatIsNoMemberIsAnError(t *testing.T) {
	var g informer.Group
	for says, m := range map[string]informer.Member{
		"informer: Group: Remove: the member is nil":        nil,
		"informer: Group: Remove: stranger is not a member": &stub{name: "stranger"},
	} {
		if err := g.Remove(m); err == nil || err.Error() != says {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

func TestAMemberThatIsRemovedAfterTheStopIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := newGroup(t)
		m := &stub{name: "m"}
		add(t, g, m)
		mustStop(t, startGroup(t, g))
		if err := g.Remove(m); err != nil {
			t.Error(err)
		}
		if got := g.Health(); len(got) > 0 {
			t.Errorf("Health: %v", got)
		}
	})
}

// first is a member that works with what others deliver.
type first struct{ stub }

func (*first) StopsFirst() bool { return true }

func TestAMemberStopsFirstIfItAsksForIt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var g informer.Group
		run, release := lingers()
		stopped := false
		add(t, &g, &stub{name: "delivers", run: func(ctx context.Context) error { <-ctx.Done(); stopped = true; return nil }}, &first{stub{name: "works", run: run}})
		ctx, stop := context.WithCancel(t.Context())
		done := asking(func() error { return g.Run(ctx) })
		time.Sleep(time.Second)
		stop()
		pending(t, "Run", done)
		if stopped {
			t.Error("a member has stopped before the one that works with what it delivers")
		}
		release()
		if err := <-done; err != nil || !stopped {
			t.Errorf("Run returned %v, all have stopped: %v", err, stopped)
		}
	})
}

// A handler that calls Report would call itself, if Report found it again.
func TestReportLeadsToTheHandlerOfTheGroupOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		mine := errors.New("mine")
		var reported []error
		g := informer.Group{ErrorHandler: func(ctx context.Context, err error) {
			reported = append(reported, err)
			informer.Report(ctx, err) // which logs it
		}}
		add(t, &g, &stub{name: "m", run: func(ctx context.Context) error {
			informer.Report(ctx, mine)
			<-ctx.Done()
			return nil
		}})
		stop := startGroup(t, &g)
		mustStop(t, stop)
		if len(reported) != 1 || !errors.Is(reported[0], mine) {
			t.Errorf("reported: %v", reported)
		}
	})
}
