package informer

import (
	"context"
	"errors"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Registration is one watcher's place at an informer. Its methods may be called
// from any goroutine, the watcher's own callback included. It must not be copied.
type Registration struct {
	synced, stopped <-chan struct{}
	remove          func()
	stats           func() WatcherStats
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

// Stats returns figures about the watcher. It does not block, also while the
// watcher or the store does.
func (r *Registration) Stats() WatcherStats { return r.stats() }

// informerProcessorListener is a watcher that follows the log, with two
// goroutines: pop takes segments from the log and keeps those that run has not
// got to in a backlog; run calls the watcher, or has a crew call it.
type informerProcessorListener[T Object] struct {
	processor *informerProcessor[T]
	watcher   ResourceWatcher[T]
	opts      WatcherOptions

	cursor   *cursor[T]      // pop's place in the log; at first, that of add
	segments chan segment[T] // from pop to run
	handled  atomic.Int64    // the position up to which everything has been handled
	progress chan struct{}   // gets a token when handled moves; nil if there is no resync to wait for it
	counts   counts
	hands    hands[T]
	listing  atomic.Bool // the store, for a state
	syncing  atomic.Bool // OnSynced is being called
	lag      lag[T]      // of pop's goroutine
	crew     *crew[T]    // nil if run calls the watcher itself

	synced  chan struct{}
	removed chan struct{}
	gone    atomic.Bool // removed is closed
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
	l.counts.read.Store(l.cursor.position())
	if opts.ResyncPeriod > 0 {
		l.progress = make(chan struct{}, 1)
	}
	l.lag.listener = l
	if opts.Workers > 1 || opts.Retry != nil {
		l.crew = newCrew(l)
	}
	return l
}

func (l *informerProcessorListener[T]) registration() *Registration {
	return &Registration{synced: l.synced, stopped: l.stopped, stats: l.stats, remove: func() { l.processor.remove(l) }}
}

// pop feeds run: first the state at the cursor, then what follows in the log,
// until the listener is removed or, once draining, has read everything. It goes
// on reading while run is busy.
func (l *informerProcessorListener[T]) pop(ctx context.Context) {
	defer close(l.segments)
	defer l.cursor.close()
	state, ok := l.join(ctx)
	defer func() { l.countUntold(&state) }()
	if !ok {
		return
	}
	var (
		waiting = newBacklog[T](l.opts.MaxBacklog)
		head    segment[T]
		held    int               // events of head that count for the backlog
		out     chan<- segment[T] // nil unless head waits to be sent
		resync  = resyncTimer{period: l.opts.ResyncPeriod, synced: l.synced}
	)
	defer resync.stop()
	defer l.lag.stop()
	for {
		draining := l.processor.draining
		final := closed(draining) // then the log does not grow any more
		if final {
			draining = nil
		}
		if out == nil {
			held = 0
			if head, ok = l.nextOf(&state); !ok {
				head, ok = waiting.pop()
				held = head.events
			}
			if ok {
				out = l.segments
			} else {
				l.lag.end(ctx)
			}
		}
		if s, more := l.read(); more {
			if away := waiting.push(s, held); away > 0 {
				l.merged(away)
				l.lag.begin(ctx)
			}
			select {
			case out <- head:
				head, held, out = segment[T]{}, 0, nil
			case <-ctx.Done():
				return
			default:
			}
			continue
		}
		if out == nil && final {
			return
		}
		if out == nil && resync.due && l.handled.Load() == l.cursor.position() {
			if replay, ok := l.snapshot(ctx, OriginResync); ok {
				state = replay
			}
			resync.restart()
			continue
		}
		if !l.cursor.sleep() {
			continue
		}
		select {
		case out <- head:
			head, held, out = segment[T]{}, 0, nil
		case <-l.cursor.wake:
		case <-l.lag.late():
			l.lag.say(ctx)
		case <-l.progress:
		case <-resync.synced:
			resync.restart()
		case <-resync.ring():
			resync.due = true
		case <-draining:
		case <-ctx.Done():
			return
		}
	}
}

// nextOf returns the next part of a state.
func (l *informerProcessorListener[T]) nextOf(s *state[T]) (segment[T], bool) {
	part, ok := s.next()
	if ok {
		l.counts.taken.Add(int64(part.events))
		part.since = l.processor.now()
	}
	l.counts.untold.Store(int64(len(s.objs) + len(s.olds)))
	return part, ok
}

// read returns what is new in the log.
func (l *informerProcessorListener[T]) read() (segment[T], bool) {
	s, ok := l.cursor.next()
	if ok {
		l.counts.taken.Add(int64(s.events))
		l.counts.read.Store(s.end)
		s.since = l.processor.now()
	}
	return s, ok
}

// countUntold counts what pop leaves behind as taken, so that the counts say how
// many events were not delivered.
func (l *informerProcessorListener[T]) countUntold(s *state[T]) {
	for more := true; more; {
		_, more = l.nextOf(s)
	}
	for more := true; more; {
		_, more = l.read()
	}
}

// merged counts events that were merged away.
func (l *informerProcessorListener[T]) merged(away int) {
	if away == 0 {
		return
	}
	l.counts.merged.Add(int64(away))
	if f := l.processor.observer.Merged; f != nil {
		f(MergedInfo{Informer: l.processor.name, Watcher: l.opts.Name, Events: away})
	}
}

// run calls the watcher for what pop sends.
func (l *informerProcessorListener[T]) run(ctx context.Context) {
	defer close(l.stopped)
	if l.crew != nil {
		l.crew.run(ctx)
		return
	}
	for s := range l.segments {
		l.finished(l.handle(ctx, s))
	}
}

// finished makes it known that everything before a position has been handled.
func (l *informerProcessorListener[T]) finished(position int64) {
	l.handled.Store(position)
	select {
	case l.progress <- struct{}{}:
	default:
	}
}

// handle calls the watcher for each event of a segment and returns the position
// it has reached. What is left when the listener is removed is dropped.
func (l *informerProcessorListener[T]) handle(ctx context.Context, s segment[T]) int64 {
	l.hands.take(s, l.counts.done())
	defer l.hands.empty()
	observed := l.processor.observer.Handled != nil
	for i := range s.records {
		if l.gone.Load() {
			return l.handled.Load()
		}
		switch r := &s.records[i]; {
		case r.kind == recordMarker:
			l.sync(ctx)
		case r.isEvent():
			took, err := l.call(ctx, r.event)
			if err == nil && !observed { // or settle would be a third of what an event costs
				l.counts.delivered.Add(1)
				continue
			}
			l.settle(ctx, attempt[T]{event: r.event, took: took, err: err, failures: 1, gaveUp: true})
		}
	}
	return s.end
}

// sync ends the initial state, unless that was the watcher's last word.
func (l *informerProcessorListener[T]) sync(ctx context.Context) {
	if l.gone.Load() {
		return
	}
	if l.opts.OnSynced != nil {
		if err := l.onSynced(ctx); err != nil {
			l.processor.report(ctx, &EventError{Watcher: l.opts.Name, Failures: 1, GaveUp: true, Err: err})
		}
	}
	if !l.gone.Load() {
		close(l.synced)
	}
}

func (l *informerProcessorListener[T]) onSynced(ctx context.Context) (err error) {
	if l.opts.RecoverPanics {
		defer recoverTo(&err)
	}
	l.syncing.Store(true)
	defer l.syncing.Store(false)
	l.opts.OnSynced(ctx)
	return nil
}

// call tells the watcher of one event, and measures how long that takes if
// somebody wants to know.
func (l *informerProcessorListener[T]) call(ctx context.Context, e Event[T]) (took time.Duration, err error) {
	if l.processor.observer.Handled == nil {
		return 0, l.tell(ctx, e)
	}
	begun := time.Now()
	err = l.tell(ctx, e)
	return time.Since(begun), err
}

func (l *informerProcessorListener[T]) tell(ctx context.Context, e Event[T]) (err error) {
	if l.opts.RecoverPanics {
		defer recoverTo(&err)
	}
	switch e.Type {
	case EventAdded:
		return l.watcher.Add(ctx, e)
	case EventUpdated:
		return l.watcher.Update(ctx, e)
	default:
		return l.watcher.Delete(ctx, e)
	}
}

// recoverTo turns a panic of the function that defers it into an error.
func recoverTo(err *error) {
	if v := recover(); v != nil {
		*err = &PanicError{Value: v, Stack: debug.Stack()}
	}
}

// attempt is a call of the watcher that has returned.
type attempt[T Object] struct {
	event    Event[T]
	took     time.Duration
	err      error
	failures int  // of the event, this one included if it is one
	gaveUp   bool // if it failed, there will be no other
	stopped  bool // because the informer stops
}

// settle counts an attempt and says what came of it. One that was interrupted, or is
// not repeated because the informer stops, leaves the event undelivered.
func (l *informerProcessorListener[T]) settle(ctx context.Context, a attempt[T]) {
	if interrupted(ctx, a.err) {
		return
	}
	if a.err == nil {
		a.failures, a.gaveUp = a.failures-1, false
	}
	if f := l.processor.observer.Handled; f != nil {
		f(HandledInfo{
			Informer: l.processor.name, Watcher: l.opts.Name, Key: a.event.Key(), Type: a.event.Type, Origin: a.event.Origin,
			Took: a.took, Err: a.err, Failures: a.failures, GaveUp: a.gaveUp,
		})
	}
	if a.err != nil && (a.failures == 1 || a.gaveUp) {
		l.processor.report(ctx, &EventError{
			Watcher: l.opts.Name, Key: a.event.Key(), Type: a.event.Type, Failures: a.failures, GaveUp: a.gaveUp, Err: a.err,
		})
	}
	if a.err == nil {
		l.counts.delivered.Add(1)
	} else if a.gaveUp && !a.stopped {
		l.counts.failed.Add(1)
	}
}

// interrupted reports whether err says no more than that ctx has ended.
func interrupted(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err())
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
