package parity_test

import (
	"testing"
	"testing/synctest"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/informertest"
)

func TestSharedHandlersThatAreRemoved(t *testing.T) {
	sharedCases{
		"before the start hear nothing":                         removedBeforeStart,
		"while it runs hear nothing more":                       removedWhileRunning,
		"may be removed again":                                  removedTwice,
		"may be removed after the informer has stopped":         removedAfterStop,
		"must be of that informer to be removed":                removedElsewhere,
		"need a handle":                                         removedWithoutAHandle,
		"leave the other registrations of the same value alone": removedOneOfThree,
		"may remove themselves":                                 removedByItself,
		"may add and remove others from a call":                 addedAndRemovedFromACall,
		"lose what waits for them":                              removedWithABacklog,
		"are no longer called once they are shut down":          shutDownWaits,
		"can be shut down at any time of the informer's life":   shutDownAtAnyTime,
		"can be shut down twice":                                shutDownTwice,
	}.inBubbles(t)
}

func removedBeforeStart(t *testing.T, s shared) {
	src := two()
	inf := s.new(src, 0)
	var removed, stays heard
	reg := handle(t, inf, &removed)
	handle(t, inf, &stays)
	wantError(t, false, "remove", inf.RemoveEventHandler(reg))
	runShared(t, inf)
	src.Apply(object("a", "2"))
	stays.expect(t, "add a@1 initial", "add b@2 initial", "update a@1->a@3")
	removed.expect(t)
}

func removedWhileRunning(t *testing.T, s shared) {
	src := informertest.NewSource(object("a", "1"))
	inf := s.new(src, 0)
	var removed, stays heard
	reg := handle(t, inf, &removed)
	handle(t, inf, &stays)
	runShared(t, inf)
	src.Apply(object("a", "2"))
	synctest.Wait()
	wantError(t, false, "remove", inf.RemoveEventHandler(reg))
	checkSynced(t, "the removed handler", true, reg) // as before the removal
	src.Apply(object("a", "3"))
	stays.expect(t, "add a@1 initial", "update a@1->a@2", "update a@2->a@3")
	removed.expect(t, "add a@1 initial", "update a@1->a@2")
}

func removedTwice(t *testing.T, s shared) {
	inf := s.new(two(), 0)
	early := handle(t, inf, &heard{})
	for range 3 {
		wantError(t, false, "remove before the start", inf.RemoveEventHandler(early))
	}
	runShared(t, inf)
	late := handle(t, inf, &heard{})
	for range 3 {
		wantError(t, false, "remove", inf.RemoveEventHandler(late))
		wantError(t, false, "remove one that never ran", inf.RemoveEventHandler(early))
	}
}

func removedAfterStop(t *testing.T, s shared) {
	inf := s.new(two(), 0)
	reg := handle(t, inf, &heard{})
	runShared(t, inf)()
	wantError(t, false, "remove", inf.RemoveEventHandler(reg))
	wantError(t, false, "remove again", inf.RemoveEventHandler(reg))
}

func removedElsewhere(t *testing.T, s shared) {
	src := informertest.NewSource(object("a", "1"))
	mine, other := s.new(src, 0), s.new(src, 0)
	var h, o heard
	reg := handle(t, mine, &h)
	wantError(t, false, "remove from one without handlers", other.RemoveEventHandler(reg))
	handle(t, other, &o)
	wantError(t, false, "remove from another", other.RemoveEventHandler(reg))
	runShared(t, mine)
	runShared(t, other)
	wantError(t, false, "remove from another that runs", other.RemoveEventHandler(reg))
	src.Apply(object("a", "2"))
	h.expect(t, "add a@1 initial", "update a@1->a@2")
	o.expect(t, "add a@1 initial", "update a@1->a@2")
}

func removedWithoutAHandle(t *testing.T, s shared) {
	inf := s.new(two(), 0)
	reg := handle(t, inf, &heard{})
	check := func(when string) {
		wantError(t, true, "remove nil "+when, inf.RemoveEventHandler(nil))
		wantError(t, true, "remove something else "+when, inf.RemoveEventHandler(struct{ sharedRegistration }{reg}))
	}
	check("before the start")
	stop := runShared(t, inf)
	check("while it runs")
	stop()
	check("after the stop")
}

