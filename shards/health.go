package shards

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/channel"
)

// Health is the state of a set in one replica at one moment. [Set.Health] returns it. Its counts begin
// at 0 when the set is made. It is the [informer.MemberHealth] of a set, and may be copied.
type Health struct {
	// Name is Options.Name.
	Name string `json:"name"`
	// Started is true once Run has been called.
	Started bool `json:"started"`
	// Stopped is true once the ctx of Run is done or Run has returned.
	Stopped bool `json:"stopped"`
	// Synced is true once this replica has joined the set for the first time. It then stays true.
	Synced bool `json:"synced"`
	// SourceError is why the Leases of the set cannot be read, or why this replica may not join. It is
	// nil if neither is the case.
	SourceError error `json:"-"`
	// SourceFailures is how many lists or watches of the Leases in a row have failed. It is 0 if they
	// work.
	SourceFailures int `json:"sourceFailures,omitempty"`
	// SourceFailingSince is the time of the first failure that SourceFailures counts. It is zero if
	// SourceFailures is 0.
	SourceFailingSince time.Time `json:"sourceFailingSince,omitzero"`
	// SourceNextTry is when the pause before the next list or watch of the Leases ends. It is zero if
	// there is no such pause. Pauses between attempts to join do not count.
	SourceNextTry time.Time `json:"sourceNextTry,omitzero"`
	// Replica is the name of the replica, Options.Identity.
	Replica string `json:"replica"`
	// Session is the id of the session of this replica, or "" if there is none. A session is a period in
	// which the replica renews its Lease. Without a session, the replica has no buckets.
	Session string `json:"session,omitempty"`
	// Replicas is how many replicas take buckets, including this one, as far as this replica knows.
	Replicas int `json:"replicas"`
	// Buckets is how many buckets the set has.
	Buckets int `json:"buckets"`
	// Owned is how many buckets this replica has, including those that CatchingUp and Draining count.
	Owned int `json:"owned"`
	// CatchingUp is how many buckets wait until the caches of this replica are as new as the caches of
	// the last holder. Until then, no call for their keys begins.
	CatchingUp int `json:"catchingUp"`
	// CatchingUpFor is how long the caches of this replica have been too old. That time begins when the
	// first bucket of CatchingUp begins to wait, or when the caches lack changes that another replica
	// has seen. CatchingUpFor is 0 if the caches are new enough. After one to three minutes, replicas
	// whose caches are not behind get the buckets of this replica. With Set.Source they do so only if a
	// source has been cut off for a minute.
	CatchingUpFor time.Duration `json:"-"`
	// Draining is how many buckets move to other replicas once their calls have returned.
	Draining int `json:"draining"`
	// DrainingFor is how long the first bucket of Draining has been waiting. It is 0 if Draining is 0.
	DrainingFor time.Duration `json:"-"`
	// Unowned is how many buckets of the set belong to no working replica, as far as this replica
	// knows.
	Unowned int `json:"unowned"`
	// UnownedFor is how long the first bucket of Unowned has had no replica. It is 0 if Unowned is 0.
	UnownedFor time.Duration `json:"-"`
	// Unserved is how many buckets belong to replicas that lack a controller of this replica, such as
	// replicas of the previous version of the program during a rolling update. No replica reconciles
	// the keys of that controller in these buckets. UnservedFor is how long Unserved has been more than
	// 0, and Lacking lists the names of the controllers that other replicas lack, sorted. All three are
	// zero while this replica has no session.
	Unserved    int           `json:"unserved"`
	UnservedFor time.Duration `json:"-"`
	Lacking     []string      `json:"lacking,omitempty"`
	// Selector shows whether the API server selects the objects of this replica for the sources that
	// Set.Source has returned. It is "served" if the server does. It is "ignored" if, for at least one
	// source, the server sends all objects and the informer drops the objects of other replicas. It is
	// "" if there is no source, or none has asked the server yet.
	Selector string `json:"selector,omitempty"`
	// Taken and Released are how many buckets this replica has taken and released since the set was
	// made. Released does not count the buckets that were lost with a session.
	Taken    int `json:"taken"`
	Released int `json:"released"`
	// LostSessions is how many sessions this replica has lost. A session is lost if the replica cannot
	// renew it in time, if another replica ends it, or if its Lease is deleted.
	LostSessions int `json:"lostSessions"`
	// LostCalls is how many calls of lost sessions have not returned. Another replica may be working
	// on the same keys.
	LostCalls int `json:"lostCalls"`
}

