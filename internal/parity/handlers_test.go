package parity_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/informertest"
)

func TestSharedHandlersHear(t *testing.T) {
	sharedCases{
		"the first list and what follows, when added before the start":  addedBeforeStart,
		"the first list and what follows, when added before it arrives": addedBeforeTheList,
		"what there is and what follows, when added late":               addedLate,
		"what there was when they were added, and its delete":           addedJustBeforeADelete,
		"the same from a source that lists and one that streams":        addedBeforeStartOfALister,
		"of the objects that the cache holds":                           hearOfCachedObjects,
		"of the cache after it has changed":                             hearAfterTheCache,
		"the last state of what was deleted":                            hearTheLastState,
		"nothing twice when several are registered":                     severalHandlers,
		"all states, however slow they are":                             hearAllStates,
		"adds and updates by what the cache holds":                      hearByTheCache,
		"nothing when nothing changes":                                  hearNothingOfBookmarks,
	}.inBubbles(t)
}

func addedBeforeStart(t *testing.T, s shared) {
	checkAddedBeforeStart(t, s, two())
}

func addedBeforeStartOfALister(t *testing.T, s shared) {
	src := two()
	src.SetFaults(informertest.Faults{RejectWatchList: true})
	checkAddedBeforeStart(t, s, src)
}

func checkAddedBeforeStart(t *testing.T, s shared, src *source) {
	inf := s.new(src, 0)
	var h heard
	handle(t, inf, &h)
	synctest.Wait()
	h.expect(t)

	runShared(t, inf)
	h.expect(t, "add a@1 initial", "add b@2 initial")
	src.Apply(object("c", "1"))
	src.Apply(object("a", "2"))
	remove(t, src, "b")
	src.Apply(object("b", "2"))
	h.expect(t, "add c@3", "update a@1->a@4", "delete b@5", "add b@6")
	checkShared(t, inf, "a@4", "b@6", "c@3")
}

func addedBeforeTheList(t *testing.T, s shared) {
	src := two()
	src.SetFaults(informertest.Faults{HoldLists: true, RejectWatchList: true})
	release := func() { src.SetFaults(informertest.Faults{RejectWatchList: true}) }
	inf := s.new(src, 0)
	runShared(t, inf)
	var h heard
	reg := handle(t, inf, &h)
	synctest.Wait()
	if inf.HasSynced() || reg.HasSynced() {
		t.Error("synced without a list")
	}
	h.expect(t)

	release()
	h.expect(t, "add a@1 initial", "add b@2 initial")
	src.Apply(object("c", "1"))
	h.expect(t, "add c@3")
}

func addedLate(t *testing.T, s shared) {
	src := two()
	inf := s.new(src, 0)
	runShared(t, inf)
	src.Apply(object("c", "1"))
	src.Apply(object("a", "2"))
	synctest.Wait()
	var h heard
	handle(t, inf, &h)
	h.expect(t, "add a@4 initial", "add b@2 initial", "add c@3 initial")
	src.Apply(object("d", "1"))
	src.Apply(object("a", "3"))
	remove(t, src, "b")
	h.expect(t, "add d@5", "update a@4->a@6", "delete b@7")
}

func addedJustBeforeADelete(t *testing.T, s shared) {
	src := two()
	inf := s.new(src, 0)
	runShared(t, inf)
	var h heard
	handle(t, inf, &h)
	remove(t, src, "a")
	src.Apply(object("b", "2"))
	h.expect(t, "add a@1 initial", "delete a@3", "add b@2 initial", "update b@2->b@4")
}

func hearOfCachedObjects(t *testing.T, s shared) {
	src := informertest.NewSource(object("a", "1"))
	inf := s.new(src, 0)
	var early, late heard
	handle(t, inf, &early)
	runShared(t, inf)
	first := cached(t, inf, "a")
	if _, got := early.last(t); got != first {
		t.Error("the added object is not the object in the store")
	}
	handle(t, inf, &late)
	synctest.Wait()
	if _, got := late.last(t); got != first {
		t.Error("the object added to the late handler is not the object in the store")
	}

	src.Apply(object("a", "2"))
	synctest.Wait()
	for _, h := range []*heard{&early, &late} {
		before, after := h.last(t)
		if before != first {
			t.Error("the old object of an update is not the one that was added")
		}
		if after != cached(t, inf, "a") {
			t.Error("the new object of an update is not the object in the store")
		}
	}
}

