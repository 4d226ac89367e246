package shards

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/ptr"

	"github.com/customcacheinformer/informer"
)

// step looks at the Leases and starts the requests that bring the set closer to the plan. It returns
// how long the result holds if nothing happens, and whether the session has left the set.
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
	if n.lost {
		s.forgetOldLocked()
		return time.Hour, false
	}
	s.forgetOldLocked()
	s.view.forget(now)
	s.view.unowned(now) // notes the time, however seldom somebody asks for Health
	sessions, holders := s.planLocked(n, now)
	var weights []int
	if r := s.ranges.Load(); r != nil {
		weights = r.Weights
	}
	wanted := assign(sessions, holders, weights)
	for b := range wanted {
		h := n.holdings[b]
		switch {
		case h != nil:
			s.checkLocked(h, wanted[b] == n.id && !n.leaving)
		case wanted[b] == n.id && !n.leaving:
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

// planLocked returns the sessions that may have buckets, and who has each bucket.
func (s *Set) planLocked(n *session, now time.Time) (sessions, holders []string) {
	for id, seen := range s.view.sessions {
		if id != n.id && seen.mayTake(&s.opts, now) {
			sessions = append(sessions, id)
		}
	}
	if !n.leaving {
		sessions = append(sessions, n.id)
	}
	for b := range s.view.buckets {
		switch holder := s.view.holder(b, now); {
		case n.holdings[b] != nil:
			holders = append(holders, n.id)
		case holder == nil || holder.id == n.id:
			holders = append(holders, "")
		default:
			holders = append(holders, holder.id)
		}
	}
	return sessions, holders
}

// checkLocked looks at a bucket that this replica has. wanted says that it should stay.
func (s *Set) checkLocked(h *holding, wanted bool) {
	if h.phase == taking || h.phase == releasing {
		return
	}
	seen := &s.view.buckets[h.bucket]
	switch {
	case seen.lease == nil && seen.last == h.session.id: // somebody has deleted the Lease
		s.restoreLocked(h)
	case seen.lease != nil && isNewer(seen.lease, h.lease) && holderOf(seen.lease) != h.session.id:
		s.later(fmt.Errorf("somebody has taken bucket %d from this replica, by a change of its Lease", h.bucket))
		h.cancel(ErrSessionLost)
		h.begin(releasing)
		s.dropLocked(h)
	case !wanted:
		h.begin(releasing)
		s.running.Go(func() { s.release(h) })
	case seen.lease != nil && isNewer(seen.lease, h.lease):
		h.lease = seen.lease // another replica has added deletes
		s.deletes = append(s.deletes, deletesIn(h.lease))
	default:
		s.lightenLocked(h)
	}
}

// wantLocked starts to take a bucket, if nobody else has it.
func (s *Set) wantLocked(n *session, b int, now time.Time) {
	seen := &s.view.buckets[b]
	if now.Before(seen.retry) {
		return
	}
	holder := s.view.holder(b, now)
	switch {
	case holder != nil && holder.id != n.id && holder.mayWork(&s.opts, now):
		return // it lets go of the bucket, or its session ends
	case holder != nil && holder.id != n.id && holder.lease != nil:
		s.endSessionLocked(holder, now)
		return
	case seen.lease == nil && holder == nil && s.view.claimed(b, now):
		return
	}
	h := &holding{session: n, bucket: b, since: now, idle: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancelCause(n.ctx)
	n.holdings[b] = h
	lease, token, died := seen.lease, seen.token+1, s.view.died(b)
	s.running.Go(func() { s.take(h, lease, token, died) })
}

// endSessionLocked ends the session of another replica that has not renewed it for as long as it may
// last. That is a change of its Lease: if a renewal that this replica has not seen came first, the
// change is refused, and if it comes later, the renewal is refused.
func (s *Set) endSessionLocked(seen *seenSession, now time.Time) {
	if seen.asking || now.Before(seen.retry) {
		return
	}
	seen.asking = true
	lease := seen.lease.DeepCopy()
	annotate(lease, endedAnnotation, "true")
	s.running.Go(func() {
		ctx, cancel := s.request()
		defer cancel()
		ended, err := s.leases.Update(ctx, lease, metav1.UpdateOptions{})
		s.mu.Lock()
		defer s.mu.Unlock()
		seen.asking = false
		seen.retry = time.Now().Add(retryAfter)
		switch {
		case err == nil:
			s.view.note(ended, false, time.Now())
		case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err):
			s.later(fmt.Errorf("ending the session %s: %w", seen.id, err))
		}
		s.poke()
	})
}

// cleanLocked deletes the Leases of sessions that have ended and have no bucket, and ends those that
// died without one.
func (s *Set) cleanLocked(now time.Time) {
	var named []string
	for b := range s.view.buckets {
		named = append(named, holderOf(s.view.buckets[b].lease))
	}
	for _, seen := range s.view.sessions {
		switch {
		case seen.lease == nil || seen.asking || now.Before(seen.retry) || s.session != nil && seen.id == s.session.id:
		case !seen.mayWork(&s.opts, now) && !seen.ended:
			s.endSessionLocked(seen, now)
		case seen.ended && !slices.Contains(named, seen.id):
			seen.asking = true
			lease := seen.lease
			s.running.Go(func() { s.deleteSession(seen, lease) })
		}
	}
}

func (s *Set) deleteSession(seen *seenSession, lease *coordinationv1.Lease) {
	ctx, cancel := s.request()
	defer cancel()
	err := s.leases.Delete(ctx, lease.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &lease.UID}})
	s.mu.Lock()
	defer s.mu.Unlock()
	seen.asking, seen.retry = false, time.Now().Add(s.opts.RenewEvery)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		s.later(fmt.Errorf("deleting the session %s, which has ended: %w", seen.id, err))
	}
}

