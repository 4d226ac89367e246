package valkey_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"
)

// change creates, changes and deletes n objects.
func (w *world) change(n int) {
	w.Helper()
	for range n {
		if name := fmt.Sprintf("o%d", rand.IntN(50)); rand.IntN(4) == 0 {
			w.remove(name)
		} else {
			w.object(name)
		}
	}
}

// converge waits until all readers have the state of the API server. It fails the test if a reader
// got an event that it should not get.
func (w *world) converge(readers []*actor, after string) {
	w.Helper()
	begun, want := time.Now(), hash(w.state())
	for i, r := range readers {
		w.Await(fmt.Sprintf("reader %d does not have the state after %s", i, after), func() bool {
			s := w.stateOf(r)
			if len(s.Wrong) > 0 {
				w.Fatalf("after %s, reader %d got %q", after, i, s.Wrong)
			}
			return !slices.ContainsFunc(s.Hashes, func(h uint64) bool { return h != want })
		})
	}
	w.Logf("after %s all have the state, %v later; the informers of each reader have listed %d times",
		after, time.Since(begun).Round(time.Millisecond), w.stateOf(readers[len(readers)-1]).Lists)
}

func TestReadersHaveEveryChangeWithoutTheAPIServer(t *testing.T) {
	processes, informers, changes := 10, 10, 400
	if testing.Short() {
		processes, informers, changes = 2, 5, 60
	}
	w := newWorld(t)
	w.change(100)
	writer := w.writer(role{Name: "writer", Token: 1, Log: 500})
	before := len(w.front.Asked("", 0))
	readers := make([]*actor, processes)
	for i := range readers {
		readers[i] = w.start(role{Name: fmt.Sprintf("reader %d", i), Informers: informers})
	}
	lists := func(i int) int { return w.stateOf(readers[i]).Lists }
	w.converge(readers, "the start")
	sent := w.sent()
	w.change(changes)
	w.converge(readers, "changes")
	w.Logf("%d changes: the server has sent %d bytes to each informer", changes, (w.sent()-sent)/(processes*informers))
	w.latency(writer, readers)
	for i := range readers {
		if n := lists(i); n != informers {
			t.Errorf("the %d informers of reader %d have listed %d times", informers, i, n)
		}
	}

	for range 5 {
		w.change(changes / 20)
		w.do("CLIENT", "KILL", "TYPE", "normal")
	}
	w.converge(readers, "connections that are cut")
	w.change(changes / 8)
	w.valkey.Kill()
	w.change(changes / 8)
	w.restartValkey()
	w.converge(readers, "a kill of the server")
	if again := w.front.Asked("", before); len(again) > 0 {
		t.Errorf("%d readers have caused the requests %v to the API server", processes*informers, again)
	}
	if n := w.front.Watches(); n != 1 {
		t.Errorf("the API server has %d watches, want that of the writer", n)
	}

	// A watch that was cut as soon as it had begun has made its informer list.
	listed := lists(0)
	writer.Kill()
	w.change(changes / 4)
	w.start(role{Name: "the next writer", Token: 2, Log: 500})
	w.converge(readers, "a kill of the writer")
	if n := lists(0); n != listed {
		t.Errorf("after a kill of the writer, the informers of a reader have listed %d times", n-listed)
	}
	w.wantATakeover("the next writer")

	w.OK(readers[0].Pause(t.Context()))
	w.change(800) // more than the log has room for
	w.converge(readers[1:], "a reader's pause")
	w.OK(readers[0].Signal(syscall.SIGCONT))
	w.converge(readers, "a pause past the end of the log")
	if n := lists(0); n < listed+informers {
		t.Errorf("after a pause past the end of the log, the %d informers of a reader have listed %d times", informers, n-listed)
	}

	listed = lists(1)
	w.front.Leave()
	w.change(changes / 4)
	w.OK(server.Expire(t.Context(), w.resource))
	w.front.Away.Store(false)
	w.converge(readers, "a list of the writer")
	if n := lists(1); n < listed+informers {
		t.Errorf("after a list of the writer, the %d informers of a reader have listed %d times", informers, n-listed)
	}
	w.wantStored()
	if n := w.front.Watches(); n != 1 {
		t.Errorf("at the end, the API server has %d watches, want that of the writer", n)
	}
	deletes, events := 0, 0
	for _, r := range readers {
		s := w.stateOf(r)
		deletes, events = deletes+s.Deletes, events+s.Events
	}
	t.Logf("%d informers delivered %d events, %d of them deletes", processes*informers, events, deletes)
}

// latency logs the time from the moment when the writer begins to store a change to the moment when a
// watcher of a reader gets it.
func (w *world) latency(writer *actor, readers []*actor) {
	w.Helper()
	stored, late := map[string]time.Time{}, []time.Duration{}
	writer.mu.Lock()
	for _, m := range writer.said {
		for _, s := range m.Stored {
			stored[s.Version] = s.At
		}
	}
	writer.mu.Unlock()
	for _, r := range readers {
		for _, s := range w.ask(r, "seen").Seen {
			if at, ok := stored[s.Version]; ok {
				late = append(late, s.At.Sub(at))
			}
		}
	}
	if len(late) == 0 {
		w.Error("no reader got a change")
		return
	}
	slices.Sort(late)
	w.Logf("from the writer to a reader's watcher: p50 %v, p99 %v of %d events", late[len(late)/2], late[len(late)*99/100], len(late))
}