// HasRun reports whether Started or Stopped is true.
func (h Health) HasRun() bool { return h.Started || h.Stopped }

// Ready returns nil if this replica has joined the set, even if it has no bucket or has lost its
// session. Otherwise it returns an error, which wraps informer.ErrStopped if the set is stopping or
// has stopped.
func (h Health) Ready() error {
	var err error
	switch {
	case h.Stopped:
		err = informer.ErrStopped
	case !h.Started:
		err = errors.New("has not started")
	case !h.Synced && h.SourceError != nil:
		err = fmt.Errorf("has not joined: %w", h.SourceError)
	case !h.Synced:
		err = errors.New("has not joined")
	default:
		return nil
	}
	return fmt.Errorf("set %s: %w", h.Name, err)
}

// Live always returns nil, because a restart does not help a set.
func (h Health) Live() error { return nil }

// MarshalJSON encodes the fields with names in camel case. Durations become numbers of seconds, such as
// "unownedSeconds". It omits SourceError; package debug shows it.
func (h Health) MarshalJSON() ([]byte, error) {
	type fields Health // has the tags, but not this method
	return json.Marshal(struct {
		fields
		CatchingUpSeconds float64 `json:"catchingUpSeconds"`
		DrainingSeconds   float64 `json:"drainingSeconds"`
		UnownedSeconds    float64 `json:"unownedSeconds"`
		UnservedSeconds   float64 `json:"unservedSeconds"`
	}{fields(h), h.CatchingUpFor.Seconds(), h.DrainingFor.Seconds(), h.UnownedFor.Seconds(), h.UnservedFor.Seconds()})
}

// MemberHealth returns the result of Health, for an [informer.Group]. It does not block.
func (s *Set) MemberHealth() informer.MemberHealth { return s.Health() }

// Health returns the state of the set in this replica. It does not block, and may be called at any
// time.
func (s *Set) Health() Health {
	watched := s.watched.Health()
	h := Health{
		Name: s.opts.Name, Stopped: channel.Closed(s.stopped), Synced: channel.Closed(s.synced), SourceError: watched.SourceError,
		SourceFailures: watched.SourceFailures, SourceFailingSince: watched.SourceFailingSince, SourceNextTry: watched.SourceNextTry,
		Replica: s.opts.Identity, Buckets: s.opts.Buckets,
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx != nil {
		h.Started, h.Stopped = true, h.Stopped || s.ctx.Err() != nil
	}
	h.Taken, h.Released, h.LostSessions = s.counts.taken, s.counts.released, s.counts.lost
	for _, seen := range s.view.sessions {
		if seen.mayTake(&s.opts, now) {
			h.Replicas++
		}
	}
	if watched.Synced { // before, it is not known
		var since time.Time
		if h.Unowned, since = s.view.unowned(now); h.Unowned > 0 {
			h.UnownedFor = now.Sub(since)
		}
	}
	if n := s.session; n != nil && !n.expired() {
		h.Session = n.id
		for _, held := range n.holdings {
			h.add(held, now)
		}
		if since := n.lag.behind(n.waiting(), now); !since.IsZero() {
			h.CatchingUpFor = max(h.CatchingUpFor, now.Sub(since))
		}
		if h.Unserved = s.unserved.buckets; h.Unserved > 0 {
			h.UnservedFor, h.Lacking = now.Sub(s.unserved.since), s.unserved.workers
		}
	}
	for old := range s.old {
		h.LostCalls += old.calls()
	}
	if s.session == nil && h.SourceError == nil {
		h.SourceError = s.refused
	}
	for _, src := range s.sources {
		h.Selector = worse(h.Selector, src.served())
	}
	return h
}

// worse returns the worse of the Selectors of two sources: "ignored", then "served", then "".
func worse(a, b string) string {
	if a == selectorIgnored || b == "" {
		return a
	}
	return b
}

// add adds a bucket of this replica to the counts.
func (h *Health) add(held *holding, now time.Time) {
	switch held.phase {
	case taking:
		return
	case catching:
		h.CatchingUp++
		h.CatchingUpFor = max(h.CatchingUpFor, now.Sub(held.since))
	case releasing:
		h.Draining++
		h.DrainingFor = max(h.DrainingFor, now.Sub(held.since))
	}
	h.Owned++
}
