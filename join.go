package informer

import (
	"context"
	"time"

	"github.com/customcacheinformer/informer/internal/object"
)

// join returns the state at the listener's cursor, which was taken when it was
// added, and after it the synced marker if the log has it behind the cursor.
func (l *informerProcessorListener[T]) join(ctx context.Context) (*state[T], bool) {
	p := l.processor
	select {
	case <-p.filled:
	case <-p.draining: // which may come first
	case <-l.removed:
		return nil, false
	}
	if !closed(p.filled) {
		return nil, true
	}
	s := l.newState(OriginInitial)
	if !l.inherited(ctx, s) {
		s.close()
		return nil, false
	}
	ok := true
	if s.end > 0 || p.seeded {
		ok = l.turn(ctx, s)
	} else { // before the first change there was nothing
		s.open(nil, "")
	}
	at := p.syncedAt.Load()
	s.marker = at >= 0 && at < s.end
	return s, ok
}

// inherited puts into the state what the listener is to be told of what nobody was told.
func (l *informerProcessorListener[T]) inherited(ctx context.Context, s *state[T]) bool {
	if s.heir = l.unheard >= 0; !s.heir {
		return true
	}
	return l.insist(ctx, "tombstones", func() (err error) {
		s.gone, err = l.processor.tombstones.read(ctx, l.unheard)
		return err
	}, s.followAll)
}

// snapshot returns the state at the listener's cursor without a lock that the
// apply loop would have to wait for. The store is listed as it is by now; it has
// taken some of the changes after the cursor, and no others than those that the
// log holds once it has reached begun. So for every object that the log changes
// after the cursor, the Old of its first event is put back. A store that hangs
// holds up this listener alone. Of a store that is read in pages, the state has the
// first; see turn.
func (l *informerProcessorListener[T]) snapshot(ctx context.Context, origin Origin) (*state[T], bool) {
	s := l.newState(origin)
	return s, l.turn(ctx, s)
}

// newState returns a state at the listener's cursor, nothing of which is read. It is made
// before the store is waited for, because the cursor may move on meanwhile.
func (l *informerProcessorListener[T]) newState(origin Origin) *state[T] {
	return &state[T]{since: l.processor.Now(), origin: origin, end: l.cursor.Position(), scan: l.cursor.Clone(), more: true}
}

// turn reads the next page of a state. Nobody else may use it meanwhile. The keys of
// one page come after those of the page before: so what changes after its page was
// read needs no more than its events, and what changes before is put back when its
// page comes.
func (l *informerProcessorListener[T]) turn(ctx context.Context, s *state[T]) bool {
	objs, last, ok := l.page(ctx, s)
	if !ok {
		s.close()
		return false
	}
	begun := l.processor.begun.Load()
	for s.scan.Position() < begun {
		if s.follow() || !s.scan.Sleep() {
			continue
		}
		select {
		case <-s.scan.Wake():
		case <-l.processor.draining: // what is missing was given up
			s.close()
			return false
		case <-l.removed:
			s.close()
			return false
		}
	}
	s.open(objs, last)
	return true
}

// page reads the next page of a state.
func (l *informerProcessorListener[T]) page(ctx context.Context, s *state[T]) (objs []any, last string, ok bool) {
	ok = l.insist(ctx, "scan", func() (err error) {
		objs, last, err = l.processor.scan.page(ctx, s.last)
		return err
	}, s.followAll)
	return objs, last, ok
}

// insist reads something of the store, and tries again if that fails, until the listener
// is removed or there is no time left. In between the log does not wait for the store.
func (l *informerProcessorListener[T]) insist(ctx context.Context, op string, try func() error, between func()) bool {
	backoff := storeBackoff
	for failures := 1; ; failures++ {
		l.listing.Store(true)
		err := try()
		l.listing.Store(false)
		if err == nil {
			return true
		}
		if failures == 1 && !l.gone.Load() {
			l.processor.report(ctx, &StoreError{Op: op, Failures: failures, Err: err})
		}
		if !l.rest(ctx, backoff.Step(), between) {
			return false
		}
	}
}

// rest waits, and takes from the log what would be too much meanwhile. It returns false if
// the listener is removed, or if there is no time left.
func (l *informerProcessorListener[T]) rest(ctx context.Context, pause time.Duration, between func()) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for over := false; !over; {
		select {
		case <-timer.C:
			over = true
		case <-l.news.Wake():
		case <-l.processor.draining:
			return false
		case <-l.removed:
			return false
		}
		l.keepUp(ctx)
		between()
	}
	return true
}

