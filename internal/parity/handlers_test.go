package parity_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func TestSharedHandlersHear(t *testing.T) {
	sharedCases{
		"the first list and what follows, when added before the start": eachWay(func(t *testing.T, s shared, src *source) {
			inf := s.new(src, 0)
			h := listen(t, inf)
			h.expect(t)
			runShared(t, inf)
			h.expect(t, "add a@1 initial", "add b@2 initial")
			change(t, src, "c=1", "a=2", "-b", "b=2")
			h.expect(t, "add c@3", "update a@1->a@4", "delete b@5", "add b@6")
			checkShared(t, inf, "a@4", "b@6", "c@3")
		}),
		"the first list and what follows, when added before it arrives": func(t *testing.T, s shared) {
			src, release := held()
			inf := s.new(src, 0)
			runShared(t, inf)
			h := listen(t, inf)
			h.expect(t)
			checkSynced(t, false, inf, h.reg)
			release()
			h.expect(t, "add a@1 initial", "add b@2 initial")
			change(t, src, "c=1")
			h.expect(t, "add c@3")
		},
		"what there is and what follows, when added late": func(t *testing.T, s shared) {
			src, inf := s.over(two())
			runShared(t, inf)
			change(t, src, "c=1", "a=2")
			synctest.Wait()
			h := listen(t, inf)
			h.expect(t, "add a@4 initial", "add b@2 initial", "add c@3 initial")
			change(t, src, "d=1", "a=3", "-b")
			h.expect(t, "add d@5", "update a@4->a@6", "delete b@7")
		},
		"what there was when they were added, and its delete": func(t *testing.T, s shared) {
			src, inf := s.over(two())
			runShared(t, inf)
			h := listen(t, inf)
			change(t, src, "-a", "b=2")
			h.expect(t, "add a@1 initial", "delete a@3", "add b@2 initial", "update b@2->b@4")
		},
		"of the objects that the cache holds": func(t *testing.T, s shared) {
			src, inf, early := follow(t, s, one())
			late := listen(t, inf)
			synctest.Wait()
			first := cached(t, inf, "a")
			for _, h := range []*heard{early, late} {
				_, added := h.last(t)
				equal(t, "the added object is that of the store", added == first, true)
			}
			change(t, src, "a=2")
			synctest.Wait()
			for _, h := range []*heard{early, late} {
				if before, after := h.last(t); before != first || after != cached(t, inf, "a") {
					t.Error("the objects of an update are not those that the store had and has")
				}
			}
		},
		"of the cache after it has changed": func(t *testing.T, s shared) {
			src, inf := s.over(one())
			var stored []string
			handle(t, inf, &heard{hook: func(string) {
				stored = append(stored, "none")
				if obj, exists, _ := inf.GetIndexer().GetByKey("default/a"); exists {
					stored[len(stored)-1] = stateOf(obj)
				}
			}})
			runShared(t, inf)
			change(t, src, "a=2")
			synctest.Wait()
			change(t, src, "-a")
			synctest.Wait()
			equal(t, "the store at the time of each event", stored, "[a@1 a@2 none]")
		},
		"the last state of what was deleted": func(t *testing.T, s shared) {
			src, inf, h := follow(t, s, one())
			change(t, src, "a=last", "-a")
			synctest.Wait()
			_, got := h.last(t)
			equal(t, "value of the delete", got.(configMap).Data["value"], "last")
			h.expect(t, "add a@1 initial", "update a@1->a@2", "delete a@3")
			equal(t, "last version, which is that of the delete", short(inf.LastSyncResourceVersion()), "3")
		},
		// The backlog of a handler has no bound, so no waiting event is merged.
		"all states, however slow they are": func(t *testing.T, s shared) {
			src, g := one(), make(gate)
			const maxBacklog = 10_000 // of a watcher, by default
			inf, h := s.new(src, 0), heard{hook: g.wait}
			handle(t, inf, &h)
			runShared(t, inf)
			want := []string{"add a@1 initial"}
			for i := range maxBacklog + 100 {
				src.Apply(object("a", fmt.Sprint(i+2)))
				want = append(want, fmt.Sprintf("update a@%d->a@%d", i+1, i+2))
			}
			synctest.Wait()
			close(g)
			synctest.Wait()
			if got := h.take(); !slices.Equal(got, want) {
				t.Errorf("the handler got %d events, want %d", len(got), len(want))
			}
		},
		"adds and updates by what the cache holds": func(t *testing.T, s shared) {
			src, _, h := follow(t, s, one())
			again, unknown := object("a", "2"), object("b", "1")
			again.ResourceVersion, unknown.ResourceVersion = "1005", "1006"
			src.Inject(watch.Event{Type: watch.Added, Object: again})
			src.Inject(watch.Event{Type: watch.Modified, Object: unknown})
			h.expect(t, "add a@1 initial", "update a@1->a@5", "add b@6")
		},
		"nothing when nothing changes": func(t *testing.T, s shared) {
			src, _, h := settled(t, s, two())
			src.Bookmark()
			sleepBubble(time.Minute) // the reflector treats a watch that ends at once as a fault
			src.Disconnect()         // the next watch starts at the last version
			sleepBubble(hour)
			src.Bookmark()
			h.expect(t)
		},
	}.inBubbles(t)
}

