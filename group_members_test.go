package informer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/channel"
)

func TestRunReturnsWhenEveryMemberHasAlsoThoseBeingRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g informer.Group
		stayRun, releaseStay := lingers()
		leaveRun, releaseLeave := lingers()
		leave := &stub{name: "leave", run: leaveRun}
		add(t, &g, &stub{name: "stay", run: stayRun}, leave)
		stop := startGroup(t, &g)
		removed := asking(func() error { return g.Remove(leave) })
		pending(t, "Remove", removed)
		done := asking(stop)
		pending(t, "Run", done)
		releaseStay()
		pending(t, "Run", done)
		releaseLeave()
		noError(t, errors.Join(<-done, <-removed))
	})
}

func TestAMemberWhoseRunFailsStopsNoOtherAndIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs errorLog
		g := informer.Group{ErrorHandler: errs.Handle}
		elsewhere := newInformer(t, informertest.NewSource(object("a", "1")), options{Name: "elsewhere"})
		early := &stub{name: "early", run: func(context.Context) error { return nil }}
		pods, heal := refused(t, "")
		add(t, &g, elsewhere, pods, early)
		informertest.Run(t, elsewhere)
		stop := startGroup(t, &g)

		begin := time.Now()
		err := g.WaitForSync(t.Context())
		equal(t, "WaitForSync took", time.Since(begin), 0)
		e := mustBeLate(t, err, "elsewhere", "Pod: the first list", "early")
		if errors.Is(err, informer.ErrStopped) || errors.Is(err, context.Canceled) || !errors.Is(e.Reason, informer.ErrAlreadyRun) ||
			!strings.Contains(err.Error(), "a member has failed while waiting for") || !strings.Contains(err.Error(), "Run of early: it returned before its ctx had ended") {
			t.Errorf("WaitForSync: %v", err)
		}

		heal()
		mustSync(t, pods)
		sleepBubble(hour)
		var reported []string
		for _, err := range errs.Take() {
			reported = append(reported, err.Error())
		}
		equal(t, "reported", sorted(reported), []string{
			"informer: Group: Run of early: it returned before its ctx had ended",
			"informer: Group: Run of elsewhere: informer elsewhere: informer has already been run",
		})
		if err := stop(); !errors.Is(err, informer.ErrAlreadyRun) || !strings.Contains(err.Error(), "Run of early") {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestWithoutAnErrorHandlerAGroupLogsAMemberWhoseRunFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g informer.Group
		failure := errors.New("mine")
		add(t, &g, &stub{name: "broken", run: func(context.Context) error { return failure }})
		ctx, lines := logged(t.Context(), 0)
		ctx, cancel := context.WithCancel(ctx)
		done := asking(func() error { return g.Run(ctx) })
		synctest.Wait()
		if got := lines(); len(got) != 1 || !errors.Is(got[0].Err, failure) {
			t.Errorf("logged: %v", got)
		}
		cancel()
		fails(t, <-done, failure)
	})
}

func TestTheFieldsOfAGroupMayBeSetUntilItHasItsFirstMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g informer.Group
		startGroup(t, &g)
		waiting := askSync(t, &g)
		construct := informer.ClientGo{Group: &g}.NewSharedIndexInformer
		says(t, g.Add(nil), "the member is nil")
		var applied, late atomic.Int64
		counting := func(n *atomic.Int64) *informer.Observer {
			return &informer.Observer{Apply: func(informer.ApplyInfo) { n.Add(1) }}
		}
		g.ErrorHandler, g.Observer = func(_ context.Context, err error) { t.Error(err) }, counting(&applied)
		runGuest(t, construct, informertest.NewSource(object("a", "1")))
		g.ErrorHandler, g.Observer = nil, counting(&late) // which is too late
		runGuest(t, construct, informertest.NewSource(object("a", "1")))
		add(t, &g, newInformer(t, informertest.NewSource(object("a", "1")), options{}))
		noError(t, <-waiting)
		if early, late := applied.Load(), late.Load(); early != 3 || late != 0 {
			t.Errorf("of 3 informers with an object each, the observer has seen %d events, the later one %d", early, late)
		}
	})
}

func TestTheErrorHandlerMayRemoveAMemberThatHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g informer.Group
		broken := &stub{name: "broken", run: func(context.Context) error { return errors.New("mine") }}
		g.ErrorHandler = func(context.Context, error) {
			noError(t, g.Remove(broken))
		}
		add(t, &g, broken, &stub{name: "other"})
		stop := startGroup(t, &g)
		mustSync(t, &g)
		noError(t, stop()) // the error of a removed member does not count
	})
}

