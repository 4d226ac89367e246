package informertest

import (
	"maps"

	"github.com/customcacheinformer/informer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// history holds everything that has happened since the last compaction, as a linked list that only
// grows at its end. Each watch follows the list at its own pace, without a lock and without a
// buffer. The garbage collector frees entries that all watches have passed and that the source has
// forgotten.
type history[T informer.Object] struct {
	// oldest and newest are the ends of the list. oldest is not part of the history; it only holds
	// the link to the first entry.
	oldest, newest *entry[T]
	// since is the resourceVersion after which all changes are in the history.
	since uint64
}

type entryKind uint8

const (
	entryChange   entryKind = iota // for the watches that start before it
	entryBookmark                  // for the watches open at the time that allow bookmarks
	entryRaw                       // for the watches open at the time
)

// entry is one event for watches. Except for its link it does not change.
type entry[T informer.Object] struct {
	kind     entryKind
	version  uint64 // the resourceVersion of the change; for other kinds the current one at the time
	position uint64 // in the history; unlike the version, unique

	key           types.NamespacedName // if a change
	before, after T                    // if a change; one of them may be the zero T
	event         watch.Event          // if raw

	linked chan struct{} // closed when next is set
	next   *entry[T]
}

func newHistory[T informer.Object](version uint64) history[T] {
	start := &entry[T]{version: version, linked: make(chan struct{})}
	return history[T]{oldest: start, newest: start, since: version}
}

// add appends e, and wakes up the watches that wait for it.
func (h *history[T]) add(e *entry[T]) {
	last := h.newest
	e.position = last.position + 1
	e.linked = make(chan struct{})
	h.newest, last.next = e, e
	close(last.linked)
}

// forget drops all entries, so that no state before version can be restored.
func (h *history[T]) forget(version uint64) {
	h.oldest, h.since = h.newest, version
}

// after returns the last entry that is not newer than version. All entries that follow it are
// newer. version must not be before h.since.
func (h *history[T]) after(version uint64) *entry[T] {
	e := h.oldest
	for e.next != nil && e.next.version <= version {
		e = e.next
	}
	return e
}

// rewind returns the objects as they were at version, which must not be before h.since. objects are
// the current objects.
func (h *history[T]) rewind(objects map[types.NamespacedName]T, version uint64) map[types.NamespacedName]T {
	objects = maps.Clone(objects)
	known := map[types.NamespacedName]bool{}
	var none T
	for e := h.after(version).next; e != nil; e = e.next {
		// The first change of an object after version holds its state at version.
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