func TestSharedSyncing(t *testing.T) {
	sharedCases{
		"of the informer and of a handler is seen in every way": func(t *testing.T, s shared) {
			inf := s.new(two(), 0)
			reg := listen(t, inf).reg
			early := []cache.DoneChecker{inf.HasSyncedChecker(), reg.HasSyncedChecker()}
			checkSynced(t, false, inf, inf.GetController(), reg)
			equal(t, "synced before the start", cache.WaitFor(within(t, time.Minute), "", early...), false)
			runShared(t, inf)
			checkSynced(t, true, inf, inf.GetController(), reg)
			equal(t, "the checkers from before the start are done", cache.WaitFor(t.Context(), "", early...), true)
			equal(t, "synced", cache.WaitForCacheSync(t.Context().Done(), inf.HasSynced, reg.HasSynced), true)
			if name := early[0].Name(); !strings.Contains(name, "ConfigMap") {
				t.Errorf("the name of the informer's checker is %q", name)
			}
			if name := early[1].Name(); !strings.Contains(name, "ConfigMap") || !strings.Contains(name, "heard") {
				t.Errorf("the name of the handler's checker is %q", name)
			}
		},
		"comes with an empty list, too": func(t *testing.T, s shared) {
			for _, faults := range []informertest.Faults{{}, lists} {
				src := informertest.NewSource[configMap]()
				src.SetFaults(faults)
				_, inf, early := follow(t, s, src)
				checkSynced(t, true, inf, early.reg)
				late := listen(t, inf)
				early.expect(t)
				late.expect(t)
				checkSynced(t, true, late.reg)
			}
		},
		"of a slow handler comes after that of the informer": func(t *testing.T, s shared) {
			src, g := two(), make(gate)
			inf, slow := s.new(src, 0), heard{hook: g.wait}
			slowReg, fast := handle(t, inf, &slow), listen(t, inf)
			runShared(t, inf)
			checkSynced(t, true, inf, fast.reg)
			checkSynced(t, false, slowReg)
			change(t, src, "c=1")
			fast.expect(t, "add a@1 initial", "add b@2 initial", "add c@3")
			close(g)
			slow.expect(t, "add a@1 initial", "add b@2 initial", "add c@3")
			checkSynced(t, true, slowReg)
		},
		"of a late handler comes after its first calls": func(t *testing.T, s shared) {
			inf, g := s.new(two(), 0), make(gate)
			runShared(t, inf)
			reg := handle(t, inf, &heard{hook: g.wait})
			checkSynced(t, false, reg)
			synctest.Wait()
			checkSynced(t, false, reg) // it is in its first call
			close(g)
			synctest.Wait()
			checkSynced(t, true, reg)
		},
		"never comes once stopped": func(t *testing.T, s shared) {
			src, release := held()
			inf := s.new(src, 0)
			h := listen(t, inf)
			runShared(t, inf)()
			checkStopped(t, inf, true) // although a list is held up
			release()
			sleepBubble(hour)
			checkSynced(t, false, inf, h.reg)
		},
		"continues after the source was refused": func(t *testing.T, s shared) {
			src := two()
			refuseLists(src, 5)
			_, inf, h := follow(t, s, src)
			checkSynced(t, false, inf)
			sleepBubble(hour)
			checkSynced(t, true, inf, h.reg)
			h.expect(t, "add a@1 initial", "add b@2 initial")
		},
		"means that the cache or the handler has all": func(t *testing.T, s shared) {
			src := informertest.NewSource[configMap]()
			const n = 1000
			for i := range n {
				src.Apply(object(fmt.Sprint(i), "1"))
			}
			inf := s.new(src, 0)
			h := listen(t, inf)
			testkit.StartShared(t, inf)
			<-inf.HasSyncedChecker().Done()
			equal(t, "objects in the cache at its sync", len(inf.GetStore().List()), n)
			<-h.reg.HasSyncedChecker().Done()
			equal(t, "calls at the sync of the handler", len(h.take()), n)
		},
	}.inBubbles(t)
}
