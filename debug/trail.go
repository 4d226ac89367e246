package debug

import (
	"slices"
	"time"

	"github.com/customcacheinformer/informer"
)

const (
	// trailLength is how far back charts and rates reach.
	trailLength = time.Minute
	// trailStep is the least distance of two sightings in a trail. A page asks once a
	// second; several pages, or a fast client, must not make a trail longer.
	trailStep = 900 * time.Millisecond
)

// trailID identifies a watcher. Watchers of one informer may have the same name: number
// counts them from 0, in the order of Health.Watchers.
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

// add appends a sighting at now, and forgets those of more than a minute before.
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

// rate returns how many events per second were handled or given up during the last ten
// seconds. If only one sighting is so recent, the rate is that since the sighting before. It
// returns nil if there is only one sighting.
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

// stalled reports whether the trail shows that no event was handled for ten seconds.
func (t *trail) stalled() bool {
	last := t.seen[len(t.seen)-1]
	same := slices.IndexFunc(t.seen, func(s sighting) bool { return s.done == last.done })
	return last.at.Sub(t.seen[same].at) >= late
}

// points returns the chart of waiting events, as seen from the last sighting.
func (t *trail) points() []point {
	now := t.seen[len(t.seen)-1].at
	points := make([]point, 0, len(t.seen))
	for _, s := range t.seen {
		points = append(points, point{SecondsAgo: now.Sub(s.at).Seconds(), Pending: s.pending})
	}
	return points
}
