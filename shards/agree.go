package shards

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer/shards/internal/leases"
	"github.com/customcacheinformer/informer/shards/internal/plan"
)

// Bucket returns the bucket of a key, such as "default/shop". It is the same in every replica and
// every version of a program. With Options.ByNamespace it is that of the namespace, and 0 until
// WaitForSync has returned. Bucket does not block.
func (s *Set) Bucket(key string) int {
	if !s.opts.ByNamespace {
		return plan.Bucket(key, s.opts.Buckets)
	}
	r := s.ranges.Load()
	if r == nil {
		return 0
	}
	return r.Bucket(plan.Namespace(key))
}

// ByNamespace returns Options.ByNamespace. It does not block.
func (s *Set) ByNamespace() bool { return s.opts.ByNamespace }

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
			s.divideBy(r)
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

// divideBy sets the ranges. There is no session. A replica that was cut off for long may find others than
// it had, if the Leases of the set were deleted meanwhile.
func (s *Set) divideBy(r *plan.Ranges) {
	if s.rangesKey() == r.Key() {
		return
	}
	s.ranges.Store(r)
	for _, src := range s.sources {
		src.recut()
	}
}

// readOrCut returns the ranges in the Lease, and creates the Lease if there is none.
func (s *Set) readOrCut(ctx context.Context) (*plan.Ranges, error) {
	name := leases.RangesName(s.opts.Name)
	lease, err := s.leases.Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return s.rangesIn(lease, err)
	}
	if bucket, held := s.anyHeld(); held {
		return nil, fmt.Errorf("the Lease %s is missing, and a replica that works has bucket %d: it creates the Lease again", name, bucket)
	}
	weights := map[string]int{}
	for _, src := range s.sources {
		if err := src.count(ctx, weights); err != nil {
			return nil, err
		}
	}
	err = s.createRanges(ctx, plan.Cut(weights, s.opts.Buckets).Text())
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	return s.rangesIn(s.leases.Get(ctx, name, metav1.GetOptions{})) // another replica may have been first
}

// anyHeld returns a bucket that a replica has that may work. Such a replica knows the ranges.
func (s *Set) anyHeld() (bucket int, held bool) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, lease := range s.watched.All() {
		s.view.note(lease, false, now)
	}
	for b := range s.view.buckets {
		if holder := s.view.holder(b, now); holder != nil && holder.mayWork(&s.opts, now) {
			return b, true
		}
	}
	return 0, false
}

// rangesKey returns the key of this replica's ranges, "" if there are none.
func (s *Set) rangesKey() string {
	if r := s.ranges.Load(); r != nil {
		return r.Key()
	}
	return ""
}

// rangesIn reads the ranges from their Lease.
func (s *Set) rangesIn(lease *coordinationv1.Lease, err error) (*plan.Ranges, error) {
	if err == nil {
		err = s.mark().Refuses(lease)
	}
	if err != nil {
		return nil, err
	}
	r, err := plan.Parse(leases.Ranges(lease), s.opts.Buckets)
	if err != nil {
		return nil, fmt.Errorf("the Lease %s: %w", lease.Name, err)
	}
	return r, nil
}

func (s *Set) createRanges(ctx context.Context, text string) error {
	lease := s.mark().New(leases.RangesName(s.opts.Name), "")
	leases.SetRanges(lease, text)
	_, err := s.leases.Create(ctx, lease, metav1.CreateOptions{})
	return err
}

// keepRangesLocked writes the Lease of the ranges again if somebody has deleted or changed it. A replica
// that starts would divide by other ranges.
func (s *Set) keepRangesLocked(now time.Time) {
	if !s.opts.ByNamespace || now.Before(s.view.rangesRetry) {
		return
	}
	r := s.ranges.Load()
	if lease := s.view.ranges; lease != nil && s.hasRanges(lease, r) {
		return
	}
	s.view.rangesRetry = now.Add(retryAfter)
	s.running.Go(func() {
		ctx, cancel := s.request()
		defer cancel()
		if err := s.restoreRanges(ctx, r); err != nil {
			s.report(fmt.Errorf("writing the Lease %s again: %w", leases.RangesName(s.opts.Name), err))
		}
	})
}

// restoreRanges writes the Lease of the ranges, unless it is as it should be.
func (s *Set) restoreRanges(ctx context.Context, r *plan.Ranges) error {
	name := leases.RangesName(s.opts.Name)
	lease, err := s.leases.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		err = s.createRanges(ctx, r.Text())
	case err != nil:
	case s.hasRanges(lease, r):
		s.mu.Lock()
		defer s.mu.Unlock()
		s.view.note(lease, false, time.Now())
		return nil
	default:
		s.mark().Write(lease, "")
		leases.SetRanges(lease, r.Text())
		_, err = s.leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	switch {
	case err == nil:
		s.report(fmt.Errorf("somebody has changed or deleted the Lease %s, and this replica has written it again", name))
	case isOutdated(err):
		return nil // another replica was first
	}
	return err
}

// hasRanges reports whether a Lease is the one that has these ranges.
func (s *Set) hasRanges(lease *coordinationv1.Lease, r *plan.Ranges) bool {
	return s.mark().IsOn(lease, "") && leases.Ranges(lease) == r.Text()
}
