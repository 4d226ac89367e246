package source

import (
	"sync"
	"sync/atomic"
	"time"
)

// resumeWait is how long a watch from an old version must last before it counts as accepted. An API
// server accepts every watch, and reports at once in the stream if the version has expired. A good watch
// may be silent for a minute.
const resumeWait = 100 * time.Millisecond

const (
	// resumeTries is after how many refusals the source lists.
	resumeTries = 2
	// resumePatience is how long the server may be busy before the source lists.
	resumePatience = time.Minute
)

// resumption lets a source begin at a given version instead of with a list. A reflector has no option for
// the start, but it watches from the version of its list. So its first list gets an empty list of
// the given version, which feed does not pass on.
type resumption struct {
	listed atomic.Bool // the reflector has the empty list, and feed has not seen it yet

	mu      sync.Mutex // protects the rest
	version string     // where to begin; "" if there is no such version, or no longer

	refusals int       // how often the source has refused to continue from the version
	busy     time.Time // when the source was first busy since it could last be reached; zero if it was not
}

// from returns the version to resume from, or "".
func (r *resumption) from() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.version
}

// refuse records that the server refuses to continue from the version, with err. It reports whether a
// list must follow. A busy server first gets resumePatience, because a list costs more than a watch. A
// server that cannot be reached gets any time. But probed means that a probe was answered; a lost watch
// then counts as busy.
func (r *resumption) refuse(err error, probed bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case unanswered(err) && !probed:
		r.busy = time.Time{} // a server that starts is away at first, and then busy
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

// finish ends the resumption, after a watch from the version was accepted or refused. It returns the
// version, or "" if the resumption has ended before.
func (r *resumption) finish() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	version := r.version
	r.version = ""
	return version
}