func TestMembersAreRemovedOneByOneWhileTheOthersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type member struct {
			*ci
			src *source
			recorder
			reg *informer.Registration
		}
		g, members := newGroup(t), make([]member, 5)
		for i := range members {
			m := &members[i]
			m.src = informertest.NewSource[configMap]()
			m.ci = newInformer(t, m.src, options{Name: fmt.Sprint("m", i)})
			m.reg = addWatcher(t, m.ci, &m.recorder, informer.WatcherOptions{})
			add(t, g, m.ci)
		}
		startGroup(t, g)
		mustSync(t, g)
		for gone := range members {
			for i := range members {
				members[i].src.Apply(object(fmt.Sprint("round", gone), "1"))
			}
			for i := range members[gone:] {
				members[gone+i].Expect(t, fmt.Sprint("added default/round", gone))
			}
			noError(t, g.Remove(members[gone].ci))
			equal(t, fmt.Sprintf("m%d has stopped when Remove returns", gone), channel.Closed(members[gone].reg.Stopped()), true)
			if left := g.Health(); len(left) != len(members)-gone-1 || left[fmt.Sprint("m", gone)] != nil {
				t.Errorf("members: %v", left)
			}
		}
		synctest.Wait()
		for i := range members {
			members[i].Expect(t)
		}
	})
}

// removable counts the calls of Removed.
type removable struct {
	stub
	removed int
}

func (r *removable) Removed() { r.removed++ }

func TestRemoveWaitsForTheMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		run, release := lingers()
		m, other := &removable{stub: stub{name: "m", run: run}}, &stub{name: "other"}
		add(t, g, m, other)
		startGroup(t, g)
		first, second := asking(func() error { return g.Remove(m) }), asking(func() error { return g.Remove(m) })
		pending(t, "Remove", first)
		pending(t, "the second Remove", second)
		_, shown := g.Health()["m"]
		equal(t, "Health shows a member that is being removed", shown, false)
		mustSync(t, g)                              // WaitForSync does not wait for it
		says(t, g.Add(m), "informer: Group: Add: ") // it has not stopped yet
		release()
		noError(t, errors.Join(<-first, <-second))
		equal(t, "calls of Removed", m.removed, 1)
		says(t, g.Remove(m), "informer: Group: Remove: m is not a member")
	})
}

func TestAMemberNeedsANameOfItsOwnUntilItIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, taken := newGroup(t), `another member has the name "ConfigMap": set Options.Name`
		run, release := lingers()
		first, unnamed := &stub{name: "ConfigMap", run: run}, newInformer(t, informertest.NewSource(object("a", "1")), options{})
		add(t, g, first)
		startGroup(t, g)
		shared := func() error {
			_, err := informer.GetOrAdd(g, "", func() (*ci, error) { return unnamed, nil })
			return err
		}
		says(t, g.Add(unnamed), "informer: Group: Add: "+taken)
		says(t, shared(), "informer: Group: GetOrAdd: "+taken)
		if h := g.Health(); len(h) != 1 || unnamed.Health().Started {
			t.Errorf("a refused informer is a member: %v", h)
		}
		add(t, g, newInformer(t, informertest.NewSource(object("a", "1")), options{Name: "other"}))
		removed := asking(func() error { return g.Remove(first) })
		pending(t, "Remove", removed)
		noError(t, shared()) // the leaver's name is free, although it still runs
		mustSync(t, g)
		if h := g.Health(); len(h) != 2 || !healthOf(g, "ConfigMap").Synced {
			t.Errorf("members: %v", h)
		}
		release()
		noError(t, <-removed)
	})
}

func TestRemoveBeforeRunOrAfterTheStopOnlyTakesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, src := newGroup(t), informertest.NewSource(object("a", "1"))
		inf := newInformer(t, src, options{})
		add(t, g, inf, &stub{})
		noError(t, g.Remove(inf))
		stop := startGroup(t, g)
		mustSync(t, g)
		equal(t, "requests", len(src.Requests()), 0)
		add(t, g, inf)
		mustSync(t, inf)
		noError(t, stop())
		noError(t, g.Remove(inf))
		_, shown := g.Health()["ConfigMap"]
		equal(t, "it is still a member", shown, false)
		says(t, g.Remove(nil), "informer: Group: Remove: the member is nil")
	})
}

// first is a member that works with what others deliver.
type first struct{ stub }

func (*first) StopsFirst() bool { return true }

func TestAMemberStopsFirstIfItAsksForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g informer.Group
		run, release := lingers()
		stopped := false
		add(t, &g, &stub{name: "delivers", run: func(ctx context.Context) error { <-ctx.Done(); stopped = true; return nil }}, &first{stub{name: "works", run: run}})
		done := asking(startGroup(t, &g))
		pending(t, "Run", done)
		equal(t, "stopped before the member that works with what it delivers", stopped, false)
		release()
		if err := <-done; err != nil || !stopped {
			t.Errorf("Run returned %v, all have stopped: %v", err, stopped)
		}
	})
}

// A handler that calls Report would call itself, if Report found it again.
func TestReportLeadsToTheHandlerOfTheGroupOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
		startGroup(t, &g)
		if len(reported) != 1 || !errors.Is(reported[0], mine) {
			t.Errorf("reported: %v", reported)
		}
	})
}
