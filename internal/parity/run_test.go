package parity_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

func TestSharedRun(t *testing.T) {
	sharedCases{
		"ends with its channel":                      runEndsWithItsChannel,
		"with a closed channel does nothing":         runWithAClosedChannel,
		"the second time does nothing":               runTwice,
		"after a stop does nothing":                  runAgain,
		"does not return in the middle of a call":    runWaitsForCalls,
		"lets what waits go when it is stopped":      runDropsWhatWaits,
		"is stopped for good":                        stoppedForGood,
		"can be stopped while a list is held up":     stoppedInAList,
		"can be stopped while the source is refused": stoppedInABackoff,
	}.inBubbles(t)
}

func runEndsWithItsChannel(t *testing.T, s shared) {
	src := two()
	inf := s.new(src, 0)
	var h heard
	reg := handle(t, inf, &h)
	stop, done := make(chan struct{}), make(chan struct{})
	if inf.IsStopped() {
		t.Error("stopped before the start")
	}
	go func() {
		defer close(done)
		inf.Run(stop)
	}()
	h.expect(t, "add a@1 initial", "add b@2 initial")
	if inf.IsStopped() {
		t.Error("stopped while it runs")
	}
	close(stop)
	<-done
	if !inf.IsStopped() {
		t.Error("not stopped")
	}
	checkSynced(t, "the informer", true, inf) // as before the stop
	checkSynced(t, "the handler", true, reg)
	synctest.Wait()
	if n := src.Watches(); n != 0 {
		t.Errorf("%d watches are open after the stop", n)
	}
	src.Apply(object("a", "2"))
	h.expect(t)
	checkShared(t, inf, "a@1", "b@2") // the cache can still be read
}

func runWithAClosedChannel(t *testing.T, s shared) {
	inf := s.new(two(), 0)
	var h heard
	reg := handle(t, inf, &h)
	closed := make(chan struct{})
	close(closed)
	inf.Run(closed)
	if !inf.IsStopped() {
		t.Error("not stopped")
	}
	checkSynced(t, "the informer", false, inf)
	checkSynced(t, "the handler", false, reg)
	h.expect(t)
}

func runTwice(t *testing.T, s shared) {
	src := two()
	inf := s.new(src, 0)
	var h heard
	handle(t, inf, &h)
	runShared(t, inf)
	stop := make(chan struct{})
	inf.Run(stop)
	inf.RunWithContext(t.Context())
	close(stop)
	synctest.Wait()
	if inf.IsStopped() {
		t.Error("stopped by the second run")
	}
	src.Apply(object("a", "2"))
	h.expect(t, "add a@1 initial", "add b@2 initial", "update a@1->a@3")
}

func runAgain(t *testing.T, s shared) {
	src := two()
	inf := s.new(src, 0)
	var h heard
	handle(t, inf, &h)
	runShared(t, inf)()
	h.take()
	requests := len(src.Requests())
	inf.RunWithContext(t.Context())
	h.expect(t)
	if n := len(src.Requests()) - requests; n != 0 || !inf.IsStopped() {
		t.Errorf("made %d requests, is stopped: %t", n, inf.IsStopped())
	}
}

func runWaitsForCalls(t *testing.T, s shared) {
	inf := s.new(informertest.NewSource(object("a", "1")), 0)
	g := newGate()
	handle(t, inf, &heard{hook: g.wait})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		inf.RunWithContext(ctx)
	}()
	<-g.entered
	cancel()
	synctest.Wait()
	select {
	case <-done:
		t.Error("returned in the middle of a call")
	default:
	}
	close(g.open)
	<-done
}

func runDropsWhatWaits(t *testing.T, s shared) {
	src := informertest.NewSource(object("a", "1"))
	inf := s.new(src, 0)
	g := newGate()
	h := heard{hook: g.wait}
	handle(t, inf, &h)
	stop := runShared(t, inf)
	for _, value := range []string{"2", "3", "4"} {
		src.Apply(object("a", value))
	}
	synctest.Wait()
	go func() {
		time.Sleep(time.Minute)
		close(g.open)
	}()
	stop()
	h.expect(t, "add a@1 initial")
}

func stoppedForGood(t *testing.T, s shared) {
	inf := s.new(two(), 0)
	runShared(t, inf)()
	if !inf.IsStopped() {
		t.Error("not stopped")
	}
	var h heard
	_, err := inf.AddEventHandler(&h)
	wantStopped(t, s, "AddEventHandler", err, " was not added to shared informer because it has stopped already")
	_, err = inf.AddEventHandlerWithResyncPeriod(&h, time.Minute)
	wantStopped(t, s, "AddEventHandlerWithResyncPeriod", err, " was not added to shared informer because it has stopped already")
	_, err = inf.AddEventHandlerWithOptions(&h, cache.HandlerOptions{})
	wantStopped(t, s, "AddEventHandlerWithOptions", err, " was not added to shared informer because it has stopped already")
	err = inf.AddIndexers(cache.Indexers{"new": cache.MetaNamespaceIndexFunc})
	wantStopped(t, s, "AddIndexers", err, "indexer was not added because it has stopped already")
	h.expect(t)
}

// wantStopped fails the test unless the text of err ends with client-go's words and, for our
// informers, err wraps ErrStopped.
func wantStopped(t *testing.T, s shared, what string, err error, words string) {
	t.Helper()
	if err == nil || !strings.HasSuffix(err.Error(), words) || errors.Is(err, informer.ErrStopped) != s.ours() {
		t.Errorf("%s: error is %v", what, err)
	}
}

func stoppedInAList(t *testing.T, s shared) {
	src := two()
	src.SetFaults(informertest.Faults{HoldLists: true, RejectWatchList: true})
	defer func() { src.SetFaults(informertest.Faults{RejectWatchList: true}) }()
	inf := s.new(src, 0)
	runShared(t, inf)()
	if !inf.IsStopped() {
		t.Error("not stopped")
	}
}

func stoppedInABackoff(t *testing.T, s shared) {
	src := two()
	refuseLists(src, -1)
	inf := s.new(src, 0)
	stop := runShared(t, inf)
	sleepBubble(hour)
	begun := time.Now()
	stop()
	if took := time.Since(begun); took > time.Second {
		t.Errorf("the stop took %v", took)
	}
}
