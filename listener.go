package informer

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/eventlog"
	"github.com/customcacheinformer/informer/internal/memory"
	"github.com/customcacheinformer/informer/internal/version"
)

// informerProcessorListener calls one watcher. It has two goroutines. run takes the next events and calls
// the watcher, or lets a crew call it. While run keeps up, it reads the log itself. pop prepares everything
// else for run: the initial state, the states of resyncs, and the backlog if run has fallen behind.
type informerProcessorListener[T Object] struct {
	processor *informerProcessor[T]
	watcher   ResourceWatcher[T]
	methods   methods[T] // the watcher's
	opts      WatcherOptions
	number    int          // 1 for the first listener that was added, and so on
	crew      *crew[T]     // nil if run calls the watcher itself
	handler   *handler[T]  // the watcher, if it is a handler of client-go's; otherwise nil
	follower  *follower[T] // nil unless watcher is a version.Follower
	// inheritUpTo is a log position, or -1. Deletes before it happened while no watcher was registered, and
	// this listener delivers them first.
	inheritUpTo int64

	first *memory.Snapshot // of the own store, when the listener was added; nil once it is joined

	handled        atomic.Int64 // the log position up to which every event has been handled
	initialHandled atomic.Bool  // every event of the initial state has been handled
	// catching is nil if no caller of catchUp waits. When run has handled something, it closes the channel
	// and sets catching to nil.
	catching atomic.Pointer[chan struct{}]
	counts   counts
	hand     hand[T]
	listing  atomic.Bool // pop is reading the store
	syncing  atomic.Bool // OnSynced is being called

	// mu protects the phase, and the events that run has not taken. run takes them in the order of these
	// fields.
	mu      sync.Mutex
	life    lifecycle
	state   *state[T]  // the rest of a state, or nil
	waiting backlog[T] // events that pop has moved from the log
	cursor  *cursor[T] // reads the other events from the log; run sleeps on it

	popWake eventlog.Sleeper // wakes pop when the backlog may be full, and at rare events
	lag     lag
	resync  resyncTimer
	ahead   ahead

	synced  chan struct{}
	removed chan struct{}      // closed when the registration ends
	stopped chan struct{}      // closed when pop and run have returned
	cancel  context.CancelFunc // ends the ctx of the watcher's calls; nil until started; protected by processor.mu
}

// newListener returns a listener at the end of the log. It starts no goroutine.
func newListener[T Object](p *informerProcessor[T], w ResourceWatcher[T], opts WatcherOptions, number int) *informerProcessorListener[T] {
	l := &informerProcessorListener[T]{
		processor:   p,
		watcher:     w,
		methods:     methodsOf(w),
		opts:        opts,
		number:      number,
		inheritUpTo: -1,
		ahead:       ahead{coming: p.leaving},
		waiting:     backlog[T]{limit: min(opts.MaxBacklog, maxLimit)},
		cursor:      p.log.Cursor(),
		popWake:     eventlog.NewSleeper(),
		synced:      make(chan struct{}),
		removed:     make(chan struct{}),
		stopped:     make(chan struct{}),
	}
	l.handled.Store(l.cursor.Position())
	l.counts.read.Store(l.cursor.Events())
	l.handler, _ = w.(*handler[T])
	if f, ok := w.(version.Follower); ok {
		l.follower = &follower[T]{watcher: f}
		l.methods[EventDeleted] = l.follower.withFinal(l.methods[EventDeleted])
	}
	if opts.ResyncPeriod > 0 {
		l.resync = resyncTimer{period: opts.ResyncPeriod, synced: l.synced}
	}
	if opts.Workers > 1 || opts.Retry != nil {
		l.crew = newCrew(l)
	}
	return l
}

// inherit makes the listener first deliver the deletes up to a log position whose tombstones a durable
// store has kept. Until these are delivered, handled is -1.
func (l *informerProcessorListener[T]) inherit(upTo int64) {
	l.inheritUpTo = upTo
	l.handled.Store(-1)
	if l.crew != nil {
		l.crew.waiting.end, l.crew.waiting.inherits = -1, true
	}
}

// beginAt sets the version of the state that the watcher begins with. Only a follower needs it.
func (l *informerProcessorListener[T]) beginAt(version string) {
	if l.follower != nil {
		l.follower.version = version
	}
}

