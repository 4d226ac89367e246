package namespaces_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// run runs the next process over the store for a minute, and checks the store and the watcher.
func (s *server) run(t *testing.T, namespaces ...string) *reader {
	t.Helper()
	s.gates = map[string]*gate{}
	inf := s.informer(t, options{Durable: s.reopen()}, namespaces...)
	inf.start(time.Minute)
	equal(t, "synced", inf.HasSynced(), true)
	inf.check(namespaces...)
	inf.stop()
	return inf
}

// asked returns the requests since the last call of run began, by namespace.
func (s *server) asked() map[string]string {
	asked := map[string]string{}
	for namespace, g := range s.gates {
		asked[namespace] = g.asked()
	}
	return asked
}

func deletes(r *recorder) (keys []string) {
	for _, e := range r.Events() {
		if e.Type == informer.EventDeleted {
			keys = append(keys, e.Key().String())
		}
	}
	slices.Sort(keys)
	return keys
}

// A restart replays nothing: each namespace continues from a version of its own, also if another
// is far ahead.
func TestARestartOverSeveralNamespacesListsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(object("a", "x", "1"), object("b", "x", "1"), object("b", "gone", "1"))
		s.run(t, "a", "b")
		for n := range 10 {
			s.Apply(object("a", "x", fmt.Sprint("ahead", n)))
		}
		// The version of a gets past the delete in b, which is not seen.
		inf := s.informer(t, options{Durable: s.reopen()}, "a", "b")
		inf.start(time.Second)
		open := s.gate("b").hold()
		_, _ = s.Delete(keyOf("b", "gone"))
		s.Apply(object("a", "x", "last"))
		time.Sleep(time.Second)
		inf.stop()
		open()
		if bookmark, err := s.reopen().Resume(t.Context()); err != nil || !strings.HasPrefix(bookmark, `{"a":"`) {
			t.Errorf("the bookmark is %s, %v", bookmark, err)
		}
		equal(t, "deletes", deletes(s.run(t, "a", "b").recorder), "[b/gone]")
		equal(t, "the restart has asked", s.asked(), "map[a:0 lists, 1 watches b:0 lists, 1 watches]")
	})
}

// An informer over other namespaces takes over the store: it lists only the new ones, and reports
// the objects of the others as deleted.
func TestOtherNamespacesOverAStore(t *testing.T) {
	for _, tc := range []struct {
		before, after  []string // nil for an informer over all
		asked, deletes string
	}{
		{[]string{"a", "b"}, []string{"b", "c"}, "map[b:0 lists, 1 watches c:1 lists, 1 watches]", "[a/x]"},
		{[]string{"a", "b"}, []string{"b"}, "map[b:0 lists, 1 watches]", "[a/x]"},
		{[]string{"a"}, []string{"a", "b"}, "map[a:0 lists, 1 watches b:1 lists, 1 watches]", "[]"},
		{nil, []string{"b"}, "map[b:1 lists, 1 watches]", "[a/x c/x]"},
	} {
		inBubble(t, fmt.Sprint(tc.before, " to ", tc.after), func(t *testing.T) {
			s := newServer(object("a", "x", "1"), object("b", "x", "1"), object("c", "x", "1"))
			if tc.before == nil {
				testkit.OneRun(t, s.source, s.store, options{})
			} else {
				s.run(t, tc.before...)
			}
			equal(t, "deletes", deletes(s.run(t, tc.after...).recorder), tc.deletes)
			equal(t, "asked", s.asked(), tc.asked)
			s.run(t, tc.after...)
			if asked := fmt.Sprint(s.asked()); strings.Contains(asked, "1 lists") { // nothing foreign is left
				t.Errorf("the third start has asked: %s", asked)
			}
		})
	}
}

