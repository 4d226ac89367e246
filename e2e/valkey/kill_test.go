package valkey_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// In every third round the Valkey server is killed, too.
func TestAWriterKilledAtAnyMomentMissesNoDelete(t *testing.T) {
	kills := 30
	if testing.Short() {
		kills = 4
	}
	w := newWorld(t)
	has, gone := map[string]types.UID{}, map[string]bool{}
	change := func(n int) {
		for range n {
			name := fmt.Sprintf("o%d", rand.IntN(30))
			if uid := has[name]; uid != "" && rand.IntN(2) == 0 {
				w.remove(name)
				gone[string(uid)] = true
				delete(has, name)
			} else {
				has[name] = w.object(name)
			}
		}
	}
	told, deleted := map[string]bool{}, map[string]int{}
	hear := func(a *actor) {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, m := range a.said {
			switch {
			case m.Gone != "":
				deleted[m.Gone]++
			case m.Exists != "":
				told[m.Exists] = true
			}
		}
	}
	change(20)
	early := 0
	for round := range kills {
		writer := w.start(role{Name: fmt.Sprintf("writer %d", round), Token: 1})
		if round%2 == 0 {
			w.Await("a writer has not synced", func() bool { return writer.has(synced) })
		}
		change(rand.IntN(40))
		if round%3 == 2 {
			w.restartValkey()
			change(rand.IntN(10))
		}
		writer.end()
		if !writer.has(synced) {
			early++
		}
		hear(writer)
		change(rand.IntN(10))
	}
	last := w.writer(role{Name: "the last writer", Token: 1})
	w.Await("the store does not have the state of the API server", func() bool { return maps.Equal(w.stored(), w.state()) })
	missed := func() (missed, seen, twice int) {
		all := maps.Clone(deleted)
		for _, uid := range last.all(func(m message) string { return m.Gone }) {
			all[uid]++
		}
		for uid := range gone {
			if told[uid] {
				seen++
				if all[uid] == 0 {
					missed++
				}
				if all[uid] > 1 {
					twice++
				}
			}
		}
		return missed, seen, twice
	}
	w.Await("a delete is never delivered", func() bool { n, _, _ := missed(); return n == 0 })
	_, seen, twice := missed()
	t.Logf("%d kills, %d of them before the informer had synced; %d deletes, %d of objects that watchers knew, %d delivered more than once",
		kills, early, len(gone), seen, twice)
	for uid := range deleted {
		if !gone[uid] {
			t.Errorf("a watcher got the delete of %s, which did not happen", uid)
		}
	}
	if seen < kills {
		t.Errorf("too little load: watchers knew %d of the deleted objects", seen)
	}
}
