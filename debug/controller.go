package debug

import (
	"fmt"
	"time"

	"github.com/customcacheinformer/informer"
)

// These are the bounds of a controller's states. The alerts InformerReconcileHung,
// InformerReconcileFailing and InformerReconcileBehind of metrics/prometheus fire later than the
// page says so: they interrupt people, and the page only answers them.
const (
	hungCall       = 5 * time.Minute // how long a call may take; that of the alert, too
	failingKey     = 5 * time.Minute // for how long a key may fail while further attempts follow
	failedAttempts = 3               // how often a key may fail in that time: a few conflicts are common
	behindQueue    = time.Minute     // how long a key may wait for a worker
)

type controllerView struct {
	Name      string                     `json:"name"` // the key in the map of health
	State     string                     `json:"state"`
	Attention bool                       `json:"attention"`
	Error     string                     `json:"error,omitempty"` // why it cannot sync
	Health    *informer.ControllerHealth `json:"health"`
	Calls     []callView                 `json:"calls"`
	Failures  []failureView              `json:"failures"`

	hung, failing bool // whether a call, or a key, needs attention
}

// callView is a call of reconcile that is under way.
type callView struct {
	Key       string  `json:"key"`
	Seconds   float64 `json:"seconds"`
	Attention bool    `json:"attention"`
	took      time.Duration
}

// failureView is a key that fails.
type failureView struct {
	Key       string  `json:"key"`
	Seconds   float64 `json:"seconds"`
	Failures  int     `json:"failures"`
	GaveUp    bool    `json:"gaveUp"`
	Error     string  `json:"error"`
	Attention bool    `json:"attention"`
	since     time.Duration
}

// newControllerView returns the state of the controller whose Health is h.
func newControllerView(name string, h informer.Health) controllerView {
	v := controllerView{Name: name, Health: h.Controller, Calls: []callView{}, Failures: []failureView{}}
	for _, c := range h.Controller.Calls {
		shown := callView{Key: c.Key, Seconds: c.Took.Seconds(), Attention: c.Took >= hungCall, took: c.Took}
		v.Calls, v.hung = append(v.Calls, shown), v.hung || shown.Attention
	}
	for _, f := range h.Controller.Failures {
		shown := failureView{Key: f.Key, Seconds: f.For.Seconds(), Failures: f.Failures, GaveUp: f.GaveUp, since: f.For}
		shown.Attention = f.GaveUp || f.For >= failingKey && f.Failures > failedAttempts // no attempt may mend what was given up
		if f.Err != nil {
			shown.Error = f.Err.Error()
		}
		v.Failures, v.failing = append(v.Failures, shown), v.failing || shown.Attention
	}
	v.Error = errorOf(h.SourceError)
	v.State, v.Attention = controllerState(h, v)
	return v
}

// controllerState returns the state of a controller c, and whether a person should look at the
// controller. docs/operations.md explains each state.
func controllerState(h informer.Health, c controllerView) (state string, attention bool) {
	switch {
	case h.Stopped:
		return "stopped", true
	case !h.Started:
		return "not started", false
	case !h.Synced && h.SourceError != nil:
		return "cannot sync", true
	case !h.Synced:
		return "syncing", false
	case c.hung:
		return "hung", true
	case c.Health.OldestQueued >= behindQueue:
		return "behind", true
	case c.failing:
		return "failing", true
	case c.Health.Standby:
		return "standby", false
	}
	return "working", false
}

// Class returns the CSS class of the controller's state.
func (c controllerView) Class() string { return stateClass(c.State == "working", c.Attention) }

// LateText names the things for which a controller waits before it has synced.
func (c controllerView) LateText() string { return some(c.Health.Late) }

// ErrorText returns why the controller cannot sync, as far as the page has room for it.
func (c controllerView) ErrorText() string { return cut(c.Error, maxErrorText) }

// QueuedText says how many keys wait for a worker, and how long the oldest has.
func (c controllerView) QueuedText() string {
	if c.Health.OldestQueued == 0 {
		return fmt.Sprint(c.Health.Queued)
	}
	return fmt.Sprintf("%d, the oldest for %s", c.Health.Queued, roundDuration(c.Health.OldestQueued))
}

// For returns how long the call has been under way.
func (c callView) For() string { return roundDuration(c.took) }

// For returns for how long the key has been failing.
func (f failureView) For() string { return roundDuration(f.since) }

// ErrorText returns the text of the last error, as far as the page has room for it.
func (f failureView) ErrorText() string { return cut(f.Error, maxErrorText) }
