package parity_test

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/informertest"
)

func TestSharedRelistsFind(t *testing.T) {
	sharedCases{
		"what was missed":                              relistFindsAll,
		"what was missed, by a list":                   relistFindsAllByAList,
		"the last known state of what is gone":         relistKnowsTheLastState,
		"what was deleted before a late handler came":  relistForALateHandler,
		"an object that was deleted and created again": relistFindsAnother,
		"nothing left of an object that came and went": relistOfTheUnseen,
		"all of it after several refusals":             relistAfterRefusals,
	}.inBubbles(t)
}

func missMuch(t *testing.T, src *source) {
	t.Helper()
	missing(src, func() {
		src.Apply(object("a", "2"))
		src.Apply(object("a", "3"))
		remove(t, src, "b")
		src.Apply(object("c", "1"))
	})
}

func relistFindsAll(t *testing.T, s shared) {
	checkRelist(t, s, two())
}

func relistFindsAllByAList(t *testing.T, s shared) {
	src := two()
	src.SetFaults(informertest.Faults{RejectWatchList: true})
	checkRelist(t, s, src)
}

func checkRelist(t *testing.T, s shared, src *source) {
	inf := s.new(src, 0)
	var h heard
	handle(t, inf, &h)
	runShared(t, inf)
	h.take()
	missMuch(t, src)
	h.expect(t, "update a@1->a@4", "tombstone b@2", "add c@6")
	checkShared(t, inf, "a@4", "c@6")

	src.Apply(object("b", "2"))
	remove(t, src, "c")
	h.expect(t, "add b@8", "delete c@9")
}

func relistKnowsTheLastState(t *testing.T, s shared) {
	src := two()
	inf := s.new(src, 0)
	h, bare := heard{}, make(chan any, 10)
	handle(t, inf, &h)
	handle(t, inf, cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) { bare <- obj }})
	runShared(t, inf)
	src.Apply(object("b", "2"))
	synctest.Wait()
	last := cached(t, inf, "b")
	missMuch(t, src)
	tomb, ok := (<-bare).(cache.DeletedFinalStateUnknown)
	if !ok || tomb.Key != "default/b" || tomb.Obj != last {
		t.Errorf("the tombstone is %v, its object is the last known one: %t", tomb, tomb.Obj == last)
	}
}

func relistForALateHandler(t *testing.T, s shared) {
	src := two()
	inf := s.new(src, 0)
	runShared(t, inf)
	missMuch(t, src)
	var h heard
	handle(t, inf, &h)
	h.expect(t, "add a@4 initial", "add c@6 initial")
}

func relistFindsAnother(t *testing.T, s shared) {
	src, inf, h := settled(t, s)
	missing(src, func() {
		remove(t, src, "a")
		src.Apply(object("a", "another"))
		src.Apply(object("b", "2"))
	})
	if s.ours() {
		// An object with another UID is another object, so the delete of the first one is
		// delivered.
		h.expect(t, "tombstone a@1", "add a@4", "update b@2->b@5")
	} else {
		h.expect(t, "update a@1->a@4", "update b@2->b@5")
	}
	checkShared(t, inf, "a@4", "b@5")
}

func relistOfTheUnseen(t *testing.T, s shared) {
	src, _, h := settled(t, s)
	missing(src, func() {
		src.Apply(object("c", "1"))
		remove(t, src, "c")
		src.Apply(object("a", "2"))
		src.Apply(object("b", "2"))
	})
	h.expect(t, "update a@1->a@5", "update b@2->b@6")
}

func relistAfterRefusals(t *testing.T, s shared) {
	src, inf, h := settled(t, s)
	refuseLists(src, 5)
	missMuch(t, src)
	sleepBubble(hour)
	h.expect(t, "update a@1->a@4", "tombstone b@2", "add c@6")
	checkShared(t, inf, "a@4", "c@6")
}

// client-go first delivers an unchanged object of a list to all handlers. Once it has checked
// which handlers are due for a resync, it delivers such an object only to those that were due.
// Ours delivers it to all handlers.
func TestSharedUnchangedRelistsAreTold(t *testing.T) {
	sharedCases{
		"to all if there are no resyncs":                 unchangedWithoutResyncs,
		"to all before the first resync":                 unchangedBeforeTheFirst,
		"to all after a resync, by ours":                 unchangedAfterAResync,
		"to all if relists come before each resync":      unchangedOften,
		"to all if the first list is late":               unchangedAfterALateList,
		"to nobody if it was watched from where it was":  unchangedWatch,
		"to who hears what has changed, along with that": unchangedAmongChanges,
	}.inBubbles(t)
}

