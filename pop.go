package informer

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/stopwatch"
)

// pop prepares everything that run does not read from the log itself: the initial state,
// the states of resyncs, and the backlog. It ends when the listener is removed, or when
// the log no longer grows.
func (l *informerProcessorListener[T]) pop(ctx context.Context) {
	defer l.cursor.Poke()
	defer l.popped.Store(true)
	defer l.processor.log.Forget(&l.popWake)
	defer l.lag.stop()
	defer l.resync.stop()
	if !l.begin(l.join(ctx)) {
		return
	}
	for {
		l.keepUp(ctx)
		if s := l.unread(); s != nil && !l.begin(s, l.nextPage(ctx, s)) {
			return
		}
		l.replay(ctx)
		if l.gone.Load() || channel.Closed(l.processor.draining) && !l.hasPages() {
			return
		}
		// Rare events share popWake: every further channel in this select costs an
		// idle watcher 200 B.
		select {
		case <-l.popWake.Wake():
		case <-l.lag.late():
			l.lag.log(ctx)
		case <-l.resync.synced:
			l.resync.restart()
		case <-l.resync.ring():
			l.resync.due = true
		}
	}
}

// begin hands run a page of a state, after which run goes on with the log. ok says whether
// the page was read. If it was not, begin gives up a resync; for an initial state it returns
// false, because the listener cannot go on.
func (l *informerProcessorListener[T]) begin(s *state[T], ok bool) bool {
	if !ok && s != nil && s.origin == OriginResync {
		s, ok = nil, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state, l.joining = s, !ok
	l.counts.untold.Store(s.left())
	l.cursor.Poke()
	return ok
}

// unread returns the state if run waits for its next page, and otherwise nil.
func (l *informerProcessorListener[T]) unread() *state[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.joining {
		return l.state
	}
	return nil
}

// hasPages reports whether the state has further pages.
func (l *informerProcessorListener[T]) hasPages() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state != nil && l.state.more
}

// keepUp moves events from the log to the backlog if more events wait than the backlog's
// limit. The log wakes pop when that is the case again. keepUp also notes whether run is
// behind.
func (l *informerProcessorListener[T]) keepUp(ctx context.Context) {
	away, caughtUp := l.makeRoom()
	switch {
	case away > 0:
		l.countMerged(away)
		l.lag.begin()
	case caughtUp:
		l.lag.end(ctx)
	}
}

// makeRoom moves the events. It returns how many were merged away, and whether the backlog is
// empty.
func (l *informerProcessorListener[T]) makeRoom() (away int, caughtUp bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.opts.MaxBacklog < 0 { // any number of events may wait in the log
		return 0, true
	}
	if l.state != nil {
		l.state.followLog()
	}
	for {
		if l.processor.log.Sleep(&l.popWake, l.cursor.Position()+int64(max(0, l.waiting.room()))+1) {
			return away, l.waiting.events == 0
		}
		for s, ok := l.readLogLocked(maxChunk); ok; s, ok = l.readLogLocked(maxChunk) {
			away += l.waiting.push(s)
		}
	}
}

// countMerged counts events that were merged away.
func (l *informerProcessorListener[T]) countMerged(away int) {
	if away == 0 {
		return
	}
	l.counts.merged.Add(int64(away))
	if f := l.processor.observer.Merged; f != nil {
		f(MergedInfo{Informer: l.processor.name, Watcher: l.opts.Name, Events: away})
	}
}

// replay starts a resync if one is due and no event waits.
func (l *informerProcessorListener[T]) replay(ctx context.Context) {
	if !l.resync.due || !l.pause() {
		return
	}
	l.begin(l.snapshot(ctx, OriginResync))
	l.resync.restart()
}

// pause makes run wait for the next begin if every event is handled. It reports whether it did.
func (l *informerProcessorListener[T]) pause() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.cursor.Position()
	l.joining = l.state == nil && l.handled.Load() == at && l.processor.log.End() == at
	return l.joining
}

