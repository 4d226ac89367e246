package shards_test

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/customcacheinformer/informer/e2e/internal/stage"
)

func TestAHandoverWaitsForCallsThatIgnoreTheirContext(t *testing.T) {
	w := newWorld(t, 1)
	w.common.Workers, w.common.DrainTimeout = buckets, 500*time.Millisecond
	a := w.start()
	w.settle()
	for _, how := range []struct {
		name    string
		move    func()
		leaving bool
	}{
		{"a replica joins", func() { w.start() }, false},
		{"the replica leaves", func() { w.OK(a.Signal(syscall.SIGTERM)) }, true},
	} {
		if how.leaving && testing.Short() {
			break
		}
		// Half of the buckets move. All calls are in the other half once in 32,768 times.
		orders := make([]order, buckets-1)
		for n := range orders {
			orders[n] = order{For: lease * 5 / 2, Stubborn: true}
		}
		w.order(a, orders...)
		stubborn := w.stubbornCalls()
		w.note("%s, with %d stubborn calls", how.name, len(stubborn))
		how.move()
		w.drains(a, stubborn, how.leaving)
		for _, c := range stubborn {
			if !w.recorder.until(func() bool { return !c.ended.IsZero() }) {
				t.Fatalf("the call %v does not end", c)
			}
		}
		if !w.recorder.until(func() bool { return w.handedOver(stubborn) > 0 }) {
			t.Fatal("no bucket of a call that ignores its ctx was handed over")
		}
		if how.leaving {
			w.leave(a)
		}
		w.settle()
	}
	drained := 0
	w.recorder.mu.Lock()
	for _, c := range w.recorder.calls {
		if c.Stubborn && strings.Contains(c.Cause, "the bucket moves to another replica") {
			drained++
		}
	}
	w.recorder.mu.Unlock()
	if drained == 0 {
		t.Error("no call is canceled because its bucket moves")
	}
	w.finish(false)
	if w.recorder.refused > 0 {
		t.Errorf("%d effects were refused", w.recorder.refused)
	}
}

// stubbornCalls returns the calls that are under way and ignore their ctx.
func (w *world) stubbornCalls() (calls []*call) {
	w.recorder.mu.Lock()
	defer w.recorder.mu.Unlock()
	for _, c := range w.recorder.open {
		if c.Stubborn {
			calls = append(calls, c)
		}
	}
	return calls
}

// drains waits until a replica has waited for calls for longer than a session lasts. It checks that the
// replica still has the buckets of these calls then, and shows it. A replica that leaves does not call
// that draining, because its controller ends its calls before the set is notified.
func (w *world) drains(r *remote, calls []*call, leaving bool) {
	w.Helper()
	over := time.After(lease)
	draining := w.recorder.until(func() bool {
		select {
		case <-over:
			over = nil
		default:
		}
		busy := 0
		for _, c := range calls {
			if c.ended.IsZero() {
				busy++
			}
		}
		if busy < len(calls) {
			w.Fatalf("%d of %d calls have returned before %s had to wait for them", len(calls)-busy, len(calls), r.name)
		}
		return over == nil && (leaving || w.recorder.health[r.name].DrainingFor > lease/2)
	})
	if !draining {
		w.Fatalf("%s does not drain", r.name)
	}
	w.recorder.mu.Lock()
	health := w.recorder.health[r.name].Health
	w.recorder.mu.Unlock()
	w.note("%s drains: %+v", r.name, health)
	if !leaving && health.Draining == 0 || health.Session == "" {
		w.Errorf("Health of %s does not show that it drains: %+v", r.name, health)
	}
	holders := w.owners.holders()
	for _, c := range calls {
		if holders[c.Bucket] != health.Session {
			w.Errorf("bucket %d of the call %v is with %q", c.Bucket, c, holders[c.Bucket])
		}
	}
	w.owners.mu.Lock()
	defer w.owners.mu.Unlock()
	if now := time.Now(); !w.owners.liveLocked(w.owners.sessions[health.Session], now) {
		w.Errorf("the session of %s is not renewed: %s", r.name, w.owners.stateLocked(now))
	}
}

// handedOver returns how many of the calls have a bucket in which another replica has begun a call. The
// recorder is locked.
func (w *world) handedOver(calls []*call) (n int) {
	for _, c := range calls {
		for _, later := range w.recorder.calls {
			if later.Bucket == c.Bucket && later.Token > c.Token {
				n++
				break
			}
		}
	}
	return n
}

func TestTheRecorderNoticesAReplicaThatIgnoresTheEndOfItsSession(t *testing.T) {
	w := newWorld(t, 1)
	a := w.start()
	w.start()
	w.settle()
	w.order(a, slices.Repeat([]order{{For: 20 * time.Millisecond, Stubborn: true, Deaf: stage.Patience}}, w.common.Workers)...)
	w.cut(a)
	var v verdict
	w.awaitAlive("the recorder notices nothing", func() bool {
		v = w.recorder.verdict(w.owners.failedOver)
		return v.overlaps > 0 && v.refused > 0
	})
	t.Logf("%v: %q", v, v.blame)
	w.kill(a)
}
