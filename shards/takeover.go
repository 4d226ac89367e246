package shards

import (
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/shards/internal/leases"
)

// take makes this replica the holder of a bucket: it writes the Lease, and waits until calls may begin.
// lease is the last state of the Lease, or nil if there is none. died is the session that owned the bucket
// and did not release it, or nil. The Lease records that session, because this replica may also die
// before it has caught up.
func (s *Set) take(h *holding, lease *coordinationv1.Lease, transitions int32, died *leases.Session) {
	if lease == nil {
		transitions = max(transitions, leases.FirstToken(time.Now()))
	}
	lease = s.mark().On(lease, leases.BucketName(s.opts.Name, h.bucket), h.session.id)
	leases.Own(lease, transitions)
	// The other replicas have read the claims of the last holder. After a restore of the objects' server,
	// they would wrongly include later deletes.
	leases.SetClaims(lease, nil)
	if died != nil {
		leases.Past{Seen: leases.ReadPast(lease).Seen.Latest(died.Seen), Died: true}.Write(lease)
	}
	lease, err := s.putBucket(h.bucket, lease)
	if !s.took(h, lease, err) {
		return
	}
	if !s.awaitCaches(h) {
		return
	}
	known := leases.Versions{}
	for _, w := range s.workers {
		known[w.name] = w.Known()
	}
	s.handleDeletes(leases.ReadDeletes(lease))
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.opened(known) {
		token(s.filling)
	}
}

// awaitCaches repeats catchUp until it succeeds: an error may pass, such as that of a namespace that leaves and comes back.
// It returns false if the replica loses the bucket or the worker stops first.
func (s *Set) awaitCaches(h *holding) bool {
	for reported := false; ; reported = true {
		err := s.catchUp(h)
		if err == nil || h.ctx.Err() != nil || errors.Is(err, informer.ErrStopped) {
			return err == nil
		}
		if !reported {
			s.report(fmt.Errorf("catching up with the last holder of bucket %d: %w", h.bucket, err))
		}
		select {
		case <-time.After(retryAfter):
		case <-h.ctx.Done():
			return false
		}
	}
}

// took records the result of writing the Lease of a bucket. It reports whether the replica has the
// bucket.
func (s *Set) took(h *holding, lease *coordinationv1.Lease, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.poke()
	if err != nil {
		s.dropLocked(h)
		s.view.buckets[h.bucket].retry = time.Now().Add(retryAfter)
		if !isOutdated(err) {
			s.later(fmt.Errorf("taking bucket %d: %w", h.bucket, err))
		}
		return false
	}
	s.view.note(lease, false, time.Now())
	if !h.took(lease) {
		return false
	}
	s.counts.taken++
	s.updateSourcesLocked()
	return true
}

// fill queues the keys of the buckets that the session takes, until the session is over.
func (s *Set) fill(n *session) {
	for {
		select {
		case <-n.ended:
			return
		case <-s.filling:
		}
		fresh := n.takeFresh()
		if len(fresh) == 0 {
			continue
		}
		for _, w := range s.workers {
			if err := w.Queue(n.ctx, fresh); err != nil && n.ctx.Err() == nil && !errors.Is(err, informer.ErrStopped) {
				s.report(fmt.Errorf("controller %s: queueing the keys of buckets: %w", w.name, err))
			}
		}
	}
}
