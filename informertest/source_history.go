package informertest

import (
	"maps"

	"github.com/customcacheinformer/informer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// history is all that has happened since the last compaction, as a linked list
// that only ever grows at its end. Each watch walks along it at its own pace,
// without a lock and without a buffer. What all watches have passed, and the
// source has forgotten, is left to the garbage collector.
type history[T informer.Object] struct {
	// oldest and newest are entries, of which oldest is no longer part of the
	// history. It is there for the link to the next.
	oldest, newest *entry[T]
	// since is the resourceVersion after which all changes are in the history.
	since uint64
}

// entryKind says what a watch makes of an entry.
type entryKind uint8

const (
	entryChange   entryKind = iota // for the watches that start before it
	entryBookmark                  // for the watches open at the time that want any
	entryRaw                       // for the watches open at the time
)

// entry is one thing that watches deliver. It does not change, but for its link.
type entry[T informer.Object] struct {
	kind     entryKind
	version  uint64 // the resourceVersion of the change, or at the time
	position uint64 // in the history; unlike the version, unique

	key           types.NamespacedName // of a change
	before, after T                    // of a change; one may be the zero T
	event         watch.Event          // if raw

	linked chan struct{} // closed when next is set
	next   *entry[T]
}

func newHistory[T informer.Object](version uint64) history[T] {
	start := &entry[T]{version: version, linked: make(chan struct{})}
	return history[T]{oldest: start, newest: start, since: version}
}

// add appends e. It wakes up the watches that wait for it.
func (h *history[T]) add(e *entry[T]) {
	last := h.newest
	e.position = last.position + 1
	e.linked = make(chan struct{})
	h.newest, last.next = e, e
	close(last.linked)
}

// forget drops all entries, so that nothing before version can be had.
func (h *history[T]) forget(version uint64) {
	h.oldest, h.since = h.newest, version
}

// after returns the last entry that is not newer than version. What follows it
// is what has happened since. The version must not be before h.since.
func (h *history[T]) after(version uint64) *entry[T] {
	e := h.oldest
	for e.next != nil && e.next.version <= version {
		e = e.next
	}
	return e
}

// rewind returns the objects as they were at version, which must not be before
// h.since, given those of now.
func (h *history[T]) rewind(objects map[types.NamespacedName]T, version uint64) map[types.NamespacedName]T {
	objects = maps.Clone(objects)
	known := map[types.NamespacedName]bool{}
	var none T
	for e := h.after(version).next; e != nil; e = e.next {
		// The first change of an object after version tells what it was then.
		if e.kind != entryChange || known[e.key] {
			continue
		}
		known[e.key] = true
		if e.before == none {
			delete(objects, e.key)
		} else {
			objects[e.key] = e.before
		}
	}
	return objects
}
