package informer

import (
	"math"

	"k8s.io/utils/buffer"
)

// ringSize is the number of segments for which a listener's ring keeps room once it is empty.
const ringSize = 16

// maxLimit is the largest limit of a backlog. A log position can be added to it.
const maxLimit = math.MaxInt / 2

// backlog holds the events that pop has taken from the log because run has fallen behind. It
// is a ring of segments. The ring costs little more than the log itself, because a segment is
// extended as far as its chunk reaches. If more events than the limit wait, they are merged
// by object and do not keep the chunks of the log alive any more. A backlog owns no goroutine.
type backlog[T Object] struct {
	limit     int // negative: never merge
	events    int
	firstAdds int            // how many of the events are adds of the first list, and not merged
	nonEvents int            // records in ring and last that are no events
	byObject  *mergeQueue[T] // the merged events, all older than ring and last; nil if there are none
	ring      *buffer.Ring[segment[T]]
	last      segment[T] // goes into the ring when it cannot be extended
}

// push adds a segment. If more events than the limit wait then, it merges all of them. It
// returns how many events were merged away.
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

// room returns how many more events may wait before they are merged. It is negative if too
// many wait already. The adds of the first list do not count: there is one per object, so
// that merging them takes time and memory and saves nothing. The limit also holds for
// records that are no events, such as those of relists that find nothing new.
func (b *backlog[T]) room() int {
	if b.limit < 0 {
		return math.MaxInt
	}
	return b.limit - max(b.events-b.firstAdds, b.nonEvents)
}

// countFirstAdds returns how many of the records are adds of the first list.
func countFirstAdds[T Object](records []record[T]) int {
	n := 0
	for i := range records {
		if e := &records[i].event; e.Type == EventAdded && e.Origin == OriginInitial {
			n++
		}
	}
	return n
}

// mergeSegment merges the events of a segment with those that are merged already, and
// returns how many were merged away.
func (b *backlog[T]) mergeSegment(s segment[T]) (away int) {
	at := s.End - int64(len(s.Records))
	for i := range s.Records {
		if r := &s.Records[i]; r.isEvent() || r.kind == recordMarker {
			_, n := b.byObject.mergeRecord(r, at+int64(i))
			away += n
		}
	}
	b.byObject.end = s.End
	return away
}

// pop removes and returns the oldest events, or returns false if there are none.
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

// popSegment removes and returns the oldest segment that is not merged, or returns false if
// there is none.
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
