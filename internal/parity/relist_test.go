package parity_test

import (
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
	src.SetWatchList(informertest.WatchListRejected)
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
		t.Errorf("the tombstone is %v, with the object that was known: %t", tomb, tomb.Obj == last)
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
		// Another UID is another object: the delete of the first is not missed.
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

// client-go tells objects that a list found unchanged to all handlers until it first looks
// which handlers are due for a resync. Then it tells those that were due. Ours tells all.
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

// unchanged lets the readers of src list it after d, when nothing has changed, and
// returns whom of the handlers that was told. There must be no resync within a minute
// of that.
func unchanged(t *testing.T, src *source, d time.Duration, handlers ...*heard) (told []bool) {
	t.Helper()
	sleepBubble(d)
	for _, h := range handlers {
		h.take() // resyncs
	}
	missing(src, func() {})
	for _, h := range handlers {
		events := h.take()
		told = append(told, len(events) > 0)
		if len(events) > 1 || len(events) == 1 && !isUnchanged(events[0]) {
			t.Errorf("a handler was told %q", events)
		}
	}
	return told
}

// isUnchanged reports whether an event says that a has not changed. With ours the old
// and the new object are then the same, as ours does not replace it in the store.
func isUnchanged(event string) bool { return event == "update a@1->a@1" || event == "resync a@1" }

func unchangedWithoutResyncs(t *testing.T, s shared) {
	src, handlers, late := runResynced(t, s, 0, byDefault, time.Minute, 0)
	handlers = append(handlers, late(byDefault), late(time.Minute))
	for range 3 {
		if told := unchanged(t, src, 10*time.Minute, handlers...); slices.Contains(told, false) {
			t.Errorf("told: %v", told)
		}
	}
}

func unchangedBeforeTheFirst(t *testing.T, s shared) {
	src, handlers, late := runResynced(t, s, 10*time.Minute, byDefault, 20*time.Minute, 0)
	handlers = append(handlers, late(byDefault), late(0))
	if told := unchanged(t, src, 5*time.Minute, handlers...); slices.Contains(told, false) {
		t.Errorf("told: %v", told)
	}
}

func unchangedAfterAResync(t *testing.T, s shared) {
	src, handlers, late := runResynced(t, s, 10*time.Minute, byDefault, 20*time.Minute, 0)
	sleepBubble(14 * time.Minute)
	handlers = append(handlers, late(0))
	want := []bool{true, false, false, true}
	if s.ours() {
		want = []bool{true, true, true, true}
	}
	if told := unchanged(t, src, time.Minute, handlers...); !slices.Equal(told, want) {
		t.Errorf("told: %v, want %v", told, want)
	}
}

// Each list starts client-go's time to the first look again.
func unchangedOften(t *testing.T, s shared) {
	src, handlers, _ := runResynced(t, s, 10*time.Minute, byDefault, 0)
	for range 3 {
		if told := unchanged(t, src, 6*time.Minute, handlers...); slices.Contains(told, false) {
			t.Errorf("told: %v", told)
		}
	}
}

func unchangedAfterALateList(t *testing.T, s shared) {
	src := informertest.NewSource(object("a", "1"))
	src.SetWatchList(informertest.WatchListRejected)
	release := src.HoldList()
	inf := s.new(src, 10*time.Minute)
	var h heard
	handleEvery(t, inf, &h, 0)
	runShared(t, inf)
	sleepBubble(hour)
	release()
	synctest.Wait()
	if told := unchanged(t, src, 2*time.Minute, &h); !told[0] {
		t.Error("not told")
	}
}

func unchangedWatch(t *testing.T, s shared) {
	src, handlers, _ := runResynced(t, s, 0, byDefault)
	for range 3 {
		// A watch that ends at once is taken for a fault, and none ends by itself so soon
		// that it could have been opened just before.
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
		t.Errorf("told %q", events)
	}
}
