package informer

import (
	"container/list"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/utils/buffer"
)

// ringSize is the number of segments for which a listener's ring keeps memory when it is empty.
const ringSize = 16

// maxLimit is the largest limit of a backlog. Adding a log position to it does not overflow.
const maxLimit = math.MaxInt / 2

// backlog holds the events that pop has taken from the log because run has fallen behind. It is a ring of
// segments. The ring needs little more memory than the log itself, because a segment is extended up to
// the end of its chunk. If more events than the limit wait, they are merged by object, and no longer keep
// the chunks of the log in memory. A backlog owns no goroutine.
type backlog[T Object] struct {
	limit     int // negative: never merge
	events    int
	firstAdds int            // how many of the events are adds of the first list, and not merged
	nonEvents int            // records in ring and last that are not events
	byObject  *mergeQueue[T] // the merged events, all older than ring and last; nil if there are none
	ring      *buffer.Ring[segment[T]]
	last      segment[T] // goes into the ring when it cannot be extended
}

// push adds a segment. If more events than the limit wait then, it merges all of them. It returns how
// many events will not be delivered because of that.
func (b *backlog[T]) push(s segment[T]) (away int) {
	b.events += s.Events
	b.firstAdds += countFirstAdds(s.Records)
	b.nonEvents += len(s.Records) - s.Events
	if len(b.last.Records) == 0 {
		b.last = s
	} else if !b.last.Extend(s) {
		if b.ring == nil { // most watchers never need one
			b.ring = buffer.NewRing[segment[T]](buffer.RingOptions{NormalSize: ringSize})
		}
		b.ring.WriteOne(b.last)
		b.last = s
	}
	if b.room() >= 0 {
		return 0
	}
	if b.byObject == nil {
		b.byObject = newMergeQueue[T]()
	}
	for s, ok := b.popSegment(); ok; s, ok = b.popSegment() {
		away += b.mergeSegment(s)
	}
	b.events -= away
	b.firstAdds, b.nonEvents = 0, 0
	return away
}

// room returns how many more events may wait before they are merged. It is negative if too many wait
// already. The adds of the first list do not count: there is one per object, so merging them would save
// nothing. The limit also applies to records that are not events, such as those of relists that find
// nothing new.
func (b *backlog[T]) room() int {
	if b.limit < 0 {
		return math.MaxInt
	}
	return b.limit - max(b.events-b.firstAdds, b.nonEvents)
}

func countFirstAdds[T Object](records []record[T]) int {
	n := 0
	for i := range records {
		if e := &records[i].event; e.Type == EventAdded && e.Origin == OriginInitial {
			n++
		}
	}
	return n
}

// mergeSegment merges the events of a segment with those that are merged already. It returns how many
// events will not be delivered because of that.
func (b *backlog[T]) mergeSegment(s segment[T]) (away int) {
	at := s.End - int64(len(s.Records))
	for i := range s.Records {
		switch r := &s.Records[i]; {
		case r.isEvent(), r.kind == recordMarker:
			_, n := b.byObject.mergeRecord(r, at+int64(i))
			away += n
		case r.kind == recordLeft:
			_, n := b.byObject.drop(r.key)
			away += n
		}
	}
	b.byObject.end = s.End
	return away
}

func (b *backlog[T]) pop() (segment[T], bool) {
	if b.byObject != nil {
		s := b.byObject.pop(min(b.limit, maxChunk))
		b.events -= s.Events
		if b.byObject.oldest() == nil {
			b.byObject = nil // a map does not shrink
		}
		return s, true
	}
	s, ok := b.popSegment()
	b.events -= s.Events
	b.firstAdds -= countFirstAdds(s.Records)
	b.nonEvents -= len(s.Records) - s.Events
	return s, ok
}

// popSegment removes and returns the oldest segment that is not merged. It returns false if there is
// none.
func (b *backlog[T]) popSegment() (segment[T], bool) {
	if b.ring != nil {
		if s, ok := b.ring.ReadOne(); ok {
			return s, true
		}
	}
	s := b.last
	b.last = segment[T]{}
	return s, len(s.Records) > 0
}

// mergeQueue holds the events that wait for one watcher. The events of each object are merged into one,
// or into a delete and an add if the object was created again. The entries are in the order of their
// first events. A mergeQueue owns no goroutine and has no lock.
type mergeQueue[T Object] struct {
	byKey map[string]*entry[T]
	order list.List // of *entry[T]
	end   int64     // the log position that is reached when the queue is empty
	// inherits is true if the watcher gets the deletes that a durable store has kept, so that it may know
	// objects from before it was added.
	inherits bool
}

// entry holds the waiting events of one object. An entry without a key is the synced marker.
type entry[T Object] struct {
	key      string
	events   []Event[T]    // oldest first: mostly one, or a delete and an add
	position int64         // the log position before the first event
	since    time.Duration // when the first event was appended to the log
	place    *list.Element // in the order of the queue

	// Only a crew uses the rest.
	failures     int           // failed attempts at events[0]
	failedNew    T             // New of the last failed attempt that had one; zero before
	initial      bool          // an event of the initial state was enqueued
	blocksSynced bool          // Synced waits for the first attempt
	callBegan    time.Duration // when a worker claimed the entry
	left         bool          // the object has left since a worker claimed the entry
	notBefore    time.Duration // when the next attempt may begin
}

