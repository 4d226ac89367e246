package informer

import (
	"container/list"
	"time"
)

// merged is what waits for one watcher, with the events of each object merged
// into one, or into two where it was deleted and created again. Entries stand in
// the order of their first events. It owns no goroutine.
type merged[T Object] struct {
	byKey map[string]*entry[T]
	order list.List // of *entry[T]
	end   int64     // the position that is reached when nothing is left
	// inherits says that the watcher may know what it is told at first from the time
	// before.
	inherits bool
}

// entry is what waits of one object. One without a key is the synced marker.
type entry[T Object] struct {
	key    string
	events []Event[T] // one, or a delete and an add
	first  int64      // the position before the first of them
	since  time.Duration
	place  *list.Element

	// Of a crew.
	failures  int           // of events[0]
	tried     T             // what a failed attempt has told, as New
	initial   bool          // Synced waits for the first attempt
	begun     time.Duration // the call that it is in the hands of
	notBefore time.Duration // when it may be tried again
}

func newMerged[T Object]() *merged[T] { return &merged[T]{byKey: map[string]*entry[T]{}} }

// add takes in a record that is an event or the marker, the position before which
// is at. It returns the entry, which is gone if nothing is left of it, and how
// many events were merged away.
func (m *merged[T]) add(r *record[T], at int64) (e *entry[T], away int) {
	e = m.byKey[r.key]
	if e == nil || r.kind == recordMarker {
		e = &entry[T]{key: r.key, first: at, since: r.since}
		e.place = m.order.PushBack(e)
		if r.kind == recordMarker {
			return e, 0
		}
		m.byKey[r.key] = e
	}
	return e, m.fold(e, r.event)
}

// fold merges an event into e and returns how many were merged away.
func (m *merged[T]) fold(e *entry[T], event Event[T]) int {
	before := len(e.events) + 1
	m.join(e, event)
	if len(e.events) == 0 {
		m.remove(e)
	}
	return before - len(e.events)
}

// join adds an event to those of e. The end of an object that the watcher may know from
// the time before is told in any case, after the add that it was to begin with.
func (m *merged[T]) join(e *entry[T], event Event[T]) {
	var none T
	n := len(e.events)
	tried := n == 1 && e.tried != none
	if m.inherits && !tried && n > 0 && event.Type == EventDeleted {
		if last := e.events[n-1]; last.Type == EventAdded && last.Origin == OriginInitial {
			e.events = append(e.events, event)
			return
		}
	}
	e.events = fold(e.events, event, tried)
}

// remove takes e out.
func (m *merged[T]) remove(e *entry[T]) {
	m.order.Remove(e.place)
	if m.byKey[e.key] == e {
		delete(m.byKey, e.key)
	}
}

// oldest returns the first entry, or nil.
func (m *merged[T]) oldest() *entry[T] {
	if front := m.order.Front(); front != nil {
		return front.Value.(*entry[T])
	}
	return nil
}

// since returns since when the oldest waits, or 0.
func (m *merged[T]) since() time.Duration {
	if e := m.oldest(); e != nil {
		return e.since
	}
	return 0
}

// reached returns the position up to which nothing is left.
func (m *merged[T]) reached() int64 {
	if e := m.oldest(); e != nil {
		return e.first
	}
	return m.end
}

// take removes up to n events from the front, and returns them as a segment.
func (m *merged[T]) take(n int) segment[T] {
	s := segment[T]{Records: make([]record[T], 0, min(n, m.order.Len()))}
	for e := m.oldest(); e != nil && s.Events < n; e = m.oldest() {
		if e.key == "" {
			s.Records = append(s.Records, record[T]{kind: recordMarker, since: e.since})
			m.remove(e)
			continue
		}
		s.Records = append(s.Records, record[T]{key: e.key, event: e.events[0], since: e.since})
		s.Events++
		if e.events = e.events[1:]; len(e.events) == 0 {
			m.remove(e)
		}
	}
	s.End = m.reached()
	return s
}

// fold adds an event to what waits of an object, so that a watcher who has seen
// none of it ends in the same state, and returns what waits then. Old stays what
// that watcher knows. Of an object that was created again, the delete is kept: it
// is another one. An add that has been attempted is not taken back, because its
// failure may have left something behind.
func fold[T Object](waiting []Event[T], e Event[T], attempted bool) []Event[T] {
	var none T
	if len(waiting) == 0 {
		return append(waiting, e)
	}
	last := &waiting[len(waiting)-1]
	switch {
	case last.Type == EventDeleted && e.Type == EventDeleted && last.Old.GetUID() == e.Old.GetUID():
		return waiting // the store has lost it twice
	case last.Type == EventDeleted && e.Type == EventDeleted:
		return append(waiting, e) // what was kept of several of that name
	case last.Type == EventDeleted:
		e.Type, e.Old = EventAdded, none
		return append(waiting, e)
	case e.Type == EventDeleted && last.Type == EventAdded && !attempted:
		return waiting[:len(waiting)-1]
	case e.Type == EventDeleted:
		e.Merged = e.Merged || last.Merged
		if last.Type == EventUpdated {
			e.Merged = e.Merged || last.Old != last.New
			e.Old = last.Old
		}
		*last = e
	default:
		last.Merged = last.Merged || last.New != e.New
		last.New = e.New
		if last.Type == EventUpdated && e.Origin != OriginResync {
			last.Origin = e.Origin
		}
	}
	return waiting
}