// unchanged waits for d and makes the readers of src list again, although nothing has changed.
// It reports for each handler whether it got an event. No resync may be due within a minute
// after d.
func unchanged(t *testing.T, src *source, d time.Duration, handlers ...*heard) (told []bool) {
	t.Helper()
	sleepBubble(d)
	for _, h := range handlers {
		h.take() // drop the resyncs
	}
	missing(src, func() {})
	for _, h := range handlers {
		events := h.take()
		told = append(told, len(events) > 0)
		if len(events) > 1 || len(events) == 1 && !isUnchanged(events[0]) {
			t.Errorf("a handler got %q", events)
		}
	}
	return told
}

// isUnchanged reports whether an event says that the object a has not changed. With our
// informer the old and the new object are the same, because it does not replace the object in
// the store.
func isUnchanged(event string) bool { return event == "update a@1->a@1" || event == "resync a@1" }

func unchangedWithoutResyncs(t *testing.T, s shared) {
	src, handlers, late := runResynced(t, s, 0, byDefault, time.Minute, 0)
	handlers = append(handlers, late(byDefault), late(time.Minute))
	for range 3 {
		if told := unchanged(t, src, 10*time.Minute, handlers...); slices.Contains(told, false) {
			t.Errorf("handlers that got an event: %v", told)
		}
	}
}

func unchangedBeforeTheFirst(t *testing.T, s shared) {
	src, handlers, late := runResynced(t, s, 10*time.Minute, byDefault, 20*time.Minute, 0)
	handlers = append(handlers, late(byDefault), late(0))
	if told := unchanged(t, src, 5*time.Minute, handlers...); slices.Contains(told, false) {
		t.Errorf("handlers that got an event: %v", told)
	}
}

func unchangedAfterAResync(t *testing.T, s shared) {
	src, handlers, late := runResynced(t, s, 10*time.Minute, byDefault, 20*time.Minute, math.MaxInt64, 0)
	sleepBubble(14 * time.Minute)
	handlers = append(handlers, late(0))
	want := []bool{true, false, false, false, true}
	if s.ours() {
		want = []bool{true, true, true, true, true}
	}
	if told := unchanged(t, src, time.Minute, handlers...); !slices.Equal(told, want) {
		t.Errorf("handlers that got an event: %v, want %v", told, want)
	}
}

// Each list restarts the time until client-go's first check.
func unchangedOften(t *testing.T, s shared) {
	src, handlers, _ := runResynced(t, s, 10*time.Minute, byDefault, 0)
	for range 3 {
		if told := unchanged(t, src, 6*time.Minute, handlers...); slices.Contains(told, false) {
			t.Errorf("handlers that got an event: %v", told)
		}
	}
}

func unchangedAfterALateList(t *testing.T, s shared) {
	src := informertest.NewSource(object("a", "1"))
	src.SetFaults(informertest.Faults{HoldLists: true, RejectWatchList: true})
	release := func() { src.SetFaults(informertest.Faults{RejectWatchList: true}) }
	inf := s.new(src, 10*time.Minute)
	var h heard
	handleEvery(t, inf, &h, 0)
	runShared(t, inf)
	sleepBubble(hour)
	release()
	synctest.Wait()
	if told := unchanged(t, src, 2*time.Minute, &h); !told[0] {
		t.Error("the handler got no event for the unchanged object")
	}
}

func unchangedWatch(t *testing.T, s shared) {
	src, handlers, _ := runResynced(t, s, 0, byDefault)
	for range 3 {
		// The reflector treats a watch that ends at once as a fault. After a minute the watch
		// cannot have been opened just before the disconnect.
		sleepBubble(time.Minute)
		src.Disconnect()
	}
	sleepBubble(time.Minute)
	handlers[0].expect(t)
	src.Apply(object("a", "2"))
	handlers[0].expect(t, "update a@1->a@2")
}

func unchangedAmongChanges(t *testing.T, s shared) {
	src, handlers, _ := runResynced(t, s, 0, byDefault)
	src.Apply(object("b", "1"))
	src.Apply(object("c", "1"))
	handlers[0].expect(t, "add b@2", "add c@3")
	missing(src, func() {
		src.Apply(object("b", "2"))
		remove(t, src, "c")
	})
	events := byObject(handlers[0].take())
	if len(events) != 3 || !isUnchanged(events[0]) || !slices.Equal(events[1:], []string{"update b@2->b@4", "tombstone c@3"}) {
		t.Errorf("the handler got %q", events)
	}
}
