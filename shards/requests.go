package shards

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer/shards/internal/leases"
)

func (s *Set) request() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(s.ctx), s.opts.RenewEvery)
}

// isOutdated reports whether a request was refused because the Lease is not in the state that this
// replica has seen.
func isOutdated(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

// put writes a Lease, or creates it if it has no version.
func (s *Set) put(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if lease.ResourceVersion == "" {
		return s.leases.Create(ctx, lease, metav1.CreateOptions{})
	}
	return s.leases.Update(ctx, lease, metav1.UpdateOptions{})
}

// putBucket writes the Lease of a bucket. If the Lease has changed since this replica saw it, putBucket
// reads it and returns an error.
func (s *Set) putBucket(bucket int, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := s.request()
	defer cancel()
	written, err := s.put(ctx, lease)
	if isOutdated(err) {
		s.reread(ctx, bucket)
	}
	return written, err
}

// reread reads the Lease of a bucket into the view. The watch does not show a Lease that has lost its
// label.
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

// remove deletes the Lease of a session, unless another Lease has its name now.
func (s *Set) remove(ctx context.Context, lease *coordinationv1.Lease) error {
	return s.leases.Delete(ctx, lease.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &lease.UID}})
}
