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
)

const (
	// relayBuffer is how many events a watch may be ahead of the reflector.
	relayBuffer = 256
	// quietStream is how long a stream of the first state may bring no object before the
	// source lists instead. Only Added events count: a server that ignores
	// sendInitialEvents sends nothing except later changes.
	quietStream = 10 * time.Second
	// shortWatch is less than a working watch lasts.
	shortWatch = time.Second
)

// phase says what a watch is doing.
type phase uint8

const (
	phaseLive      phase = iota // sends changes
	phaseStreaming              // sends the first state
	phaseResuming               // goes on from an old version, which may yet be refused
)

// relay passes the events of one watch on to the reflector and inspects each. A reflector
// hides errors in the stream, drops events that it does not understand, and does not survive
// a nil object.
type relay struct {
	requests  *requests
	inner     watch.Interface
	out       chan watch.Event
	requested time.Time
	once      sync.Once
	stopped   chan struct{}
	reached   string // requests.reached when the watch was requested

	// The rest belongs to run's goroutine.
	phase        phase
	info         Watch
	opened       time.Time
	lasts, quiet *time.Timer      // fire after shortWatch and quietStream
	settled      <-chan time.Time // fires after resumeWait; nil unless phaseResuming
}

func newRelay(r *requests, inner watch.Interface, requested time.Time, p phase) *relay {
	return &relay{
		requests:  r,
		inner:     inner,
		out:       make(chan watch.Event, relayBuffer),
		phase:     p,
		requested: requested,
		info:      Watch{Streaming: p == phaseStreaming},
		stopped:   make(chan struct{}),
		reached:   r.reached,
	}
}

// ResultChan returns the channel of events, which closes when the watch has ended.
func (r *relay) ResultChan() <-chan watch.Event { return r.out }

// Stop ends the watch. It does not wait.
func (r *relay) Stop() { r.once.Do(func() { close(r.stopped) }) }

// run passes events on until the watch ends, Stop is called or ctx ends. A reflector that is
// behind holds up the inner watch, so that the API server waits.
func (r *relay) run(ctx context.Context) {
	defer close(r.out)
	defer r.inner.Stop()
	source := r.requests.source
	source.opened.Set(source.clock)
	source.watching.Add(1)
	defer source.watching.Add(-1)
	defer func() { r.requests.watchOver(r.info, r.requested) }()
	r.opened = time.Now()
	if r.inParts() {
		r.beginParts() // the time that it takes is not the server's
	}
	r.lasts, r.quiet = time.NewTimer(shortWatch), time.NewTimer(quietStream)
	defer r.lasts.Stop()
	defer r.quiet.Stop()
	if r.phase == phaseResuming {
		r.settled = time.After(resumeWait)
	}
	in := r.inner.ResultChan()
	for {
		e, ok := r.receive(ctx, in)
		if !ok || !r.pass(ctx, e) {
			return
		}
		switch {
		case e.Type == watch.Error:
			r.info.Err = apierrors.FromObject(e.Object)
			return // the reflector does the same
		case r.phase == phaseStreaming && (e.Type == watch.Added || r.inParts()): // the sink may have taken long
			r.quiet.Reset(quietStream)
		}
	}
}

// receive returns the next event for the reflector, and false if there is none.
func (r *relay) receive(ctx context.Context, in <-chan watch.Event) (e watch.Event, open bool) {
	for {
		var waited bool
		select {
		case e, open = <-in: // in a burst: the select below costs ten times as much
			waited = r.info.Events%relayBuffer == 0
		default:
			var silent <-chan time.Time
			if r.phase == phaseStreaming {
				silent = r.quiet.C
			}
			select {
			case e, open = <-in:
				waited = true
			case <-r.stopped:
				return e, false
			case <-ctx.Done():
				return e, false
			case <-r.lasts.C: // a good watch may stay silent for hours
				if r.phase != phaseStreaming {
					r.requests.worked("watch")
				}
				continue
			case <-r.settled:
				r.accepted()
				continue
			case <-silent:
				klog.FromContext(ctx).Info("The stream of the first state brought nothing, listing from now on", "after", quietStream)
				r.requests.streamless.Store(true)
				return watch.Event{Type: watch.Error, Object: &errStreamless.ErrStatus}, true
			}
		}
		if !open {
			return r.ended(ctx)
		}
		if waited { // in a burst, reading the clock now and then is enough
			r.requests.source.lastContact.Set(r.requests.source.clock)
		}
		if r.inspect(ctx, &e) {
			r.info.Events++
			return e, true
		}
	}
}

// ended returns the event that tells the reflector about the end of the watch, and false if
// it needs none.
func (r *relay) ended(ctx context.Context) (watch.Event, bool) {
	r.requests.watchEnded(ctx, r.info.Events == 0 && time.Since(r.opened) < shortWatch)
	if r.phase != phaseStreaming {
		return watch.Event{}, false
	}
	// Without an error, the reflector would stream again at once, forever.
	r.requests.failed(ctx, "watch", errStreamCut)
	return watch.Event{Type: watch.Error, Object: &errStreamCut.ErrStatus}, true
}

