package shards

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/customcacheinformer/informer/internal/sharding"
	"github.com/customcacheinformer/informer/shards/internal/leases"
)

// reviewLocked decides whether the session takes buckets. If its caches have been behind for long, it
// takes none while there are replicas with fresh caches. It comes back when its caches have caught up.
func (s *Set) reviewLocked(n *session, now time.Time) {
	others := false
	for id, seen := range s.view.sessions {
		others = others || id != n.id && !seen.Late && seen.mayTake(&s.opts, now)
	}
	if away, goal, since := n.review(others, now); away != nil {
		s.running.Go(func() { s.follow(away, n, goal) })
		s.later(fmt.Errorf("the caches of this replica have been behind for %v: other replicas get its buckets", now.Sub(since).Round(time.Second)))
	}
}

// follow waits until the caches of a session that is away have caught up, and notes it.
func (s *Set) follow(ctx context.Context, n *session, goal leases.Past) {
	if s.reach(ctx, goal) != nil {
		return // the session is over, or not away any more
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n.caughtUp()
	s.poke()
}

// catchUp waits until the caches have the objects of a bucket, and are at least as new as the caches of
// the last holder.
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

// reach waits until the caches are at least as new as the caches of the last holder. A holder that has
// died published its versions only from time to time. But it had no call after its session, and after
// Margin, open watches have received everything that it had seen.
func (s *Set) reach(ctx context.Context, last leases.Past) error {
	for _, w := range s.workers {
		err := s.catchUpWith(ctx, w, last.Seen[w.name])
		if err == nil && last.Died {
			err = w.Fresh(ctx, s.opts.Margin)
		}
		if err != nil {
			return fmt.Errorf("controller %s: %w", w.name, err)
		}
	}
	return nil
}

// catchUpWith waits until the caches of a worker have the versions in seen. It does not wait for a
// version that the server does not have and no working replica has seen: the server was restored from a
// backup, or the Lease is of another cluster.
func (s *Set) catchUpWith(ctx context.Context, w worker, seen sharding.Versions) error {
	for {
		waiting, cancel := context.WithTimeout(ctx, askAfter)
		err := w.CatchUp(waiting, seen)
		late := waiting.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil || !late {
			return err
		}
		s.mu.Lock()
		others := s.view.seenBy("", time.Now())[w.name]
		s.mu.Unlock()
		doubtful := maps.Clone(seen)
		maps.DeleteFunc(doubtful, func(source, version string) bool { return leases.IsAsNew(others[source], version) })
		asking, cancel := context.WithTimeout(ctx, askAfter)
		missing := w.Missing(asking, doubtful)
		cancel()
		if len(missing) == 0 {
			continue
		}
		s.reportMissing(w, seen, missing)
		seen = maps.Clone(seen)
		maps.DeleteFunc(seen, func(source, _ string) bool { return missing[source] != "" })
	}
}

// reportMissing reports versions that do not exist, once for all buckets that wait for them.
func (s *Set) reportMissing(w worker, seen, missing sharding.Versions) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.missed) < patience {
		return
	}
	s.missed = time.Now()
	for source, now := range missing {
		s.later(fmt.Errorf("controller %s: the last holder of a bucket had seen version %s of source %s, and the server is only at %s: "+
			"it was restored from a backup, or the Leases are of another cluster; this replica continues", w.name, seen[source], source, now))
	}
}