func hearAfterTheCache(t *testing.T, s shared) {
	src := informertest.NewSource(object("a", "1"))
	inf := s.new(src, 0)
	var stored []string
	h := heard{hook: func(string) {
		if obj, exists, _ := inf.GetIndexer().GetByKey("default/a"); exists {
			stored = append(stored, stateOf(obj))
		} else {
			stored = append(stored, "none")
		}
	}}
	handle(t, inf, &h)
	runShared(t, inf)
	src.Apply(object("a", "2"))
	synctest.Wait()
	remove(t, src, "a")
	synctest.Wait()
	if got := strings.Join(stored, " "); got != "a@1 a@2 none" {
		t.Errorf("at the time of each event the store held: %s", got)
	}
}

func hearTheLastState(t *testing.T, s shared) {
	src := informertest.NewSource(object("a", "1"))
	inf := s.new(src, 0)
	var h heard
	handle(t, inf, &h)
	runShared(t, inf)
	src.Apply(object("a", "last"))
	remove(t, src, "a")
	synctest.Wait()
	_, got := h.last(t)
	if value := got.(configMap).Data["value"]; value != "last" {
		t.Errorf("the delete has the value %q", value)
	}
	h.expect(t, "add a@1 initial", "update a@1->a@2", "delete a@3")
	if got := inf.LastSyncResourceVersion(); short(got) != "3" {
		t.Errorf("the last version is %s, not the version of the delete", got)
	}
}

func severalHandlers(t *testing.T, s shared) {
	src := informertest.NewSource(object("a", "1"))
	inf := s.new(src, 0)
	handlers := make([]heard, 5)
	for i := range handlers {
		handle(t, inf, &handlers[i])
	}
	runShared(t, inf)
	src.Apply(object("a", "2"))
	synctest.Wait()
	for i := range handlers {
		handlers[i].expect(t, "add a@1 initial", "update a@1->a@2")
	}
}

// The backlog of a handler has no bound, so no waiting event is merged.
func hearAllStates(t *testing.T, s shared) {
	src := informertest.NewSource(object("a", "1"))
	inf := s.new(src, 0)
	g := newGate()
	h := heard{hook: g.wait}
	const maxBacklog = 10_000 // of a watcher, by default
	g.entered = make(chan struct{}, 2*maxBacklog)
	handle(t, inf, &h)
	runShared(t, inf)
	const n = maxBacklog + 100
	want := []string{"add a@1 initial"}
	for i := range n {
		src.Apply(object("a", fmt.Sprint(i+2)))
		want = append(want, fmt.Sprintf("update a@%d->a@%d", i+1, i+2))
	}
	synctest.Wait()
	close(g.open)
	synctest.Wait()
	if got := h.take(); !slices.Equal(got, want) {
		t.Errorf("the handler got %d events, want %d", len(got), len(want))
	}
}

func hearByTheCache(t *testing.T, s shared) {
	src := informertest.NewSource(object("a", "1"))
	inf := s.new(src, 0)
	var h heard
	handle(t, inf, &h)
	runShared(t, inf)
	again, unknown := object("a", "2"), object("b", "1")
	again.ResourceVersion, unknown.ResourceVersion = "1005", "1006"
	src.Inject(watch.Event{Type: watch.Added, Object: again})
	src.Inject(watch.Event{Type: watch.Modified, Object: unknown})
	h.expect(t, "add a@1 initial", "update a@1->a@5", "add b@6")
}

