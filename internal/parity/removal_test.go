package parity_test

import (
	"testing"
	"testing/synctest"

	"k8s.io/client-go/tools/cache"
)

func TestSharedHandlersThatAreRemoved(t *testing.T) {
	sharedCases{
		"before the start hear nothing": func(t *testing.T, s shared) {
			src, inf := s.over(two())
			removed, stays := listen(t, inf), listen(t, inf)
			wantError(t, false, "remove", inf.RemoveEventHandler(removed.reg))
			runShared(t, inf)
			change(t, src, "a=2")
			stays.expect(t, "add a@1 initial", "add b@2 initial", "update a@1->a@3")
			removed.expect(t)
			checkSynced(t, true, inf)
			checkSynced(t, false, removed.reg)
		},
		"while it runs hear nothing more": func(t *testing.T, s shared) {
			src, inf := s.over(one())
			removed, stays := listen(t, inf), listen(t, inf)
			runShared(t, inf)
			change(t, src, "a=2")
			synctest.Wait()
			wantError(t, false, "remove", inf.RemoveEventHandler(removed.reg))
			checkSynced(t, true, removed.reg) // as before the removal
			change(t, src, "a=3")
			stays.expect(t, "add a@1 initial", "update a@1->a@2", "update a@2->a@3")
			removed.expect(t, "add a@1 initial", "update a@1->a@2")
		},
		"may be removed again, and after the informer has stopped": func(t *testing.T, s shared) {
			inf := s.new(two(), 0)
			unrun, early := listen(t, inf), listen(t, inf)
			for range 2 {
				wantError(t, false, "remove before the start", inf.RemoveEventHandler(unrun.reg))
			}
			stop := runShared(t, inf)
			late := listen(t, inf)
			for range 2 {
				wantError(t, false, "remove", inf.RemoveEventHandler(late.reg))
				wantError(t, false, "remove one that never ran", inf.RemoveEventHandler(unrun.reg))
			}
			stop()
			for range 2 {
				wantError(t, false, "remove after the stop", inf.RemoveEventHandler(early.reg))
			}
		},
		"must be of that informer to be removed": func(t *testing.T, s shared) {
			src := one()
			mine, other := s.new(src, 0), s.new(src, 0)
			h := listen(t, mine)
			wantError(t, false, "remove from one without handlers", other.RemoveEventHandler(h.reg))
			o := listen(t, other)
			wantError(t, false, "remove from another", other.RemoveEventHandler(h.reg))
			runShared(t, mine)
			runShared(t, other)
			wantError(t, false, "remove from another that runs", other.RemoveEventHandler(h.reg))
			change(t, src, "a=2")
			h.expect(t, "add a@1 initial", "update a@1->a@2")
			o.expect(t, "add a@1 initial", "update a@1->a@2")
		},
		"need a handle": func(t *testing.T, s shared) {
			inf := s.new(two(), 0)
			odd := struct{ sharedRegistration }{listen(t, inf).reg}
			check := func(when string) {
				wantError(t, true, "remove nil "+when, inf.RemoveEventHandler(nil))
				wantError(t, true, "remove something else "+when, inf.RemoveEventHandler(odd))
			}
			check("before the start")
			stop := runShared(t, inf)
			check("while it runs")
			stop()
			check("after the stop")
		},
		"leave the other registrations of the same value alone": func(t *testing.T, s shared) {
			src, inf := s.over(one())
			h := listen(t, inf)
			handle(t, inf, h)
			runShared(t, inf)
			h.expect(t, "add a@1 initial", "add a@1 initial")
			third := handle(t, inf, h)
			h.expect(t, "add a@1 initial")
			change(t, src, "a=2")
			h.expect(t, "update a@1->a@2", "update a@1->a@2", "update a@1->a@2")
			wantError(t, false, "remove the first", inf.RemoveEventHandler(h.reg))
			change(t, src, "a=3")
			h.expect(t, "update a@2->a@3", "update a@2->a@3")
			wantError(t, false, "remove the third", inf.RemoveEventHandler(third))
			change(t, src, "a=4")
			h.expect(t, "update a@3->a@4")
		},
		"may remove themselves": func(t *testing.T, s shared) {
			src, inf := s.over(one())
			var reg sharedRegistration
			h := heard{hook: func(event string) {
				if event == "update a@1->a@2" {
					wantError(t, false, "remove from a call", inf.RemoveEventHandler(reg))
				}
			}}
			reg = handle(t, inf, &h)
			runShared(t, inf)
			change(t, src, "a=2")
			synctest.Wait()
			change(t, src, "a=3")
			h.expect(t, "add a@1 initial", "update a@1->a@2")
		},
		"may add and remove others from a call": func(t *testing.T, s shared) {
			src, inf := s.over(one())
			var other *heard
			h := heard{hook: func(event string) {
				switch event {
				case "update a@1->a@2":
					other = listen(t, inf)
				case "update a@2->a@3":
					wantError(t, false, "remove another from a call", inf.RemoveEventHandler(other.reg))
				}
			}}
			handle(t, inf, &h)
			runShared(t, inf)
			change(t, src, "a=2")
			synctest.Wait()
			other.expect(t, "add a@2 initial")
			change(t, src, "a=3")
			synctest.Wait()
			other.take() // the handler may or may not have got this update
			change(t, src, "a=4")
			other.expect(t)
			h.expect(t, "add a@1 initial", "update a@1->a@2", "update a@2->a@3", "update a@3->a@4")
		},
		"lose what waits for them": func(t *testing.T, s shared) {
			src, g := one(), make(gate)
			inf, h := s.new(src, 0), heard{hook: g.wait}
			reg := handle(t, inf, &h)
			runShared(t, inf)
			change(t, src, "a=2")
			synctest.Wait()
			wantError(t, false, "remove", inf.RemoveEventHandler(reg))
			synctest.Wait()
			close(g)
			h.expect(t, "add a@1 initial")
		},
		"are no longer called once they are shut down": func(t *testing.T, s shared) {
			src, g := one(), make(gate)
			inf, h := s.new(src, 0), heard{hook: g.wait}
			reg := handle(t, inf, &h)
			needShutDown(t, reg)
			runShared(t, inf)
			change(t, src, "a=2")
			synctest.Wait()
			done := make(chan error, 1)
			go func() { done <- shutDown(inf, reg) }()
			synctest.Wait()
			select {
			case err := <-done:
				t.Fatalf("returned %v in the middle of a call", err)
			default:
			}
			close(g)
			wantError(t, false, "shut down", <-done)
			change(t, src, "a=3")
			h.expect(t, "add a@1 initial")
		},
		"can be shut down at any time of the informer's life, and twice": func(t *testing.T, s shared) {
			src, inf := s.over(one())
			before, early, last := listen(t, inf), listen(t, inf), listen(t, inf)
			needShutDown(t, before.reg)
			wantError(t, false, "shut down before the start", shutDown(inf, before.reg))
			stop := runShared(t, inf)
			late := listen(t, inf)
			synctest.Wait()
			for range 2 {
				wantError(t, false, "shut down one that was there at the start", shutDown(inf, early.reg))
				wantError(t, false, "shut down one that came late", shutDown(inf, late.reg))
			}
			change(t, src, "a=2")
			before.expect(t)
			early.expect(t, "add a@1 initial")
			late.expect(t, "add a@1 initial")
			last.expect(t, "add a@1 initial", "update a@1->a@2")
			stop()
			wantError(t, false, "shut down after the stop", shutDown(inf, last.reg))
		},
	}.inBubbles(t)
}

type stoppable interface{ ShutdownChan() <-chan struct{} }

// shutDown removes a handler and waits for the end of its last call, as cache.ShutDownEventHandler of
// client-go 0.37 does. The test skips handlers of client-go 0.36, which offer no way to wait.
func shutDown(inf cache.SharedIndexInformer, reg sharedRegistration) error {
	err := inf.RemoveEventHandler(reg)
	<-reg.(stoppable).ShutdownChan()
	return err
}

func needShutDown(t *testing.T, reg sharedRegistration) {
	t.Helper()
	if _, ok := reg.(stoppable); !ok {
		t.Skip("a handler of client-go 0.36 offers no way to wait for its last call")
	}
}