// takeFirst takes a snapshot of the state that the watcher begins with, if the informer has its own store.
func (l *informerProcessorListener[T]) takeFirst() {
	if l.processor.own != nil {
		l.first = l.processor.own.Snapshot()
	}
}

// remove does the work of Registration.Remove.
func (l *informerProcessorListener[T]) remove() { l.processor.remove(l) }

// callOf is the key under which the ctx of a watcher's calls has the listener.
type callOf struct{}

// goroutines returns the functions of l's two goroutines. The ctx of the watcher's calls ends when ctx ends
// or the listener is removed.
func (l *informerProcessorListener[T]) goroutines(ctx context.Context) (pop, run func()) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "watcher", l.opts.Name)
	ctx, l.cancel = context.WithCancel(klog.NewContext(ctx, logger))
	ctx = context.WithValue(ctx, callOf{}, l)
	return func() { l.pop(ctx) }, func() { l.run(ctx) }
}

// run takes events and calls the watcher for them, until no event can follow or the listener is removed.
func (l *informerProcessorListener[T]) run(ctx context.Context) {
	defer close(l.stopped)
	if l.crew != nil {
		l.crew.run(ctx)
		return
	}
	for s, ok := l.take(); ok; s, ok = l.take() {
		l.finished(l.handle(ctx, s))
		l.reach(s.End)
	}
	l.ahead = ahead{} // or it would keep all later leaves: the program may keep the Registration
}

// finished notes that every event before a log position has been handled, and wakes those who wait for
// that.
func (l *informerProcessorListener[T]) finished(position int64) {
	l.handled.Store(position)
	if l.catching.Load() != nil { // a caller that comes later looks at handled later
		if waiting := l.catching.Swap(nil); waiting != nil {
			close(*waiting)
		}
	}
	if l.resync.period > 0 {
		l.popWake.Poke() // pop may have a resync that waits for this event
	}
}

// catchUp does the work of Registration.CatchUp.
func (l *informerProcessorListener[T]) catchUp(ctx context.Context) error {
	if ctx.Value(callOf{}) == l {
		return l.notCaughtUp(errOwnCall)
	}
	upTo := l.processor.begun.Load()
	for !l.hasHandled(upTo) {
		moved := l.moved()
		if l.hasHandled(upTo) {
			break
		}
		var err error
		select {
		case <-moved:
		case <-l.removed:
			err = ErrStopped
		case <-l.stopped: // after a drain, before removed
			err = ErrStopped
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil && !l.hasHandled(upTo) {
			return l.notCaughtUp(err)
		}
	}
	return nil
}

func (l *informerProcessorListener[T]) notCaughtUp(err error) error {
	return fmt.Errorf("informer %s: CatchUp of watcher %s: %w", l.processor.name, l.opts.Name, err)
}

// hasHandled reports whether the watcher has handled the initial state and every event up to a log
// position.
func (l *informerProcessorListener[T]) hasHandled(upTo int64) bool {
	return l.initialHandled.Load() && l.handled.Load() >= upTo
}

// moved returns a channel that is closed when run has handled something after the call.
func (l *informerProcessorListener[T]) moved() <-chan struct{} {
	for {
		if waiting := l.catching.Load(); waiting != nil {
			return *waiting
		}
		waiting := make(chan struct{})
		if l.catching.CompareAndSwap(nil, &waiting) {
			return waiting
		}
	}
}

// take waits for the next events for the watcher, and returns them. It returns false if the listener is
// removed, or if every event was taken and none can follow.
func (l *informerProcessorListener[T]) take() (segment[T], bool) {
	for at := l.life.phase(); at != phaseOver; at = l.life.phase() {
		if l.counts.untold.Load() > 0 {
			runtime.Gosched() // when many watchers join, the rest of the informer goes first
		}
		if s, ok := l.next(); ok {
			return s, true
		}
		if at == phaseLast || at == phaseCut {
			break
		}
		if l.lag.behind.Load() {
			l.popWake.Poke()
		}
		<-l.cursor.Wake()
	}
	l.dropUntold()
	return segment[T]{}, false
}

// next returns the next events. If there are none, it returns false, and run is woken when there are some.
func (l *informerProcessorListener[T]) next() (segment[T], bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := l.life.phase(); at != phaseLive && at != phaseLast {
		return segment[T]{}, false
	}
	portion := maxChunk
	if l.opts.MaxBacklog > 0 {
		portion = min(portion, l.opts.MaxBacklog)
	}
	for {
		if s, ok := l.nextOfStateLocked(); ok || l.state != nil {
			return s, ok
		}
		if s, ok := l.waiting.pop(); ok {
			return s, true
		}
		if s, ok := l.readLogLocked(portion); ok {
			return s, true
		}
		if l.cursor.Sleep() {
			return segment[T]{}, false
		}
	}
}

// nextOfStateLocked returns the next part of the state. At the end of a page it returns false, and makes
// pop read the next page if there is one.
func (l *informerProcessorListener[T]) nextOfStateLocked() (segment[T], bool) {
	if l.state == nil {
		return segment[T]{}, false
	}
	part, ok := l.state.next()
	l.counts.taken.Add(int64(part.Events))
	l.counts.untold.Store(l.state.left())
	switch {
	case ok:
	case l.state.more:
		l.life.turn(phaseJoining)
		l.popWake.Poke()
	default:
		l.state = nil
	}
	return part, ok
}

// readLogLocked returns up to limit new records of the log.
func (l *informerProcessorListener[T]) readLogLocked(limit int) (segment[T], bool) {
	s, ok := l.cursor.Next(limit)
	if ok {
		l.counts.taken.Add(int64(s.Events))
		l.counts.read.Store(l.cursor.Events())
	}
	return s, ok
}

// dropUntold drops the events that the watcher will not get, and counts them so that Pending includes them.
func (l *informerProcessorListener[T]) dropUntold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != nil {
		l.counts.untold.Store(l.state.untold())
		l.state = nil
	}
	for more := true; more; {
		_, more = l.readLogLocked(maxChunk)
	}
	l.waiting = backlog[T]{}
	l.cursor.Close()
}

