package source

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/object"
	"github.com/customcacheinformer/informer/internal/turns"
)

const (
	// watchBuffer is how many events a watch may be ahead of the reflector.
	watchBuffer = 256
	// shortWatch is the duration below which a watch counts as ended at once. A working watch lasts
	// longer.
	shortWatch = time.Second
	// overdueWatch is how long a silent watch may stay open after the server should have ended it.
	overdueWatch = time.Minute
	// maxSeconds is longer than any watch lasts. As a duration, it can be added to a time without
	// overflow.
	maxSeconds = 1 << 32
)

// phase is what a watch is doing.
type phase uint8

const (
	phaseLive      phase = iota // sends changes
	phaseStreaming              // sends the first state
	phaseResuming               // continues from an old version, which may yet be refused
)

// forwarder inspects the events of one watch and passes them on to the reflector. A reflector hides
// errors in the stream, drops events that it does not understand, and panics for a nil object.
type forwarder struct {
	reading   *reading
	inner     watch.Interface
	in        merged
	out       chan watch.Event
	requested time.Time
	once      sync.Once
	stopped   chan struct{}
	reached   string    // reading.reached when the watch was requested
	ends      time.Time // when the server should have ended the watch, at the latest; zero if it was not asked to

	// The rest belongs to run's goroutine.
	phase        phase
	info         Watch
	opened       time.Time
	first        firstState       // of phaseStreaming
	turn         *turns.Turn      // of phaseStreaming; may be nil
	over         func()           // notes that the source waits no longer for the end of that; nil if it does not wait
	silent       time.Duration    // waited since the last event
	lasts, limit *time.Timer      // fire after shortWatch, and when left may be over
	settled      <-chan time.Time // fires after resumeWait; nil unless phaseResuming
}

func newForwarder(r *reading, inner watch.Interface, taken <-chan watch.Event, requested time.Time, p phase, seconds *int64) *forwarder {
	f := &forwarder{
		in:      merged{taken: taken, rest: inner.ResultChan(), count: &r.decoded.objects},
		reading: r, inner: inner, requested: requested, reached: r.reached, phase: p, info: Watch{Streaming: p == phaseStreaming},
		out: make(chan watch.Event, watchBuffer-cap(taken)), stopped: make(chan struct{}),
	}
	if p == phaseStreaming {
		f.turn = r.turn.Load()
	}
	if seconds != nil && *seconds > 0 {
		f.ends = requested.Add(time.Duration(min(*seconds, maxSeconds)) * time.Second)
	}
	return f
}

func (f *forwarder) ResultChan() <-chan watch.Event { return f.out }

// Stop ends the watch. It does not wait.
func (f *forwarder) Stop() { f.once.Do(func() { close(f.stopped) }) }

// run passes events on until the watch ends, Stop is called or ctx ends. If the reflector is
// behind, run does not read the inner watch, so the API server waits.
func (f *forwarder) run(ctx context.Context) {
	defer close(f.out)
	defer f.inner.Stop()
	r := f.reading
	r.opened.Set(r.clock)
	r.watching.Add(1)
	defer r.watching.Add(-1)
	defer func() { r.watchOver(f.info, f.requested) }()
	f.opened = time.Now()
	if f.phase == phaseStreaming {
		r.waiting.end.Begin("watch", "", r.clock.Now())
		f.over = sync.OnceFunc(r.waiting.end.End)
		defer f.over()
		defer f.turn.Release()
	}
	if f.inParts() {
		f.beginParts() // the time that it takes is not the server's
	}
	f.lasts, f.limit = time.NewTimer(shortWatch), time.NewTimer(f.left())
	defer f.lasts.Stop()
	defer f.limit.Stop()
	if f.phase == phaseResuming {
		f.settled = time.After(resumeWait)
	}
	for {
		e, ok := f.receive(ctx)
		if f.over != nil && (e.Type == watch.Error || f.phase != phaseStreaming) {
			f.over() // before the reflector continues
		}
		if !ok || !f.pass(ctx, e) {
			return
		}
		if e.Type == watch.Error {
			f.info.Err = apierrors.FromObject(e.Object)
			return // the reflector does the same
		}
	}
}

// left returns how long the watch may still be silent.
func (f *forwarder) left() time.Duration {
	switch {
	case f.phase == phaseStreaming:
		return f.first.left()
	case f.ends.IsZero():
		return maxSeconds * time.Second
	}
	return overdueWatch + max(time.Until(f.ends), -f.silent)
}

