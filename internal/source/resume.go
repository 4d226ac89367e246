package source

import (
	"sync"
	"sync/atomic"
	"time"
)

// resumeWait is how long a watch from an old version must go on before it counts as
// accepted. An API server takes every watch, and says at once in the stream if the version is
// gone. A good watch may be silent for a minute.
const resumeWait = 100 * time.Millisecond

const (
	// resumeTries is the number of refusals after which the source is listed.
	resumeTries = 2
	// resumePatience is how long a source may be busy before it is listed.
	resumePatience = time.Minute
)

// resumption lets a source begin at a given version instead of with a list. A reflector
// cannot be told where to start, but it watches from the version that it has listed. So its
// first list is answered with an empty list of the given version, which feed does not pass
// on.
type resumption struct {
	listed atomic.Bool // the reflector has the empty list, and feed has not seen it yet

	mu      sync.Mutex // protects the rest
	version string     // where to begin; "" if there is no such version, or no longer

	refusals int       // how often the source has refused to continue from the version
	busy     time.Time // when the source was first busy; zero if never
}

// from returns the version to resume from, or "".
func (r *resumption) from() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.version
}

// refuse notes that the source refuses with err to continue from the version. It reports whether a list
// must follow. A busy source gets a minute first, because a list costs more than a watch. A source that
// cannot be reached gets any time. But if a probe was answered, a lost watch counts as busy.
func (r *resumption) refuse(err error, probed bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case unanswered(err) && !probed:
		return false
	case mayPass(err):
		if r.busy.IsZero() {
			r.busy = time.Now()
		}
		return time.Since(r.busy) >= resumePatience
	}
	r.refusals++
	return r.refusals >= resumeTries
}

// finish ends the resumption, because a watch from the version was accepted or refused. It
// returns the version, or "" if the resumption had ended before.
func (r *resumption) finish() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	version := r.version
	r.version = ""
	return version
}
