package shards

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/customcacheinformer/informer/shards/internal/leases"
)

// This file is about replicas whose caches are behind. Such a replica takes no buckets while another
// one does.

const (
	// askAfter is how long a bucket waits for versions of the last holder until the server is asked
	// whether it has them, and the pause between two such questions.
	askAfter = 10 * time.Second
	// lateAfter is how long the caches of a replica may be behind until it is no measure for others. The server
	// has been asked by then.
	lateAfter = 30 * time.Second
	// patience is how long a bucket may wait for the caches, or a source be cut off, until others get the
	// buckets of a replica.
	patience = time.Minute
	// goalPatience is that for versions which another replica has seen. If they come from a list or a bookmark
	// there, they come with a bookmark here, about once a minute.
	goalPatience = 150 * time.Second
	// maxAway is the longest pause until a replica that was behind takes buckets again.
	maxAway = time.Hour
)

// lag is how far the caches of a replica are behind those of others. The set's lock protects it.
type lag struct {
	// These parts outlive the session.
	goal   leases.Versions // versions that another replica had seen
	goalAt time.Time       // at this time
	cutAt  time.Time       // since when a source has not been connected; zero if all are
	times  int             // how often a session was away since a bucket was last opened

	late  bool // stands in the Lease: the caches are behind, or perhaps so
	known bool // compareLocked was called in this session

	away  bool               // the session takes no buckets
	since time.Time          // while away: when the caches fell behind, or zero if they have caught up
	until time.Time          // the session does not come back, or go away again, before this time
	stop  context.CancelFunc // ends the goroutine that waits until the caches have caught up
}

// next returns the lag with which the next session begins. Before it is known, the session counts as late:
// it is no reason for others to leave their buckets.
func (l lag) next() lag {
	return lag{goal: l.goal, goalAt: l.goalAt, cutAt: l.cutAt, times: l.times, late: true}
}

// compareLocked compares the versions of the caches with those that other replicas have seen. A goal
// that no replica has seen any more is none: the server was restored from a backup. With sources of
// Source, which do not deliver the changes in other buckets, there is no goal, and a source is cut off
// when its last list has failed: one that is under way may take long.
func (s *session) compareLocked(known leases.Versions, connected bool, now time.Time) {
	s.lag.known = true
	divided := len(s.set.sources) > 0
	if divided {
		connected = !s.set.isFailing()
	}
	switch {
	case connected:
		s.lag.cutAt = time.Time{}
	case s.lag.cutAt.IsZero():
		s.lag.cutAt = now
	}
	if divided {
		return
	}
	others := s.set.view.seenBy(s.id, now)
	if known.HaveReached(s.lag.goal) || !others.HaveReached(s.lag.goal) {
		s.lag.goal, s.lag.goalAt = others.ComparableWith(known), now
	}
}

// behindLocked returns since when the caches have been behind. It returns the zero time if they are not.
func (s *session) behindLocked(now time.Time) (since time.Time) {
	if s.lag.away {
		return s.lag.since
	}
	if len(s.set.sources) > 0 {
		return since // a bucket may wait for lists
	}
	if s.lag.known && !s.lag.goalAt.IsZero() && now.Sub(s.lag.goalAt) >= goalPatience {
		since = s.lag.goalAt
	}
	for _, h := range s.holdings {
		if h.phase == catching && (since.IsZero() || h.since.Before(since)) {
			since = h.since
		}
	}
	return since
}

// lateLocked returns since when the caches have been behind, or perhaps so, because a source is not
// connected. It returns the zero time if they are not.
func (s *session) lateLocked(now time.Time) time.Time {
	since := s.behindLocked(now)
	if cut := s.lag.cutAt; !s.lag.away && !cut.IsZero() && (since.IsZero() || cut.Before(since)) {
		return cut
	}
	return since
}

// seenBy returns the latest versions that working replicas have seen whose caches are not behind, except
// the session with an id. A replica whose caches are behind may not know of a restore.
func (v *view) seenBy(except string, now time.Time) leases.Versions {
	seen := leases.Versions{}
	for id, s := range v.sessions {
		if id != except && s.lease != nil && !s.Late && s.mayWork(v.opts, now) {
			seen = seen.Latest(s.Seen)
		}
	}
	return seen
}

// goAwayLocked lets a session whose caches have been behind for long take no buckets while there are others
// whose caches are not, and lets it come back when its caches have caught up.
func (s *Set) goAwayLocked(n *session, now time.Time) {
	others := false
	for id, seen := range s.view.sessions {
		others = others || id != n.id && !seen.Late && seen.mayTake(&s.opts, now)
	}
	l, since := &n.lag, n.lateLocked(now)
	late := !l.known || !since.IsZero() && (l.late || now.Sub(since) >= lateAfter)
	if late && !l.late {
		token(n.hurry)
	}
	l.late = late
	switch {
	case l.away && (!others || since.IsZero() && !now.Before(l.until)):
		l.away, l.until = false, now.Add(patience)
		l.stop()
		token(n.hurry)
	case !l.away && others && !since.IsZero() && now.Sub(since) >= patience && !now.Before(l.until):
		goal := leases.Past{Seen: l.goal, Died: !l.cutAt.IsZero()}
		for _, h := range n.holdings {
			if h.phase == catching {
				goal = leases.Past{Seen: goal.Seen.Latest(h.before.Seen), Died: goal.Died || h.before.Died}
			}
		}
		l.away, l.since, l.until = true, since, now.Add(min(maxAway, patience<<min(l.times, 10)))
		l.times++
		var ctx context.Context
		ctx, l.stop = context.WithCancel(n.ctx)
		s.running.Go(func() { s.follow(ctx, n, goal) })
		s.later(fmt.Errorf("the caches of this replica have been behind for %v: other replicas get its buckets", now.Sub(since).Round(time.Second)))
		token(n.hurry)
	}
}

// follow waits until the caches of a session that is away have caught up.
func (s *Set) follow(ctx context.Context, n *session, goal leases.Past) {
	if s.reach(ctx, goal) != nil {
		return // the session is over, or not away any more
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n.lag.since, n.lag.cutAt, n.lag.goalAt = time.Time{}, time.Time{}, time.Time{}
	s.poke()
}

// reach waits until the caches are at least as new as those of the last holder. If it has died, it has
// published only from time to time which versions it had seen. It had no call after its session, and
// Margin later everything that it had seen has come to watches that are open.
func (s *Set) reach(ctx context.Context, last leases.Past) error {
	for _, w := range s.joined() {
		err := s.catchUpWith(ctx, w, last.Seen[w.name])
		if err == nil && last.Died {
			err = w.Fresh(ctx, s.opts.Margin)
		}
		if err != nil {
			return fmt.Errorf("worker %s: %w", w.name, err)
		}
	}
	return nil
}

// catchUpWith waits until the caches of a worker have these versions. A version that the server does not
// have, and no working replica has seen, does not exist any more. The server was restored from a backup
// then, or the Lease is of another cluster.
func (s *Set) catchUpWith(ctx context.Context, w worker, seen Versions) error {
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
func (s *Set) reportMissing(w worker, seen, missing Versions) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.missed) < patience {
		return
	}
	s.missed = time.Now()
	for source, now := range missing {
		s.later(fmt.Errorf("worker %s: the last holder of a bucket had seen version %s of source %s, and the server is only at %s: "+
			"it was restored from a backup, or the Leases are of another cluster; this replica goes on", w.name, seen[source], source, now))
	}
}