// receive waits for the next event for the reflector. It returns false if the watch ends without
// one.
func (f *forwarder) receive(ctx context.Context) (watch.Event, bool) {
	waited := false
	for {
		e, open, ok := f.in.poll() // in a burst: the select below costs ten times as much
		if !ok {
			begun, came := time.Now(), false
			select {
			case e := <-f.in.ahead():
				f.in.take(e)
				came = true
			case e, open := <-f.in.rest:
				f.in.hold(e, open)
				came = true
			case <-f.stopped:
				return e, false
			case <-ctx.Done():
				return e, false
			case <-f.lasts.C: // a good watch may stay silent for minutes
				if f.phase != phaseStreaming {
					f.reading.worked("watch")
				}
			case <-f.settled:
				f.accepted()
			case <-f.limit.C:
			}
			waiting := time.Since(begun)
			f.silent, f.first.quiet, f.first.doubtful = f.silent+waiting, f.first.quiet+waiting, f.first.doubtful+waiting
			if waited = waited || came; came {
				continue
			}
			left := f.left()
			if left <= 0 {
				return f.overdue(ctx)
			}
			f.limit.Reset(left)
			continue
		}
		if !open {
			return f.ended(ctx)
		}
		f.silent = 0
		if waited || f.info.Events%watchBuffer == 0 { // in a burst, reading the clock now and then is enough
			f.reading.lastContact.Set(f.reading.clock)
		}
		waited = false
		if f.inspect(ctx, &e) {
			f.info.Events++
			return e, true
		}
	}
}

// ended returns the event that reports the end of the watch to the reflector, or false if the
// reflector needs none.
func (f *forwarder) ended(ctx context.Context) (watch.Event, bool) {
	f.reading.watchEnded(ctx, f.info.Events == 0 && time.Since(f.opened) < shortWatch)
	if f.phase == phaseResuming {
		if refusal := f.reading.notResumed(errors.New("the watch ended at once")); refusal != nil {
			return watch.Event{Type: watch.Error, Object: &refusal.ErrStatus}, true
		}
	}
	if f.phase != phaseStreaming {
		return watch.Event{}, false
	}
	// Without an error, the reflector would stream again at once, forever.
	f.reading.failed(ctx, "watch", errStreamCut)
	return watch.Event{Type: watch.Error, Object: &errStreamCut.ErrStatus}, true
}

// overdue returns the last event of a watch that has been silent for too long, or false if the
// reflector needs none.
func (f *forwarder) overdue(ctx context.Context) (watch.Event, bool) {
	if f.phase != phaseStreaming {
		f.info.Err = errOverdue
		return watch.Event{}, false // the next watch begins at the version of this one
	}
	klog.FromContext(ctx).Info("The stream of the first state does not end, listing from now on", "after", time.Since(f.opened).Truncate(time.Second))
	f.reading.streamless.Store(true)
	return watch.Event{Type: watch.Error, Object: &errStreamless.ErrStatus}, true
}

// inParts reports whether the objects of the watch go directly to the sink: those of a first state with Options.Early.
func (f *forwarder) inParts() bool { return f.phase == phaseStreaming && f.reading.opts.Early }

// pass passes an event to the reflector or the sink. It returns false if the watch is stopped
// before.
func (f *forwarder) pass(ctx context.Context, e watch.Event) bool {
	switch {
	case !f.inParts() || e.Type == watch.Error || e.Type == watch.Bookmark:
		return f.send(ctx, e)
	case channel.Closed(f.stopped) || ctx.Err() != nil:
		return false
	}
	f.takePart(e)
	return true
}

// send passes an event to the reflector. It returns false if the watch is stopped before.
func (f *forwarder) send(ctx context.Context, e watch.Event) bool {
	select {
	case f.out <- e: // as in receive
		return true
	default:
	}
	select {
	case f.out <- e:
		return true
	case <-f.stopped:
		return false
	case <-ctx.Done():
		return false
	}
}

// inspect reports whether to pass e on. It makes sure that the object of an error is a Status.
func (f *forwarder) inspect(ctx context.Context, e *watch.Event) bool {
	if e.Type == watch.Error {
		f.inspectError(ctx, e)
		return true
	}
	obj, completes, err := check(e, f.phase == phaseStreaming)
	if err != nil {
		f.reading.callbacks.Unusable(ctx, err)
		return false
	}
	f.accepted()
	if f.phase == phaseStreaming && e.Type == watch.Added {
		f.first.took(obj)
		f.turn.Progress()
	}
	if refusal := f.refuse(e, completes); refusal != nil {
		*e = watch.Event{Type: watch.Error, Object: &refusal.ErrStatus}
		return true
	}
	if completes {
		f.phase, f.first = phaseLive, firstState{}
		f.limit.Reset(f.left())
	}
	if f.phase != phaseStreaming { // an unfinished stream may yet bring an object of another type
		f.reading.worked("watch")
	}
	return true
}