// inParts reports whether the objects of the watch go to the sink directly.
func (r *relay) inParts() bool { return r.phase == phaseStreaming && r.requests.source.opts.Early }

// pass gives an event to the reflector, or to the sink. It returns false if the watch was stopped
// instead.
func (r *relay) pass(ctx context.Context, e watch.Event) bool {
	switch {
	case !r.inParts() || e.Type == watch.Error || e.Type == watch.Bookmark:
		return r.send(ctx, e)
	case channel.Closed(r.stopped) || ctx.Err() != nil:
		return false
	}
	r.takePart(e)
	return true
}

// send gives the reflector an event. It returns false if the watch was stopped instead.
func (r *relay) send(ctx context.Context, e watch.Event) bool {
	select {
	case r.out <- e: // as in receive
		return true
	default:
	}
	select {
	case r.out <- e:
		return true
	case <-r.stopped:
		return false
	case <-ctx.Done():
		return false
	}
}

// inspect reports whether to pass e on. It gives every error a Status.
func (r *relay) inspect(ctx context.Context, e *watch.Event) bool {
	if e.Type == watch.Error {
		e.Object = statusOf(e.Object)
		if err := apierrors.FromObject(e.Object); !isExpired(err) {
			r.requests.failed(ctx, "watch", err)
		} else if r.phase == phaseResuming {
			r.requests.resumption.finish() // and a list follows
		}
		return true
	}
	r.accepted()
	completes, err := check(e, r.phase == phaseStreaming)
	if err != nil {
		r.requests.source.callbacks.Unusable(ctx, err)
		return false
	}
	if refusal := r.refuse(e, completes); refusal != nil {
		*e = watch.Event{Type: watch.Error, Object: &refusal.ErrStatus}
		return true
	}
	if completes {
		r.phase = phaseLive
	}
	if r.phase != phaseStreaming { // an unfinished stream may yet bring an object of another type
		r.requests.worked("watch")
	}
	return true
}

// refuse returns the error with which a stream of the first state must end, because of an event of
// it, so that a list follows. It returns nil if the stream goes on. completes says that e is the
// bookmark at the end.
func (r *relay) refuse(e *watch.Event, completes bool) *apierrors.StatusError {
	if !completes && (!r.inParts() || e.Type == watch.Bookmark) {
		return nil
	}
	if r.requests.sink.CheckType(e.Object) != nil {
		r.requests.streamless.Store(true) // perhaps only this object is odd, so a list decides
		return errStreamType
	}
	if completes && r.inParts() && !r.requests.trust.is(wentBack) && r.isBack(e.Object) {
		r.requests.trust.state.Store(wentBack) // in the list, versions are not taken for what they were
		return errStreamBack
	}
	return nil
}

// isBack reports whether the version of a bookmark comes before what is known.
func (r *relay) isBack(bookmark runtime.Object) bool {
	m, err := object.Meta(bookmark)
	return err == nil && (older(m.GetResourceVersion(), r.reached) || older(m.GetResourceVersion(), r.requests.parts.last()))
}

// statusOf returns the Status of a watch's error. If the watch has sent something else, it
// returns a Status that says so. client-go's error would quote the object.
func statusOf(obj runtime.Object) *metav1.Status {
	message := "the watch reports an error and does not say which"
	if !object.IsNil(obj) {
		var failure *apierrors.StatusError
		if errors.As(apierrors.FromObject(obj), &failure) {
			return &failure.ErrStatus
		}
		message = fmt.Sprintf("the watch reports an error with a %T instead of a Status", obj)
	}
	return &metav1.Status{Status: metav1.StatusFailure, Message: message}
}

// check returns an error if e is no event that a reflector can use, and reports whether e
// completes the first state that its watch is streaming.
func check(e *watch.Event, streaming bool) (completes bool, err error) {
	obj, err := object.Meta(e.Object)
	if err != nil {
		return false, err
	}
	switch e.Type {
	case watch.Added, watch.Modified, watch.Deleted:
		return false, nil
	case watch.Bookmark:
		completes = streaming && obj.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
		if !completes && isAnyVersion(obj.GetResourceVersion()) {
			// The reflector would watch from no version at all, and miss earlier deletes.
			return false, errors.New("a bookmark without a resourceVersion")
		}
		return completes, nil
	}
	return false, fmt.Errorf("unknown type of watch event %q", e.Type)
}

// accepted notes that the server did not refuse a watch from an old version.
func (r *relay) accepted() {
	if r.phase != phaseResuming {
		return
	}
	r.phase, r.settled = phaseLive, nil
	if version := r.requests.resumption.finish(); version != "" {
		r.requests.sink.Resumed(version)
	}
}
