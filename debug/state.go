package debug

import (
	"time"

	"github.com/customcacheinformer/informer"
)

// late is how long a call or an event may take before it needs attention, as for
// informer.WatcherHealth.Hung.
const late = 10 * time.Second

// informerState returns the state of an informer in a word or two, and whether a person
// should look at the informer. docs/operations.md explains each state.
func informerState(h informer.Health) (state string, attention bool) {
	switch {
	case h.Stopped:
		return "stopped", true
	case !h.Started:
		return "not started", false
	case h.StoreError != nil:
		return "store fails", true
	case h.SourceWaiting > 0:
		return "no answer", true
	case h.SourceFailures > 0 && !h.Synced:
		return "cannot sync", true
	case h.SourceFailures > 0:
		return "source fails", true
	case h.WaitsForTurn:
		return "waits to list", false
	case !h.Synced:
		return "syncing", false
	case !h.Watching:
		return "between watches", false
	}
	return "watching", false
}

// watcherState returns the state of a watcher w of an informer, and whether a person should
// look at the watcher. docs/operations.md explains each state.
func watcherState(h informer.Health, w informer.WatcherHealth, t *trail) (state string, attention bool) {
	behind := w.OldestWaiting >= late && h.Started
	switch {
	case h.Stopped:
		return "stopped", w.Pending > 0
	case w.Hung, behind && len(w.Calls) > 0 && t.stalled():
		return "blocked", true
	case behind && w.Retrying:
		return "retrying", true
	case w.Lagging:
		return "merging", true
	case behind:
		return "behind", true
	case !w.Synced:
		return "syncing", false
	}
	return "well", false
}

// unready is the CSS class of a member that is not at work yet, which is not a fault so far.
const unready = "unready"

func stateClass(state string, attention bool) string {
	if attention {
		return "attention"
	}
	switch state {
	case "watching", "well", "working", "ready":
		return "well"
	case "waits to list", "syncing", "joining", "catching up":
		return unready
	}
	return "waiting"
}
