package shards

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// This file has the replicas agree on the ranges of namespaces. The first replica of a set cuts them,
// and writes them into a Lease that never changes.

// agree waits until the ranges are known. It does nothing without Options.ByNamespace.
func (s *Set) agree(ctx context.Context) error {
	if !s.opts.ByNamespace {
		return nil
	}
	for {
		r, err := s.readOrCut(ctx)
		if err == nil {
			s.ranges.Store(r)
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.report(fmt.Errorf("the ranges of namespaces: %w", err))
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// readOrCut returns the ranges in the Lease, and creates the Lease if there is none.
func (s *Set) readOrCut(ctx context.Context) (*ranges, error) {
	name := rangesName(s.opts.Name)
	lease, err := s.leases.Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return s.rangesIn(lease, err)
	}
	for _, other := range s.watched.All() {
		if _, is := bucketOf(s.opts.Name, other); is && holderOf(other) != "" {
			// The replica that has the bucket knows the ranges, and writes them again.
			return nil, fmt.Errorf("the Lease %s is missing, but a replica has the bucket of the Lease %s", name, other.Name)
		}
	}
	weights := map[string]int{}
	for _, src := range s.sources {
		if err := src.count(ctx, weights); err != nil {
			return nil, err
		}
	}
	err = s.writeRanges(ctx, cut(weights, s.opts.Buckets))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	return s.rangesIn(s.leases.Get(ctx, name, metav1.GetOptions{})) // another replica may have been first
}

// rangesIn reads the ranges from their Lease.
func (s *Set) rangesIn(lease *coordinationv1.Lease, err error) (*ranges, error) {
	if err == nil {
		err = s.opts.refuses(lease)
	}
	if err != nil {
		return nil, err
	}
	r, err := parseRanges(lease.Annotations[rangesAnnotation], s.opts.Buckets)
	if err != nil {
		return nil, fmt.Errorf("the Lease %s: %w", lease.Name, err)
	}
	return r, nil
}

func (s *Set) writeRanges(ctx context.Context, r *ranges) error {
	lease := s.opts.newLease(rangesName(s.opts.Name), "")
	annotate(lease, rangesAnnotation, format(r))
	_, err := s.leases.Create(ctx, lease, metav1.CreateOptions{})
	return err
}

// restoreRanges creates the Lease of the ranges, because somebody has deleted it. A replica that starts
// would cut other ranges.
func (s *Set) restoreRanges() {
	r := s.ranges.Load()
	if r == nil {
		return
	}
	s.running.Go(func() {
		ctx, cancel := s.request()
		defer cancel()
		if err := s.writeRanges(ctx, r); err != nil && !apierrors.IsAlreadyExists(err) {
			s.report(fmt.Errorf("creating the Lease %s again: %w", rangesName(s.opts.Name), err))
		}
	})
}
