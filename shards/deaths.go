package shards

import (
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer/shards/internal/leases"
)

// endSessionLocked ends the session of another replica that has not renewed it in time, by a change
// of its Lease. If a renewal came first that this replica has not seen, the API server refuses the
// change. If the renewal comes later, the API server refuses the renewal.
func (s *Set) endSessionLocked(seen *seenSession, now time.Time) {
	if seen.asking || now.Before(seen.retry) {
		return
	}
	seen.asking = true
	lease := s.mark().On(seen.lease, "", seen.ID)
	leases.End(lease)
	s.running.Go(func() {
		ctx, cancel := s.request()
		defer cancel()
		after, err := s.put(ctx, lease)
		if isOutdated(err) { // an API server also answers a conflict if the Lease was deleted
			after, err = s.leases.Get(ctx, lease.Name, metav1.GetOptions{})
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		seen.asking = false
		seen.retry = time.Now().Add(retryAfter)
		switch {
		case err == nil:
			s.view.note(after, false, time.Now())
		case apierrors.IsNotFound(err):
			seen.gone(lease)
		default:
			s.later(fmt.Errorf("ending the session %s: %w", seen.ID, err))
		}
		s.poke()
	})
}

// cleanLocked deletes the Leases of sessions that ended and have no bucket. It ends the
// sessions that have died.
func (s *Set) cleanLocked(now time.Time) {
	var named []string
	for b := range s.view.buckets {
		named = append(named, leases.Holder(s.view.buckets[b].lease))
	}
	for _, seen := range s.view.sessions {
		switch {
		case seen.lease == nil || seen.asking || now.Before(seen.retry) || s.session != nil && seen.ID == s.session.id:
		case !seen.mayWork(&s.opts, now) && !seen.Ended:
			s.endSessionLocked(seen, now)
		case seen.Ended && !slices.Contains(named, seen.ID):
			seen.asking = true
			lease := seen.lease
			s.running.Go(func() { s.deleteSession(seen, lease) })
		}
	}
}

func (s *Set) deleteSession(seen *seenSession, lease *coordinationv1.Lease) {
	ctx, cancel := s.request()
	defer cancel()
	err := s.remove(ctx, lease)
	s.mu.Lock()
	defer s.mu.Unlock()
	seen.asking, seen.retry = false, time.Now().Add(s.opts.RenewEvery)
	switch {
	case apierrors.IsNotFound(err):
		seen.gone(lease)
	case err != nil && !apierrors.IsConflict(err):
		s.later(fmt.Errorf("deleting the session %s, which has ended: %w", seen.ID, err))
	}
}

// forgetOldLocked forgets lost sessions of this replica whose calls have returned. Their buckets are
// then free at once.
func (s *Set) forgetOldLocked() {
	for old := range s.old {
		if old.calls() > 0 {
			continue
		}
		delete(s.old, old)
		if seen := s.view.sessions[old.id]; seen != nil {
			seen.at = time.Time{}
		}
	}
}