// request returns the ctx of a request.
func (s *Set) request() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(s.ctx), s.opts.RenewEvery)
}

// take writes the Lease of a bucket for this replica. lease is its last state, or nil if there is
// none. died is the session that had the bucket and has not let go of it, or nil. The Lease then says
// so: this replica may die, too, before it has caught up.
func (s *Set) take(h *holding, lease *coordinationv1.Lease, transitions int32, died *sessionLease) {
	isNew := lease == nil
	if isNew {
		lease = s.opts.newLease(bucketName(s.opts.Name, h.bucket), h.session.id)
		transitions = max(transitions, firstToken(time.Now()))
	} else {
		lease = lease.DeepCopy()
		lease.Spec.HolderIdentity = ptr.To(h.session.id)
	}
	s.own(lease, transitions)
	if died != nil {
		past{latest(pastIn(lease).seen, died.seen), true}.write(lease)
	}
	ctx, cancel := s.request()
	defer cancel()
	var err error
	if isNew {
		lease, err = s.leases.Create(ctx, lease, metav1.CreateOptions{})
	} else {
		lease, err = s.leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if !s.took(h, lease, err) {
		return
	}
	if err := s.catchUp(h); err != nil {
		if h.ctx.Err() == nil && !errors.Is(err, informer.ErrStopped) {
			s.report(fmt.Errorf("catching up with the last holder of bucket %d: %w", h.bucket, err))
		}
		return // the worker has stopped
	}
	known := map[string]Versions{}
	for _, w := range s.joined() {
		known[w.name] = w.Known()
	}
	s.handleDeletes(deletesIn(lease))
	s.opened(h, known)
}

// opened notes that the caches are new enough for calls. known is how new they are.
func (s *Set) opened(h *holding, known map[string]Versions) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.session.lost || h.phase != catching {
		return
	}
	h.known = known
	h.begin(open)
	h.session.fresh.Insert(h.bucket)
	token(s.filling)
}

// catchUp waits until the caches have the objects of a bucket, and are at least as new as those of the
// last holder. If it has died, it has said only from time to time what it had seen. It had no call
// after its session, and Margin later everything that it had seen has come to watches that are open.
func (s *Set) catchUp(h *holding) error {
	for _, src := range s.sources {
		if err := src.await(h.ctx, h.bucket); err != nil {
			return err
		}
	}
	begun := time.Now()
	late := time.AfterFunc(slack, func() {
		for _, src := range s.sources {
			src.renew(begun)
		}
	})
	defer late.Stop()
	for _, w := range s.joined() {
		err := w.CatchUp(h.ctx, h.before.seen[w.name])
		if err == nil && h.before.died {
			err = w.Fresh(h.ctx, s.opts.Margin)
		}
		if err != nil {
			return fmt.Errorf("worker %s: %w", w.name, err)
		}
	}
	return nil
}

// latest returns the later of the versions of each source.
func latest(a, b map[string]Versions) map[string]Versions {
	all := map[string]Versions{}
	for _, seen := range []map[string]Versions{a, b} {
		for name, versions := range seen {
			if all[name] == nil {
				all[name] = Versions{}
			}
			for source, version := range versions {
				order, err := resourceversion.CompareResourceVersion(all[name][source], version)
				if err != nil || order < 0 {
					all[name][source] = version
				}
			}
		}
	}
	return all
}

// firstToken returns the token of a Lease that is made now. It is the number of seconds since the
// year 2000, so that tokens go on rising if somebody deletes the Leases, such as to change the number
// of buckets: a bucket does not change hands once a second for years.
func firstToken(now time.Time) int32 {
	return int32(max(1, min(now.Unix()-946684800, math.MaxInt32/2)))
}

// own writes the token of a bucket and the time into its Lease.
func (s *Set) own(lease *coordinationv1.Lease, token int32) {
	lease.Spec.LeaseTransitions = &token
	lease.Spec.AcquireTime = ptr.To(metav1.NewMicroTime(time.Now()))
}