func removedOneOfThree(t *testing.T, s shared) {
	src := informertest.NewSource(object("a", "1"))
	inf := s.new(src, 0)
	var h heard
	first := handle(t, inf, &h)
	handle(t, inf, &h)
	runShared(t, inf)
	h.expect(t, "add a@1 initial", "add a@1 initial")
	third := handle(t, inf, &h)
	h.expect(t, "add a@1 initial")
	src.Apply(object("a", "2"))
	h.expect(t, "update a@1->a@2", "update a@1->a@2", "update a@1->a@2")
	wantError(t, false, "remove the first", inf.RemoveEventHandler(first))
	src.Apply(object("a", "3"))
	h.expect(t, "update a@2->a@3", "update a@2->a@3")
	wantError(t, false, "remove the third", inf.RemoveEventHandler(third))
	src.Apply(object("a", "4"))
	h.expect(t, "update a@3->a@4")
}

func removedByItself(t *testing.T, s shared) {
	src := informertest.NewSource(object("a", "1"))
	inf := s.new(src, 0)
	var reg sharedRegistration
	h := heard{hook: func(event string) {
		if event == "update a@1->a@2" {
			wantError(t, false, "remove from a call", inf.RemoveEventHandler(reg))
		}
	}}
	reg = handle(t, inf, &h)
	runShared(t, inf)
	src.Apply(object("a", "2"))
	synctest.Wait()
	src.Apply(object("a", "3"))
	h.expect(t, "add a@1 initial", "update a@1->a@2")
}

func addedAndRemovedFromACall(t *testing.T, s shared) {
	src := informertest.NewSource(object("a", "1"))
	inf := s.new(src, 0)
	var other heard
	var otherReg sharedRegistration
	h := heard{hook: func(event string) {
		switch event {
		case "update a@1->a@2":
			otherReg = handle(t, inf, &other)
		case "update a@2->a@3":
			wantError(t, false, "remove another from a call", inf.RemoveEventHandler(otherReg))
		}
	}}
	handle(t, inf, &h)
	runShared(t, inf)
	src.Apply(object("a", "2"))
	other.expect(t, "add a@2 initial")
	src.Apply(object("a", "3"))
	synctest.Wait()
	other.take() // the handler may or may not have got this update
	src.Apply(object("a", "4"))
	other.expect(t)
	h.expect(t, "add a@1 initial", "update a@1->a@2", "update a@2->a@3", "update a@3->a@4")
}

func removedWithABacklog(t *testing.T, s shared) {
	src := informertest.NewSource(object("a", "1"))
	inf := s.new(src, 0)
	g := newGate()
	h := heard{hook: g.wait}
	reg := handle(t, inf, &h)
	runShared(t, inf)
	for _, value := range []string{"2", "3", "4"} {
		src.Apply(object("a", value))
	}
	synctest.Wait()
	wantError(t, false, "remove", inf.RemoveEventHandler(reg))
	synctest.Wait()
	close(g.open)
	h.expect(t, "add a@1 initial")
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

func shutDownWaits(t *testing.T, s shared) {
	src := informertest.NewSource(object("a", "1"))
	inf := s.new(src, 0)
	g := newGate()
	h := heard{hook: g.wait}
	reg := handle(t, inf, &h)
	needShutDown(t, reg)
	runShared(t, inf)
	src.Apply(object("a", "2"))
	done := make(chan error, 1)
	go func() { done <- shutDown(inf, reg) }()
	synctest.Wait()
	select {
	case err := <-done:
		t.Fatalf("returned %v in the middle of a call", err)
	default:
	}
	close(g.open)
	wantError(t, false, "shut down", <-done)
	src.Apply(object("a", "3"))
	h.expect(t, "add a@1 initial")
}

func shutDownAtAnyTime(t *testing.T, s shared) {
	src := informertest.NewSource(object("a", "1"))
	inf := s.new(src, 0)
	var before, early, late, last heard
	beforeReg, earlyReg, lastReg := handle(t, inf, &before), handle(t, inf, &early), handle(t, inf, &last)
	needShutDown(t, beforeReg)
	wantError(t, false, "shut down before the start", shutDown(inf, beforeReg))
	stop := runShared(t, inf)
	lateReg := handle(t, inf, &late)
	synctest.Wait()
	wantError(t, false, "shut down one that was there at the start", shutDown(inf, earlyReg))
	wantError(t, false, "shut down one that came late", shutDown(inf, lateReg))
	src.Apply(object("a", "2"))
	before.expect(t)
	early.expect(t, "add a@1 initial")
	late.expect(t, "add a@1 initial")
	last.expect(t, "add a@1 initial", "update a@1->a@2")
	stop()
	wantError(t, false, "shut down after the stop", shutDown(inf, lastReg))
}

func shutDownTwice(t *testing.T, s shared) {
	inf := s.new(two(), 0)
	early := handle(t, inf, &heard{})
	needShutDown(t, early)
	runShared(t, inf)
	late := handle(t, inf, &heard{})
	for range 3 {
		wantError(t, false, "shut down", shutDown(inf, early))
		wantError(t, false, "shut down", shutDown(inf, late))
	}
}
