package shards

import (
	"context"
	"time"

	"github.com/customcacheinformer/informer/shards/internal/leases"
)

const (
	// askAfter is how long a bucket waits for versions of the last holder before the replica asks the server
	// whether it has them, and the pause before it asks again.
	askAfter = 10 * time.Second
	// lateAfter is how long the caches of a replica may be behind before other replicas no longer compare
	// theirs with them. The server has been asked by then.
	lateAfter = 30 * time.Second
	// patience is how long a bucket may wait for the caches, or a source may be cut off, before others get
	// the buckets of the replica.
	patience = time.Minute
	// goalPatience is the same time for versions that another replica has seen. It is longer: if the other
	// replica has them from a list or a bookmark, they come here with a bookmark, about once a minute.
	goalPatience = 150 * time.Second
	// maxAway is the longest pause until a replica that was behind takes buckets again.
	maxAway = time.Hour
)

// lag is how far the caches of a replica are behind the caches of others. A replica that is behind for long
// takes no buckets while another replica does.
type lag struct {
	// These parts outlive the session.
	divided bool            // the caches have sources of Source, which do not deliver the changes in other buckets
	goal    leases.Versions // versions that another replica had seen
	goalAt  time.Time       // at this time
	cutAt   time.Time       // since when a source has not been connected; zero if all are
	times   int             // how often a session was away since a bucket was last opened

	late  bool // written into the Lease: the caches are behind, or perhaps so
	known bool // compare was called in this session

	away  bool               // the session takes no buckets
	since time.Time          // while away: when the caches fell behind, or zero if they have caught up
	until time.Time          // the session does not come back, or go away again, before this time
	stop  context.CancelFunc // ends the goroutine that waits until the caches have caught up
}

// next returns the lag with which the next session begins. Before its lag is known, a session counts as
// late, so that no other replica gives its buckets up because of it.
func (l lag) next() lag {
	return lag{divided: l.divided, goal: l.goal, goalAt: l.goalAt, cutAt: l.cutAt, times: l.times, late: true}
}

// compare compares the versions of the caches with the versions that other replicas have seen. A goal that
// no replica has seen any more is dropped: the server was restored from a backup. Divided caches have no
// goal.
func (l *lag) compare(known, others leases.Versions, connected bool, now time.Time) {
	l.known = true
	switch {
	case connected:
		l.cutAt = time.Time{}
	case l.cutAt.IsZero():
		l.cutAt = now
	}
	if !l.divided && (known.HaveReached(l.goal) || !others.HaveReached(l.goal)) {
		l.goal, l.goalAt = others.ComparableWith(known), now
	}
}

// behind returns since when the caches have been behind, or the zero time if they are not behind. waiting is
// since when a bucket has waited for the caches, or the zero time.
func (l *lag) behind(waiting, now time.Time) (since time.Time) {
	switch {
	case l.away:
		return l.since
	case l.divided: // a bucket may wait for lists
		return since
	case l.known && !l.goalAt.IsZero() && now.Sub(l.goalAt) >= goalPatience:
		since = l.goalAt
	}
	return first(since, waiting)
}

// doubtful returns since when the caches have been behind, or may have been because a source is not
// connected. It returns the zero time if neither holds.
func (l *lag) doubtful(waiting, now time.Time) time.Time {
	since := l.behind(waiting, now)
	if l.away {
		return since
	}
	return first(since, l.cutAt)
}

// first returns the earlier of two times. A zero time does not count.
func first(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// review decides whether the session goes away or comes back. since is when its caches fell behind, or zero.
// others is true if another session may take the buckets. changed reports whether the Lease of the session
// must be written. leaves reports whether the session goes away now.
func (l *lag) review(since time.Time, others bool, now time.Time) (changed, leaves bool) {
	late := !l.known || !since.IsZero() && (l.late || now.Sub(since) >= lateAfter)
	changed = late && !l.late
	l.late = late
	switch {
	case l.away && (!others || since.IsZero() && !now.Before(l.until)):
		l.away, l.until = false, now.Add(patience)
		l.stop()
		return true, false
	case !l.away && others && !since.IsZero() && now.Sub(since) >= patience && !now.Before(l.until):
		l.away, l.since, l.until = true, since, now.Add(min(maxAway, patience<<min(l.times, 10)))
		l.times++
		return true, true
	}
	return changed, false
}
