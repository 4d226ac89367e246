package informer

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"k8s.io/utils/buffer"
)

// ringSize is how many segments a listener's ring keeps room for once it is empty.
const ringSize = 16

// Registration is one watcher's place at an informer. Its methods may be called
// from any goroutine, the watcher's own callback included. It must not be copied.
type Registration struct {
	synced, stopped <-chan struct{}
	remove          func()
}

// Synced returns a channel that is closed once the watcher has been called for
// everything of its initial state, whether or not those calls failed, and
// OnSynced has returned. It never closes if the watcher is removed or the
// informer stopped before: wait for Stopped beside it.
func (r *Registration) Synced() <-chan struct{} { return r.synced }

// Remove ends the registration. It does not block: a call that is under way goes
// on with its ctx cancelled, and Stopped says when it has returned; there is no
// call after that, and what waits is dropped. Removing twice, or after the
// informer has stopped, does nothing.
func (r *Registration) Remove() { r.remove() }

// Stopped returns a channel that is closed when the watcher's last call has
// returned, after Remove or when the informer has stopped. Do not wait for it in
// the watcher's own callback.
func (r *Registration) Stopped() <-chan struct{} { return r.stopped }

// informerProcessorListener is a watcher that follows the log, with two
// goroutines: pop takes segments from the log and keeps those that run has not
// got to in a ring; run calls the watcher.
type informerProcessorListener[T Object] struct {
	processor *informerProcessor[T]
	watcher   ResourceWatcher[T]
	opts      WatcherOptions

	cursor   *cursor[T]      // pop's place in the log; at first, that of add
	segments chan segment[T] // from pop to run
	handled  atomic.Int64    // the position that run has finished
	progress chan struct{}   // gets a token when handled moves; nil if there is no resync to wait for it

	synced  chan struct{}
	removed chan struct{}
	stopped chan struct{}
	cancel  context.CancelFunc // ends the ctx of its calls; nil until started; protected by processor.mu
}

func newListener[T Object](p *informerProcessor[T], w ResourceWatcher[T], opts WatcherOptions) *informerProcessorListener[T] {
	l := &informerProcessorListener[T]{
		processor: p,
		watcher:   w,
		opts:      opts,
		cursor:    p.log.cursor(),
		segments:  make(chan segment[T]),
		synced:    make(chan struct{}),
		removed:   make(chan struct{}),
		stopped:   make(chan struct{}),
	}
	l.handled.Store(l.cursor.position())
	if opts.ResyncPeriod > 0 {
		l.progress = make(chan struct{}, 1)
	}
	return l
}

func (l *informerProcessorListener[T]) registration() *Registration {
	return &Registration{synced: l.synced, stopped: l.stopped, remove: func() { l.processor.remove(l) }}
}

// pop feeds run until the listener is removed: first the state at the cursor,
// then what follows in the log. It goes on reading while run is busy.
func (l *informerProcessorListener[T]) pop(ctx context.Context) {
	defer close(l.segments)
	defer l.cursor.close()

	state, ok := l.join(ctx)
	if !ok {
		return
	}
	var (
		waiting = newBacklog[T]()
		head    segment[T]
		out     chan<- segment[T] // nil unless head waits to be sent
		resync  = resyncTimer{period: l.opts.ResyncPeriod, synced: l.synced}
	)
	defer resync.stop()
	for {
		if out == nil {
			if head, ok = state.next(); !ok {
				head, ok = waiting.pop()
			}
			if ok {
				out = l.segments
			}
		}
		if s, more := l.cursor.next(); more {
			if out == nil {
				head, out = s, l.segments
			} else {
				waiting.push(s)
			}
			select {
			case out <- head:
				head, out = segment[T]{}, nil
			case <-ctx.Done():
				return
			default:
			}
			continue
		}
		if out == nil && resync.due && l.handled.Load() == l.cursor.position() {
			if state, ok = l.snapshot(ctx, OriginResync); !ok {
				return
			}
			resync.restart()
			continue
		}
		if !l.cursor.sleep() {
			continue
		}
		select {
		case out <- head:
			head, out = segment[T]{}, nil
		case <-l.cursor.wake:
		case <-l.progress:
		case <-resync.synced:
			resync.restart()
		case <-resync.ring():
			resync.due = true
		case <-ctx.Done():
			return
		}
	}
}

// backlog is what pop has read and run has not got to: a ring of segments. It
// costs little more than the log itself, because a segment grows for as long as
// its chunk does.
type backlog[T Object] struct {
	ring *buffer.Ring[segment[T]]
	last segment[T] // goes into the ring when it cannot grow any more
}

func newBacklog[T Object]() *backlog[T] {
	return &backlog[T]{ring: buffer.NewRing[segment[T]](buffer.RingOptions{NormalSize: ringSize})}
}

func (b *backlog[T]) push(s segment[T]) {
	if len(b.last.records) > 0 {
		if b.last.extend(s) {
			return
		}
		b.ring.WriteOne(b.last)
	}
	b.last = s
}

func (b *backlog[T]) pop() (segment[T], bool) {
	if s, ok := b.ring.ReadOne(); ok {
		return s, true
	}
	s := b.last
	b.last = segment[T]{}
	return s, len(s.records) > 0
}

// run calls the watcher for what pop sends.
func (l *informerProcessorListener[T]) run(ctx context.Context) {
	defer close(l.stopped)
	for s := range l.segments {
		l.handled.Store(l.handle(ctx, s))
		select {
		case l.progress <- struct{}{}:
		default:
		}
	}
}

// handle calls the watcher for each event of a segment and returns the position
// it has reached. What is left when the listener is removed is dropped.
func (l *informerProcessorListener[T]) handle(ctx context.Context, s segment[T]) int64 {
	for i := range s.records {
		select {
		case <-l.removed:
			return l.handled.Load()
		default:
		}
		switch r := &s.records[i]; {
		case r.kind == recordMarker:
			l.sync(ctx)
		case !r.unchanged:
			l.call(ctx, r.event)
		}
	}
	return s.end
}

// sync ends the initial state, unless that was the watcher's last word.
func (l *informerProcessorListener[T]) sync(ctx context.Context) {
	if l.opts.OnSynced != nil {
		l.opts.OnSynced(ctx)
	}
	select {
	case <-l.removed:
	default:
		close(l.synced)
	}
}

// call tells the watcher of one event.
func (l *informerProcessorListener[T]) call(ctx context.Context, e Event[T]) {
	var err error
	switch e.Type {
	case EventAdded:
		err = l.watcher.Add(ctx, e)
	case EventUpdated:
		err = l.watcher.Update(ctx, e)
	case EventDeleted:
		err = l.watcher.Delete(ctx, e)
	}
	ended := ctx.Err() != nil && errors.Is(err, ctx.Err())
	if err != nil && !ended {
		l.processor.report(ctx, &EventError{Watcher: l.opts.Name, Key: e.Key(), Type: e.Type, Failures: 1, GaveUp: true, Err: err})
	}
}

// resyncTimer says when a listener's next resync is due.
type resyncTimer struct {
	period time.Duration
	synced <-chan struct{} // starts the first period; nil afterwards
	timer  *time.Timer
	due    bool
}

// restart begins the next period.
func (r *resyncTimer) restart() {
	r.synced, r.due = nil, false
	if r.period > 0 {
		r.stop()
		r.timer = time.NewTimer(r.period)
	}
}

func (r *resyncTimer) ring() <-chan time.Time {
	if r.timer == nil {
		return nil
	}
	return r.timer.C
}

func (r *resyncTimer) stop() {
	if r.timer != nil {
		r.timer.Stop()
	}
}
