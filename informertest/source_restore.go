package informertest

import (
	"fmt"
	"strconv"
)

// Restore goes back to the state at version, like an API server whose etcd is restored from a
// backup: the objects and the resourceVersion are those of that time, and all later changes are
// undone. The next write gets the next number after version, so one resourceVersion may stand for
// two states. UIDs are not used again. All open watches end at once, without an error. Events that
// their readers have not received yet are lost. When Restore returns, Watches returns 0.
//
// A reader that opens a watch again may ask for a resourceVersion that is now in the future. A
// plain watch is then silent until the source has passed that resourceVersion. A watch with initial
// events and a LIST return an error, see WatchWithContext and ListWithContext.
//
// The source still remembers the changes up to version, for watches that start before it and for a
// further Restore. Restore accepts the resourceVersions from the last Compact or Expire, or from
// the start of the source, up to the current one. For any other version it returns an error and
// does nothing. It does not block.
func (s *Source[T]) Restore(version string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	past, err := strconv.ParseUint(version, 10, 64)
	if err != nil || past < s.history.since || past > s.version {
		return fmt.Errorf("informertest: Restore: %q is not a resourceVersion from %d to %d", version, s.history.since, s.version)
	}
	s.objects = s.history.rewind(s.objects, past)
	s.history.cut(past)
	s.version = past
	s.endWatches(nil)
	return nil
}

// cut makes the history end at version, which must not be before h.since. Watches that follow the
// old history do not notice it; the caller must end them.
func (h *history[T]) cut(version uint64) {
	kept := newHistory[T](h.since)
	for e := h.oldest.next; e != nil && e.version <= version; e = e.next {
		// The other entries are for open watches, and none will be open.
		if e.kind == entryChange {
			kept.add(&entry[T]{kind: e.kind, version: e.version, key: e.key, before: e.before, after: e.after})
		}
	}
	*h = kept
}
