package informer

import (
	"context"
	"time"
)

// pop prepares what run takes: the state to begin with, the states of resyncs, and
// what has waited for so long that it must be merged. It ends when the listener is
// removed, or when the log does not grow any more.
func (l *informerProcessorListener[T]) pop(ctx context.Context) {
	defer l.cursor.Poke()
	defer l.popped.Store(true)
	defer l.processor.log.Forget(&l.news)
	defer l.lag.stop()
	defer l.resync.stop()
	if !l.begin(l.join(ctx)) {
		return
	}
	for {
		l.keepUp(ctx)
		if s := l.unread(); s != nil && !l.begin(s, l.turn(ctx, s)) {
			return
		}
		l.replay(ctx)
		if l.gone.Load() || closed(l.processor.draining) && !l.pages() {
			return
		}
		// All that happens but seldom is told by one channel: each further one that
		// is waited for takes 200 B of an idle watcher.
		select {
		case <-l.news.Wake():
		case <-l.lag.late():
			l.lag.say(ctx)
		case <-l.resync.synced:
			l.resync.restart()
		case <-l.resync.ring():
			l.resync.due = true
		}
	}
}

// begin lets run take a state, and go on to the log. Without the first state, all of it,
// there is nothing to go on from.
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

// unread returns the state if its next page is wanted.
func (l *informerProcessorListener[T]) unread() *state[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.joining {
		return l.state
	}
	return nil
}

// pages reports whether the state has further pages.
func (l *informerProcessorListener[T]) pages() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state != nil && l.state.more
}

// keepUp takes what waits from the log if it is more than the backlog's limit, sees
// to it that there are news when it will be, and follows whether run is behind.
func (l *informerProcessorListener[T]) keepUp(ctx context.Context) {
	away, caughtUp := l.makeRoom()
	switch {
	case away > 0:
		l.merged(away)
		l.lag.begin()
	case caughtUp:
		l.lag.end(ctx)
	}
}

func (l *informerProcessorListener[T]) makeRoom() (away int, caughtUp bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.opts.MaxBacklog < 0 { // all of it may wait in the log
		return 0, true
	}
	if l.state != nil {
		l.state.followAll()
	}
	for {
		if l.processor.log.Sleep(&l.news, l.cursor.Position()+int64(max(0, l.waiting.room()))+1) {
			return away, l.waiting.events == 0
		}
		for s, ok := l.readLocked(maxChunk); ok; s, ok = l.readLocked(maxChunk) {
			away += l.waiting.push(s)
		}
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

// replay has the watcher told the state again if that is due and there is nothing
// else to tell it.
func (l *informerProcessorListener[T]) replay(ctx context.Context) {
	if !l.resync.due || !l.pause() {
		return
	}
	l.begin(l.snapshot(ctx, OriginResync))
	l.resync.restart()
}

// pause lets run take nothing until begin, if everything is handled.
func (l *informerProcessorListener[T]) pause() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.cursor.Position()
	l.joining = l.state == nil && l.handled.Load() == at && l.processor.log.End() == at
	return l.joining
}

// take returns what the watcher is to be told next, and waits for it. It returns
// false once the listener is removed, or when everything is told and nothing can
// follow. It is run's.
func (l *informerProcessorListener[T]) take() (segment[T], bool) {
	for !l.gone.Load() {
		last := l.popped.Load() // then the log does not grow any more
		if s, ok := l.next(); ok {
			return s, true
		}
		if last {
			break
		}
		if l.lag.behind.Load() {
			l.news.Poke()
		}
		<-l.cursor.Wake()
	}
	for !l.popped.Load() {
		<-l.cursor.Wake()
	}
	l.countUntold()
	return segment[T]{}, false
}

// next returns what is to be told next. If that is nothing, it sees to it that run
// is woken when there is something.
func (l *informerProcessorListener[T]) next() (segment[T], bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.joining {
		return segment[T]{}, false
	}
	portion := maxChunk
	if l.opts.MaxBacklog > 0 {
		portion = min(portion, l.opts.MaxBacklog)
	}
	for {
		if s, ok := l.stateLocked(); ok || l.joining {
			return s, ok
		}
		if s, ok := l.waiting.pop(); ok {
			return s, true
		}
		if s, ok := l.readLocked(portion); ok {
			return s, true
		}
		if l.cursor.Sleep() {
			return segment[T]{}, false
		}
	}
}

// stateLocked returns the next part of a state.
func (l *informerProcessorListener[T]) stateLocked() (segment[T], bool) {
	if l.state == nil {
		return segment[T]{}, false
	}
	part, ok := l.state.next()
	l.counts.taken.Add(int64(part.Events))
	l.counts.untold.Store(l.state.left())
	switch {
	case ok:
	case l.state.more:
		l.joining = true
		l.news.Poke()
	default:
		l.state = nil
	}
	return part, ok
}

// readLocked returns up to so many records that are new in the log.
func (l *informerProcessorListener[T]) readLocked(most int) (segment[T], bool) {
	s, ok := l.cursor.Next(most)
	if ok {
		l.counts.taken.Add(int64(s.Events))
		l.counts.read.Store(l.cursor.Events())
	}
	return s, ok
}

// countUntold counts what will not be told as taken, so that the counts say how
// many events were not delivered, and lets go of it.
func (l *informerProcessorListener[T]) countUntold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for more := true; more; {
		_, more = l.stateLocked()
	}
	l.state = nil
	for more := true; more; {
		_, more = l.readLocked(maxChunk)
	}
	l.waiting = backlog[T]{}
	l.cursor.Close()
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