func hearNothingOfBookmarks(t *testing.T, s shared) {
	src, _, h := settled(t, s)
	src.Bookmark()
	sleepBubble(time.Minute) // the reflector treats a watch that ends at once as a fault
	src.Disconnect()         // the next watch starts at the last version
	sleepBubble(hour)
	src.Bookmark()
	h.expect(t)
}

func TestSharedSyncing(t *testing.T) {
	sharedCases{
		"of the informer and of a handler is seen in every way": syncedInEveryWay,
		"needs a list": notSyncedWithoutAList,
		"needs nothing more if the list is empty":            syncedWhenEmpty,
		"of a slow handler comes after that of the informer": slowHandlerSyncsLater,
		"of a late handler comes after its first calls":      lateHandlerSyncs,
		"never comes once stopped":                           neverSyncedOnceStopped,
		"of a removed handler never comes":                   neverSyncedOnceRemoved,
		"goes on after the source was refused":               syncedAfterRefusals,
		"means that the cache or the handler has all":        syncedMeansAll,
		"is waited for as all of client-go does":             waitedForAsClientGoDoes,
	}.inBubbles(t)
}

// checkSynced fails the test unless all methods that report the sync return want.
func checkSynced(t *testing.T, what string, want bool, of interface {
	HasSynced() bool
	HasSyncedChecker() cache.DoneChecker
}) {
	t.Helper()
	if of.HasSynced() != want {
		t.Errorf("HasSynced of %s is not %t", what, want)
	}
	if cache.IsDone(of.HasSyncedChecker()) != want {
		t.Errorf("Done of HasSyncedChecker of %s is not %t", what, want)
	}
}

func syncedInEveryWay(t *testing.T, s shared) {
	inf := s.new(two(), 0)
	var h heard
	reg := handle(t, inf, &h)
	informerDone, handlerDone := inf.HasSyncedChecker(), reg.HasSyncedChecker()
	checkSynced(t, "the informer", false, inf)
	checkSynced(t, "the controller", false, inf.GetController())
	checkSynced(t, "the handler", false, reg)

	runShared(t, inf)
	checkSynced(t, "the informer", true, inf)
	checkSynced(t, "the controller", true, inf.GetController())
	checkSynced(t, "the handler", true, reg)
	if !cache.IsDone(informerDone) || !cache.IsDone(handlerDone) {
		t.Error("the checkers obtained before the start are not done")
	}
	if name := informerDone.Name(); !strings.Contains(name, "ConfigMap") {
		t.Errorf("the name of the informer's checker is %q", name)
	}
	if name := handlerDone.Name(); !strings.Contains(name, "ConfigMap") || !strings.Contains(name, "heard") {
		t.Errorf("the name of the handler's checker is %q", name)
	}
}

func notSyncedWithoutAList(t *testing.T, s shared) {
	src := two()
	src.SetFaults(informertest.Faults{HoldLists: true, RejectWatchList: true})
	release := func() { src.SetFaults(informertest.Faults{RejectWatchList: true}) }
	inf := s.new(src, time.Minute)
	var h heard
	reg := handle(t, inf, &h)
	runShared(t, inf)
	sleepBubble(hour)
	checkSynced(t, "the informer", false, inf)
	checkSynced(t, "the handler", false, reg)
	release()
	synctest.Wait()
	checkSynced(t, "the informer", true, inf)
	checkSynced(t, "the handler", true, reg)
}

func syncedWhenEmpty(t *testing.T, s shared) {
	for _, rejects := range []bool{false, true} {
		src := informertest.NewSource[configMap]()
		src.SetFaults(informertest.Faults{RejectWatchList: rejects})
		inf := s.new(src, 0)
		var early, late heard
		earlyReg := handle(t, inf, &early)
		runShared(t, inf)
		checkSynced(t, "the informer", true, inf)
		checkSynced(t, "the early handler", true, earlyReg)
		lateReg := handle(t, inf, &late)
		synctest.Wait()
		checkSynced(t, "the late handler", true, lateReg)
		early.expect(t)
		late.expect(t)
	}
}