// state is what a listener is told before it follows the log. It makes its
// records when they are asked for, so that a large state costs little more than
// the listing.
type state[T Object] struct {
	since  time.Duration
	origin Origin
	end    int64
	heir   bool  // gone is still to be told, before all else
	gone   []any // what a durable store has kept

	// The page at hand.
	objs []any  // as listed
	olds []any  // what was there at end of what has changed since
	last string // nothing up to this key is of a later page
	more bool   // there is another page

	scan    *cursor[T]     // has read the log so far; nil after the last page
	changed map[string]any // by key: what was there at end, nil for nothing; instead of what is listed

	marker bool // to be followed by the synced marker
}

// left returns how many objects may still be told, as far as they were read.
func (s *state[T]) left() int64 {
	if s == nil {
		return 0
	}
	return int64(len(s.gone) + len(s.objs) + len(s.olds))
}

// open begins the page that ends with the key last, or the last page.
func (s *state[T]) open(objs []any, last string) {
	for key := range s.changed {
		if key <= s.last {
			delete(s.changed, key)
		}
	}
	s.objs, s.last, s.more = objs, last, last != ""
	for key, old := range s.changed {
		if old != nil && (key <= last || !s.more) {
			s.olds = append(s.olds, old)
		}
	}
	if !s.more {
		s.close()
	}
}

// close lets go of the log.
func (s *state[T]) close() {
	s.scan.Close()
	s.scan = nil
}

// follow reads on in the log, and reports whether there was anything.
func (s *state[T]) follow() bool {
	seg, ok := s.scan.Next(maxChunk)
	if ok {
		s.putBack(seg.Records)
	}
	return ok
}

func (s *state[T]) followAll() {
	for s.scan != nil && s.follow() {
	}
}

// putBack notes what the first event of each object found.
func (s *state[T]) putBack(records []record[T]) {
	for i := range records {
		r := &records[i]
		if r.kind != recordEvent || r.key <= s.last {
			continue
		}
		if _, seen := s.changed[r.key]; seen {
			continue
		}
		if s.changed == nil {
			s.changed = map[string]any{}
		}
		if r.event.Type == EventAdded {
			s.changed[r.key] = nil
		} else {
			s.changed[r.key] = r.event.Old
		}
	}
}

// next returns the next part of the page, or false after the last.
func (s *state[T]) next() (segment[T], bool) {
	if s.heir {
		return s.nextGone(), true
	}
	records := make([]record[T], 0, min(len(s.objs)+len(s.olds)+1, maxChunk))
	for len(records) < cap(records) && len(s.objs) > 0 {
		if obj, ok := s.objs[0].(T); ok {
			key := object.Key(obj)
			if _, changed := s.changed[key]; !changed {
				records = append(records, s.record(key, obj))
			}
		}
		s.objs = s.objs[1:] // and nothing is written to it: it may be the store's own
	}
	for len(records) < cap(records) && len(s.olds) > 0 {
		obj := s.olds[0].(T)
		records = append(records, s.record(object.Key(obj), obj))
		s.olds = s.olds[1:]
	}
	if len(records) < cap(records) && s.marker && !s.more {
		records = append(records, record[T]{kind: recordMarker, since: s.since})
		s.marker = false
	}
	if len(records) == 0 {
		return segment[T]{}, false
	}
	return segment[T]{Records: records, Events: countEvents(records), End: s.end}, true
}

// nextGone returns the next part of what is gone, with the last of which the position of
// the state is reached; it may be empty.
func (s *state[T]) nextGone() segment[T] {
	n := min(len(s.gone), maxChunk)
	told := segment[T]{Events: n, End: -1}
	for _, stored := range s.gone[:n] {
		obj := stored.(T)
		e := Event[T]{Old: obj, Type: EventDeleted, Origin: OriginInitial, FinalStateUnknown: true}
		told.Records = append(told.Records, record[T]{key: object.Key(obj), event: e, since: s.since})
	}
	if s.gone = s.gone[n:]; len(s.gone) == 0 {
		s.heir, told.End = false, s.end
	}
	return told
}

func (s *state[T]) record(key string, obj T) record[T] {
	e := Event[T]{New: obj, Type: EventAdded, Origin: s.origin}
	if s.origin == OriginResync {
		e.Type, e.Old = EventUpdated, obj
	}
	return record[T]{key: key, event: e, since: s.since}
}
