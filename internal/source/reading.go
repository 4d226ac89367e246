package source

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/consistencydetector"
	"k8s.io/klog/v2"
)

// reading is the state of one Run, or of one part of RunParts. The requests, the forwarder and the feed
// share it.
type reading struct {
	*connection
	ctx    context.Context // ends with the reading
	opts   Options
	sink   Sink
	logger klog.Logger

	resumption resumption
	trust      trust
	answers    *answers
	parts      parts
	pauses     *pauses
	short      atomic.Int32 // watches in a row that ended at once
	// streamless is true if a stream of the first state did not end; from then on, the source
	// lists.
	streamless atomic.Bool
	// moved is true until the next list is complete if the same versions may stand for other contents
	// than before.
	moved atomic.Bool
	// reached is the version of the last list, or of the last event after it that has one. At
	// first it is the version given to Run. It belongs to the reflector's goroutine.
	reached string
	blind   bool // a watch from no version has followed the last list; belongs to the same goroutine
}

func newReading(ctx context.Context, c *connection, opts Options, sink Sink, version string) *reading {
	r := &reading{
		connection: c, ctx: ctx, opts: opts, sink: sink, logger: klog.FromContext(ctx),
		resumption: resumption{version: version}, reached: version,
		answers: &answers{listed: version}, pauses: &pauses{clock: c.clock, first: opts.Backoff, next: opts.Backoff, end: &c.nextTry},
	}
	// This detector of client-go's compares what the reflector has got with another list.
	r.opts.Early = opts.Early && !consistencydetector.IsDataConsistencyDetectionForWatchListEnabled()
	if example := sink.Example(); example != nil {
		r.answers.notice(example)
	}
	return r
}

// enter records that a call starts, as callGroup.enter. It returns false if the reading has ended: client-go's pager may
// outlive a reading, and what the readings of a source share belongs to the next one then.
func (r *reading) enter(op string) bool {
	if !r.calls.enter(op) {
		return false
	}
	if r.ctx.Err() != nil {
		r.calls.leave(op)
		return false
	}
	return true
}

// doubtful reports whether the versions of the next list may stand for other contents than before.
func (r *reading) doubtful() bool { return r.trust.is(wentBack) || r.moved.Load() }

// failed records that an operation has failed. It reports err unless an error of this kind was reported
// since the operation last worked.
func (r *reading) failed(ctx context.Context, op string, err error) {
	if ctx.Err() != nil {
		return
	}
	r.trust.lose()
	r.pauses.interrupted()
	failure := &Failure{Op: op, Err: err}
	if r.failures.add(failure) {
		r.callbacks.Failed(ctx, failure)
	}
}

// worked records that an operation works.
func (r *reading) worked(op string) {
	if before := r.failures.remove(op); before.failures > 0 {
		r.logger.Info("The source works again", "operation", op, "failures", before.failures)
	}
	if op == "watch" && !r.failures.failing.Load() {
		r.pauses.worked()
	}
}

// watchEnded records that a watch has ended without an error. One watch that ends at once is not a
// failure. Three in a row are, and only this function notices that.
func (r *reading) watchEnded(ctx context.Context, atOnce bool) {
	if !atOnce {
		r.short.Store(0)
	} else if r.short.Add(1) >= 3 {
		r.failed(ctx, "watch", errors.New("watches end as soon as they have begun"))
	}
}

// notResumed records that the source has refused to resume, with err. If a list must follow, it ends the
// resumption and returns the error that makes the reflector list. Otherwise it returns nil.
func (r *reading) notResumed(err error) *apierrors.StatusError {
	if r.resumption.from() == "" || !r.resumption.refuse(err, true) {
		return nil
	}
	r.trust.unnamed.Store(true)
	return apierrors.NewResourceExpired(fmt.Sprintf("going on from resourceVersion %q: %v", r.resumption.finish(), err))
}
