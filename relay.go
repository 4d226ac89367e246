package informer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
	"k8s.io/utils/buffer"
)

const (
	// relayBuffer is how many events a watch may be ahead of the reflector.
	relayBuffer = 128
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
	source    *source
	inner     watch.Interface
	out       chan watch.Event
	streaming bool // the first state is still coming in
	once      sync.Once
	stopped   chan struct{}
}

func newRelay(s *source, inner watch.Interface, streaming bool) *relay {
	return &relay{
		source:    s,
		inner:     inner,
		out:       make(chan watch.Event, relayBuffer),
		streaming: streaming,
		stopped:   make(chan struct{}),
	}
}

func (r *relay) ResultChan() <-chan watch.Event { return r.out }

func (r *relay) Stop() { r.once.Do(func() { close(r.stopped) }) }

// run moves events until the inner watch ends or nobody wants them any more. A
// full buffer holds up the inner watch, so that the API server is what waits.
// Only the watch of a fake clientset is drained without limit: it holds 100
// events and panics the writer of the next.
func (r *relay) run(ctx context.Context) {
	defer r.inner.Stop()
	defer close(r.out)

	opened, events := time.Now(), 0
	in, limit := r.inner.ResultChan(), 1
	if _, fake := r.inner.(*watch.RaceFreeFakeWatcher); fake {
		limit = math.MaxInt
	}
	var quiet <-chan time.Time
	var timer *time.Timer
	if r.streaming {
		timer = time.NewTimer(quietStream)
		defer timer.Stop()
		quiet = timer.C
	}
	var (
		waiting buffer.Ring[watch.Event]
		head    watch.Event
		out     chan<- watch.Event // nil unless head waits to be sent
	)
	for in != nil || out != nil {
		from := in
		if out != nil && waiting.Len()+1 >= limit {
			from = nil
		}
		var e watch.Event
		select {
		case out <- head:
			var more bool
			if head, more = waiting.ReadOne(); !more {
				out = nil
			}
			continue
		case <-r.stopped:
			return
		case <-ctx.Done():
			return
		case <-quiet:
			klog.FromContext(ctx).Info("The stream of the first state brought nothing, listing from now on", "after", quietStream)
			r.source.streamless.Store(true)
			e, in = watch.Event{Type: watch.Error, Object: &errStreamless.ErrStatus}, nil
		case got, open := <-from:
			if !open {
				in = nil
				r.source.watchEnded(ctx, time.Since(opened) < shortWatch && events == 0)
				if !r.streaming {
					continue
				}
				// The reflector would stream again, at once and for ever.
				r.source.failed(ctx, "watch", errStreamCut)
				got = watch.Event{Type: watch.Error, Object: &errStreamCut.ErrStatus}
			} else if got, open = r.look(ctx, got); !open {
				continue
			}
			e = got
			events++
		}
		if quiet != nil {
			if e.Type == watch.Added {
				timer.Reset(quietStream)
			}
			if !r.streaming || in == nil {
				quiet = nil
			}
		}
		if out != nil {
			waiting.WriteOne(e)
			continue
		}
		select {
		case r.out <- e:
		default:
			head, out = e, r.out
		}
	}
}

// look returns the event to pass on, or false if there is nothing to pass on.
func (r *relay) look(ctx context.Context, e watch.Event) (watch.Event, bool) {
	if e.Type == watch.Error {
		if isNil(e.Object) {
			e.Object = &metav1.Status{Status: metav1.StatusFailure, Message: "the watch reports an error and does not say which"}
		}
		if err := apierrors.FromObject(e.Object); !isExpired(err) {
			r.source.failed(ctx, "watch", err)
		}
		return e, true
	}
	obj, err := checkMeta(e.Object)
	if err == nil && e.Type != watch.Added && e.Type != watch.Modified && e.Type != watch.Deleted && e.Type != watch.Bookmark {
		err = fmt.Errorf("unknown type of watch event %q", e.Type)
	}
	if err != nil {
		r.source.report(ctx, &ObjectError{Op: "watch", Err: err})
		return e, false
	}
	if e.Type == watch.Bookmark && obj.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
		r.streaming = false
	}
	if !r.streaming { // before, it may yet turn out to be of another type
		r.source.status.worked("watch")
	}
	return e, true
}

// checkMeta returns the metadata of obj, or an error if it has none.
func checkMeta(obj any) (metav1.Object, error) {
	if isNil(obj) {
		return nil, errors.New("the object is nil")
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, fmt.Errorf("%T is no object: %w", obj, err)
	}
	return m, nil
}
