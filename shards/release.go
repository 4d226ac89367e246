package shards

import (
	"fmt"
	"math"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer/shards/internal/leases"
)

func (s *Set) dropLocked(h *holding) {
	if h.session.drop(h) {
		s.updateSourcesLocked()
	}
}

// release waits until no call for a key of the bucket is under way, and releases the bucket. After Options.DrainTimeout it
// ends the ctx of the calls, but still waits for them.
func (s *Set) release(h *holding) {
	late := time.AfterFunc(max(0, s.opts.DrainTimeout), func() { h.cancel(errDrained) })
	defer late.Stop()
	select {
	case <-h.idle: // however long it takes
	case <-h.session.ended:
	}
	if h.session.expired() {
		return
	}
	last, deletes := leases.Past{Seen: leases.Versions{}}, s.waiting(h.bucket)
	for _, w := range s.workers {
		last.Seen[w.name] = w.Seen()
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
	s.passOn(h.session, h.bucket, math.MaxInt64) // if the Lease had no room for all
}

// letGo writes the Lease of a bucket that this replica releases. It reports whether the replica no
// longer has the bucket.
func (s *Set) letGo(h *holding, last leases.Past, deletes leases.Deletes, claims []leases.Claim) bool {
	s.mu.Lock()
	if h.session.lost {
		s.mu.Unlock()
		return true
	}
	if known := s.view.buckets[h.bucket].lease; known != nil && leases.IsOther(known, h.lease) {
		if leases.Holder(known) != h.session.id { // it was changed
			s.dropLocked(h)
			s.poke()
			s.mu.Unlock()
			return true
		}
		h.lease = known // another replica has added deletes
	}
	lease := s.mark().On(h.lease, "", "")
	s.mu.Unlock()
	if !last.Write(lease) { // the next holder relies on the time since the last call, see reach
		select {
		case <-h.session.ended:
			return true
		case <-time.After(s.opts.Margin):
		}
	}
	leases.SetClaims(lease, claims)
	written := deletes.AddTo(lease)
	ctx, cancel := s.request()
	defer cancel()
	after, err := s.put(ctx, lease)
	if err == nil {
		for _, w := range s.workers {
			w.ForgetKeys(written[w.name]) // the Lease has them
		}
	}
	if apierrors.IsConflict(err) {
		after, err = s.leases.Get(ctx, lease.Name, metav1.GetOptions{})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.view.note(after, false, time.Now())
		if leases.Holder(after) == h.session.id { // the change of another replica came first
			return false
		}
		s.counts.released++
	case apierrors.IsNotFound(err): // it was deleted, and any session may take it
	default:
		s.later(fmt.Errorf("letting go of bucket %d: %w", h.bucket, err))
		return false
	}
	s.dropLocked(h)
	s.poke()
	return true
}
