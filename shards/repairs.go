package shards

import (
	"fmt"
	"time"

	"k8s.io/utils/ptr"

	"github.com/customcacheinformer/informer/shards/internal/leases"
)

// repairLocked writes the Lease of a bucket of this replica again, after the Lease was deleted
// or changed.
func (s *Set) repairLocked(h *holding) {
	seen := &s.view.buckets[h.bucket]
	if !seen.mayAsk() {
		return
	}
	isNew := seen.lease == nil
	lease := s.mark().On(seen.lease, leases.BucketName(s.opts.Name, h.bucket), h.session.id)
	lease.Spec.LeaseTransitions = ptr.To(h.token)
	if isNew {
		leases.Own(lease, h.token)
		if h.known == nil {
			h.before.Write(lease)
		}
	}
	s.running.Go(func() {
		written, err := s.putBucket(h.bucket, lease)
		if isOutdated(err) {
			return // only its label is gone, or another change came first
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case err != nil && isNew:
			s.later(fmt.Errorf("creating the Lease of bucket %d again: %w", h.bucket, err))
			return
		case err != nil:
			s.later(fmt.Errorf("mending the Lease of bucket %d: %w", h.bucket, err))
			return
		case isNew:
			s.later(fmt.Errorf("the Lease of bucket %d was deleted, and this replica has created it again", h.bucket))
			h.lease = written
		default: // h.lease stays: the next step looks for deletes
			s.later(fmt.Errorf("the Lease of bucket %d was changed, and this replica has mended it", h.bucket))
		}
		s.view.note(written, false, time.Now())
	})
}
