package debug

import (
	"slices"
	"time"

	"github.com/customcacheinformer/informer"
)

const (
	// trailLength is how far back charts and rates reach.
	trailLength = time.Minute
	// trailStep is the least time between two sightings in a trail. A page asks once a second.
	// Several pages, or a fast client, must not make a trail longer.
	trailStep = 900 * time.Millisecond
)

// trailID identifies a watcher. number counts the watchers of an informer with the same name from
// 0, in the order of Health.Watchers.
type trailID struct {
	informer, watcher string
	number            int
}

// trail is the record of a watcher over the last minute, the oldest sighting first.
type trail struct{ seen []sighting }

// sighting is the state of a watcher in one look.
type sighting struct {
	at      time.Time
	pending int
	done    int // events that were handled or given up
}

type point struct {
	SecondsAgo float64 `json:"secondsAgo"`
	Pending    int     `json:"pending"`
}

// add appends a sighting at now, and forgets sightings that are more than a minute old.
func (t *trail) add(now time.Time, s informer.WatcherStats) {
	next := sighting{at: now, pending: s.Pending, done: s.Delivered + s.Failed}
	switch last := len(t.seen) - 1; {
	case last >= 0 && next.done < t.seen[last].done:
		t.seen = t.seen[:0] // another watcher has the name now
	case last > 0 && now.Sub(t.seen[last-1].at) < trailStep:
		t.seen = t.seen[:last] // too close: next replaces the last sighting
	}
	t.seen = slices.DeleteFunc(t.seen, func(s sighting) bool { return now.Sub(s.at) > trailLength })
	t.seen = append(t.seen, next)
}

// rate returns how many events per second were handled or given up during the last ten seconds,
// or, if the last two sightings are further apart, between these. It returns nil if there is only
// one sighting.
func (t *trail) rate() *float64 {
	last := len(t.seen) - 1
	now, since := t.seen[last], last-1
	for since > 0 && now.at.Sub(t.seen[since-1].at) <= late {
		since--
	}
	if since < 0 || !now.at.After(t.seen[since].at) {
		return nil
	}
	rate := float64(now.done-t.seen[since].done) / now.at.Sub(t.seen[since].at).Seconds()
	return &rate
}

// stalled reports whether the trail shows that no event was handled or given up for ten seconds.
func (t *trail) stalled() bool {
	last := t.seen[len(t.seen)-1]
	same := slices.IndexFunc(t.seen, func(s sighting) bool { return s.done == last.done })
	return last.at.Sub(t.seen[same].at) >= late
}

// points returns the points of the chart of waiting events. Their times are relative to the last
// sighting.
func (t *trail) points() []point {
	now := t.seen[len(t.seen)-1].at
	points := make([]point, 0, len(t.seen))
	for _, s := range t.seen {
		points = append(points, point{SecondsAgo: now.Sub(s.at).Seconds(), Pending: s.pending})
	}
	return points
}
