package debug

import (
	"slices"
	"time"

	"github.com/customcacheinformer/informer"
)

const (
	// trailLength is how far back the page looks, trailStep how often it does at most.
	trailLength = time.Minute
	trailStep   = 900 * time.Millisecond // the page asks once a second
)

// hung is how long a call may take before it is named, as for an informer.
const hung = 10 * time.Second

// trailID tells the watchers of a page from each other.
type trailID struct {
	informer string
	watcher  watcherID
}

// trail is what was seen of a watcher in the last minute, the oldest first.
type trail struct{ seen []sighting }

type sighting struct {
	at      time.Time
	pending int
	done    int // events that it was called for, and that will not come again
}

// point is one point of a chart.
type point struct {
	SecondsAgo float64 `json:"secondsAgo"`
	Pending    int     `json:"pending"`
}

// add notes what is seen now.
func (t *trail) add(now time.Time, s informer.WatcherStats) {
	next := sighting{at: now, pending: s.Pending, done: s.Delivered + s.Failed}
	switch last := len(t.seen) - 1; {
	case last >= 0 && next.done < t.seen[last].done:
		t.seen = t.seen[:0] // another watcher of that name
	case last > 0 && now.Sub(t.seen[last-1].at) < trailStep:
		t.seen = t.seen[:last] // seen too often: the newest sighting takes the place of the last
	}
	old := 0
	for old < len(t.seen) && now.Sub(t.seen[old].at) > trailLength {
		old++
	}
	t.seen = append(t.seen[:0], t.seen[old:]...)
	t.seen = append(t.seen, next)
}

// rate returns how many events a second were done with in the last ten seconds, or since
// the last sighting if that was before them; nil if there was none.
func (t *trail) rate() *float64 {
	last := len(t.seen) - 1
	now, since := t.seen[last], last-1
	for since > 0 && now.at.Sub(t.seen[since-1].at) <= hung {
		since--
	}
	if since < 0 || !now.at.After(t.seen[since].at) {
		return nil
	}
	rate := float64(now.done-t.seen[since].done) / now.at.Sub(t.seen[since].at).Seconds()
	return &rate
}

// stalled reports whether it was seen that nothing was done with for as long as a call
// may take.
func (t *trail) stalled() bool {
	last := t.seen[len(t.seen)-1]
	same := slices.IndexFunc(t.seen, func(s sighting) bool { return s.done == last.done })
	return last.at.Sub(t.seen[same].at) >= hung
}

// points returns the line of what waited.
func (t *trail) points(now time.Time) []point {
	points := make([]point, 0, len(t.seen))
	for _, s := range t.seen {
		points = append(points, point{SecondsAgo: now.Sub(s.at).Seconds(), Pending: s.pending})
	}
	return points
}
