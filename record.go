package informer

import (
	"time"

	"github.com/customcacheinformer/informer/internal/eventlog"
)

// What the log holds, and how it is read.
type (
	segment[T Object] = eventlog.Segment[record[T]]
	cursor[T Object]  = eventlog.Cursor[record[T]]
)

const maxChunk = eventlog.MaxChunk

// recordKind says what a record of the log stands for.
type recordKind uint8

const (
	recordEvent  recordKind = iota
	recordMarker            // the informer has synced
	recordVoid              // the store has refused what was announced
	recordFinal             // New is what the object of the next record, a delete, was in the end
)

// record is an entry of the log. It is written once and shared by all listeners.
type record[T Object] struct {
	key       string // as the store has it
	event     Event[T]
	kind      recordKind
	unchanged bool          // a relist found the object as it was: no event for native watchers
	since     time.Duration // when it was told, by the processor's stopwatch
}

// isEvent reports whether a watcher is called for r.
func (r *record[T]) isEvent() bool { return r.kind == recordEvent && !r.unchanged }

func countEvents[T Object](records []record[T]) int {
	n := 0
	for i := range records {
		if records[i].isEvent() {
			n++
		}
	}
	return n
}