// inspectError sets the object of an error to a Status, and reports the error unless the version
// has expired.
func (f *forwarder) inspectError(ctx context.Context, e *watch.Event) {
	e.Object = statusOf(e.Object)
	err := apierrors.FromObject(e.Object)
	switch {
	case !isExpired(err):
		f.reading.failed(ctx, "watch", err)
		if refusal := f.reading.notResumed(err); refusal != nil {
			e.Object = &refusal.ErrStatus
		}
	case f.phase == phaseResuming:
		f.reading.resumption.finish() // and a list follows
	}
}

// refuse returns the error that must end a stream of the first state because of event e, so that a
// list follows. It returns nil if the stream may continue. completes is true if e is the bookmark
// at the end.
func (f *forwarder) refuse(e *watch.Event, completes bool) *apierrors.StatusError {
	odd := f.phase == phaseStreaming && e.Type == watch.Added && !f.reading.answers.kind.learn(e.Object)
	if !odd && !completes && (!f.inParts() || e.Type == watch.Bookmark) {
		return nil
	}
	if m, err := object.Meta(e.Object); err == nil && completes {
		odd = f.reading.answers.checkVersion(m.GetResourceVersion(), true, len(f.first.seen) > 0) != nil
	}
	if odd || f.reading.sink.CheckType(e.Object) != nil {
		f.reading.streamless.Store(true) // perhaps only this object is odd, so a list decides
		return errStreamType
	}
	if completes && f.inParts() && !f.reading.trust.is(wentBack) && f.isBack(e.Object) {
		f.reading.trust.state.Store(wentBack) // in the list, versions are not taken for what they were
		return errStreamBack
	}
	return nil
}

// isBack reports whether the version of a bookmark is older than what is known.
func (f *forwarder) isBack(bookmark runtime.Object) bool {
	m, err := object.Meta(bookmark)
	return err == nil && (older(m.GetResourceVersion(), f.reached) || older(m.GetResourceVersion(), f.reading.parts.last()))
}

// check returns the metadata of an event's object. completes is true if the event is the end of the
// first state. check returns an error if a reflector cannot use the event.
func check(e *watch.Event, streaming bool) (obj metav1.Object, completes bool, err error) {
	obj, err = object.Meta(e.Object)
	if err != nil {
		return nil, false, err
	}
	switch e.Type {
	case watch.Added, watch.Modified, watch.Deleted:
		return obj, false, nil
	case watch.Bookmark:
		completes = streaming && obj.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
		if !completes && isAnyVersion(obj.GetResourceVersion()) {
			// The reflector would watch from no version at all, and miss earlier deletes.
			return nil, false, errors.New("a bookmark without a resourceVersion")
		}
		return obj, completes, nil
	}
	return nil, false, fmt.Errorf("unknown type of watch event %q", e.Type)
}

// accepted records that the server has accepted a watch from an old version.
func (f *forwarder) accepted() {
	if f.phase != phaseResuming {
		return
	}
	f.phase, f.settled = phaseLive, nil
	f.reading.trust.unnamed.Store(false)
	if version := f.reading.resumption.finish(); version != "" {
		f.reading.sink.Resumed(version)
	}
}

// beginParts reports to the sink that a stream of the first state begins. The version of a stream is
// known only at its end. If that version shows that the server went back in time, a list follows.
func (f *forwarder) beginParts() {
	f.reading.calls.rename("watch", ownWork)
	defer f.reading.calls.rename(ownWork, "watch")
	f.reading.parts.begin(f.reading.sink, "", f.reading.doubtful())
}

// takePart passes an event of the stream of the first state to the sink.
func (f *forwarder) takePart(e watch.Event) {
	sink := f.reading.sink
	f.reading.calls.rename("watch", ownWork)
	defer f.reading.calls.rename(ownWork, "watch")
	f.reading.parts.take(func() {
		if e.Type == watch.Deleted {
			sink.Delete(e.Object, "")
		} else {
			f.reading.answers.notice(e.Object)
			sink.Upsert(e.Object, "")
		}
	})
}
