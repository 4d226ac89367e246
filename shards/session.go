package shards

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/shards/internal/leases"
)

// retryAfter is the pause after a request that has failed.
const retryAfter = 500 * time.Millisecond

// session is the time in which a replica may have buckets. It lasts as long as the replica renews
// its Lease. A lost session never comes back: the replica begins another, with another id.
type session struct {
	set    *Set
	id     string
	begun  time.Time
	ctx    context.Context // ends with the session
	cancel context.CancelCauseFunc
	timer  *time.Timer  // ends the session at the deadline
	limit  atomic.Int64 // the deadline, as the time since begun
	ended  chan struct{}
	first  *coordinationv1.Lease // as it was when the session began
	hurry  chan struct{}         // gets a token when somebody has changed the Lease

	// Only the goroutine that renews uses this.
	lease *coordinationv1.Lease // as it was last written

	// The set's lock protects the rest.
	lost     bool
	leaving  bool
	holdings map[int]*holding
	claims   []leases.Claim
	seen     leases.Versions
	fresh    Buckets // open, and their keys are not queued
	lag      lag
}

// expired reports whether the session is over. It takes no lock.
func (s *session) expired() bool {
	return time.Since(s.begun) >= time.Duration(s.limit.Load()) || s.ctx.Err() != nil
}

// extendLocked has the session last until a Lease that was renewed at a time ends, less the margin.
// It returns false if the session was over before: nobody may have noticed the renewal in time.
func (s *session) extendLocked(sent time.Time) bool {
	if s.lost || s.expired() {
		return false
	}
	s.limitLocked(sent)
	return true
}

func (s *session) limitLocked(sent time.Time) {
	o := &s.set.opts
	until := sent.Add(o.LeaseDuration - o.Margin)
	s.limit.Store(int64(until.Sub(s.begun)))
	if s.timer == nil {
		s.timer = time.AfterFunc(time.Until(until), func() { s.lose(nil) })
	} else {
		s.timer.Reset(time.Until(until))
	}
}

// lose ends the session. Err says why it cannot go on, or nil if it could not be renewed in time.
func (s *session) lose(err error) {
	set := s.set
	set.mu.Lock()
	defer set.mu.Unlock()
	if err == nil && !s.expired() {
		return // it was renewed at the last moment
	}
	s.endLocked(err)
}

func (s *session) endLocked(err error) {
	if s.lost {
		return
	}
	s.lost = true
	s.timer.Stop()
	s.cancel(ErrSessionLost)
	close(s.ended)
	set := s.set
	if set.session == s {
		set.session = nil
		set.lag = s.lag.next()
		set.tellSourcesLocked()
	}
	if !s.leaving || len(s.holdings) > 0 {
		set.counts.lost++
		set.later(because(ErrSessionLost, err))
	}
	set.old[s] = true
	set.poke()
}

// because returns an error that wraps both.
func because(what, why error) error {
	if why == nil {
		return what
	}
	return fmt.Errorf("%w: %w", what, why)
}

// renew renews the session until it is over.
func (s *session) renew(leave <-chan struct{}) {
	pause := time.NewTimer(s.set.opts.RenewEvery)
	defer pause.Stop()
	begun := time.Now() // of the last write
	for {
		select {
		case <-s.ended:
			return
		case <-leave:
			leave = nil // at once, so that the others take over
		case <-s.hurry:
			if wait := retryAfter - time.Since(begun); wait > 0 { // in case that it is changed again and again
				pause.Reset(wait)
				continue
			}
		case <-pause.C:
		}
		begun = time.Now()
		if s.write() {
			pause.Reset(max(0, s.set.opts.RenewEvery-time.Since(begun)))
		} else {
			pause.Reset(min(retryAfter, s.set.opts.RenewEvery))
		}
	}
}

// write renews the session once. It reports whether that has succeeded.
func (s *session) write() bool {
	ctx, cancel := context.WithTimeout(s.ctx, s.set.opts.RenewEvery)
	defer cancel()
	lease, sent := s.lease.DeepCopy(), time.Now()
	s.set.mark().Write(lease, s.id)
	s.publish(lease, sent)
	written, err := s.set.leases.Update(ctx, lease, metav1.UpdateOptions{})
	switch {
	case err == nil:
		s.lease = written
		return s.set.renewed(s, sent)
	case apierrors.IsNotFound(err):
		s.lose(fmt.Errorf("somebody has deleted its Lease %s", lease.Name))
	case apierrors.IsConflict(err):
		s.reread(ctx, err)
	case s.ctx.Err() == nil:
		s.set.report(fmt.Errorf("renewing the session: %w", err))
	}
	return false
}

// renewed notes that a renewal that was sent at a time has succeeded.
func (s *Set) renewed(n *session, sent time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.extendLocked(sent) {
		return true
	}
	n.endLocked(nil)
	return false
}

// publish writes the state of the session into its Lease.
func (s *session) publish(lease *coordinationv1.Lease, now time.Time) {
	s.set.mu.Lock()
	defer s.set.mu.Unlock()
	holds := Buckets{}
	for b, h := range s.holdings {
		if h.phase != taking {
			holds.Insert(b)
		}
	}
	if len(s.claims) > 0 {
		leases.SetClaims(lease, s.claims)
	}
	leases.Session{
		Duration: s.set.opts.LeaseDuration, Holds: holds, Workers: s.set.workersHere(), Seen: s.seen,
		Idle: s.leaving || s.lag.away, Late: s.lag.late,
	}.Write(lease, now)
}

// heedLocked looks at the Lease of the session as it was seen. If another replica has ended it, calls
// must end at once. If somebody has changed or deleted it, it is written again at once, because other
// replicas count the session as dead otherwise.
func (s *session) heedLocked(lease *coordinationv1.Lease, deleted bool) {
	if lease.UID == s.first.UID && !leases.IsNewer(lease, s.first) {
		return // the Lease was still idle
	}
	switch now := leases.ReadSession(lease); {
	case deleted || lease.UID != s.first.UID:
		token(s.hurry)
	case now.Ended:
		s.endLocked(errEnded)
	case now.Idle && !s.leaving && !s.lag.away, now.Duration != s.set.opts.LeaseDuration, !s.set.mark().IsOn(lease, s.id):
		token(s.hurry)
	}
}

var errEnded = errors.New("another replica has ended it")

// reread reads the Lease after a conflict. Unless another replica has ended the session, the next
// write begins from the present state.
func (s *session) reread(ctx context.Context, conflict error) {
	lease, err := s.set.leases.Get(ctx, s.lease.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		s.set.report(fmt.Errorf("renewing the session: %w", conflict))
	case lease.UID != s.lease.UID || leases.ReadSession(lease).Ended:
		s.lose(errEnded)
	default:
		s.lease = lease
	}
}

// fill queues the keys of buckets that the session has got, until it is over.
func (s *session) fill(wake <-chan struct{}) {
	for {
		select {
		case <-s.ended:
			return
		case <-wake:
		}
		s.set.mu.Lock()
		fresh := s.fresh
		s.fresh = Buckets{} // a bucket that is lost and taken again meanwhile is queued again
		s.set.mu.Unlock()
		if len(fresh) == 0 {
			continue
		}
		for _, w := range s.set.joined() {
			if err := w.Queue(s.ctx, fresh); err != nil && s.ctx.Err() == nil && !errors.Is(err, informer.ErrStopped) {
				s.set.report(fmt.Errorf("worker %s: queueing the keys of buckets: %w", w.name, err))
			}
		}
	}
}
