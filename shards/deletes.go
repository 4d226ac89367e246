package shards

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/customcacheinformer/informer/shards/internal/leases"
)

// This file passes deletes on that the holder of a bucket cannot know of. The Lease of the bucket
// carries their keys until the holder has handled them.

// ErrBucketDeletesDropped indicates that the replica has left without passing on the keys of all deleted
// objects, because the Lease of a bucket had no room for them, the API server refused them, or the session
// ended first. Perhaps no replica reconciles the remaining keys. Options.ErrorHandler receives an error that
// wraps it.
var ErrBucketDeletesDropped = errors.New("shards: too many deletes of a bucket are not handled")

func (s *Set) handleDeletes(deletes leases.Deletes) {
	for _, w := range s.workers {
		if keys := deletes[w.name]; len(keys) > 0 {
			w.Handle(keys)
		}
	}
}

// lightenLocked starts lighten for a bucket whose Lease has keys of deletes.
func (s *Set) lightenLocked(h *holding) {
	if !leases.HasDeletes(h.lease) || h.phase != open || !s.view.buckets[h.bucket].mayAsk() {
		return
	}
	lease := h.lease
	s.running.Go(func() { s.lighten(h, lease) })
}

func (s *Set) lighten(h *holding, lease *coordinationv1.Lease) {
	before, left := leases.ReadDeletes(lease), leases.ReadDeletes(lease) // those of workers that only other replicas have stay
	for _, w := range s.workers {
		waiting := w.Deletes(h.bucket)
		delete(left, w.name)
		for _, key := range before[w.name] {
			if slices.Contains(waiting, key) {
				left[w.name] = append(left[w.name], key)
			}
		}
	}
	lease = lease.DeepCopy()
	if !left.Write(lease) {
		return
	}
	ctx, cancel := s.request()
	defer cancel()
	written, err := s.put(ctx, lease)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.view.note(written, false, time.Now())
		if h.phase == open && leases.IsNewer(written, h.lease) {
			h.lease = written
		}
	case !isOutdated(err):
		s.later(fmt.Errorf("removing handled deletes from the Lease of bucket %d: %w", h.bucket, err))
	}
}

// learn forgets the deletes that another replica has handled, according to its claims. It notifies the holder of
// the bucket of deletes that the other replica may not know of.
func (s *Set) learn(claims []leases.Claim) {
	unknown := map[int]leases.Deletes{}
	for _, c := range claims {
		buckets := c.In()
		for _, w := range s.workers {
			for _, key := range w.Forget(buckets, c.Handled[w.name]) {
				b := s.bucket(key)
				if unknown[b] == nil {
					unknown[b] = leases.Deletes{}
				}
				unknown[b][w.name] = append(unknown[b][w.name], key)
			}
		}
	}
	for b, deletes := range unknown {
		s.running.Go(func() { s.pass(b, deletes) })
	}
}

// passAll passes the deletes that this replica still keeps to the holders of their buckets, before the
// replica leaves. No other replica may know of them. passAll gives up if a Lease has had no room for
// LeaseDuration, because there may be no holder that makes room, or if the API server has refused it for
// that time.
func (s *Set) passAll(n *session) {
	var all sync.WaitGroup
	for b := range s.opts.Buckets {
		if s.waiting(b).Number() == 0 {
			continue
		}
		all.Go(func() {
			if left := s.passOn(n, b, s.opts.LeaseDuration); left > 0 {
				s.report(fmt.Errorf("leaving: bucket %d: %w: %d keys", b, ErrBucketDeletesDropped, left))
			}
		})
	}
	all.Wait()
}

// passOn passes the deletes of a bucket that this replica keeps to the holder. It gives up when the
// session ends, or when the Lease of the bucket has had no room for patience. It returns how many
// deletes it has not passed on.
func (s *Set) passOn(n *session, bucket int, patience time.Duration) (left int) {
	full := time.Now() // since when the Lease has no room
	for {
		deletes := s.waiting(bucket) // others may have handled some
		switch done, room := s.pass(bucket, deletes); {
		case done:
			return 0
		case room:
			full = time.Now()
		}
		if n.expired() || time.Since(full) >= patience {
			return deletes.Number()
		}
		select {
		case <-n.ended:
		case <-time.After(retryAfter):
		}
	}
}

func (s *Set) waiting(bucket int) leases.Deletes {
	deletes := leases.Deletes{}
	for _, w := range s.workers {
		if keys := w.Deletes(bucket); len(keys) > 0 {
			deletes[w.name] = keys
		}
	}
	return deletes
}

// pass adds keys of deletes to the Lease of a bucket of another replica, as many as there is room for.
// done reports whether nothing is left to pass on, and room whether it may work soon: the Lease had room, and the API server
// has not refused it.
func (s *Set) pass(bucket int, deletes leases.Deletes) (done, room bool) {
	if deletes.Number() == 0 {
		return true, true
	}
	s.mu.Lock()
	lease := s.view.buckets[bucket].lease
	ours := s.session != nil && s.session.holdings[bucket] != nil
	s.mu.Unlock()
	if lease == nil || ours {
		return ours, false
	}
	lease = lease.DeepCopy()
	passed := deletes.AddTo(lease)
	if passed.Number() == 0 {
		return false, false // the holder handles those that are there, and then there is room
	}
	written, err := s.putBucket(bucket, lease)
	s.mu.Lock()
	switch {
	case err == nil:
		s.view.note(written, false, time.Now())
	case !isOutdated(err):
		s.later(fmt.Errorf("passing deletes to the holder of bucket %d: %w", bucket, err))
	}
	s.mu.Unlock()
	if err != nil {
		return false, isOutdated(err)
	}
	for _, w := range s.workers {
		w.ForgetKeys(passed[w.name])
	}
	return passed.Number() == deletes.Number(), true
}