// resyncTimer says when the next resync of a listener is due. Only pop uses it, except
// period, which does not change.
type resyncTimer struct {
	period time.Duration   // 0 for no resyncs
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

// lag tracks whether a watcher is so far behind that events were merged. The informer
// logs a lag only once it has lasted for stopwatch.HungCall: a watcher with a small MaxBacklog may
// fall behind and catch up many times a second.
type lag[T Object] struct {
	listener *informerProcessorListener[T]
	behind   atomic.Bool

	// Only pop uses the rest.
	lasting *time.Timer // nil unless behind
	logged  bool
}

// begin notes that events were merged.
func (g *lag[T]) begin() {
	if g.lasting != nil {
		return
	}
	g.lasting = time.NewTimer(stopwatch.HungCall)
	g.behind.Store(true)
	g.observe(true)
}

// late returns a channel that fires when the lag must be logged.
func (g *lag[T]) late() <-chan time.Time {
	if g.lasting == nil {
		return nil
	}
	return g.lasting.C
}

func (g *lag[T]) log(ctx context.Context) {
	g.logged = true
	klog.FromContext(ctx).Info("A watcher is behind: events that wait for it are merged by object", "pending", g.listener.stats().Pending)
}

// end notes that the backlog is empty.
func (g *lag[T]) end(ctx context.Context) {
	if g.lasting == nil {
		return
	}
	g.stop()
	g.lasting = nil
	g.behind.Store(false)
	if g.logged {
		klog.FromContext(ctx).Info("The watcher has caught up")
	}
	g.logged = false
	g.observe(false)
}

func (g *lag[T]) stop() {
	if g.lasting != nil {
		g.lasting.Stop()
	}
}

func (g *lag[T]) observe(lagging bool) {
	l := g.listener
	if f := l.processor.observer.Lagging; f != nil {
		f(LaggingInfo{Informer: l.processor.name, Watcher: l.opts.Name, Lagging: lagging, Pending: l.stats().Pending})
	}
}

// follower is the part of a listener whose watcher follows the versions of the source, see
// WatcherOptions.OnVersion.
type follower[T Object] struct {
	onVersion func(ctx context.Context, version string)
	version   string // the version of the state that the watcher begins with; protected by processor.mu until the processor is filled
	final     T      // the final state of the object whose delete comes next
}

// withFinal returns a function that calls tell with the final state of the deleted object. If the
// watch has sent no final state that can be used, the version of the delete is not known. Neither is
// it for a delete that was decided before the first follower came.
func (f *follower[T]) withFinal(tell func(context.Context, Event[T]) error) func(context.Context, Event[T]) error {
	return func(ctx context.Context, e Event[T]) error {
		var none T
		switch {
		case f.final != none:
			e.Old, f.final = f.final, none
		case e.Origin == OriginWatch:
			f.onVersion(ctx, "")
		}
		if tell == nil {
			return nil
		}
		return tell(ctx, e)
	}
}

// note takes a record that is no event. It is rare, and is not inlined so that the loop over all
// events stays small.
//
//go:noinline
func (l *informerProcessorListener[T]) note(ctx context.Context, r *record[T]) {
	switch {
	case r.kind == recordTold:
		l.told.Store(true)
	case l.handler != nil:
		l.handler.note(r)
	case l.follower != nil && r.kind == recordFinal:
		l.follower.final = r.event.New
	case l.follower != nil && r.kind == recordVersion:
		if err := l.onVersion(ctx, r.key); err != nil {
			l.processor.report(ctx, &EventError{Watcher: l.opts.Name, Failures: 1, GaveUp: true, Err: err})
		}
	}
}

func (l *informerProcessorListener[T]) onVersion(ctx context.Context, version string) (err error) {
	if l.opts.RecoverPanics {
		defer recoverTo(&err)
	}
	l.opts.OnVersion(ctx, version)
	return nil
}
