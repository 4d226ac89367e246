package shards

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/customcacheinformer/informer/shards/internal/leases"
)

// This file has replicas mend Leases that somebody has changed or deleted.

// isOutdated reports whether a request was refused because the Lease is not in the state that this
// replica has seen.
func isOutdated(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

// reread reads the Lease of a bucket. No replica is told of the changes of a Lease without the label.
func (s *Set) reread(ctx context.Context, bucket int) {
	s.mu.Lock()
	before := s.view.buckets[bucket].lease
	s.mu.Unlock()
	lease, err := s.leases.Get(ctx, leases.BucketName(s.opts.Name, bucket), metav1.GetOptions{})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.view.buckets[bucket].lease == before {
		s.view.restored(lease) // if it is older, so is the state of the server
	}
	switch {
	case err == nil:
		s.view.note(lease, false, time.Now())
	case apierrors.IsNotFound(err) && before != nil:
		s.view.note(before, true, time.Now())
	}
	s.poke()
}

// restoreLocked creates the Lease of a bucket that somebody has deleted while this replica has it.
func (s *Set) restoreLocked(h *holding) {
	seen := &s.view.buckets[h.bucket]
	if now := time.Now(); now.Before(seen.retry) {
		return
	}
	seen.retry = time.Now().Add(retryAfter)
	lease := s.mark().New(leases.BucketName(s.opts.Name, h.bucket), h.session.id)
	leases.Own(lease, h.token)
	if h.known == nil {
		h.before.Write(lease)
	}
	s.running.Go(func() {
		ctx, cancel := s.request()
		defer cancel()
		lease, err := s.leases.Create(ctx, lease, metav1.CreateOptions{})
		if isOutdated(err) {
			s.reread(ctx, h.bucket) // only its label is gone
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil {
			s.later(fmt.Errorf("creating the Lease of bucket %d again: %w", h.bucket, err))
			return
		}
		s.later(fmt.Errorf("somebody has deleted the Lease of bucket %d, and this replica has created it again", h.bucket))
		h.lease = lease
		s.view.note(lease, false, time.Now())
	})
}

// mendLocked writes into the Lease of a bucket of this replica the parts that somebody has changed.
func (s *Set) mendLocked(h *holding) {
	seen := &s.view.buckets[h.bucket]
	if now := time.Now(); now.Before(seen.retry) {
		return
	}
	seen.retry = time.Now().Add(retryAfter)
	lease := seen.lease.DeepCopy()
	s.mark().Write(lease, h.session.id)
	lease.Spec.LeaseTransitions = ptr.To(h.token)
	s.running.Go(func() {
		ctx, cancel := s.request()
		defer cancel()
		written, err := s.leases.Update(ctx, lease, metav1.UpdateOptions{})
		if isOutdated(err) {
			s.reread(ctx, h.bucket)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil {
			s.later(fmt.Errorf("mending the Lease of bucket %d: %w", h.bucket, err))
			return
		}
		s.later(fmt.Errorf("somebody has changed the Lease of bucket %d, and this replica has mended it", h.bucket))
		s.view.note(written, false, time.Now()) // and not h.lease: the next step looks for deletes
	})
}
