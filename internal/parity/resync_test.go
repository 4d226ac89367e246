package parity_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer/informertest"
)

func TestSharedResyncs(t *testing.T) {
	sharedCases{
		"come as updates from an object to itself":             resyncIsNoChange,
		"come at the informer's period by default":             resyncByDefault,
		"come at the handler's own period":                     resyncAtOnesOwnPeriod,
		"come only to handlers that want them":                 resyncOnlyWhoWants,
		"never come if the informer's period is zero":          resyncNever,
		"never come at the longest period that there is":       resyncAtTheLongestPeriod,
		"come each second at the most":                         resyncEachSecond,
		"come sooner than the informer's if asked for":         resyncSooner,
		"come at a period between two of client-go's, by ours": resyncBetween,
		"of a late handler come after its first calls":         resyncOfALateHandler,
		"do not come before the first list":                    resyncNotBeforeTheList,
		"go on while the source is away, with ours":            resyncWhileTheSourceIsAway,
		"bring what the cache holds":                           resyncOfTheCache,
		"do not come once stopped or removed":                  resyncNotOnceGone,
	}.inBubbles(t)
}

// about fails the test unless got is want, or one more or less: the phase may differ.
func about(t *testing.T, who string, want, got int) {
	t.Helper()
	if got < want-1 || got > want+1 {
		t.Errorf("%s was resynced %d times, want %d", who, got, want)
	}
}

// runResynced runs an informer of the object a, with a handler for each of periods, and drops
// the first events. It returns the source, the handlers, and a function that adds a late
// handler.
func runResynced(t *testing.T, s shared, resync time.Duration, periods ...time.Duration) (*source, []*heard, func(period time.Duration) *heard) {
	t.Helper()
	src := informertest.NewSource(object("a", "1"))
	inf := s.new(src, resync)
	var handlers []*heard
	add := func(period time.Duration) *heard {
		h := &heard{}
		handleEvery(t, inf, h, period)
		return h
	}
	for _, period := range periods {
		handlers = append(handlers, add(period))
	}
	runShared(t, inf)
	for _, h := range handlers {
		h.expect(t, "add a@1 initial")
	}
	return src, handlers, func(period time.Duration) *heard {
		h := add(period)
		h.expect(t, "add a@1 initial")
		return h
	}
}

const byDefault = -1 // the informer's own resync period

func resyncIsNoChange(t *testing.T, s shared) {
	src, handlers, _ := runResynced(t, s, time.Minute, byDefault)
	src.Apply(object("b", "1"))
	src.Apply(object("a", "2"))
	handlers[0].expect(t, "add b@2", "update a@1->a@3")
	sleepBubble(90 * time.Second)
	handlers[0].expect(t, "resync a@3", "resync b@2")
}

func resyncByDefault(t *testing.T, s shared) {
	_, handlers, late := runResynced(t, s, 10*time.Minute, byDefault, byDefault)
	handlers = append(handlers, late(byDefault))
	sleepBubble(10*hour + time.Second)
	for _, h := range handlers {
		about(t, "a handler", 60, h.resyncs(t))
	}
}

func resyncAtOnesOwnPeriod(t *testing.T, s shared) {
	_, handlers, late := runResynced(t, s, 10*time.Minute, byDefault, 30*time.Minute, 2*hour)
	handlers = append(handlers, late(30*time.Minute))
	sleepBubble(20*hour + time.Second)
	about(t, "a handler", 120, handlers[0].resyncs(t))
	about(t, "a handler with 30 m", 40, handlers[1].resyncs(t))
	about(t, "a handler with 2 h", 10, handlers[2].resyncs(t))
	about(t, "a late handler with 30 m", 40, handlers[3].resyncs(t))
}

func resyncOnlyWhoWants(t *testing.T, s shared) {
	_, handlers, late := runResynced(t, s, time.Second, 0, 2*time.Second, 3*time.Second)
	never := late(0)
	sleepBubble(2*time.Second + time.Second/2)
	about(t, "the handler with 2 s", 1, handlers[1].resyncs(t))
	sleepBubble(hour)
	about(t, "the handler with 2 s", 1800, handlers[1].resyncs(t))
	about(t, "the handler with 3 s", 1200, handlers[2].resyncs(t))
	handlers[0].expect(t)
	never.expect(t)
}

func resyncNever(t *testing.T, s shared) {
	_, handlers, late := runResynced(t, s, 0, byDefault, time.Minute, 0)
	handlers = append(handlers, late(byDefault), late(time.Minute))
	sleepBubble(10 * hour)
	for _, h := range handlers {
		h.expect(t)
	}
}

// Added to a time, the longest period must not become one that is over already.
func resyncAtTheLongestPeriod(t *testing.T, s shared) {
	for _, informers := range []time.Duration{24 * hour, math.MaxInt64} {
		_, handlers, late := runResynced(t, s, informers, math.MaxInt64)
		handlers = append(handlers, late(math.MaxInt64))
		sleepBubble(48 * hour)
		for _, h := range handlers {
			h.expect(t)
		}
	}
}

