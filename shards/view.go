package shards

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/customcacheinformer/informer/shards/internal/leases"
)

// view is the state of the set as its Leases show it. The caller must hold a lock. It uses only the
// clock of this process: a session counts as dead when this process has seen no renewal of it for its
// duration, whatever the clocks of other replicas show.
type view struct {
	opts     *Options
	sessions map[string]*seenSession // by id
	buckets  []seenBucket

	ranges      *coordinationv1.Lease // the Lease with the ranges of namespaces; nil if there is none
	rangesRetry time.Time             // no request for it before
}

type seenSession struct {
	leases.Session
	lease  *coordinationv1.Lease // nil if it is not there
	at     time.Time             // when this state of the Lease, or its absence, was first seen
	retry  time.Time             // no request for it before
	asking bool                  // a request for it is under way
}

type seenBucket struct {
	lease *coordinationv1.Lease // nil if it is not there
	last  string                // the owner before the Lease was deleted
	token int32                 // the highest that was seen
	since time.Time             // when it was first seen without an owner; zero if it has one
	retry time.Time             // no request for it before
}

// retryAfter is the pause after a request that has failed.
const retryAfter = 500 * time.Millisecond

// mayAsk reports whether a request for the Lease may be made now. After true, it returns false for
// retryAfter.
func (b *seenBucket) mayAsk() bool {
	now := time.Now()
	if now.Before(b.retry) {
		return false
	}
	b.retry = now.Add(retryAfter)
	return true
}

func newView(opts *Options) view {
	return view{opts: opts, sessions: map[string]*seenSession{}, buckets: make([]seenBucket, opts.Buckets)}
}

// note updates the view with a Lease, or with its last state if it was deleted. If it is the Lease of
// a session, note returns the session, and otherwise nil.
func (v *view) note(lease *coordinationv1.Lease, deleted bool, now time.Time) *seenSession {
	lease = leases.Believed(lease)
	if b, ok := leases.BucketOf(v.opts.Name, lease); ok {
		if b < len(v.buckets) {
			v.buckets[b].note(lease, deleted)
		}
		return nil
	}
	if lease.Name == leases.RangesName(v.opts.Name) {
		v.ranges = lease
		if deleted {
			v.ranges = nil
		}
		return nil
	}
	id := v.sessionOf(lease)
	if id == "" {
		return nil
	}
	s := v.sessions[id]
	if s == nil {
		s = &seenSession{}
		v.sessions[id] = s
	}
	switch {
	case deleted:
		s.lease, s.at = nil, now
	case s.lease == nil || leases.IsNewer(lease, s.lease):
		s.Session, s.lease, s.at = leases.ReadSession(lease), lease, now
		s.ID = id
	}
	return s
}

// restored forgets the state of a Lease, because the API server has gone back to an older state.
func (v *view) restored(lease *coordinationv1.Lease) {
	if b, ok := leases.BucketOf(v.opts.Name, lease); ok && b < len(v.buckets) {
		v.buckets[b].lease = nil
	} else if s := v.sessions[v.sessionOf(lease)]; s != nil {
		s.lease = nil
	}
}

// sessionOf returns the id of the session of a Lease, even if the holder in it was changed.
// It returns "" if the session is not known.
func (v *view) sessionOf(lease *coordinationv1.Lease) string {
	if id := leases.Holder(lease); lease.Name == leases.SessionName(v.opts.Name, id) {
		return id
	}
	for id := range v.sessions {
		if lease.Name == leases.SessionName(v.opts.Name, id) {
			return id
		}
	}
	return ""
}

func (b *seenBucket) note(lease *coordinationv1.Lease, deleted bool) {
	b.token = max(b.token, leases.Token(lease))
	switch {
	case deleted && (b.lease == nil || !leases.IsNewer(b.lease, lease)):
		b.last, b.lease = leases.Holder(lease), nil
	case !deleted && (b.lease == nil || leases.IsNewer(lease, b.lease)):
		b.lease, b.last, b.retry = lease, "", time.Time{}
	}
}

// holder returns the id of the session that has the bucket, or had it before the Lease was deleted.
func (b *seenBucket) holder() string {
	if b.lease == nil {
		return b.last
	}
	return leases.Holder(b.lease)
}

