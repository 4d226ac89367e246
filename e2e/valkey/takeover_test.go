package valkey_test

import (
	"slices"
	"strings"
	"syscall"
	"testing"
)

// The first writer is paused while the second one takes over.
func TestAWriterThatWasPausedPastATakeoverStoresNothing(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a", "b", "c"} {
		w.object(name)
	}
	first := w.writer(role{Name: "first", Token: 1})
	w.object("d")
	reader := w.start(role{Name: "reader", Informers: 1})
	w.Await("the reader does not have the first state", func() bool { return w.stateOf(reader).Hashes[0] == hash(w.state()) })

	w.OK(first.Pause(t.Context()))
	w.remove("b")
	w.object("a")
	w.object("e")
	second := w.start(role{Name: "second", Token: 2})
	w.Await("the second writer has not got the delete", func() bool {
		return slices.Equal(second.all(func(m message) string { return m.Deleted }), []string{"b"})
	})
	w.Await("the reader does not have what the second writer wrote", func() bool { return w.stateOf(reader).Hashes[0] == hash(w.state()) })
	w.wantATakeover("second")

	w.OK(first.Signal(syscall.SIGCONT))
	w.object("f") // so that the first writer has something to write
	w.Await("the first writer continues", func() bool { return first.has(func(m message) bool { return m.Ended != "" }) })
	if !first.has(func(m message) bool { return m.Fenced }) {
		t.Errorf("the first writer exited with %q", first.all(func(m message) string { return m.Ended }))
	}
	if deleted := first.all(func(m message) string { return m.Deleted }); len(deleted) > 0 {
		t.Errorf("the watcher of the first writer got the deletes %q", deleted)
	}
	w.Await("the reader does not have the last state", func() bool { return w.stateOf(reader).Hashes[0] == hash(w.state()) })
	if s := w.stateOf(reader); len(s.Wrong) > 0 || s.Lists != 1 || s.Deletes != 1 {
		t.Errorf("the reader has listed %d times, and got %d deletes and %q", s.Lists, s.Deletes, s.Wrong)
	}
	w.wantStored()
	w.wantATakeover("second")
	third := w.start(role{Name: "third", Token: 1})
	w.Await("a writer with an old token opens the store", func() bool { return third.has(func(m message) bool { return strings.Contains(m.Ended, "token 2") }) })
}
