package informer

import (
	"context"
	"slices"

	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/object"
)

// pop prepares everything that run does not read from the log itself: the initial state, the states of
// resyncs, and the backlog. It returns when the listener is removed, or when the log no longer grows.
func (l *informerProcessorListener[T]) pop(ctx context.Context) {
	defer l.endPop()
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
		if l.life.removed() || channel.Closed(l.processor.draining) && !l.hasPages() {
			return
		}
		// Rare events share popWake: every further channel in this select costs an
		// idle watcher 200 B.
		select {
		case <-l.popWake.Wake():
		case <-l.lag.late():
			l.lag.log(ctx, l.stats().Pending)
		case <-l.resync.synced:
			l.resync.restart()
		case <-l.resync.ring():
			l.resync.due = true
		}
	}
}

// begin gives run a page of a state. ok is true if the page was read. If it was not read, begin gives up
// a resync. For an initial state it returns false, because the listener cannot continue.
func (l *informerProcessorListener[T]) begin(s *state[T], ok bool) bool {
	if !ok && s != nil && s.origin == OriginResync {
		s, ok = nil, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = s
	if ok {
		l.life.turn(phaseLive)
	}
	l.counts.untold.Store(s.left())
	l.cursor.Poke()
	return ok
}

// unread returns the state if run waits for its next page, or nil if run does not.
func (l *informerProcessorListener[T]) unread() *state[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.life.phase() == phaseJoining {
		return l.state
	}
	return nil
}

func (l *informerProcessorListener[T]) hasPages() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state != nil && l.state.more
}

// keepUp moves events from the log to the backlog if more events than the backlog's limit wait. The log
// wakes pop when that happens again. keepUp also notes whether run is behind.
func (l *informerProcessorListener[T]) keepUp(ctx context.Context) {
	away, caughtUp := l.makeRoom()
	switch {
	case away > 0:
		l.countMerged(away)
		if l.crew == nil && l.lag.begin() {
			l.observeLag(true)
		}
	case caughtUp:
		if l.lag.end(ctx) {
			l.observeLag(false)
		}
	}
}

func (l *informerProcessorListener[T]) observeLag(lagging bool) {
	if f := l.processor.observer.Lagging; f != nil {
		f(BacklogInfo{Informer: l.processor.name, Watcher: l.opts.Name, Events: l.stats().Pending, Lagging: lagging})
	}
}

// makeRoom moves the events for keepUp. It returns how many events will not be delivered because of
// merging, and whether the backlog is empty.
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

func (l *informerProcessorListener[T]) countMerged(away int) {
	if away == 0 {
		return
	}
	l.counts.merged.Add(int64(away))
	if f := l.processor.observer.Merged; f != nil {
		f(BacklogInfo{Informer: l.processor.name, Watcher: l.opts.Name, Events: away})
	}
}

// replay begins a resync if one is due and no event waits.
func (l *informerProcessorListener[T]) replay(ctx context.Context) {
	if !l.resync.due || !l.pause() {
		return
	}
	if l.processor.own == nil {
		l.begin(l.snapshot(ctx, OriginResync))
	} else if s := l.snapshotOwn(OriginResync); !l.begin(s, true) || s == nil {
		return // until the events on the way are handled
	}
	l.resync.restart()
}

// pause makes run wait for the next call of begin, if every event is handled, and then returns true.
// Otherwise it returns false.
func (l *informerProcessorListener[T]) pause() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.cursor.Position()
	idle := l.state == nil && l.handled.Load() == at && l.processor.log.End() == at
	if idle {
		l.life.turn(phaseJoining)
	}
	return idle
}

// endPop notes that pop is done, and wakes run, which may wait for that.
func (l *informerProcessorListener[T]) endPop() {
	defer l.cursor.Poke()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.life.endPop()
}

// voids reports whether run must not deliver a record because its object has left since.
func (l *informerProcessorListener[T]) voids(s segment[T], record int) bool {
	var none T
	r := &s.Records[record]
	if len(l.ahead.leaves) == 0 || r.kind != recordEvent && r.kind != recordFinal {
		return false
	}
	key := r.key
	if key == "" { // the records of a state have none
		key = object.KeyOf(r.event.Key())
	}
	if !l.ahead.voids(key, s.At(record)) {
		return false
	}
	if l.handler != nil {
		l.handler.final = none
	}
	if l.follower != nil {
		l.follower.final = none
	}
	return true
}

// skips reports whether run must not deliver a record, and counts such an event as merged. Such records are rare. skips is not
// inlined, so that the loop over all events stays small.
//
//go:noinline
func (l *informerProcessorListener[T]) skips(s *segment[T], record int) bool {
	l.ahead.look()
	if !l.voids(*s, record) {
		return false
	}
	if s.Records[record].isEvent() {
		l.hand.skip()
		l.countMerged(1)
	}
	return true
}

// reach notes that run has reached a log position, and forgets the leaves before it.
func (l *informerProcessorListener[T]) reach(position int64) {
	if !l.life.interrupts() {
		return
	}
	a := &l.ahead
	a.leaves = slices.DeleteFunc(a.leaves, func(l *leave) bool { return l.at < position })
	l.life.look(false)
	if len(a.leaves) > 0 || a.coming.next.Load() != nil { // which may have arrived meanwhile
		l.life.look(true)
	}
}