func slowHandlerSyncsLater(t *testing.T, s shared) {
	src := two()
	inf := s.new(src, 0)
	g := newGate()
	slow, fast := heard{hook: g.wait}, heard{}
	slowReg, fastReg := handle(t, inf, &slow), handle(t, inf, &fast)
	runShared(t, inf)
	checkSynced(t, "the informer", true, inf)
	checkSynced(t, "the fast handler", true, fastReg)
	checkSynced(t, "the slow handler", false, slowReg)
	src.Apply(object("c", "1"))
	fast.expect(t, "add a@1 initial", "add b@2 initial", "add c@3")

	close(g.open)
	synctest.Wait()
	checkSynced(t, "the slow handler", true, slowReg)
	slow.expect(t, "add a@1 initial", "add b@2 initial", "add c@3")
}

func lateHandlerSyncs(t *testing.T, s shared) {
	src := two()
	inf := s.new(src, 0)
	runShared(t, inf)
	g := newGate()
	h := heard{hook: g.wait}
	reg := handle(t, inf, &h)
	checkSynced(t, "the handler, just added,", false, reg)
	synctest.Wait()
	checkSynced(t, "the handler in its first call", false, reg)
	close(g.open)
	synctest.Wait()
	checkSynced(t, "the handler", true, reg)
}

func neverSyncedOnceStopped(t *testing.T, s shared) {
	src := two()
	src.SetFaults(informertest.Faults{HoldLists: true, RejectWatchList: true})
	release := func() { src.SetFaults(informertest.Faults{RejectWatchList: true}) }
	inf := s.new(src, 0)
	reg := handle(t, inf, &heard{})
	runShared(t, inf)()
	release()
	sleepBubble(hour)
	checkSynced(t, "the informer", false, inf)
	checkSynced(t, "the handler", false, reg)
}

func neverSyncedOnceRemoved(t *testing.T, s shared) {
	inf := s.new(two(), 0)
	reg := handle(t, inf, &heard{})
	wantError(t, false, "remove", inf.RemoveEventHandler(reg))
	runShared(t, inf)
	checkSynced(t, "the informer", true, inf)
	checkSynced(t, "the handler", false, reg)
}

func syncedAfterRefusals(t *testing.T, s shared) {
	src := two()
	refuseLists(src, 5)
	inf := s.new(src, 0)
	var h heard
	reg := handle(t, inf, &h)
	runShared(t, inf)
	checkSynced(t, "the refused informer", false, inf)
	sleepBubble(hour)
	checkSynced(t, "the informer", true, inf)
	checkSynced(t, "the handler", true, reg)
	h.expect(t, "add a@1 initial", "add b@2 initial")
}

func waitedForAsClientGoDoes(t *testing.T, s shared) {
	inf := s.new(two(), 0)
	reg := handle(t, inf, &heard{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if cache.WaitFor(ctx, "", inf.HasSyncedChecker(), reg.HasSyncedChecker()) {
		t.Error("WaitFor succeeds before the start")
	}
	runShared(t, inf)
	if !cache.WaitFor(t.Context(), "", inf.HasSyncedChecker(), reg.HasSyncedChecker()) {
		t.Error("WaitFor fails")
	}
	if !cache.WaitForCacheSync(t.Context().Done(), inf.HasSynced, reg.HasSynced) {
		t.Error("WaitForCacheSync fails")
	}
}

func syncedMeansAll(t *testing.T, s shared) {
	src := informertest.NewSource[configMap]()
	const n = 1000
	for i := range n {
		src.Apply(object(fmt.Sprint(i), "1"))
	}
	inf := s.new(src, 0)
	var h heard
	reg := handle(t, inf, &h)
	goShared(t, inf)
	<-inf.HasSyncedChecker().Done()
	if got := len(inf.GetStore().List()); got != n {
		t.Errorf("the cache has synced with %d of %d objects", got, n)
	}
	<-reg.HasSyncedChecker().Done()
	if got := len(h.take()); got != n {
		t.Errorf("the handler has synced after %d of %d calls", got, n)
	}
}