func newMergeQueue[T Object]() *mergeQueue[T] {
	return &mergeQueue[T]{byKey: map[string]*entry[T]{}}
}

// mergeRecord adds a record that is an event or the marker. at is the log position before the record.
// mergeRecord returns the entry of the record, and how many events will not be delivered because of
// merging. If no event of the object remains, the entry is no longer in the queue.
func (q *mergeQueue[T]) mergeRecord(r *record[T], at int64) (e *entry[T], away int) {
	e = q.byKey[r.key]
	if e == nil || r.kind == recordMarker {
		e = &entry[T]{key: r.key, position: at, since: r.since}
		e.place = q.order.PushBack(e)
		if r.kind == recordMarker {
			return e, 0
		}
		q.byKey[r.key] = e
	}
	before := len(e.events) + 1
	q.mergeEvent(e, r.event)
	if len(e.events) == 0 {
		q.remove(e)
	}
	return e, before - len(e.events)
}

// mergeEvent adds an event to those of e. An add and a later delete usually cancel each other out. If the
// watcher may know the object from before the watcher was added, both are kept, because only the delete
// shows the watcher that the object is gone.
func (q *mergeQueue[T]) mergeEvent(e *entry[T], event Event[T]) {
	var none T
	n := len(e.events)
	attempted := n == 1 && e.failedNew != none
	if q.inherits && !attempted && n > 0 && event.Type == EventDeleted {
		if last := e.events[n-1]; last.Type == EventAdded && last.Origin == OriginInitial {
			e.events = append(e.events, event)
			return
		}
	}
	e.events = fold(e.events, event, attempted)
}

func (q *mergeQueue[T]) remove(e *entry[T]) {
	q.order.Remove(e.place)
	if q.byKey[e.key] == e {
		delete(q.byKey, e.key)
	}
}

// drop removes the events of an object that has left. It returns their entry and their number, or nil and
// 0 if there are none.
func (q *mergeQueue[T]) drop(key string) (e *entry[T], events int) {
	if e = q.byKey[key]; e == nil {
		return nil, 0
	}
	q.remove(e)
	return e, len(e.events)
}

func (q *mergeQueue[T]) oldest() *entry[T] {
	if front := q.order.Front(); front != nil {
		return front.Value.(*entry[T])
	}
	return nil
}

// waitingSince returns when the oldest waiting event was appended to the log, or 0 if no event waits.
func (q *mergeQueue[T]) waitingSince() time.Duration {
	if e := q.oldest(); e != nil {
		return e.since
	}
	return 0
}

// reached returns the highest log position before which no event waits.
func (q *mergeQueue[T]) reached() int64 {
	if e := q.oldest(); e != nil {
		return e.position
	}
	return q.end
}

func (q *mergeQueue[T]) pop(n int) segment[T] {
	s := segment[T]{Records: make([]record[T], 0, min(n, q.order.Len())), AsOf: q.end}
	for e := q.oldest(); e != nil && s.Events < n; e = q.oldest() {
		if e.key == "" {
			s.Records = append(s.Records, record[T]{kind: recordMarker, since: e.since})
			q.remove(e)
			continue
		}
		s.Records = append(s.Records, record[T]{key: e.key, event: e.events[0], since: e.since})
		s.Events++
		if e.events = e.events[1:]; len(e.events) == 0 {
			q.remove(e)
		}
	}
	s.End = q.reached()
	return s
}

// fold adds an event to the waiting events of its object, and returns the events that wait then. A
// watcher that gets only these knows the same state in the end, and Old of each event is the object as
// that watcher knows it. The delete of an object that was created again is kept, because the new object
// is another one. attempted is true if the first waiting event was delivered and failed. An add is then
// not cancelled by a delete, because the attempt may have had effects.
func fold[T Object](waiting []Event[T], e Event[T], attempted bool) []Event[T] {
	var none T
	if len(waiting) == 0 {
		return append(waiting, e)
	}
	last := &waiting[len(waiting)-1]
	switch {
	case last.Type == EventDeleted && e.Type == EventDeleted && last.Old.GetUID() == e.Old.GetUID():
		return waiting // the store has lost the object twice
	case last.Type == EventDeleted && e.Type == EventDeleted:
		return append(waiting, e) // a durable store has kept deletes of several objects of this name
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

// leave is a place in the log at which objects have left the store without a delete. Events of these
// objects before this place are no longer delivered. The leaves form a chain, so that a listener that is
// behind finds them before it reaches them in the log.
type leave struct {
	keys map[string]struct{}
	at   int64                 // the log position of the last of its records
	next atomic.Pointer[leave] // until it is set, the leave has not happened
}

// ahead holds the leaves that a listener knows and has not reached in the log. Only run uses it, or with a crew, the goroutine that
// holds the crew's mu.
type ahead struct {
	coming *leave // the one that happens next
	leaves []*leave
}

// look returns the leaves that have happened since the last call of look.
func (a *ahead) look() []*leave {
	n := len(a.leaves)
	for next := a.coming.next.Load(); next != nil; next = a.coming.next.Load() {
		a.leaves = append(a.leaves, a.coming)
		a.coming = next
	}
	return a.leaves[n:]
}

// voids reports whether the object with that key has left after the log position at.
func (a *ahead) voids(key string, at int64) bool {
	return slices.ContainsFunc(a.leaves, func(l *leave) bool {
		_, left := l.keys[key]
		return left && at <= l.at
	})
}
