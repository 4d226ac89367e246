package shards

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/customcacheinformer/informer/internal/sharding"
	"github.com/customcacheinformer/informer/shards/internal/leases"
)

// session is a time in which this replica may have buckets. It lasts as long as the replica renews its
// Lease. A lost session never comes back: the replica begins a new one, with a new id.
type session struct {
	opts   *Options
	id     string
	begun  time.Time
	ctx    context.Context // ends with the session
	cancel context.CancelCauseFunc
	timer  *time.Timer  // ends the session at the deadline
	limit  atomic.Int64 // the deadline, as the time since begun
	ended  chan struct{}
	first  *coordinationv1.Lease // as it was when the session began
	hurry  chan struct{}         // gets a token when the Lease is to be written at once

	// Only the goroutine that renews uses this.
	lease *coordinationv1.Lease // as it was last written

	// mu protects the fields below. The first group and the phases of the holdings change only while the
	// set's lock is held too, so each of the two locks is enough to read them. A step compares them with
	// the Leases, and Health shows them as they are at one moment. The set's lock is taken before mu.
	mu       sync.Mutex
	lost     bool
	leaving  bool
	holdings map[int]*holding
	lag      lag

	claims []leases.Claim
	seen   leases.Versions
	fresh  sharding.Buckets // open, and their keys are not queued
}

// newSession returns a session whose Lease was last renewed by a request sent at the time sent. If the
// session is not renewed in time, it calls lose with a nil error.
func newSession(opts *Options, id string, lease *coordinationv1.Lease, sent time.Time, l lag, lose func(*session, error)) *session {
	s := &session{
		opts: opts, id: id, begun: sent, lease: lease, first: lease, ended: make(chan struct{}), hurry: make(chan struct{}, 1),
		holdings: map[int]*holding{}, fresh: sharding.Buckets{}, lag: l,
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.timer = time.AfterFunc(opts.LeaseDuration, func() { lose(s, nil) })
	s.limitTo(sent)
	return s
}

// expired reports whether the session is over. It takes no lock.
func (s *session) expired() bool {
	return time.Since(s.begun) >= time.Duration(s.limit.Load()) || s.ctx.Err() != nil
}

// extend moves the deadline to Margin before the end of a Lease that was renewed at the time sent. It
// returns false if the session was over already.
func (s *session) extend(sent time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost || s.expired() {
		return false
	}
	s.limitTo(sent)
	return true
}

func (s *session) limitTo(sent time.Time) {
	until := sent.Add(s.opts.LeaseDuration - s.opts.Margin)
	s.limit.Store(int64(until.Sub(s.begun)))
	s.timer.Reset(time.Until(until))
}

func (s *session) end() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost {
		return false
	}
	s.lost = true
	s.timer.Stop()
	s.cancel(errSessionLost)
	close(s.ended)
	return true
}

func (s *session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving = true
}

func (s *session) add(bucket int, now time.Time) *holding {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &holding{session: s, bucket: bucket, since: now, idle: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancelCause(s.ctx)
	s.holdings[bucket] = h
	return h
}

// drop removes a holding. It reports whether the session had it.
func (s *session) drop(h *holding) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.cancel(nil)
	if s.holdings[h.bucket] != h {
		return false
	}
	delete(s.holdings, h.bucket)
	s.fresh.Delete(h.bucket)
	return true
}

func (s *session) buckets() sharding.Buckets {
	buckets := sharding.Buckets{}
	for b, h := range s.holdings {
		if h.phase != taking {
			buckets.Insert(b)
		}
	}
	return buckets
}

// callable returns the holding of a bucket if a call may begin, and nil otherwise. The caller must hold mu.
func (s *session) callable(bucket int) *holding {
	if h := s.holdings[bucket]; h != nil && h.phase == open && !s.expired() {
		return h
	}
	return nil
}

// has reports whether a call for a key of the bucket may begin.
func (s *session) has(bucket int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.callable(bucket) != nil
}

// enter begins a call for a key of a bucket. It returns nil if no call may begin.
func (s *session) enter(bucket int) *holding {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.callable(bucket)
	if h != nil {
		h.calls++
	}
	return h
}

func (s *session) calls() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.holdings {
		n += h.calls
	}
	return n
}

// allOpen returns the holdings whose calls may begin.
func (s *session) allOpen() (all []*holding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.holdings {
		if h.phase == open {
			all = append(all, h)
		}
	}
	return all
}

// takeFresh returns the buckets whose keys must be queued now, and forgets them. A bucket that is lost and
// taken again is returned again.
func (s *session) takeFresh() sharding.Buckets {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := s.fresh
	s.fresh = sharding.Buckets{}
	return fresh
}

// compare records what the workers know, and what other replicas have seen.
func (s *session) compare(claims []leases.Claim, seen, known, others leases.Versions, connected bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims, s.seen = claims, seen
	s.lag.compare(known, others, connected, time.Now())
}

// waiting returns since when a bucket has waited for the caches, or the zero time if none does. The caller
// must hold one of the two locks.
func (s *session) waiting() (since time.Time) {
	for _, h := range s.holdings {
		if h.phase == catching {
			since = first(since, h.since)
		}
	}
	return since
}

// review decides whether the session goes away or comes back, see lag.review. If it goes away now, away is
// a ctx that ends when it comes back, and goal has the versions that the caches must reach first. Otherwise
// away is nil. since is when the caches fell behind.
func (s *session) review(others bool, now time.Time) (away context.Context, goal leases.Past, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	since = s.lag.doubtful(s.waiting(), now)
	changed, leaves := s.lag.review(since, others, now)
	if changed {
		token(s.hurry)
	}
	if !leaves {
		return nil, goal, since
	}
	goal = leases.Past{Seen: s.lag.goal, Died: !s.lag.cutAt.IsZero()}
	for _, h := range s.holdings {
		if h.phase == catching {
			goal = leases.Past{Seen: goal.Seen.Latest(h.before.Seen), Died: goal.Died || h.before.Died}
		}
	}
	away, s.lag.stop = context.WithCancel(s.ctx)
	return away, goal, since
}

func (s *session) caughtUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lag.since, s.lag.cutAt, s.lag.goalAt = time.Time{}, time.Time{}, time.Time{}
}

func (s *session) publish(lease *coordinationv1.Lease, workers map[string]string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.claims) > 0 {
		leases.SetClaims(lease, s.claims)
	}
	leases.Session{
		Duration: s.opts.LeaseDuration, Holds: s.buckets(), Workers: workers, Seen: s.seen,
		Idle: s.leaving || s.lag.away, Late: s.lag.late,
	}.Write(lease, now)
}

// heed looks at a state of the session's Lease, and reports whether another replica has ended the session.
// If the Lease was changed or deleted, heed has it written again at once, before other replicas
// count the session as dead. The caller must hold one of the two locks.
func (s *session) heed(lease *coordinationv1.Lease, deleted bool, mark leases.Mark) (ended bool) {
	if lease.UID == s.first.UID && !leases.IsNewer(lease, s.first) {
		return false // the Lease was still idle
	}
	switch now := leases.ReadSession(lease); {
	case deleted || lease.UID != s.first.UID:
		token(s.hurry)
	case now.Ended:
		return true
	case now.Idle && !s.leaving && !s.lag.away, now.Duration != s.opts.LeaseDuration, !mark.IsOn(lease, s.id):
		token(s.hurry)
	}
	return false
}

func token(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
