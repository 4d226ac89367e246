package debug

import (
	"fmt"
	"time"

	"github.com/customcacheinformer/informer"
)

// These are the bounds of a set's states. They are those of the alerts InformerShardsUnowned and
// InformerShardsDraining of metrics/prometheus, which wait a little longer before they interrupt
// people.
const (
	unownedBucket = time.Minute     // how long a bucket may have no owner
	slowDrain     = 5 * time.Minute // how long a bucket may drain
)

// setView is the state of a set of package shards in this replica.
type setView struct {
	Name      string                 `json:"name"` // the key in the map of health
	State     string                 `json:"state"`
	Attention bool                   `json:"attention"`
	Error     string                 `json:"error,omitempty"` // why it cannot read its Leases
	Health    *informer.ShardsHealth `json:"health"`
}

// newSetView returns the state of the set whose Health is h.
func newSetView(name string, h informer.Health) setView {
	v := setView{Name: name, Health: h.Shards, Error: errorOf(h.SourceError)}
	v.State, v.Attention = setState(h)
	return v
}

// setState returns the state of a set, and whether a person should look at the set.
// docs/operations.md explains each state.
func setState(h informer.Health) (state string, attention bool) {
	s := h.Shards
	switch {
	case h.Stopped:
		return "stopped", true
	case !h.Started:
		return "not started", false
	case s.LostCalls > 0:
		return "lost calls", true
	case !h.Synced && h.SourceError != nil:
		return "cannot join", true
	case !h.Synced:
		return "joining", false
	case s.Session == "":
		return "no session", true
	case h.SourceError != nil:
		return "Leases fail", true
	case s.UnownedFor >= unownedBucket:
		return "unowned", true
	case s.DrainingFor >= slowDrain:
		return "draining", true
	}
	return "working", false
}

// Class returns the CSS class of the set's state.
func (s setView) Class() string { return stateClass(s.State == "working", s.Attention) }

// ErrorText returns why the set cannot read its Leases, as far as the page has room for it.
func (s setView) ErrorText() string { return cut(s.Error, maxErrorText) }

// BucketsText says how many buckets this replica has, and of how many.
func (s setView) BucketsText() string {
	return fmt.Sprintf("%d of %d", s.Health.Owned, s.Health.Buckets)
}

// DrainingText says how many buckets move to other replicas when their calls have returned, and how
// long the first of them has been draining.
func (s setView) DrainingText() string { return firstFor(s.Health.Draining, s.Health.DrainingFor) }

// UnownedText says how many buckets no replica has, and for how long the first has had none.
func (s setView) UnownedText() string { return firstFor(s.Health.Unowned, s.Health.UnownedFor) }

// firstFor returns a number of buckets, and for how long the first of them has been so.
func firstFor(n int, d time.Duration) string {
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("%d, the first for %s", n, roundDuration(d))
}
