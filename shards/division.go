package shards

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/object"
	"github.com/customcacheinformer/informer/internal/sharding"
	"github.com/customcacheinformer/informer/shards/internal/leases"
	"github.com/customcacheinformer/informer/shards/internal/plan"
)

// bucket returns the bucket of a key. With Options.ByNamespace it is the bucket of the namespace, or 0
// before the ranges are known.
func (s *Set) bucket(key string) int {
	if !s.opts.ByNamespace {
		return plan.Bucket(key, s.opts.Buckets)
	}
	r := s.ranges.Load()
	if r == nil {
		return 0
	}
	return r.Bucket(plan.Namespace(key))
}

// Source returns a source that delivers only the objects in the buckets of this replica. Pass it to
// [informer.NewFrom], for one informer. all is a source of all objects, such as one of
// [informer.ListWatch]. The informer holds only the objects of the replica's namespaces. If the API
// server can select these objects, it sends no others. Source makes no request. It returns an error if
// all is nil or Options.ByNamespace is not set, and one that wraps informer.ErrAlreadyRun if Run was
// called before.
//
// Options.Durable of the informer must not be set: an object that is missing after a restart may have
// been deleted, or may be in a bucket that the replica does not have now. Only an informer can read the
// source, which must not be wrapped. For any other reader, each request fails.
//
// When a bucket goes to another replica, the informer lists again after ten seconds, or sooner if this
// replica gets another bucket. The objects of the lost bucket then leave the informer's store without
// an event, unless the bucket is back by then. A replica that gets buckets lists its namespaces again
// before calls for their keys begin. Before the replica has joined, the informer syncs without any
// object.
//
// KEP-5866 lets an API server select by ranges of namespaces (shardSelector, alpha since Kubernetes
// 1.36). The source sends such a selector unless the replica has all buckets. A server that does not
// know the selector sends all objects, and one that refuses it is asked for all objects. The informer
// then drops the objects of other replicas, and its Health counts them as Foreign. That saves memory, but
// no traffic.
func (s *Set) Source(all cache.ListerWatcher) (cache.ListerWatcher, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case object.IsNil(all):
		return nil, fmt.Errorf("shards: set %s: Source: the source is nil", s.opts.Name)
	case !s.opts.ByNamespace:
		return nil, fmt.Errorf("shards: set %s: Source: Options.ByNamespace is not set", s.opts.Name)
	case s.ctx != nil:
		return nil, fmt.Errorf("shards: set %s: Source: too late: %w", s.opts.Name, informer.ErrAlreadyRun)
	}
	src := &source{
		all: cache.ToListerWatcherWithContext(all), total: s.opts.Buckets, ranges: &s.ranges,
		unstreamable: watchlist.DoesClientNotSupportWatchListSemantics(all), moved: make(chan struct{}),
	}
	s.sources = append(s.sources, src)
	return src, nil
}

// updateSourcesLocked passes the buckets of this replica to the sources.
func (s *Set) updateSourcesLocked() {
	if len(s.sources) == 0 {
		return
	}
	var buckets sharding.Buckets
	if s.session != nil {
		buckets = s.session.buckets()
	}
	for _, src := range s.sources {
		src.want(buckets)
	}
}

// agree waits until the ranges of namespaces are known. The first replica of a set cuts them, and writes
// them into a Lease that never changes. agree returns only the error of ctx. Without Options.ByNamespace
// it does nothing.
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

// divideBy sets the ranges. It must be called while there is no session. A replica that was cut off for
// long may find new ranges, if the Leases of the set were deleted meanwhile.
func (s *Set) divideBy(r *plan.Ranges) {
	if s.rangesKey() == r.Key() {
		return
	}
	s.ranges.Store(r)
	for _, src := range s.sources {
		src.recut()
	}
}

// readOrCut returns the ranges in their Lease. If the Lease is missing, it counts the objects and creates the Lease, unless
// a replica that works has a bucket: that replica creates the Lease again.
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
	err = s.writeRanges(ctx, nil, plan.Cut(weights, s.opts.Buckets))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	return s.rangesIn(s.leases.Get(ctx, name, metav1.GetOptions{})) // another replica may have been first
}

// anyHeld returns a bucket of a replica that may be working. Such a replica knows the ranges. held is
// false if there is none.
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

// writeRanges writes the ranges into their Lease. last is the last known state of the Lease, or nil to
// create it.
func (s *Set) writeRanges(ctx context.Context, last *coordinationv1.Lease, r *plan.Ranges) error {
	lease := s.mark().On(last, leases.RangesName(s.opts.Name), "")
	leases.SetRanges(lease, r.Text())
	_, err := s.put(ctx, lease)
	return err
}

// keepRangesLocked writes the Lease of the ranges again if it was deleted or changed. Otherwise
// a replica that starts would divide by other ranges.
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

// restoreRanges writes the Lease of the ranges, unless it has the right content.
func (s *Set) restoreRanges(ctx context.Context, r *plan.Ranges) error {
	name := leases.RangesName(s.opts.Name)
	lease, err := s.leases.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		lease = nil
	case err != nil:
		return err
	case s.hasRanges(lease, r):
		s.mu.Lock()
		defer s.mu.Unlock()
		s.view.note(lease, false, time.Now())
		return nil
	}
	switch err = s.writeRanges(ctx, lease, r); {
	case err == nil:
		s.report(fmt.Errorf("the Lease %s was changed or deleted, and this replica has written it again", name))
	case isOutdated(err):
		return nil // another replica was first
	}
	return err
}

func (s *Set) hasRanges(lease *coordinationv1.Lease, r *plan.Ranges) bool {
	return s.mark().IsOn(lease, "") && leases.Ranges(lease) == r.Text()
}