// end returns when the session is dead unless it is renewed. Until then it may still work, even if
// its Lease was deleted.
func (s *seenSession) end(opts *Options) time.Time {
	duration := s.Duration
	if duration == 0 {
		duration = opts.LeaseDuration
	}
	return s.at.Add(duration)
}

// mayWork reports whether calls of the session may be under way.
func (s *seenSession) mayWork(opts *Options, now time.Time) bool {
	return !s.Ended && now.Before(s.end(opts))
}

// gone notes that the API server does not find the Lease, which had this state. An answer that came behind the event of the
// delete may have brought it back.
func (s *seenSession) gone(lease *coordinationv1.Lease) {
	if s.lease != nil && s.lease.UID == lease.UID {
		s.lease = nil
	}
}

// mayTake reports whether buckets may be given to the session: it may work, its Lease is there, and it is not Idle.
func (s *seenSession) mayTake(opts *Options, now time.Time) bool {
	return s.lease != nil && !s.Idle && s.mayWork(opts, now)
}

// holder returns the session that has a bucket, or nil if no session has it.
func (v *view) holder(bucket int, now time.Time) *seenSession {
	if s := v.session(v.buckets[bucket].holder(), now); s != nil && !s.Ended {
		return s
	}
	return nil
}

// session returns the session with an id, or nil for "". It adds a session that is not known, as seen
// now.
func (v *view) session(id string, now time.Time) *seenSession {
	if id == "" {
		return nil
	}
	s := v.sessions[id]
	if s == nil {
		s = &seenSession{Session: leases.Session{ID: id}, at: now}
		v.sessions[id] = s
	}
	return s
}

// died returns the session that had a bucket and has not released it, or nil.
func (v *view) died(bucket int) *leases.Session {
	if s := v.sessions[v.buckets[bucket].holder()]; s != nil {
		died := s.Session
		return &died
	}
	return nil
}

// claimed reports whether the Lease of a session that may work names the bucket. If a user deletes
// the Lease of a bucket, replicas that start later learn only from this that the bucket is taken.
func (v *view) claimed(bucket int, now time.Time) bool {
	for _, s := range v.sessions {
		if s.Holds.Has(bucket) && s.mayWork(v.opts, now) {
			return true
		}
	}
	return false
}

// unowned records which buckets have no owner. It returns how many there are, and since when the first
// has had none.
func (v *view) unowned(now time.Time) (n int, since time.Time) {
	for b := range v.buckets {
		at := &v.buckets[b].since
		if s := v.holder(b, now); s != nil && s.mayWork(v.opts, now) {
			*at = time.Time{}
			continue
		}
		if at.IsZero() {
			*at = now
		}
		if n++; n == 1 || at.Before(since) {
			since = *at
		}
	}
	return n, since
}

// forget forgets dead sessions that no Lease names.
func (v *view) forget(now time.Time) {
	used := map[string]bool{}
	for b := range v.buckets {
		used[v.buckets[b].holder()] = true
	}
	for id, s := range v.sessions {
		if s.lease == nil && !used[id] && !s.mayWork(v.opts, now) {
			delete(v.sessions, id)
		}
	}
}

// next returns the first time after now at which a session dies unless it is renewed, or a request may
// be made again. It returns the zero time if there is none.
func (v *view) next(now time.Time) (at time.Time) {
	sooner := func(t time.Time) {
		if t.After(now) && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	for _, s := range v.sessions {
		if !s.Ended {
			sooner(s.end(v.opts))
		}
		sooner(s.retry)
	}
	for b := range v.buckets {
		sooner(v.buckets[b].retry)
	}
	sooner(v.rangesRetry)
	return at
}

// seenBy returns the latest versions that working replicas have seen, except the session with the id
// except. Replicas whose caches are behind do not count, because they may not know of a restore.
func (v *view) seenBy(except string, now time.Time) leases.Versions {
	seen := leases.Versions{}
	for id, s := range v.sessions {
		if id != except && s.lease != nil && !s.Late && s.mayWork(v.opts, now) {
			seen = seen.Latest(s.Seen)
		}
	}
	return seen
}