func resyncEachSecond(t *testing.T, s shared) {
	_, handlers, _ := runResynced(t, s, hour, time.Millisecond)
	sleepBubble(10*time.Minute + time.Second/2)
	about(t, "a handler with 1 ms", 600, handlers[0].resyncs(t))

	_, _, late := runResynced(t, s, 100*time.Millisecond)
	h := late(50 * time.Millisecond)
	sleepBubble(10*time.Minute + time.Second/2)
	about(t, "a late handler with 50 ms", 600, h.resyncs(t))
}

func resyncSooner(t *testing.T, s shared) {
	_, handlers, late := runResynced(t, s, hour, byDefault, time.Minute, byDefault)
	handlers = append(handlers, late(time.Minute), late(byDefault))
	sleepBubble(10*hour + time.Second)
	about(t, "a handler that came before the sooner one", 10, handlers[0].resyncs(t))
	about(t, "the handler with 1 m", 600, handlers[1].resyncs(t))
	about(t, "a handler that came after the sooner one", 10, handlers[2].resyncs(t))
	about(t, "a late handler with 1 m", 600, handlers[3].resyncs(t))
	about(t, "a late handler", 10, handlers[4].resyncs(t))
}

// client-go resyncs only at whole multiples of the informer's period, and a late handler at
// most once in each period.
func resyncBetween(t *testing.T, s shared) {
	_, handlers, late := runResynced(t, s, 10*time.Minute, byDefault, 25*time.Minute)
	handlers = append(handlers, late(time.Minute))
	sleepBubble(20*hour + time.Second)
	between, soon := 40, 120
	if s.ours() {
		between, soon = 48, 1200
	}
	about(t, "a handler with 10 m", 120, handlers[0].resyncs(t))
	about(t, "a handler with 25 m", between, handlers[1].resyncs(t))
	about(t, "a late handler with 1 m", soon, handlers[2].resyncs(t))
}

func resyncOfALateHandler(t *testing.T, s shared) {
	src := two()
	inf := s.new(src, 10*time.Minute)
	runShared(t, inf)
	sleepBubble(hour)
	g := newGate()
	h := heard{hook: g.wait}
	handle(t, inf, &h)
	sleepBubble(25 * time.Minute) // blocked in the first call while resyncs are due
	close(g.open)
	sleepBubble(time.Second)
	events := h.take()
	for i, event := range events {
		if initial := event == "add a@1 initial" || event == "add b@2 initial"; initial != (i < 2) {
			t.Fatalf("the handler got %q", events)
		}
	}
	sleepBubble(10 * time.Minute)
	h.expect(t, "resync a@1", "resync b@2")
}

func resyncNotBeforeTheList(t *testing.T, s shared) {
	src := informertest.NewSource(object("a", "1"))
	src.SetFaults(informertest.Faults{HoldLists: true, RejectWatchList: true})
	release := func() { src.SetFaults(informertest.Faults{RejectWatchList: true}) }
	inf := s.new(src, time.Minute)
	if err := inf.GetIndexer().Add(object("a", "seeded")); err != nil {
		t.Fatal(err)
	}
	var h heard
	handle(t, inf, &h)
	runShared(t, inf)
	h.take() // another case tests the events of seeded objects
	sleepBubble(hour)
	h.expect(t)
	release()
	synctest.Wait()
	h.take()
	sleepBubble(90 * time.Second)
	h.expect(t, "resync a@1")
}

func resyncWhileTheSourceIsAway(t *testing.T, s shared) {
	src, handlers, _ := runResynced(t, s, time.Minute, byDefault)
	refuseLists(src, -1)
	src.Expire()
	synctest.Wait()
	handlers[0].take()
	sleepBubble(hour + time.Second)
	if s.ours() {
		// Our resync belongs to the handler, not to the reflector that reads the source.
		about(t, "a handler", 60, handlers[0].resyncs(t))
	} else {
		handlers[0].expect(t)
	}
}

func resyncOfTheCache(t *testing.T, s shared) {
	src, handlers, _ := runResynced(t, s, 10*time.Minute, byDefault)
	for range 3 {
		src.Apply(object("b", "1"))
		src.Apply(object("c", "1"))
		remove(t, src, "b")
		synctest.Wait()
		handlers[0].take()
		sleepBubble(10 * time.Minute)
		handlers[0].expect(t, "resync a@1", "resync c@3")
	}
}

func resyncNotOnceGone(t *testing.T, s shared) {
	inf := s.new(two(), time.Minute)
	var removed, stays heard
	reg := handle(t, inf, &removed)
	handle(t, inf, &stays)
	stop := runShared(t, inf)
	removed.take()
	wantError(t, false, "remove", inf.RemoveEventHandler(reg))
	sleepBubble(90 * time.Second)
	removed.expect(t)
	stop()
	stays.take()
	sleepBubble(hour)
	stays.expect(t)
}
