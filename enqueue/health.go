package enqueue

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/customcacheinformer/informer"
)

// Health is the state of a controller at one moment, as [Controller.Health] returns it. Its counts
// begin at 0 when the controller is made. It is the [informer.MemberHealth] of a controller, and may
// be copied.
type Health struct {
	// Name is Options.Name.
	Name string `json:"name"`
	// Started is true once Run has been called.
	Started bool `json:"started"`
	// Stopped is true once the ctx of Run is done, Run has returned, or the controller was removed.
	Stopped bool `json:"stopped"`
	// Synced is true once Run has seen that the informers of the sources and Options.Reads have
	// synced, and the set of Options.Shards has started. It then stays true.
	Synced bool `json:"synced"`
	// Late names what the controller waits for, in words such as "informer pods". It is nil before
	// Run and when the controller has synced.
	Late []string `json:"late,omitempty"`
	// Reason is why one of Late cannot sync, for example because an informer does not run. It is
	// nil if no reason is known.
	Reason error `json:"-"`
	// Standby is true if Options.Elected is set, until the controller has synced and is elected. The
	// workers start when the keys of all objects have been queued after that.
	Standby bool `json:"standby"`
	// Workers is Options.Workers, or 1 if that is 0. With [InClusters], Busy may be greater, because a
	// call that lasts longer than a second no longer occupies a worker.
	Workers int `json:"workers"`
	// Queued is how many keys wait for a worker. Keys that wait for a pause to end do not count, see
	// Waiting.
	Queued int `json:"queued"`
	// OldestQueued is how long the oldest of the queued keys has been waiting for a worker. It is 0
	// if there is none, before the controller has synced, and on standby.
	OldestQueued time.Duration `json:"-"`
	// Waiting is how many keys wait for a retry, or for the time that a call asked for. An event can
	// put such a key into the queue earlier: then it counts in both Queued and Waiting.
	Waiting int `json:"waiting"`
	// Busy is how many calls of reconcile are under way.
	Busy int `json:"busy"`
	// Calls lists the calls under way, the oldest first, at most ten.
	Calls []KeyHealth `json:"-"`
	// Stuck is more than 0 if calls do not return, so that only a restart of the process helps. If
	// all workers have been in their calls for at least Options.HangTimeout while keys wait, Stuck
	// is how long that has lasted. Otherwise, Stuck is how long ago a stop ended the ctx of calls
	// that are still under way, once that is a minute, or HangTimeout if that is shorter. Stuck is
	// always 0 if HangTimeout is less than 0.
	Stuck time.Duration `json:"-"`
	// Failing is how many keys have failed and have not succeeded since, including keys that were
	// given up. Only the last 1000 keys that were given up count.
	Failing int `json:"failing"`
	// Failures lists the keys that have been failing for the longest time, the longest first, at
	// most ten.
	Failures []KeyHealth `json:"-"`
	// LastSuccess is when the last of the Succeeded calls returned. It is zero if there was none yet.
	LastSuccess time.Time `json:"lastSuccess,omitzero"`
	// Succeeded is how many calls have returned nil. With [InClusters], it includes the calls that have
	// returned informer.ErrNotEngaged for a cluster that has left. A call that returns after the lease
	// is lost does not count.
	Succeeded int `json:"succeeded"`
	// Again is how many of the Succeeded calls have asked for another call.
	Again int `json:"again"`
	// Failed is how many calls have failed. A call that returns the error of its ctx after a stop
	// does not count, and neither does a call that returns after the lease is lost.
	Failed int `json:"failed"`
	// GaveUp is how many of the Failed calls were the last attempt for their key: the key is not
	// tried again until an event puts it into the queue.
	GaveUp int `json:"gaveUp"`
	// Took counts the calls that succeeded or failed by how long they took: Took[0] counts calls of
	// at most 100 µs, Took[1] longer calls of at most 400 µs, and so on. Each limit is four times
	// the one before. The last element counts all calls of more than 7 min. TookSum is the sum of
	// all durations.
	Took    [tookLimits + 1]int `json:"-"`
	TookSum time.Duration       `json:"-"`
	// Deletes is how many deleted objects of a Durable wait for their keys to be reconciled. Until
	// then the store keeps them as tombstones. With Options.Shards, Deletes also counts deletes of
	// informers without a Durable, and deletes whose keys other replicas reconcile. If several objects
	// of an informer lead to one key, the last delete then stands for the earlier ones.
	Deletes int `json:"deletes"`
	// Dropped is how many keys of deleted objects the controller has dropped, because there were
	// more than Options.StandbyDeletes.
	Dropped int `json:"dropped,omitempty"`
}

// tookLimits is how many limits the calls of Health.Took have. The first is firstLimit, and each is four times the last.
const (
	tookLimits = 12
	firstLimit = 100 * time.Microsecond
)

// KeyHealth is a key that is being reconciled, or that fails. For a call under way, only Key and For
// are set.
type KeyHealth struct {
	Key      string        // the key, as fmt.Sprint prints it
	For      time.Duration // the time since the call began, or since the first failure
	Failures int           // how many calls have failed in a row; starts over after the key was given up
	GaveUp   bool          // no attempt follows until an event puts the key into the queue
	NextTry  time.Time     // when the pause before the next attempt ends; zero if there is no pause
	Err      error         // the error of the last call
}

// HasRun reports whether Started or Stopped is true.
func (h Health) HasRun() bool { return h.Started || h.Stopped }

// Ready returns nil once the controller has synced, also on standby and while calls of reconcile
// fail. Before that, it returns an error with Reason or Late. Once the controller stops, Ready
// returns an error that wraps [informer.ErrStopped].
func (h Health) Ready() error {
	var err error
	switch {
	case h.Stopped && !h.Synced && h.Reason != nil:
		err = fmt.Errorf("%w before it has synced: %w", informer.ErrStopped, h.Reason)
	case h.Stopped:
		err = informer.ErrStopped
	case !h.Started:
		err = errors.New("has not started")
	case !h.Synced && h.Reason != nil:
		err = fmt.Errorf("has not synced: %w", h.Reason)
	case !h.Synced && len(h.Late) > 0:
		err = fmt.Errorf("has not synced: it waits for %s", strings.Join(h.Late, " and "))
	case !h.Synced:
		err = errors.New("has not synced")
	default:
		return nil
	}
	return fmt.Errorf("controller %s: %w", h.Name, err)
}

// Live returns an error if Stuck is more than 0: calls do not return, and a restart of the process
// would help. Otherwise it returns nil.
func (h Health) Live() error {
	if h.Stuck <= 0 {
		return nil
	}
	return fmt.Errorf("controller %s: for %v no call has returned: %d of %d workers are in one", h.Name, h.Stuck.Truncate(time.Second), h.Busy, h.Workers)
}

// MarshalJSON encodes the fields with names in camel case. OldestQueued and Stuck become numbers of
// seconds, "oldestQueuedSeconds" and "stuckSeconds". Late, LastSuccess, Dropped and Stuck are left out
// if they are empty or 0. Reason, Took and TookSum are not encoded, and neither are Calls and Failures,
// because they name keys; package debug shows them.
func (h Health) MarshalJSON() ([]byte, error) {
	type fields Health // has the tags, but not this method
	return json.Marshal(struct {
		fields
		OldestQueuedSeconds float64 `json:"oldestQueuedSeconds"`
		StuckSeconds        float64 `json:"stuckSeconds,omitempty"`
	}{fields(h), h.OldestQueued.Seconds(), h.Stuck.Seconds()})
}
