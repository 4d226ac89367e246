package shards

import (
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/channel"
)

// Health returns how the set is doing in this replica. Name, Started, Stopped, Synced and Shards are
// set, and SourceError if the replica cannot read the Leases or may not join; the other fields are those of
// informers. It does not block, and may be called at any time.
func (s *Set) Health() informer.Health {
	watched := s.watched.Health()
	h := informer.Health{
		Name: s.opts.Name, Stopped: channel.Closed(s.stopped), Synced: channel.Closed(s.synced),
		SourceError: watched.SourceError, SourceFailures: watched.SourceFailures, SourceWaiting: watched.SourceWaiting, LastContact: watched.LastContact,
		SourceFailingSince: watched.SourceFailingSince, SourceNextTry: watched.SourceNextTry,
		Objects: -1, Watchers: []informer.WatcherHealth{},
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx != nil {
		h.Started, h.Stopped = true, h.Stopped || s.ctx.Err() != nil
	}
	set := &informer.ShardsHealth{
		Replica: s.opts.Identity, Buckets: s.opts.Buckets,
		Taken: s.counts.taken, Released: s.counts.released, LostSessions: s.counts.lost,
	}
	for _, seen := range s.view.sessions {
		if seen.mayTake(&s.opts, now) {
			set.Replicas++
		}
	}
	if watched.Synced { // before, nobody knows
		var since time.Time
		if set.Unowned, since = s.view.unowned(now); set.Unowned > 0 {
			set.UnownedFor = now.Sub(since)
		}
	}
	if n := s.session; n != nil && !n.expired() {
		set.Session = n.id
		for _, held := range n.holdings {
			add(set, held, now)
		}
		if since := n.lag.behind(n.waiting(), now); !since.IsZero() {
			set.CatchingUpFor = max(set.CatchingUpFor, now.Sub(since))
		}
		if set.Unserved = s.unserved.buckets; set.Unserved > 0 {
			set.UnservedFor, set.Lacking = now.Sub(s.unserved.since), s.unserved.workers
		}
	}
	for old := range s.old {
		set.LostCalls += old.calls()
	}
	if s.session == nil && h.SourceError == nil {
		h.SourceError = s.refused
	}
	for _, src := range s.sources {
		set.Selector = worse(set.Selector, src.served())
	}
	h.Shards = set
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
func add(set *informer.ShardsHealth, h *holding, now time.Time) {
	switch h.phase {
	case taking:
		return
	case catching:
		set.CatchingUp++
		set.CatchingUpFor = max(set.CatchingUpFor, now.Sub(h.since))
	case releasing:
		set.Draining++
		set.DrainingFor = max(set.DrainingFor, now.Sub(h.since))
	}
	set.Owned++
}