// took notes the result of taking a bucket. It reports whether the replica has it.
func (s *Set) took(h *holding, lease *coordinationv1.Lease, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.poke()
	if err != nil {
		s.dropLocked(h)
		s.view.buckets[h.bucket].retry = time.Now().Add(retryAfter)
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			s.later(fmt.Errorf("taking bucket %d: %w", h.bucket, err))
		}
		return false
	}
	s.view.note(lease, false, time.Now())
	if h.session.lost {
		return false
	}
	s.counts.taken++
	h.lease, h.token = lease, tokenOf(lease)
	h.before = pastIn(lease)
	h.begin(catching)
	s.tellSourcesLocked()
	return true
}

// dropLocked removes a holding from its session.
func (s *Set) dropLocked(h *holding) {
	h.cancel(nil)
	if h.session.holdings[h.bucket] == h {
		delete(h.session.holdings, h.bucket)
		h.session.fresh.Delete(h.bucket)
		s.tellSourcesLocked()
	}
}

// release waits until no call for a key of the bucket is under way, and lets go of the bucket.
func (s *Set) release(h *holding) {
	late := time.AfterFunc(max(0, s.opts.DrainTimeout), func() { h.cancel(ErrDrained) })
	defer late.Stop()
	select {
	case <-h.idle: // however long it takes
	case <-h.session.ended:
	}
	if h.session.expired() {
		return
	}
	last, deletes := past{seen: map[string]Versions{}}, map[string][]string{}
	for _, w := range s.joined() {
		last.seen[w.name] = w.Seen()
		if keys := w.Deletes(h.bucket); len(keys) > 0 {
			deletes[w.name] = keys
		}
	}
	if h.known == nil { // no call was made, and the caches may be older than those of the last holder
		last = h.before
	}
	claims := s.claims([]*holding{h}, retryAfter)
	for !s.letGo(h, last, deletes, claims) {
		select {
		case <-h.session.ended:
			return
		case <-time.After(retryAfter):
		}
	}
}

// letGo writes the Lease of a bucket that this replica has no longer. It reports whether the bucket
// is not this replica's any more.
func (s *Set) letGo(h *holding, last past, deletes map[string][]string, claims []claim) bool {
	s.mu.Lock()
	if h.session.lost {
		s.mu.Unlock()
		return true
	}
	if known := s.view.buckets[h.bucket].lease; known != nil && isNewer(known, h.lease) {
		h.lease = known // another replica has added deletes
	}
	lease := h.lease.DeepCopy()
	s.mu.Unlock()
	lease.Spec.HolderIdentity = ptr.To("")
	last.write(lease)
	annotate(lease, claimsAnnotation, format(claims))
	annotate(lease, deletesAnnotation, s.fitting(h.bucket, union(deletes, deletesIn(lease))))
	ctx, cancel := s.request()
	defer cancel()
	written, err := s.leases.Update(ctx, lease, metav1.UpdateOptions{})
	if err == nil {
		for _, w := range s.joined() {
			w.ForgetKeys(deletes[w.name]) // the Lease has them
		}
	}
	if apierrors.IsConflict(err) {
		written, err = s.leases.Get(ctx, lease.Name, metav1.GetOptions{})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.view.note(written, false, time.Now())
		if holderOf(written) == h.session.id { // the change of another replica came first
			return false
		}
		s.counts.released++
	case apierrors.IsNotFound(err): // somebody has deleted it, and anyone may take it
	default:
		s.later(fmt.Errorf("letting go of bucket %d: %w", h.bucket, err))
		return false
	}
	s.dropLocked(h)
	s.poke()
	return true
}

// restoreLocked creates the Lease of a bucket that somebody has deleted while this replica has it.
func (s *Set) restoreLocked(h *holding) {
	seen := &s.view.buckets[h.bucket]
	if now := time.Now(); now.Before(seen.retry) {
		return
	}
	seen.retry = time.Now().Add(retryAfter)
	lease := s.opts.newLease(bucketName(s.opts.Name, h.bucket), h.session.id)
	s.own(lease, h.token)
	if h.known == nil {
		h.before.write(lease)
	}
	s.running.Go(func() {
		ctx, cancel := s.request()
		defer cancel()
		lease, err := s.leases.Create(ctx, lease, metav1.CreateOptions{})
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil {
			if !apierrors.IsAlreadyExists(err) {
				s.later(fmt.Errorf("creating the Lease of bucket %d again: %w", h.bucket, err))
			}
			return
		}
		h.lease = lease
		s.view.note(lease, false, time.Now())
	})
}

// forgetOldLocked forgets lost sessions whose calls have returned. Their buckets need not wait until
// the sessions would have ended by themselves.
func (s *Set) forgetOldLocked() {
	for old := range s.old {
		busy := false
		for _, h := range old.holdings {
			busy = busy || h.calls > 0
		}
		if busy {
			continue
		}
		delete(s.old, old)
		if seen := s.view.sessions[old.id]; seen != nil {
			seen.at = time.Time{}
		}
	}
}
