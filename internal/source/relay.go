package source

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
	"k8s.io/utils/buffer"

	"github.com/customcacheinformer/informer/internal/object"
)

const (
	// relayBuffer is how many events a watch may be ahead of the reflector.
	relayBuffer = 256
	// quietStream is how long a stream of the first state may bring no object
	// before the informer lists instead. Changes do not count: they are all that
	// comes from a server that has not understood the question.
	quietStream = 10 * time.Second
	// shortWatch is less than a watch lasts that works.
	shortWatch = time.Second
)

// relay passes a watch on to the reflector and looks at each event: a reflector
// hides the errors in the stream, drops what it does not understand, and does
// not survive a nil object.
type relay struct {
	source    *Source
	inner     watch.Interface
	out       chan watch.Event
	streaming bool // the first state is still coming in
	resuming  bool // it goes on from an old version, and may yet be refused
	asked     time.Time
	once      sync.Once
	stopped   chan struct{}

	// Of run's goroutine.
	info         Watch
	opened       time.Time
	lasts, quiet *time.Timer      // of shortWatch and of quietStream
	settled      <-chan time.Time // of resumeWait; nil unless resuming
}

func newRelay(s *Source, inner watch.Interface, asked time.Time, streaming, resuming bool) *relay {
	return &relay{
		source:    s,
		inner:     inner,
		out:       make(chan watch.Event, relayBuffer),
		streaming: streaming,
		resuming:  resuming,
		asked:     asked,
		info:      Watch{Streaming: streaming},
		stopped:   make(chan struct{}),
	}
}

func (r *relay) ResultChan() <-chan watch.Event { return r.out }

func (r *relay) Stop() { r.once.Do(func() { close(r.stopped) }) }

// run moves events until the watch ends or nobody wants them any more. A reader
// that is behind holds up the inner watch, so that the API server is what waits.
func (r *relay) run(ctx context.Context) {
	defer close(r.out)
	defer r.inner.Stop()
	in := r.inner.ResultChan()
	if _, fake := r.inner.(*watch.RaceFreeFakeWatcher); fake {
		var drain sync.WaitGroup
		defer drain.Wait()
		draining, stop := context.WithCancel(ctx)
		defer stop()
		from, to := in, make(chan watch.Event)
		drain.Go(func() { drainFake(draining, from, to) })
		in = to
	}

	r.source.watching.Add(1)
	defer r.source.watching.Add(-1)
	defer func() { r.source.watchOver(r.info, r.asked) }()
	r.opened = time.Now()
	r.lasts, r.quiet = time.NewTimer(shortWatch), time.NewTimer(quietStream)
	defer r.lasts.Stop()
	defer r.quiet.Stop()
	if r.resuming {
		r.settled = time.After(resumeWait)
	}
	for {
		e, ok := r.next(ctx, in)
		if !ok || !r.pass(ctx, e) {
			return
		}
		switch {
		case e.Type == watch.Error:
			r.info.Err = apierrors.FromObject(e.Object)
			return // as the reflector does
		case e.Type == watch.Added && r.streaming:
			r.quiet.Reset(quietStream)
		}
	}
}

// next returns what the reflector is to be told next, or false if that is nothing.
func (r *relay) next(ctx context.Context, in <-chan watch.Event) (e watch.Event, open bool) {
	for {
		var waited bool
		select {
		case e, open = <-in: // in a burst: the select below costs ten times as much
			waited = r.info.Events%relayBuffer == 0
		default:
			var silent <-chan time.Time
			if r.streaming {
				silent = r.quiet.C
			}
			select {
			case e, open = <-in:
				waited = true
			case <-r.stopped:
				return e, false
			case <-ctx.Done():
				return e, false
			case <-r.lasts.C: // it may have nothing to say for hours
				if !r.streaming {
					r.source.Worked("watch")
				}
				continue
			case <-r.settled:
				r.accept()
				continue
			case <-silent:
				klog.FromContext(ctx).Info("The stream of the first state brought nothing, listing from now on", "after", quietStream)
				r.source.streamless.Store(true)
				return watch.Event{Type: watch.Error, Object: &errStreamless.ErrStatus}, true
			}
		}
		if !open {
			return r.ended(ctx)
		}
		if waited { // in a burst, it is enough to look at the clock now and then
			r.source.lastContact.Set(r.source.clock)
		}
		if r.look(ctx, &e) {
			r.info.Events++
			return e, true
		}
	}
}

// ended returns what the reflector is to be told of the end of the watch.
func (r *relay) ended(ctx context.Context) (watch.Event, bool) {
	r.source.watchEnded(ctx, r.info.Events == 0 && time.Since(r.opened) < shortWatch)
	if !r.streaming {
		return watch.Event{}, false
	}
	// The reflector would stream again, at once and for ever.
	r.source.Failed(ctx, "watch", errStreamCut)
	return watch.Event{Type: watch.Error, Object: &errStreamCut.ErrStatus}, true
}

// pass gives the reflector an event. It returns false if nobody wants it any more.
func (r *relay) pass(ctx context.Context, e watch.Event) bool {
	select {
	case r.out <- e: // as in next
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

// drainFake takes everything from the watch of a fake clientset without making it
// wait: it holds 100 events and panics the writer of the next.
func drainFake(ctx context.Context, from <-chan watch.Event, to chan<- watch.Event) {
	defer close(to)
	var (
		waiting buffer.Ring[watch.Event]
		head    watch.Event
		out     chan<- watch.Event // nil unless head waits to be sent
	)
	for from != nil || out != nil {
		select {
		case e, open := <-from:
			switch {
			case !open:
				from = nil
			case out == nil:
				head, out = e, to
			default:
				waiting.WriteOne(e)
			}
		case out <- head:
			var more bool
			if head, more = waiting.ReadOne(); !more {
				out = nil
			}
		case <-ctx.Done():
			return
		}
	}
}

// look returns whether to pass e on, which it may mend.
func (r *relay) look(ctx context.Context, e *watch.Event) bool {
	if e.Type == watch.Error {
		if object.IsNil(e.Object) {
			e.Object = &metav1.Status{Status: metav1.StatusFailure, Message: "the watch reports an error and does not say which"}
		}
		if err := apierrors.FromObject(e.Object); !isExpired(err) {
			r.source.Failed(ctx, "watch", err)
		} else if r.resuming {
			r.source.resumption.end() // and a list follows
		}
		return true
	}
	r.accept()
	obj, err := object.Meta(e.Object)
	if err == nil && e.Type != watch.Added && e.Type != watch.Modified && e.Type != watch.Deleted && e.Type != watch.Bookmark {
		err = fmt.Errorf("unknown type of watch event %q", e.Type)
	}
	first := err == nil && e.Type == watch.Bookmark && obj.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
	if err == nil && e.Type == watch.Bookmark && !first && obj.GetResourceVersion() == "" {
		// The reflector would watch from no version at all, and miss what is deleted before.
		err = errors.New("a bookmark without a resourceVersion")
	}
	if err != nil {
		r.source.tell.Unusable(ctx, err)
		return false
	}
	if first {
		r.streaming = false
	}
	if !r.streaming { // before, it may yet turn out to be of another type
		r.source.Worked("watch")
	}
	return true
}

// accept notes that a watch from an old version was not refused.
func (r *relay) accept() {
	if r.resuming {
		r.resuming, r.settled = false, nil
		r.source.accepted()
	}
}
