package informertest

import (
	"fmt"
	"strconv"
)

// Restore goes back to what was true at version, as an API server does whose etcd
// is restored from a backup and which is started again: the objects and the
// resourceVersion are those of then, and what has happened since never has. The next
// write gets the next number again, so that a resourceVersion may stand for two
// states; UIDs are not given out again. All open watches end at once, without an
// error, and events that have not been taken from their channels are lost to them.
// When it returns no watch is open, as Watches counts them.
//
// A reader that comes back may ask for a resourceVersion that is now to come, and is
// answered as WatchWithContext and ListWithContext say: a plain watch is silent until
// the resourceVersion is past it, initial events and a LIST are refused.
//
// What happened until version is still remembered, for watches that start before it
// and for going back further. The error is that version is not between the last
// Compact or Expire, or the beginning, and the current resourceVersion; nothing has
// happened then. It does not block.
func (s *Source[T]) Restore(version string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	past, err := strconv.ParseUint(version, 10, 64)
	if err != nil || past < s.history.since || past > s.version {
		return fmt.Errorf("informertest: Restore: %q is no resourceVersion from %d to %d", version, s.history.since, s.version)
	}
	s.objects = s.history.rewind(s.objects, past)
	s.history.cut(past)
	s.version = past
	s.endWatches(nil)
	return nil
}

// cut makes the history end at version, which must not be before h.since. The
// watches that walk along what it was are not disturbed, and must be ended.
func (h *history[T]) cut(version uint64) {
	kept := newHistory[T](h.since)
	for e := h.oldest.next; e != nil && e.version <= version; e = e.next {
		// The others are for watches that are open, and none will be.
		if e.kind == entryChange {
			kept.add(&entry[T]{kind: e.kind, version: e.version, key: e.key, before: e.before, after: e.after})
		}
	}
	*h = kept
}
