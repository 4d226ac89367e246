package shards

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/customcacheinformer/informer"
)

func beginSession() (s *Set, n *session, begun time.Time) {
	s = &Set{wake: make(chan struct{}, 1), old: map[*session]bool{}}
	s.opts, _ = Options{Name: "test", Identity: "a"}.complete()
	begun = time.Now()
	return s, newSession(&s.opts, "a_1", &coordinationv1.Lease{}, begun, lag{}, s.lose), begun
}

// After SIGSTOP and SIGCONT, a call may go on before the timer that ends the session has fired. So the
// ctx of a call looks at the clock, and a renewal that comes too late does not save the session.
func TestTheClockEndsASessionBeforeItsTimerDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n, begun := beginSession()
		n.timer.Stop() // as long as the process is paused
		s.session = n
		h := n.add(3, begun)
		h.took(&coordinationv1.Lease{})
		h.opened(nil)

		call, done, ok := door{s}.Enter(t.Context(), 3)
		if !ok || call.Err() != nil {
			t.Fatal("the call cannot begin")
		}
		time.Sleep(s.opts.LeaseDuration - s.opts.Margin - 1)
		if call.Err() != nil || !(door{s}).Has(3) {
			t.Error("the session has ended too early")
		}
		time.Sleep(time.Nanosecond)
		if (door{s}).Has(3) {
			t.Error("another call may begin")
		}
		if err := call.Err(); err == nil || !errors.Is(context.Cause(call), informer.ErrLeaseLost) {
			t.Errorf("the call is not canceled: %v, %v", err, context.Cause(call))
		}
		select {
		case <-call.Done():
		default:
			t.Error("Done is open although Err is not nil")
		}
		if s.renewed(n, time.Now()) || !n.lost || s.session != nil {
			t.Error("a renewal has saved a session that was over")
		}
		done()
	})
}

// A renewal counts from the time when it was sent, because the API server may have had it then.
func TestARenewalCountsFromTheTimeWhenItWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n, begun := beginSession()
		sent := begun.Add(2 * time.Second)
		time.Sleep(6 * time.Second)
		if !s.renewed(n, sent) {
			t.Fatal("the session is lost")
		}
		time.Sleep(time.Until(sent.Add(s.opts.LeaseDuration-s.opts.Margin)) - 1)
		synctest.Wait()
		if n.ctx.Err() != nil {
			t.Error("the session has ended too early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if n.ctx.Err() == nil || !n.expired() {
			t.Error("the session has not ended")
		}
	})
}
