package informer

import "time"

// join returns the state at the listener's cursor, which was taken when it was
// added, and after it the synced marker if the log has it behind the cursor.
func (l *informerProcessorListener[T]) join() (*state[T], bool) {
	from := l.cursor.position()
	if from == 0 {
		// The state before the first event is what the store held before Run.
		select {
		case <-l.processor.filled:
		case <-l.processor.draining: // which may come first
		case <-l.removed:
			return nil, false
		}
		if !closed(l.processor.filled) || !l.processor.seeded {
			return nil, true
		}
	}
	s, ok := l.snapshot(OriginInitial)
	at := l.processor.syncedAt.Load()
	s.marker = at >= 0 && at < from
	return s, ok
}

// snapshot returns the state at the listener's cursor without a lock that the
// apply loop would have to wait for. The store is listed as it is by now; it has
// taken some of the changes after the cursor, and no others than those that the
// log holds once it has reached begun. So for every object that the log changes
// after the cursor, the Old of its first event is put back. A store that hangs
// holds up this listener alone.
func (l *informerProcessorListener[T]) snapshot(origin Origin) (*state[T], bool) {
	l.listing.Store(true)
	s := &state[T]{since: l.processor.now(), origin: origin, end: l.cursor.position(), objs: l.processor.list()}
	l.listing.Store(false)
	begun := l.processor.log.begun.Load()
	scan := l.cursor.clone()
	defer scan.close()
	for scan.position() < begun {
		seg, ok := scan.next(maxChunk)
		if ok {
			s.putBack(seg.records)
			continue
		}
		if !scan.sleep() {
			continue
		}
		select {
		case <-scan.wake:
		case <-l.processor.draining: // what is missing was given up
			return s, false
		case <-l.removed:
			return s, false
		}
	}
	for _, old := range s.changed {
		if old != nil {
			s.olds = append(s.olds, old)
		}
	}
	return s, true
}

// state is what a listener is told before it follows the log. It makes its
// records when they are asked for, so that a large state costs little more than
// the listing.
type state[T Object] struct {
	since   time.Duration
	origin  Origin
	end     int64
	objs    []any          // as listed
	changed map[string]any // by key: what was there at end, nil for nothing; instead of what is listed
	olds    []any          // those of changed that were there
	marker  bool           // to be followed by the synced marker
}

// left returns how many objects may still be told.
func (s *state[T]) left() int64 {
	if s == nil {
		return 0
	}
	return int64(len(s.objs) + len(s.olds))
}

// putBack notes what the first event of each object found.
func (s *state[T]) putBack(records []record[T]) {
	for i := range records {
		r := &records[i]
		if r.kind != recordEvent {
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

// next returns the next part of the state, or false after the last.
func (s *state[T]) next() (segment[T], bool) {
	records := make([]record[T], 0, min(len(s.objs)+len(s.olds)+1, maxChunk))
	for len(records) < cap(records) && len(s.objs) > 0 {
		if obj, ok := s.objs[0].(T); ok {
			key := objectKey(obj)
			if _, changed := s.changed[key]; !changed {
				records = append(records, s.record(key, obj))
			}
		}
		s.objs = s.objs[1:] // and nothing is written to it: it may be the store's own
	}
	for len(records) < cap(records) && len(s.olds) > 0 {
		obj := s.olds[0].(T)
		records = append(records, s.record(objectKey(obj), obj))
		s.olds = s.olds[1:]
	}
	if len(records) < cap(records) && s.marker {
		records = append(records, record[T]{kind: recordMarker, since: s.since})
		s.marker = false
	}
	if len(records) == 0 {
		return segment[T]{}, false
	}
	return segment[T]{records: records, events: countEvents(records), end: s.end}, true
}

func (s *state[T]) record(key string, obj T) record[T] {
	e := Event[T]{New: obj, Type: EventAdded, Origin: s.origin}
	if s.origin == OriginResync {
		e.Type, e.Old = EventUpdated, obj
	}
	return record[T]{key: key, event: e, since: s.since}
}
