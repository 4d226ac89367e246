package informer

import (
	"time"

	"github.com/customcacheinformer/informer/internal/eventlog"
)

// The log of an informer, instantiated for its records.
type (
	segment[T Object] = eventlog.Segment[record[T]]
	cursor[T Object]  = eventlog.Cursor[record[T]]
)

const maxChunk = eventlog.MaxChunk

// recordKind is the kind of a record in the log.
type recordKind uint8

const (
	recordEvent  recordKind = iota
	recordMarker            // the informer has synced
	recordVoid              // the store has refused the change, after begun had counted its record
	recordFinal             // New is the final state of the object that the next record deletes
)

// record is an entry of the log. It is written once and shared by all listeners.
type record[T Object] struct {
	key       string // of the object in the store
	event     Event[T]
	kind      recordKind
	unchanged bool          // a relist found the object unchanged: no event for native watchers
	since     time.Duration // when the record was appended, by the processor's stopwatch
}

// isEvent reports whether a watcher is called for r.
func (r *record[T]) isEvent() bool { return r.kind == recordEvent && !r.unchanged }

// countEvents returns how many of the records are events.
func countEvents[T Object](records []record[T]) int {
	n := 0
	for i := range records {
		if records[i].isEvent() {
			n++
		}
	}
	return n
}
