package shards

import (
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