// handle calls the watcher for each event of a segment and returns the log position up to which events are
// handled. If the listener is removed, or the end of ctx interrupts a call, the whole segment counts as not
// handled, and its rest is dropped.
func (l *informerProcessorListener[T]) handle(ctx context.Context, s segment[T]) int64 {
	l.hand.take(s, l.counts.done())
	defer l.hand.empty()
	h := l.handler
	plain := l.processor.observer.Handled == nil && !l.opts.RecoverPanics
	delivered := int64(0) // not added to counts yet
	count := func() { l.counts.delivered.Add(delivered); delivered = 0 }
	defer count()
	for i := range s.Records {
		r := &s.Records[i]
		if l.life.interrupts() {
			if l.life.removed() {
				return l.handled.Load()
			}
			if l.skips(&s, i) {
				continue
			}
		}
		switch {
		case r.kind == recordMarker:
			l.sync(ctx)
		case !r.isEvent():
			l.note(ctx, r)
		case plain:
			if h != nil {
				h.call(&r.event)
			} else if err := l.methods.call(ctx, &r.event); err != nil {
				count()
				l.settle(ctx, attempt[T]{event: r.event, err: err, failures: 1, gaveUp: true})
				if interrupted(ctx, err) {
					return l.handled.Load()
				}
				continue
			}
			if delivered++; i < countStep || delivered == countStep {
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

// protect calls f, a function of the watcher without an event. If RecoverPanics is set, it recovers and
// reports a panic of f.
func (l *informerProcessorListener[T]) protect(ctx context.Context, f func()) {
	err := func() (err error) {
		if l.opts.RecoverPanics {
			defer recoverTo(&err)
		}
		f()
		return nil
	}()
	if err != nil {
		l.processor.report(ctx, &EventError{Watcher: l.opts.Name, Failures: 1, GaveUp: true, Err: err})
	}
}

// note handles a record that is not an event. Such records are rare. note is not inlined, so that the loop
// over all events stays small.
//
//go:noinline
func (l *informerProcessorListener[T]) note(ctx context.Context, r *record[T]) {
	switch {
	case r.kind == recordTold:
		l.initialHandled.Store(true)
	case l.handler != nil:
		l.handler.note(r)
	case l.follower != nil && r.kind == recordFinal:
		l.follower.final = r.event.New
	case l.follower != nil && r.kind == recordVersion:
		l.protect(ctx, func() { l.follower.watcher.OnVersion(ctx, version.Exact(r.key)) })
	}
}

// call calls the watcher for one event, and returns how long that took and the watcher's error. If
// RecoverPanics is set, it turns a panic into an error.
func (l *informerProcessorListener[T]) call(ctx context.Context, e *Event[T]) (took time.Duration, err error) {
	begun := l.processor.Now()
	defer func() { took = l.processor.Now() - begun }()
	if l.opts.RecoverPanics {
		defer recoverTo(&err)
	}
	return 0, l.methods.call(ctx, e)
}

// settle counts an attempt and passes its result to the observer. It reports the first error of an event, and the last
// one if the event is given up. If the attempt was interrupted, or is not repeated because the informer stops, the event
// counts as not delivered.
func (l *informerProcessorListener[T]) settle(ctx context.Context, a attempt[T]) {
	if interrupted(ctx, a.err) {
		return
	}
	if a.err == nil {
		a.failures, a.gaveUp = a.failures-1, false
	}
	if f := l.processor.observer.Handled; f != nil {
		f(HandledInfo{
			Informer: l.processor.name, Watcher: l.opts.Name, Cluster: a.event.Cluster(), Key: a.event.Key(), Type: a.event.Type, Origin: a.event.Origin,
			Took: a.took, Err: a.err, Failures: a.failures, GaveUp: a.gaveUp,
		})
	}
	if a.err != nil && (a.failures == 1 || a.gaveUp) {
		l.processor.report(ctx, &EventError{
			Watcher: l.opts.Name, Cluster: a.event.Cluster(), Key: a.event.Key(), Type: a.event.Type, Failures: a.failures, GaveUp: a.gaveUp, Err: a.err,
		})
	}
	if a.err == nil {
		l.counts.delivered.Add(1)
	} else if a.gaveUp && !a.stopped {
		l.counts.failed.Add(1)
	}
}

// stats returns the figures of the watcher. It does not block.
func (l *informerProcessorListener[T]) stats() WatcherStats {
	c := &l.counts
	// The counts that are subtracted are read first, so that Pending is never too small.
	delivered, failed, merged := c.delivered.Load(), c.failed.Load(), c.merged.Load()
	read := c.read.Load()
	s := WatcherStats{
		Name:          l.opts.Name,
		Synced:        channel.Closed(l.synced),
		Pending:       int(c.taken.Load() + c.untold.Load() - delivered - failed - merged),
		Delivered:     int(delivered),
		Failed:        int(failed),
		Retried:       int(c.retried.Load()),
		Merged:        int(merged),
		Lagging:       l.lag.behind.Load() && !channel.Closed(l.stopped),
		OldestWaiting: l.oldestWaiting(),
	}
	if !channel.Closed(l.stopped) {
		s.Pending += int(max(0, l.processor.log.Events()-read))
	}
	return s
}

// health returns the figures of the watcher and the calls that are under way.
func (l *informerProcessorListener[T]) health() WatcherHealth {
	s := WatcherHealth{WatcherStats: l.stats(), Calls: l.calling()}
	if l.crew != nil {
		s.Hung, s.Retrying, s.Retries = l.crew.health(retriesShown)
	}
	return s
}

func (l *informerProcessorListener[T]) oldestWaiting() time.Duration {
	since := l.hand.since()
	if l.crew != nil {
		since = l.crew.waitingSince()
	}
	if since == 0 || channel.Closed(l.stopped) {
		return 0
	}
	return max(0, l.processor.Now()-since)
}

// calling returns the keys for which the watcher is being called now, and "OnSynced" if that is being
// called.
func (l *informerProcessorListener[T]) calling() []string {
	var calls []string
	switch {
	case l.crew != nil:
		calls = l.crew.calling()
	case !l.syncing.Load():
		calls = l.hand.calling(l.counts.done())
	}
	if l.syncing.Load() {
		calls = append(calls, "OnSynced")
	}
	slices.Sort(calls)
	return calls
}
