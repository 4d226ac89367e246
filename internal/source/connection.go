package source

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/customcacheinformer/informer/internal/stopwatch"
)

// connection is what a Source knows about its connection to the server. It outlives a reading.
type connection struct {
	callbacks Callbacks
	clock     stopwatch.Stopwatch

	calls                 callGroup
	failures              failures
	waiting               waiting
	turn                  turn
	decoded               decoded
	versionless           atomic.Bool // the last list had no version, which was reported
	lastList, lastContact stopwatch.Moment
	nextTry               stopwatch.Moment // the end of the last pause between attempts
	watching              atomic.Int32     // open watches
	opened                stopwatch.Moment // when the last of them was opened
}

// Status is the state of a Source.
type Status struct {
	Watching              bool
	Opened                time.Time // when the last watch was opened
	LastList, LastContact time.Time
	Failure               *Failure      // of the operation that failed last and has not worked since, or a warning; may be nil
	Failures              int           // of that operation, in a row; 0 if both work
	Since                 time.Time     // when the first of these failures came; zero if both work
	NextTry               time.Time     // when the pause after the last failure ends; zero if there is none
	Waiting               time.Duration // how long the request that is under way has had no answer; 0 if that is not too long
	WaitsForTurn          bool          // the source does not list, because others do
	Decoding              Decoding
}

// Status returns the state of the connection. It does not block.
func (c *connection) Status() Status {
	latest := c.failures.latest()
	failure := cmp.Or(c.waiting.reason(latest.last), latest.last)
	if failure == nil && c.versionless.Load() {
		failure = &Failure{Op: "list", Err: errVersionless}
	}
	status := Status{
		Watching: c.watching.Load() > 0, Opened: c.opened.Time(c.clock), LastList: c.lastList.Time(c.clock), LastContact: c.lastContact.Time(c.clock),
		Failure: failure, Failures: latest.failures, Waiting: c.waiting.tooLong(),
		WaitsForTurn: c.turn.waits.Load(), Decoding: c.decoded.status(),
	}
	if latest.failures > 0 {
		status.Since = time.Now().Add(-time.Since(latest.since)).Round(0) // the system's clock may have been set
		if next := c.nextTry.Time(c.clock); next.After(time.Now()) {
			status.NextTry = next
		}
	}
	return status
}

// close waits for the calls under way, and releases the turn that one of them may still have taken.
func (c *connection) close() {
	c.calls.close()
	c.turn.release()
}

// Progress records that a list makes progress, such as when the sink has taken an object, so that it keeps its
// turn.
func (c *connection) Progress() { c.turn.Load().Progress() }

// UnderWay returns which calls of the user's ListerWatcher have not returned: "list", "watch" or both.
func (c *connection) UnderWay() []string { return c.calls.underWay() }

// watchOver calls Callbacks.Watched for a watch that was requested at the time requested.
func (c *connection) watchOver(info Watch, requested time.Time) {
	if c.callbacks.Watched != nil {
		info.Took = time.Since(requested)
		c.callbacks.Watched(info)
	}
}
