package informer

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/customcacheinformer/informer/internal/eventlog"
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
// goroutines: run takes what comes next, from the log itself as long as it keeps
// up, and calls the watcher, or has a crew call it; pop gives it the state to begin
// with, and what waits goes to its backlog when run falls behind.
type informerProcessorListener[T Object] struct {
	processor *informerProcessor[T]
	watcher   ResourceWatcher[T]
	methods   methods[T] // the watcher's
	opts      WatcherOptions
	number    int // 1 for the first that was added, and so on

	handled atomic.Int64 // the position up to which everything has been handled
	counts  counts
	hands   hands[T]
	listing atomic.Bool // the store, for a state
	syncing atomic.Bool // OnSynced is being called
	unheard int64       // it is told first what nobody was there to be told of up to here; -1 for nothing
	crew    *crew[T]    // nil if run calls the watcher itself
	handler *handler[T] // the watcher, if it is client-go's

	mu      sync.Mutex // protects what waits: in this order,
	joining bool       // a state that is still to come,
	state   *state[T]  // the rest of one, nil if there is none,
	waiting backlog[T] // what pop has taken from the log,
	cursor  *cursor[T] // and the log, at first its end at the time of add; its token is for run

	// Of pop, which gets news when more may wait than the backlog takes, and whenever
	// something else has happened that it should look at.
	news   eventlog.Sleeper
	lag    lag[T]
	resync resyncTimer
	popped atomic.Bool // pop has ended

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
		unheard:   -1,
		methods:   methodsOf(w),
		opts:      opts,
		joining:   true,
		waiting:   backlog[T]{limit: opts.MaxBacklog},
		cursor:    p.log.Cursor(),
		news:      eventlog.NewSleeper(),
		synced:    make(chan struct{}),
		removed:   make(chan struct{}),
		stopped:   make(chan struct{}),
	}
	l.handled.Store(l.cursor.Position())
	l.counts.read.Store(l.cursor.Events())
	l.lag.listener = l
	l.handler, _ = w.(*handler[T])
	l.resyncEvery(opts.ResyncPeriod)
	if opts.Workers > 1 || opts.Retry != nil {
		l.crew = newCrew(l)
	}
	return l
}

// inherit has the listener told first what a durable store has kept up to a position.
// Until then, it has handled nothing.
func (l *informerProcessorListener[T]) inherit(unheard int64) {
	l.unheard = unheard
	l.handled.Store(-1)
	if l.crew != nil {
		l.crew.waiting.end, l.crew.waiting.inherits = -1, true
	}
}

// resyncEvery sets the period of the resyncs, 0 for none. It must not be called once
// the goroutines run.
func (l *informerProcessorListener[T]) resyncEvery(period time.Duration) {
	l.resync = resyncTimer{}
	if period > 0 {
		l.resync = resyncTimer{period: period, synced: l.synced}
	}
}

func (l *informerProcessorListener[T]) registration() *Registration {
	return &Registration{synced: l.synced, stopped: l.stopped, stats: l.stats, remove: func() { l.processor.remove(l) }}
}

// run calls the watcher for what it takes.
func (l *informerProcessorListener[T]) run(ctx context.Context) {
	defer close(l.stopped)
	if l.crew != nil {
		l.crew.run(ctx)
		return
	}
	for s, ok := l.take(); ok; s, ok = l.take() {
		l.finished(l.handle(ctx, s))
	}
}

// finished makes it known that everything before a position has been handled.
func (l *informerProcessorListener[T]) finished(position int64) {
	l.handled.Store(position)
	if l.resync.period > 0 {
		l.news.Poke() // the next resync may be waiting for it
	}
}

// exactly is how many events of a segment are counted one by one, and then how many
// at a time. To count each would be half of what an event costs; so what a watcher
// that hangs was called for is known exactly unless it was in the middle of a burst.
const exactly = 16

// handle calls the watcher for each event of a segment and returns the position
// it has reached. What is left when the listener is removed, or a call was interrupted
// because of that, is dropped and not handled.
func (l *informerProcessorListener[T]) handle(ctx context.Context, s segment[T]) int64 {
	l.hands.take(s, l.counts.done())
	defer l.hands.empty()
	h := l.handler
	plain := l.processor.observer.Handled == nil && !l.opts.RecoverPanics
	delivered := int64(0) // and not counted yet
	count := func() { l.counts.delivered.Add(delivered); delivered = 0 }
	defer count()
	for i := range s.Records {
		if l.gone.Load() {
			return l.handled.Load()
		}
		r := &s.Records[i]
		switch {
		case r.kind == recordMarker:
			l.sync(ctx)
		case !r.isEvent():
			if h != nil {
				h.note(r)
			}
		case plain:
			if h != nil {
				h.tell(&r.event)
			} else if err := l.methods.tell(ctx, &r.event); err != nil {
				count()
				l.settle(ctx, attempt[T]{event: r.event, err: err, failures: 1, gaveUp: true})
				if interrupted(ctx, err) {
					return l.handled.Load()
				}
				continue
			}
			if delivered++; i < exactly || delivered == exactly {
				count()
			}
		default:
			took, err := l.call(ctx, &r.event)
			l.settle(ctx, attempt[T]{event: r.event, took: took, err: err, failures: 1, gaveUp: true})
			if interrupted(ctx, err) {
				return l.handled.Load()
			}
		}
	}
	return s.End
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

// call tells the watcher of one event, measures how long that takes, and recovers
// a panic if it is to.
func (l *informerProcessorListener[T]) call(ctx context.Context, e *Event[T]) (took time.Duration, err error) {
	begun := l.processor.Now()
	defer func() { took = l.processor.Now() - begun }()
	if l.opts.RecoverPanics {
		defer recoverTo(&err)
	}
	return 0, l.methods.tell(ctx, e)
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
