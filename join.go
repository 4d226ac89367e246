package informer

import (
	"context"
	"time"

	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/retry"
)

// join returns the state as of the listener's cursor, which was taken when the listener
// was added. If the synced marker comes before the cursor, it ends the state. join
// returns false if the listener was removed before the state was read.
func (l *informerProcessorListener[T]) join(ctx context.Context) (*state[T], bool) {
	p := l.processor
	select {
	case <-p.filled:
	case <-p.draining:
	case <-l.removed:
		return nil, false
	}
	if !channel.Closed(p.filled) { // the informer stops before it has begun
		return nil, true
	}
	s := l.newState(OriginInitial)
	if !l.readDeletes(ctx, s) {
		s.close()
		return nil, false
	}
	ok := true
	if s.end > 0 || p.seeded {
		ok = l.nextPage(ctx, s)
	} else { // before the first change the store was empty
		s.setPage(nil, "")
	}
	at := p.syncedAt.Load()
	s.marker = at >= 0 && at < s.end
	return s, ok
}

// readDeletes puts the deletes into the state that the listener inherits.
func (l *informerProcessorListener[T]) readDeletes(ctx context.Context, s *state[T]) bool {
	if s.inherit = l.inheritUpTo >= 0; !s.inherit {
		return true
	}
	return l.readStore(ctx, "tombstones", func() (err error) {
		s.deletes, err = l.processor.tombstones.Read(ctx, l.inheritUpTo)
		return err
	}, s)
}

// snapshot returns the state as of the listener's cursor, with its first page. It takes
// no lock that the apply loop would have to wait for, so a store that hangs holds up
// this listener alone.
func (l *informerProcessorListener[T]) snapshot(ctx context.Context, origin Origin) (*state[T], bool) {
	s := l.newState(origin)
	return s, l.nextPage(ctx, s)
}

// newState returns a state as of the listener's cursor, without any page. The state is
// made before the store is read, because the cursor may move on meanwhile.
func (l *informerProcessorListener[T]) newState(origin Origin) *state[T] {
	return &state[T]{since: l.processor.Now(), origin: origin, end: l.cursor.Position(), log: l.cursor.Clone(), more: true}
}

// nextPage reads the next page of a state that nobody else uses meanwhile. It returns
// false if the listener is removed before it has the page, or if the informer stops.
func (l *informerProcessorListener[T]) nextPage(ctx context.Context, s *state[T]) bool {
	var (
		objs []any
		last string
	)
	if !l.readStore(ctx, "scan", func() (err error) {
		objs, last, err = l.processor.scan.Page(ctx, s.last)
		return err
	}, s) {
		s.close()
		return false
	}
	begun := l.processor.begun.Load()
	for s.log.Position() < begun {
		if s.follow() || !s.log.Sleep() {
			continue
		}
		select {
		case <-s.log.Wake():
		case <-l.processor.draining: // the changes in progress were given up
			s.close()
			return false
		case <-l.removed:
			s.close()
			return false
		}
	}
	s.setPage(objs, last)
	return true
}

// readStore reads from the store, and tries again until it succeeds, the listener is
// removed or the informer stops. It returns whether it has succeeded.
func (l *informerProcessorListener[T]) readStore(ctx context.Context, op string, read func() error, s *state[T]) bool {
	return retry.Do(func() error {
		l.listing.Store(true)
		defer l.listing.Store(false)
		return read()
	}, func(f retry.Failure) error {
		if f.Count == 1 && !l.gone.Load() {
			l.processor.report(ctx, &StoreError{Op: op, Failures: f.Count, Err: f.Err})
		}
		if !l.rest(ctx, f.Pause, s) {
			return f.Err
		}
		return nil
	}) == nil
}

// rest waits between two attempts to read the store. Meanwhile it keeps the backlog and the
// state from holding on to the log. It returns false if the listener is removed or the
// informer stops.
func (l *informerProcessorListener[T]) rest(ctx context.Context, pause time.Duration, s *state[T]) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for over := false; !over; {
		select {
		case <-timer.C:
			over = true
		case <-l.popWake.Wake():
		case <-l.processor.draining:
			return false
		case <-l.removed:
			return false
		}
		l.keepUp(ctx)
		s.followLog()
	}
	return true
}
