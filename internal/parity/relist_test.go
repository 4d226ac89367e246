package parity_test

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"
)

func TestSharedRelistsFind(t *testing.T) {
	sharedCases{
		"what was missed": eachWay(func(t *testing.T, s shared, src *source) {
			_, inf, h := settled(t, s, src)
			missing(t, src, "a=2", "a=3", "-b", "c=1")
			h.expect(t, "update a@1->a@4", "tombstone b@2", "add c@6")
			checkShared(t, inf, "a@4", "c@6")
			change(t, src, "b=2", "-c")
			h.expect(t, "add b@8", "delete c@9")
		}),
		"the last known state of what is gone": func(t *testing.T, s shared) {
			src := two()
			inf, bare := s.new(src, 0), make(chan any, 10)
			handle(t, inf, cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) { bare <- obj }})
			runShared(t, inf)
			change(t, src, "b=2")
			synctest.Wait()
			last := cached(t, inf, "b")
			missing(t, src, "a=2", "a=3", "-b", "c=1")
			if tomb := <-bare; tomb != (cache.DeletedFinalStateUnknown{Key: "default/b", Obj: last}) {
				t.Errorf("the tombstone is %v, want the last known object", tomb)
			}
		},
		"an object that was deleted and created again": func(t *testing.T, s shared) {
			src, inf, h := settled(t, s, two())
			missing(t, src, "-a", "a=another", "b=2")
			if s.ours() {
				// An object with another UID is another object, so the delete of the first one is
				// delivered.
				h.expect(t, "tombstone a@1", "add a@4", "update b@2->b@5")
			} else {
				h.expect(t, "update a@1->a@4", "update b@2->b@5")
			}
			checkShared(t, inf, "a@4", "b@5")
		},
		"nothing left of an object that came and went": func(t *testing.T, s shared) {
			src, _, h := settled(t, s, two())
			missing(t, src, "c=1", "-c", "a=2", "b=2")
			h.expect(t, "update a@1->a@5", "update b@2->b@6")
		},
		"all of it after several refusals": func(t *testing.T, s shared) {
			src, inf, h := settled(t, s, two())
			refuseLists(src, 5)
			missing(t, src, "a=2", "a=3", "-b", "c=1")
			sleepBubble(hour)
			h.expect(t, "update a@1->a@4", "tombstone b@2", "add c@6")
			checkShared(t, inf, "a@4", "c@6")
		},
	}.inBubbles(t)
}

// client-go first delivers an unchanged object of a list to all handlers. Once it has checked
// which handlers are due for a resync, it delivers such an object only to those that were due.
// Ours delivers it to all handlers.
func TestSharedUnchangedRelistsAreDelivered(t *testing.T) {
	sharedCases{
		"to all if there are no resyncs": func(t *testing.T, s shared) {
			r := runResynced(t, s, 0, byDefault, time.Minute, 0)
			r.add(t, byDefault, time.Minute)
			for range 3 {
				r.checkUnchanged(t, 10*time.Minute, true, true, true, true, true)
			}
		},
		"to all before the first resync": func(t *testing.T, s shared) {
			r := runResynced(t, s, 10*time.Minute, byDefault, 20*time.Minute, 0)
			r.add(t, byDefault, 0)
			r.checkUnchanged(t, 5*time.Minute, true, true, true, true, true)
		},
		"to all after a resync, by ours": func(t *testing.T, s shared) {
			r := runResynced(t, s, 10*time.Minute, byDefault, 20*time.Minute, math.MaxInt64, 0)
			sleepBubble(14 * time.Minute)
			r.add(t, 0)
			r.checkUnchanged(t, time.Minute, true, s.ours(), s.ours(), s.ours(), true)
		},
		// Each list restarts the time until client-go's first check.
		"to all if relists come before each resync": func(t *testing.T, s shared) {
			r := runResynced(t, s, 10*time.Minute, byDefault, 0)
			for range 3 {
				r.checkUnchanged(t, 6*time.Minute, true, true)
			}
		},
		"to all if the first list is late": func(t *testing.T, s shared) {
			src, release := held()
			change(t, src, "-b")
			inf := s.new(src, 10*time.Minute)
			r := resynced{src: src, inf: inf, handlers: []*heard{listenEvery(t, inf, 0)}}
			runShared(t, inf)
			sleepBubble(hour)
			release()
			synctest.Wait()
			r.checkUnchanged(t, 2*time.Minute, true)
		},
		"to none if it was watched from where it was": func(t *testing.T, s shared) {
			src, _, h := settled(t, s, one())
			for range 3 {
				// The reflector treats a watch that ends at once as a fault. After a minute the
				// watch cannot have been opened just before the disconnect.
				sleepBubble(time.Minute)
				src.Disconnect()
			}
			sleepBubble(time.Minute)
			h.expect(t)
			change(t, src, "a=2")
			h.expect(t, "update a@1->a@2")
		},
		"to who hears what has changed, along with that": func(t *testing.T, s shared) {
			src, _, h := settled(t, s, one())
			change(t, src, "b=1", "c=1")
			h.expect(t, "add b@2", "add c@3")
			missing(t, src, "b=2", "-c")
			events := byObject(h.take())
			if len(events) != 3 || !isUnchanged(events[0]) || !slices.Equal(events[1:], []string{"update b@2->b@4", "tombstone c@3"}) {
				t.Errorf("the handler got %q", events)
			}
		},
	}.inBubbles(t)
}

// checkUnchanged waits for d and makes the informer list again, although nothing has changed.
// It fails the test unless the handlers for which told is true got one event each, and the
// others none. No resync may be due within a minute after d.
func (r *resynced) checkUnchanged(t *testing.T, d time.Duration, told ...bool) {
	t.Helper()
	sleepBubble(d)
	for _, h := range r.handlers {
		h.take() // drop the resyncs
	}
	missing(t, r.src)
	for i, h := range r.handlers {
		events := h.take()
		if told[i] && (len(events) != 1 || !isUnchanged(events[0])) || !told[i] && len(events) > 0 {
			t.Errorf("handler %d got %q, want an event: %t", i, events, told[i])
		}
	}
}

// isUnchanged reports whether an event is of the object a without a change. With our
// informer the old and the new object are the same, because it does not replace the object in
// the store.
func isUnchanged(event string) bool { return event == "update a@1->a@1" || event == "resync a@1" }
