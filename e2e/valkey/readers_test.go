package valkey_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestReadersHaveEveryChangeWithoutTheAPIServer(t *testing.T) {
	processes, informers, changes := 10, 10, 400
	if testing.Short() {
		processes, informers, changes = 2, 5, 60
	}
	w := newWorld(t)
	rng := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	change := func(n int) {
		for range n {
			if name := fmt.Sprintf("o%d", rng.IntN(50)); rng.IntN(4) == 0 {
				w.remove(name)
			} else {
				w.object(name)
			}
		}
	}
	change(100)
	token := int64(1)
	writer := w.start(role{Name: "writer", Token: token, Log: 500})
	readers := make([]*actor, processes)
	for i := range readers {
		readers[i] = w.start(role{Name: fmt.Sprintf("reader %d", i), Informers: informers})
	}
	converge := func(after string) {
		t.Helper()
		begun, want := time.Now(), hash(w.state())
		for i, r := range readers {
			w.await(fmt.Sprintf("reader %d does not have the state after %s", i, after), func() bool {
				s := w.stateOf(r)
				if len(s.Wrong) > 0 {
					t.Fatalf("after %s, reader %d was told %q", after, i, s.Wrong)
				}
				return !slices.ContainsFunc(s.Hashes, func(h uint64) bool { return h != want })
			})
		}
		t.Logf("after %s all have the state, %v later; reader 0 has listed %d times", after, time.Since(begun).Round(time.Millisecond), w.stateOf(readers[0]).Lists)
	}
	converge("the start")
	change(changes)
	converge("changes")
	lists := w.stateOf(readers[0]).Lists
	if lists != informers {
		t.Errorf("the %d informers of a reader have listed %d times", informers, lists)
	}
	late := []time.Duration{}
	for _, r := range readers {
		late = append(late, w.stateOf(r).Late...)
	}
	slices.Sort(late)
	t.Logf("from the write to the event: p50 %v, p99 %v of %d events", late[len(late)/2], late[len(late)*99/100], len(late))

	w.restartValkey()
	change(changes / 4)
	converge("a kill of the server")

	writer.Kill()
	change(changes / 4)
	token++
	writer = w.start(role{Name: "the next writer", Token: token, Log: 500})
	converge("a kill of the writer")
	if again := w.stateOf(readers[0]).Lists; again != lists {
		t.Errorf("the informers of a reader have listed %d times since the start", again-lists)
	}
	asked := writer.all(func(m message) string { return m.Asked })
	if len(asked) != 2 || !strings.HasSuffix(asked[0], "?limit=1") || !strings.Contains(asked[1], "watch=true") {
		t.Errorf("100 readers and the next writer have asked the API server for %q, want one object and a watch", asked)
	}

	w.ok(readers[0].Signal(syscall.SIGSTOP))
	change(700) // more than the log has room for
	w.ok(readers[0].Signal(syscall.SIGCONT))
	converge("a pause past the end of the log")

	writer.Kill()
	change(changes / 4)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w.ok(server.Expire(ctx, w.resource))
	token++
	w.start(role{Name: "the last writer", Token: token, Log: 500})
	converge("a list of the writer")
	if again := w.stateOf(readers[1]).Lists; again < lists+informers {
		t.Errorf("after a list of the writer, the informers of a reader have listed %d times", again-lists)
	}
	deletes, events := 0, 0
	for _, r := range readers {
		s := w.stateOf(r)
		deletes, events = deletes+s.Deletes, events+s.Events
	}
	t.Logf("%d informers were told %d events, %d of them deletes", processes*informers, events, deletes)
}
