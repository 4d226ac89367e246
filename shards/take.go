package shards

import (
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/shards/internal/leases"
)

// take writes the Lease of a bucket for this replica. lease is its last state, or nil if there is
// none. died is the session that had the bucket and has not let go of it, or nil. The Lease then says
// so: this replica may die, too, before it has caught up.
func (s *Set) take(h *holding, lease *coordinationv1.Lease, transitions int32, died *leases.Session) {
	isNew := lease == nil
	if isNew {
		lease = s.mark().New(leases.BucketName(s.opts.Name, h.bucket), h.session.id)
		transitions = max(transitions, leases.FirstToken(time.Now()))
	} else {
		lease = lease.DeepCopy()
		s.mark().Write(lease, h.session.id)
	}
	leases.Own(lease, transitions)
	// The other replicas have read the claims of the last holder. After a restore of the objects' server,
	// they would wrongly include later deletes.
	leases.SetClaims(lease, nil)
	if died != nil {
		leases.Past{Seen: leases.ReadPast(lease).Seen.Latest(died.Seen), Died: true}.Write(lease)
	}
	ctx, cancel := s.request()
	defer cancel()
	var err error
	if isNew {
		lease, err = s.leases.Create(ctx, lease, metav1.CreateOptions{})
	} else {
		lease, err = s.leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if isOutdated(err) {
		s.reread(ctx, h.bucket)
	}
	if !s.took(h, lease, err) {
		return
	}
	if err := s.catchUp(h); err != nil {
		if h.ctx.Err() == nil && !errors.Is(err, informer.ErrStopped) {
			s.report(fmt.Errorf("catching up with the last holder of bucket %d: %w", h.bucket, err))
		}
		return // the worker has stopped
	}
	known := leases.Versions{}
	for _, w := range s.joined() {
		known[w.name] = w.Known()
	}
	s.handleDeletes(leases.ReadDeletes(lease))
	s.opened(h, known)
}

// opened notes that the caches are new enough for calls. known is how new they are.
func (s *Set) opened(h *holding, known leases.Versions) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.session.lost || h.phase != catching {
		return
	}
	h.known = known
	h.begin(open)
	h.session.fresh.Insert(h.bucket)
	h.session.lag.times = 0
	token(s.filling)
}

// catchUp waits until the caches have the objects of a bucket, and are at least as new as those of the
// last holder.
func (s *Set) catchUp(h *holding) error {
	for _, src := range s.sources {
		if err := src.await(h.ctx, h.bucket); err != nil {
			return err
		}
	}
	begun := time.Now()
	late := time.AfterFunc(slack, func() {
		for _, src := range s.sources {
			src.renew(begun)
		}
	})
	defer late.Stop()
	return s.reach(h.ctx, h.before)
}

// took notes the result of taking a bucket. It reports whether the replica has it.
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
	if h.session.lost {
		return false
	}
	s.counts.taken++
	h.lease, h.token = lease, leases.Token(lease)
	h.before = leases.ReadPast(lease)
	h.begin(catching)
	s.tellSourcesLocked()
	return true
}
