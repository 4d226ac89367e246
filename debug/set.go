package debug

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/customcacheinformer/informer/shards"
)

// These are the bounds of a set's states. The alerts InformerShardsUnowned, InformerShardsBehind,
// InformerShardsUnserved and InformerShardsDraining of metrics/prometheus fire a little later.
const (
	unownedBucket = time.Minute     // how long a bucket may have no owner
	oldCaches     = time.Minute     // how long the caches of a replica may be behind
	slowUpdate    = 5 * time.Minute // how long replicas may have different controllers
	slowDrain     = 5 * time.Minute // how long a bucket may drain
)

// setView is the state of a set of package shards in this replica.
type setView struct {
	Name      string        `json:"name"` // the key in the map of health
	State     string        `json:"state"`
	Attention bool          `json:"attention"`
	Error     string        `json:"error,omitempty"` // why it cannot read its Leases, or may not join
	Health    shards.Health `json:"health"`
}

func newSetView(name string, h shards.Health) setView {
	v := setView{Name: name, Health: h, Error: errorOf(h.SourceError)}
	v.State, v.Attention = setState(h)
	return v
}

// setState returns the state of a set, and whether a person should look at the set.
// docs/operations.md explains each state.
func setState(s shards.Health) (state string, attention bool) {
	switch {
	case s.Stopped:
		return "stopped", true
	case !s.Started:
		return "not started", false
	case s.LostCalls > 0:
		return "lost calls", true
	case !s.Synced && s.SourceError != nil:
		return "cannot join", true
	case !s.Synced:
		return "joining", false
	case s.Session == "":
		return "no session", true
	case s.SourceError != nil:
		return "Leases fail", true
	case s.UnownedFor >= unownedBucket:
		return "unowned", true
	case s.CatchingUpFor >= oldCaches:
		return "behind", true
	case s.UnservedFor >= slowUpdate:
		return "unserved", true
	case s.DrainingFor >= slowDrain:
		return "draining", true
	case s.Owned > 0 && s.CatchingUp == s.Owned:
		return "catching up", false
	}
	return "working", false
}

// Class returns the CSS class of the set's state.
func (s setView) Class() string {
	if s.State == "working" && s.Health.Unowned > 0 { // not for long
		return unready
	}
	return stateClass(s.State, s.Attention)
}

// BucketsText returns how many of the set's buckets this replica has.
func (s setView) BucketsText() string {
	return fmt.Sprintf("%d of %d", s.Health.Owned, s.Health.Buckets)
}

// DrainingText returns how many buckets move to other replicas once their calls have returned, and how
// long the first of them has been draining.
func (s setView) DrainingText() string { return firstFor(s.Health.Draining, s.Health.DrainingFor) }

// UnownedText returns how many buckets have no replica, and for how long the first of them has had none.
func (s setView) UnownedText() string { return firstFor(s.Health.Unowned, s.Health.UnownedFor) }

// BehindText returns how many buckets wait for the caches of this replica, and how long the caches have
// been behind.
func (s setView) BehindText() string {
	if s.Health.CatchingUpFor == 0 {
		return strconv.Itoa(s.Health.CatchingUp)
	}
	return fmt.Sprintf("%d, caches behind for %s", s.Health.CatchingUp, roundDuration(s.Health.CatchingUpFor))
}

// UnservedText returns how many buckets belong to replicas that lack controllers of this replica, for
// how long, and the names of these controllers.
func (s setView) UnservedText() string {
	return fmt.Sprintf("%d for %s: no %s there", s.Health.Unserved, roundDuration(s.Health.UnservedFor), cut(strings.Join(s.Health.Lacking, ", "), maxErrorText))
}

// firstFor returns a number of buckets, and a duration for the first of them, as text.
func firstFor(n int, d time.Duration) string {
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("%d, the first for %s", n, roundDuration(d))
}
