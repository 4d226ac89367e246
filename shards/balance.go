package shards

import (
	"fmt"
	"math"
	"time"

	"github.com/customcacheinformer/informer/shards/internal/leases"
	"github.com/customcacheinformer/informer/shards/internal/plan"
)

// step looks at the Leases and starts the requests that bring the set closer to the plan. It returns
// after how long it must be called again if nothing happens, and whether the session has left the set.
func (s *Set) step(n *session) (next time.Duration, left bool) {
	s.mu.Lock()
	next, left = s.stepLocked(n, time.Now())
	reports, deletes := s.reports, s.deletes
	s.reports, s.deletes = nil, nil
	s.mu.Unlock()
	for _, err := range reports {
		s.report(err)
	}
	for _, keys := range deletes {
		s.handleDeletes(keys) // before the next step, which may find that they are handled
	}
	return next, left
}

func (s *Set) stepLocked(n *session, now time.Time) (next time.Duration, left bool) {
	s.forgetOldLocked()
	if n.lost {
		return time.Hour, false
	}
	s.view.forget(now)
	s.view.unowned(now) // records the time, independent of calls of Health
	s.keepRangesLocked(now)
	s.countUnservedLocked(now)
	s.reviewLocked(n, now)
	sessions, holders := s.planLocked(n, now)
	var weights []int
	if r := s.ranges.Load(); r != nil {
		weights = r.Weights
	}
	wanted := plan.Assign(sessions, holders, weights)
	for b := range wanted {
		h := n.holdings[b]
		switch {
		case h != nil:
			s.checkLocked(h, wanted[b] == n.id)
		case holders[b] == n.id || wanted[b] == n.id:
			s.wantLocked(n, b, now)
		}
	}
	s.cleanLocked(now)
	if n.leaving && len(n.holdings) == 0 {
		return 0, true
	}
	if at := s.view.next(now); !at.IsZero() {
		return at.Sub(now), false
	}
	return time.Hour, false
}

// planLocked returns the sessions that may have buckets, and the holder of each bucket. This replica
// may hold a bucket without knowing it, because the answer to a request was lost. The others wait until
// it releases the bucket. So it takes the bucket in any case.
func (s *Set) planLocked(n *session, now time.Time) (sessions, holders []string) {
	for id, seen := range s.view.sessions {
		if id != n.id && seen.mayTake(&s.opts, now) {
			sessions = append(sessions, id)
		}
	}
	if !n.leaving && !n.lag.away {
		sessions = append(sessions, n.id)
	}
	for b := range s.view.buckets {
		switch holder := s.view.holder(b, now); {
		case n.holdings[b] != nil:
			holders = append(holders, n.id)
		case holder == nil:
			holders = append(holders, "")
		default:
			holders = append(holders, holder.ID)
		}
	}
	return sessions, holders
}

// checkLocked looks at a bucket that this replica has. wanted is true if the replica should keep it. If not, checkLocked
// releases it. It repairs a Lease that was deleted or changed. If the Lease has another holder, the bucket is lost.
func (s *Set) checkLocked(h *holding, wanted bool) {
	if h.phase == taking || h.phase == releasing {
		return
	}
	seen := &s.view.buckets[h.bucket]
	switch {
	case seen.lease == nil && seen.last == h.session.id: // the Lease was deleted
		s.repairLocked(h)
	case seen.lease != nil && leases.IsOther(seen.lease, h.lease) && leases.Holder(seen.lease) != h.session.id:
		s.later(fmt.Errorf("bucket %d was taken from this replica by a change of its Lease", h.bucket))
		seen.retry = time.Now().Add(retryAfter)
		h.cancel(errSessionLost)
		h.release()
		s.dropLocked(h)
	case !wanted:
		h.release()
		s.running.Go(func() { s.release(h) })
	case seen.lease != nil && leases.IsOther(seen.lease, h.lease):
		if !s.mark().IsOn(seen.lease, h.session.id) || leases.Token(seen.lease) != h.token {
			s.repairLocked(h)
			return
		}
		h.lease = seen.lease // another replica has added deletes
		s.deletes = append(s.deletes, leases.ReadDeletes(h.lease))
	default:
		s.lightenLocked(h)
	}
}

// wantLocked starts a request for a bucket that this replica should have. If the session of the holder
// is dead, the request ends that session. If no session has the bucket, it takes the bucket.
func (s *Set) wantLocked(n *session, b int, now time.Time) {
	seen := &s.view.buckets[b]
	if now.Before(seen.retry) {
		return
	}
	holder := s.view.holder(b, now)
	switch {
	case holder != nil && holder.ID != n.id && holder.mayWork(&s.opts, now):
		return // it releases the bucket, or its session ends
	case holder != nil && holder.ID != n.id && holder.lease != nil:
		s.endSessionLocked(holder, now)
		return
	case seen.lease == nil && holder == nil && s.view.claimed(b, now):
		return
	}
	if seen.token == math.MaxInt32 { // another one would be negative, and the API server refuses that
		s.later(fmt.Errorf("bucket %d has the last fencing token that there is, %d: stop all replicas and delete the Lease %s",
			b, seen.token, leases.BucketName(s.opts.Name, b)))
		seen.retry = now.Add(s.opts.RenewEvery)
		return
	}
	h := n.add(b, now)
	lease, token, died := seen.lease, seen.token+1, s.view.died(b)
	s.running.Go(func() { s.take(h, lease, token, died) })
}
