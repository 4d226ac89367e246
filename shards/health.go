package shards

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/channel"
)

// Health is the state of a set in one replica at one moment, as [Set.Health] returns it. Its counts
// begin at 0 when the set is made. It is a value, and the [informer.MemberHealth] of a set.
type Health struct {
	// Name is Options.Name.
	Name string `json:"name"`
	// Started is true once Run has been called.
	Started bool `json:"started"`
	// Stopped is true once the ctx of Run has ended.
	Stopped bool `json:"stopped"`
	// Synced is true once this replica has joined the set since the start.
	Synced bool `json:"synced"`
	// SourceError is the error with which the Leases of the set cannot be read, or why this replica may
	// not join. Otherwise it is nil.
	SourceError error `json:"-"`
	// SourceFailures is how often in a row lists or watches of the Leases have failed, 0 if they work.
	SourceFailures int `json:"sourceFailures,omitempty"`
	// SourceFailingSince is when the first of these failures came. It is zero if there is none.
	SourceFailingSince time.Time `json:"sourceFailingSince,omitzero"`
	// SourceNextTry is when the pause before the next attempt ends. It is zero if there is no pause.
	SourceNextTry time.Time `json:"sourceNextTry,omitzero"`
	// Replica is the name of the replica, Options.Identity.
	Replica string `json:"replica"`
	// Session is the id of the session with which the replica has buckets, "" if it has none.
	Session string `json:"session,omitempty"`
	// Replicas is how many replicas may have buckets.
	Replicas int `json:"replicas"`
	// Buckets is how many buckets the set has.
	Buckets int `json:"buckets"`
	// Owned is how many of them this replica has, including those that CatchingUp and Draining count.
	Owned int `json:"owned"`
	// CatchingUp is how many buckets wait until the caches of this replica are as new as those of
	// the last holder. No call for their keys is made before that.
	CatchingUp int `json:"catchingUp"`
	// CatchingUpFor is how long the caches have been too old for this: since the first of these buckets
	// began to wait, or since the caches have lacked changes that another replica had seen. If the
	// caches of another replica are not behind, it gets the buckets of this one after one to three
	// minutes. 0 if the caches are new enough.
	CatchingUpFor time.Duration `json:"-"`
	// Draining is how many buckets move to other replicas when their calls have returned.
	Draining int `json:"draining"`
	// DrainingFor is how long the first of these has been draining, 0 if there is none.
	DrainingFor time.Duration `json:"-"`
	// Unowned is how many buckets of the set no replica has, as far as this one sees.
	Unowned int `json:"unowned"`
	// UnownedFor is how long the first of these has had no owner, 0 if there is none.
	UnownedFor time.Duration `json:"-"`
	// Unserved is how many buckets are with replicas that do not have all controllers of this one, such as
	// those of the last version of the program during a rolling update. Nobody reconciles the keys of
	// these controllers in these buckets. UnservedFor is how long that has been so, 0 if Unserved is
	// 0, and Lacking has the names of the controllers.
	Unserved    int           `json:"unserved"`
	UnservedFor time.Duration `json:"-"`
	Lacking     []string      `json:"lacking,omitempty"`
	// Selector shows whether the API server selects the objects of this replica for the sources
	// that Set.Source has made: "served", or "ignored" if it sends all objects and the
	// informers drop those of other replicas. It is "ignored" if that holds for one of the sources,
	// and "" if there is none or none has asked.
	Selector string `json:"selector,omitempty"`
	// Taken and Released are how many buckets this replica has got and has released.
	Taken    int `json:"taken"`
	Released int `json:"released"`
	// LostSessions is how many sessions ended because they could not be renewed in time.
	LostSessions int `json:"lostSessions"`
	// LostCalls is how many calls of lost sessions have not returned. Another replica may work on
	// the same keys.
	LostCalls int `json:"lostCalls"`
}

// HasRun reports whether Started or Stopped is true.
func (h Health) HasRun() bool { return h.Started || h.Stopped }

// Ready returns nil if this replica has joined the set, also while the replica has no bucket or has
// lost its session. A set that stops is not ready.
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

// Live returns nil: a restart does not help a set.
func (h Health) Live() error { return nil }

// MarshalJSON encodes the figures with names in camel case, and durations in seconds, such as
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

// MemberHealth returns Health. It is for an [informer.Group].
func (s *Set) MemberHealth() informer.MemberHealth { return s.Health() }

// Health returns how the set is doing in this replica. It does not block, and may be called at any time.
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

// worse returns the answer of two sources that needs more attention.
func worse(a, b string) string {
	if a == selectorIgnored || b == "" {
		return a
	}
	return b
}

// add counts a bucket of this replica.
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