func TestAnInformerOverAllNamespacesTakesOverAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(object("a", "x", "1"), object("b", "x", "1"))
		s.run(t, "a")
		r := testkit.OneRun(t, s.source, s.reopen(), options{})
		equal(t, "deletes", deletes(r), "[]")
		equal(t, "objects", len(r.View()), 2)
	})
}

// A process that ends while it removes the objects of other namespaces lists everything at the
// next start, and removes the rest.
func TestForeignObjectsAreRemovedAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(object("b", "x", "1"))
		for n := range 2500 { // more than one batch
			s.Apply(object("a", fmt.Sprint("x", n), "1"))
		}
		s.run(t, "a", "b")
		failAfter(s.reopen(), 1)
		inf := s.informer(t, options{Durable: s.store, ErrorHandler: testkit.Ignore}, "b")
		inf.start(time.Second)
		inf.stop()
		s.reopen()
		if bookmark, err := s.store.Resume(t.Context()); bookmark != "" || err != nil || len(testkit.Stored(s.store)) == 1 {
			t.Errorf("the bookmark is %q, %v; %d objects", bookmark, err, len(testkit.Stored(s.store)))
		}
		s.run(t, "b")
		equal(t, "objects that are left", len(testkit.Stored(s.reopen())), 1)
	})
}

// failAfter makes every Apply of a store fail after the next n.
func failAfter(store *testkit.Durable, n int) {
	n += store.Calls("apply")
	store.Fail(func(op, _ string) error {
		return testkit.ErrorIf(op == "apply" && store.Calls(op) > n, testkit.ErrDown)
	})
}

// A store that is not a Durable is cleaned at each start.
func TestForeignObjectsOfAPlainStoreAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(object("a", "x", "1"))
		inf := s.informer(t, options{Store: testkit.NewPlainStore(object("b", "old", "1"), object("a", "old", "1"))}, "a")
		informertest.Run(t, inf.Informer)
		inf.check("a")
		equal(t, "deletes", deletes(inf.recorder), "[a/old b/old]")
	})
}

// A bookmark that names no namespace has no meaning for the store.
func TestABookmarkWithoutNamespacesIsNone(t *testing.T) {
	for _, bookmark := range []string{"", "null", "{}", "[]", "5", "{"} {
		inBubble(t, bookmark, func(t *testing.T) {
			s := newServer(object("a", "x", "1"))
			must(t, s.store.Apply(t.Context(), []informer.Change{testkit.Storing(object("b", "old", "1"))}, bookmark))
			equal(t, "deletes", deletes(s.run(t, "a").recorder), "[b/old]")
		})
	}
}

// Each namespace lists again after an outage. To find the deletes, the informer reads the objects
// of that namespace, and not the whole store.
func TestARelistOfOneNamespaceReadsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		var namespaces []string
		for n := range 20 {
			namespaces = append(namespaces, fmt.Sprint("n", n))
			for m := range 100 {
				s.Apply(object(namespaces[n], fmt.Sprint("x", m), "1"))
			}
		}
		s.run(t, namespaces...)
		for _, namespace := range namespaces {
			_, _ = s.Delete(keyOf(namespace, "x7"))
		}
		s.Compact()
		equal(t, "deletes", len(deletes(s.run(t, namespaces...).recorder)), len(namespaces))
		// A relist reads one page for its namespace. The load at the start and the join of the
		// watcher read the five pages of the store, the check reads it again.
		testkit.AtMost(t, "scans of the store", s.store.Calls("scan"), 2*len(namespaces))
	})
}

// A namespace leaves and returns while the store is read. That is not a reason to forget that the store has another one, too.
func TestAReturnHidesNoForeignNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(object("a", "x", "1"), object("b", "x", "1"))
		s.run(t, "a", "b")
		release := s.reopen().Hang()
		inf := s.informer(t, options{Durable: s.store}, "a")
		inf.start(0)
		synctest.Wait()
		inf.set()
		inf.set("a")
		release()
		inf.checkAfter(time.Minute, "a")
	})
}
