package informer

import (
	"math"

	"k8s.io/utils/buffer"
)

// ringSize is how many segments a listener's ring keeps room for once it is empty.
const ringSize = 16

// backlog is what pop has taken from the log because run has fallen behind: a ring
// of segments, which costs little more than the log itself, because a segment grows
// for as long as its chunk does. Beyond the limit, what the ring holds is merged
// by object, and no longer keeps the log alive. It owns no goroutine.
type backlog[T Object] struct {
	limit  int // negative: never merge
	events int
	whole  int        // how many of them, not merged yet, are adds of the first list
	others int        // how many records, not merged yet, are no events
	merged *merged[T] // nil if nothing is
	ring   *buffer.Ring[segment[T]]
	last   segment[T] // goes into the ring when it cannot grow any more
}

// push adds a segment, and merges everything if more than the limit waits then. It
// returns how many events were merged away.
func (b *backlog[T]) push(s segment[T]) (away int) {
	b.events += s.Events
	b.whole += countFirstAdds(s.Records)
	b.others += len(s.Records) - s.Events
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
	if b.merged == nil {
		b.merged = newMerged[T]()
	}
	for s, ok := b.oldest(); ok; s, ok = b.oldest() {
		away += b.merge(s)
	}
	b.events -= away
	b.whole, b.others = 0, 0
	return away
}

// room returns how many more events may wait before they are merged; less than none
// if there are too many already. The adds of the first list do not count: they are
// one per object, so that to merge them takes time and memory and saves nothing. Nor
// may there be more records than that of which nothing remains, such as those of
// relists that have found nothing new.
func (b *backlog[T]) room() int {
	if b.limit < 0 {
		return math.MaxInt
	}
	return b.limit - max(b.events-b.whole, b.others)
}

// countFirstAdds counts what the first list has added.
func countFirstAdds[T Object](records []record[T]) int {
	n := 0
	for i := range records {
		if e := &records[i].event; e.Type == EventAdded && e.Origin == OriginInitial {
			n++
		}
	}
	return n
}

// merge merges a segment into what waits.
func (b *backlog[T]) merge(s segment[T]) (away int) {
	at := s.End - int64(len(s.Records))
	for i := range s.Records {
		if r := &s.Records[i]; r.isEvent() || r.kind == recordMarker {
			_, n := b.merged.add(r, at+int64(i))
			away += n
		}
	}
	b.merged.end = s.End
	return away
}

// pop returns what comes next, or false if nothing waits.
func (b *backlog[T]) pop() (segment[T], bool) {
	if b.merged != nil {
		s := b.merged.take(min(b.limit, maxChunk))
		b.events -= s.Events
		if b.merged.oldest() == nil {
			b.merged = nil // a map does not shrink
		}
		return s, true
	}
	s, ok := b.oldest()
	b.events -= s.Events
	b.whole -= countFirstAdds(s.Records)
	b.others -= len(s.Records) - s.Events
	return s, ok
}

// oldest removes the oldest segment that is not merged.
func (b *backlog[T]) oldest() (segment[T], bool) {
	if b.ring != nil {
		if s, ok := b.ring.ReadOne(); ok {
			return s, true
		}
	}
	s := b.last
	b.last = segment[T]{}
	return s, len(s.Records) > 0
}
