package debug

import (
	"fmt"
	"slices"
	"time"

	"github.com/customcacheinformer/informer/enqueue"
)

// These are the bounds of a controller's states. The alerts InformerReconcileHung,
// InformerReconcileFailing and InformerReconcileBehind of metrics/prometheus fire later than the
// page shows the state: they interrupt people, and the page does not.
const (
	hungCall       = 5 * time.Minute // how long a call may take; that of the alert, too
	failingKey     = 5 * time.Minute // for how long a key may fail while further attempts follow
	failedAttempts = 3               // how often a key may fail in that time: a few conflicts are common
	behindQueue    = time.Minute     // how long a key may wait for a worker, and the first call may take
)

type controllerView struct {
	Name      string         `json:"name"` // the key in the map of health
	State     string         `json:"state"`
	Attention bool           `json:"attention"`
	Error     string         `json:"error,omitempty"` // why it cannot sync
	Health    enqueue.Health `json:"health"`
	Calls     []callView     `json:"calls"`
	Failures  []failureView  `json:"failures"`

	hung, failing bool // whether a call, or a key, needs attention
}

type callView struct {
	Key       string        `json:"key"`
	Took      time.Duration `json:"-"`
	Seconds   float64       `json:"seconds"`
	Attention bool          `json:"attention"`
}

type failureView struct {
	Key       string        `json:"key"`
	For       time.Duration `json:"-"`
	Seconds   float64       `json:"seconds"`
	Failures  int           `json:"failures"`
	GaveUp    bool          `json:"gaveUp"`
	NextTry   time.Time     `json:"nextTry,omitzero"` // zero if there is no pause
	Error     string        `json:"error"`
	Attention bool          `json:"attention"`
}

func newControllerView(name string, h enqueue.Health) controllerView {
	v := controllerView{Name: name, Health: h, Error: errorOf(h.Reason), Calls: []callView{}, Failures: []failureView{}}
	for _, c := range h.Calls {
		shown := callView{Key: c.Key, Seconds: c.For.Seconds(), Attention: c.For >= hungCall, Took: c.For}
		v.Calls, v.hung = append(v.Calls, shown), v.hung || shown.Attention
	}
	fruitless := fruitless(h)
	v.failing = fruitless
	for _, f := range h.Failures {
		shown := failureView{Key: f.Key, Seconds: f.For.Seconds(), Failures: f.Failures, GaveUp: f.GaveUp, NextTry: f.NextTry, For: f.For}
		// No attempt may mend what was given up.
		shown.Attention = fruitless || f.GaveUp || f.For >= failingKey && f.Failures > failedAttempts
		if f.Err != nil {
			shown.Error = f.Err.Error()
		}
		v.Failures, v.failing = append(v.Failures, shown), v.failing || shown.Attention
	}
	v.State, v.Attention = controllerState(v)
	return v
}

// fruitless reports whether the controller fails for most of its keys. If no call has ever
// succeeded, one failed call is enough. Otherwise, most of the listed failing keys must have
// failed often. In addition, more keys must be failing than calls have succeeded, or several keys
// must be failing and no call have succeeded since the first of them began to fail.
func fruitless(c enqueue.Health) bool {
	if c.Succeeded == 0 {
		return c.Failed > 0
	}
	often := 0
	for _, f := range c.Failures {
		if f.Failures > failedAttempts {
			often++
		}
	}
	return 2*often > len(c.Failures) &&
		(c.Failing > c.Succeeded || c.Failing > 1 && time.Since(c.LastSuccess) >= c.Failures[0].For)
}

// controllerState returns the state of a controller c, and whether a person should look at the
// controller. docs/operations.md explains each state.
func controllerState(c controllerView) (state string, attention bool) {
	switch h := c.Health; {
	case h.Stopped:
		return "stopped", true
	case !h.Started:
		return "not started", false
	case !h.Synced && h.Reason != nil:
		return "cannot sync", true
	case !h.Synced:
		return "syncing", false
	case c.hung:
		return "hung", true
	case h.OldestQueued >= behindQueue:
		return "behind", true
	case c.failing:
		return "failing", true
	case h.Standby:
		return "standby", false
	}
	return "working", false
}

// Class returns the CSS class of the controller's state.
func (c controllerView) Class() string {
	if c.State == "working" && c.Health.Succeeded == 0 && len(c.Calls) > 0 && c.Calls[0].Took >= behindQueue { // the first call
		return unready
	}
	return stateClass(c.State, c.Attention)
}

// Brief returns the figures for the line of a controller that is well.
func (c controllerView) Brief() string {
	return fmt.Sprintf("queued %d, busy %s, failing keys %d", c.Health.Queued, c.BusyText(), c.Health.Failing)
}

// BusyText returns how many of the workers are busy.
func (c controllerView) BusyText() string {
	return fmt.Sprintf("%d of %s", c.Health.Busy, plural(c.Health.Workers, "worker"))
}

// ByError returns the failing keys, grouped by their error.
func (c controllerView) ByError() (all [][]failureView) {
	for _, f := range c.Failures {
		n := slices.IndexFunc(all, func(same []failureView) bool { return same[0].Error == f.Error })
		if n < 0 {
			n, all = len(all), append(all, nil)
		}
		all[n] = append(all[n], f)
	}
	return all
}

// MoreCalls and MoreFailures return how many calls and failing keys are not listed.
func (c controllerView) MoreCalls() int    { return max(0, c.Health.Busy-len(c.Calls)) }
func (c controllerView) MoreFailures() int { return max(0, c.Health.Failing-len(c.Failures)) }

// QueuedText returns how many keys wait for a worker, and how long the oldest of them has waited.
func (c controllerView) QueuedText() string {
	if c.Health.OldestQueued == 0 {
		return fmt.Sprint(c.Health.Queued)
	}
	return fmt.Sprintf("%d, the oldest for %s", c.Health.Queued, roundDuration(c.Health.OldestQueued))
}
