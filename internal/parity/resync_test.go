package parity_test

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"
)

// Each row has the periods of handlers that are added before the start and of late ones, and
// how often each handler is resynced within the time.
func TestSharedResyncs(t *testing.T) {
	type periods []time.Duration
	const longest = math.MaxInt64
	for sentence, test := range map[string]struct {
		informers time.Duration
		early     periods
		late      periods
		within    time.Duration
		want      []int
		ours      []int // if it differs from want
	}{
		"come at the informer's period by default": {
			10 * time.Minute, periods{byDefault, byDefault}, periods{byDefault}, 10 * hour, []int{60, 60, 60}, nil,
		},
		"come at the handler's own period": {
			10 * time.Minute, periods{byDefault, 30 * time.Minute, 2 * hour}, periods{30 * time.Minute}, 20 * hour, []int{120, 40, 10, 40}, nil,
		},
		"come only to handlers that want them": {
			time.Second, periods{0, 2 * time.Second, 3 * time.Second}, periods{0}, hour, []int{0, 1800, 1200, 0}, nil,
		},
		"never come if the informer's period is zero": {
			0, periods{byDefault, time.Minute, 0}, periods{byDefault, time.Minute}, 10 * hour, []int{0, 0, 0, 0, 0}, nil,
		},
		// Added to a time, the longest period must not become one that is over already.
		"never come at the longest period that there is": {
			24 * hour, periods{longest}, periods{longest}, 48 * hour, []int{0, 0}, nil,
		},
		"never come at the longest period of an informer": {
			longest, periods{longest}, periods{longest}, 48 * hour, []int{0, 0}, nil,
		},
		"come each second at the most": {
			hour, periods{time.Millisecond}, nil, 10 * time.Minute, []int{600}, nil,
		},
		"come each second at the most to a late handler": {
			100 * time.Millisecond, nil, periods{50 * time.Millisecond}, 10 * time.Minute, []int{600}, nil,
		},
		"come sooner than the informer's if asked for": {
			hour, periods{byDefault, time.Minute, byDefault}, periods{time.Minute, byDefault}, 10 * hour, []int{10, 600, 10, 600, 10}, nil,
		},
		// client-go resyncs only at whole multiples of the informer's period, and a late handler
		// at most once in each period.
		"come at a period between two of client-go's, by ours": {
			10 * time.Minute, periods{byDefault, 25 * time.Minute}, periods{time.Minute}, 20 * hour, []int{120, 40, 120}, []int{120, 48, 1200},
		},
	} {
		sharedCases{sentence: func(t *testing.T, s shared) {
			r := runResynced(t, s, test.informers, test.early...)
			r.add(t, test.late...)
			sleepBubble(test.within + time.Second/2)
			want := test.want
			if s.ours() && test.ours != nil {
				want = test.ours
			}
			for i, h := range r.handlers {
				if want[i] == 0 {
					h.expect(t)
				} else {
					about(t, fmt.Sprint("handler ", i), want[i], h.resyncs(t))
				}
			}
		}}.inBubbles(t)
	}
	sharedCases{
		"come as updates from each object of the cache to itself": func(t *testing.T, s shared) {
			r := runResynced(t, s, time.Minute, byDefault)
			change(t, r.src, "b=1", "c=1", "a=2", "-b")
			r.handlers[0].expect(t, "add b@2", "add c@3", "update a@1->a@4", "delete b@5")
			sleepBubble(90 * time.Second)
			r.handlers[0].expect(t, "resync a@4", "resync c@3")
		},
		"of a late handler come after its first calls": func(t *testing.T, s shared) {
			inf := s.new(two(), 10*time.Minute)
			runShared(t, inf)
			sleepBubble(hour)
			g := make(gate)
			h := heard{hook: g.wait}
			handle(t, inf, &h)
			sleepBubble(25 * time.Minute) // blocked in the first call while resyncs are due
			close(g)
			sleepBubble(time.Second)
			events := h.take()
			for i, event := range events {
				if initial := event == "add a@1 initial" || event == "add b@2 initial"; initial != (i < 2) {
					t.Fatalf("the handler got %q", events)
				}
			}
			sleepBubble(10 * time.Minute)
			h.expect(t, "resync a@1", "resync b@2")
		},
		"do not come before the first list": func(t *testing.T, s shared) {
			src, release := held()
			inf := s.new(src, time.Minute)
			must(t, inf.GetIndexer().Add(object("a", "seeded")))
			h := listen(t, inf)
			runShared(t, inf)
			h.take() // another case tests the events of seeded objects
			sleepBubble(hour)
			h.expect(t)
			checkSynced(t, false, inf, h.reg)
			release()
			synctest.Wait()
			checkSynced(t, true, inf, h.reg)
			h.take()
			sleepBubble(90 * time.Second)
			h.expect(t, "resync a@1", "resync b@2")
		},
		"go on while the source is away, with ours": func(t *testing.T, s shared) {
			r := runResynced(t, s, time.Minute, byDefault)
			h := r.handlers[0]
			refuseLists(r.src, -1)
			r.src.Expire()
			synctest.Wait()
			h.take()
			sleepBubble(hour + time.Second)
			if s.ours() {
				// Our resync belongs to the handler, not to the reflector that reads the source.
				about(t, "a handler", 60, h.resyncs(t))
			} else {
				h.expect(t)
			}
		},
		"do not come once stopped or removed": func(t *testing.T, s shared) {
			inf := s.new(two(), time.Minute)
			removed, stays := listen(t, inf), listen(t, inf)
			stop := runShared(t, inf)
			removed.take()
			wantError(t, false, "remove", inf.RemoveEventHandler(removed.reg))
			sleepBubble(90 * time.Second)
			removed.expect(t)
			stop()
			stays.take()
			sleepBubble(hour)
			stays.expect(t)
		},
	}.inBubbles(t)
}

// about fails the test unless got is want, or one more or less: the phase may differ.
func about(t *testing.T, who string, want, got int) {
	t.Helper()
	if got < want-1 || got > want+1 {
		t.Errorf("%s was resynced %d times, want %d", who, got, want)
	}
}

// resynced is a running informer of the object a, with handlers of several periods.
type resynced struct {
	src      *source
	inf      cache.SharedIndexInformer
	handlers []*heard
}

// runResynced runs an informer with a handler for each of periods, and drops the first events.
func runResynced(t *testing.T, s shared, resync time.Duration, periods ...time.Duration) *resynced {
	t.Helper()
	src := one()
	r := &resynced{src: src, inf: s.new(src, resync)}
	for _, period := range periods {
		r.handlers = append(r.handlers, listenEvery(t, r.inf, period))
	}
	runShared(t, r.inf)
	for _, h := range r.handlers {
		h.expect(t, "add a@1 initial")
	}
	return r
}

// add adds late handlers, and drops their first events.
func (r *resynced) add(t *testing.T, periods ...time.Duration) {
	t.Helper()
	for _, period := range periods {
		h := listenEvery(t, r.inf, period)
		h.expect(t, "add a@1 initial")
		r.handlers = append(r.handlers, h)
	}
}
