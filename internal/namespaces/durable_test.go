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

// run runs an informer over a store for a minute. It returns the watcher, and the requests of
// the run to each namespace.
func (s *server) run(t *testing.T, store *testkit.Durable, namespaces ...string) (r *recorder, asked map[string]string) {
	t.Helper()
	s.gates = map[string]*gate{}
	inf, r := s.informer(t, options{Durable: store}, namespaces...)
	stop := testkit.Start(t, inf)
	time.Sleep(time.Minute)
	if !inf.HasSynced() {
		t.Error("it has not synced")
	}
	s.check(t, inf, r, namespaces...)
	stop()
	asked = map[string]string{}
	for namespace, g := range s.gates {
		asked[namespace] = g.asked()
	}
	return r, asked
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

// A restart replays nothing: each namespace goes on from a version of its own, also if another
// is far ahead.
func TestARestartOverSeveralNamespacesListsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := newServer(object("a", "x", "1"), object("b", "x", "1"), object("b", "gone", "1")), informertest.NewDurable()
		s.run(t, store, "a", "b")
		for n := range 10 {
			s.Apply(object("a", "x", fmt.Sprint("ahead", n)))
		}
		// The version of a gets past the delete in b, which is not seen.
		s.gates = map[string]*gate{}
		inf, _ := s.informer(t, options{Durable: store.Reopen()}, "a", "b")
		stop := testkit.Start(t, inf)
		time.Sleep(time.Second)
		open := s.client("b").hold()
		if _, err := s.Delete(keyOf("b", "gone")); err != nil {
			t.Fatal(err)
		}
		s.Apply(object("a", "x", "last"))
		time.Sleep(time.Second)
		stop()
		open()

		store = store.Reopen()
		bookmark, err := store.Resume(t.Context())
		if err != nil || !strings.HasPrefix(bookmark, `{"a":"`) {
			t.Errorf("the bookmark is %s, %v", bookmark, err)
		}
		r, asked := s.run(t, store, "a", "b")
		if got := fmt.Sprint(asked); got != "map[a:0 lists, 1 watches b:0 lists, 1 watches]" {
			t.Errorf("the restart has asked: %s", got)
		}
		if got := fmt.Sprint(deletes(r)); got != "[b/gone]" {
			t.Errorf("the deletes %s were told, want that of b/gone", got)
		}
	})
}

// An informer over other namespaces takes over the store: it lists only the new ones, and tells
// the objects of the others as deleted.
func TestOtherNamespacesOverAStore(t *testing.T) {
	all := func() *server { return newServer(object("a", "x", "1"), object("b", "x", "1"), object("c", "x", "1")) }
	for _, tc := range []struct {
		before, after  []string // nil for an informer over all
		asked, deletes string
	}{
		{[]string{"a", "b"}, []string{"b", "c"}, "map[b:0 lists, 1 watches c:1 lists, 1 watches]", "[a/x]"},
		{[]string{"a", "b"}, []string{"b"}, "map[b:0 lists, 1 watches]", "[a/x]"},
		{[]string{"a"}, []string{"a", "b"}, "map[a:0 lists, 1 watches b:1 lists, 1 watches]", "[]"},
		{nil, []string{"b"}, "map[b:1 lists, 1 watches]", "[a/x c/x]"},
	} {
		t.Run(fmt.Sprint(tc.before, " to ", tc.after), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, store := all(), informertest.NewDurable()
				if tc.before == nil {
					testkit.OneRun(t, s.source, store, options{})
				} else {
					s.run(t, store, tc.before...)
				}
				store = store.Reopen()
				r, asked := s.run(t, store, tc.after...)
				if got := fmt.Sprint(asked); got != tc.asked {
					t.Errorf("asked: %s, want %s", got, tc.asked)
				}
				if got := fmt.Sprint(deletes(r)); got != tc.deletes {
					t.Errorf("deletes: %s, want %s", got, tc.deletes)
				}
				// The next start knows that nothing foreign is left.
				if _, asked := s.run(t, store.Reopen(), tc.after...); strings.Contains(fmt.Sprint(asked), "1 lists") {
					t.Errorf("the third start has asked: %v", asked)
				}
			})
		})
	}
}

func TestAnInformerOverAllNamespacesTakesOverAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := newServer(object("a", "x", "1"), object("b", "x", "1")), informertest.NewDurable()
		s.run(t, store, "a")
		store = store.Reopen()
		r := testkit.OneRun(t, s.source, store, options{})
		if got := deletes(r); len(got) > 0 || len(r.View()) != 2 {
			t.Errorf("deletes: %v, objects: %v", got, r.View())
		}
	})
}

// A process that ends while it removes the objects of other namespaces lists everything at the
// next start, and removes the rest.
func TestForeignObjectsAreRemovedAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var objs []configMap
		for n := range 2500 { // more than one batch
			objs = append(objs, object("a", fmt.Sprint("x", n), "1"))
		}
		s, store := newServer(append(objs, object("b", "x", "1"))...), informertest.NewDurable()
		s.run(t, store, "a", "b")
		store = store.Reopen()
		s.gates = map[string]*gate{}
		var applied int
		store.Fail(func(op, _ string) error {
			if op == "apply" {
				if applied++; applied > 1 {
					return testkit.ErrDown
				}
			}
			return nil
		})
		inf, err := informer.NewInNamespaces(s.client, []string{"b"}, options{Durable: store, ErrorHandler: testkit.Ignore})
		if err != nil {
			t.Fatal(err)
		}
		stop := testkit.Start(t, inf)
		time.Sleep(time.Second)
		stop()
		store = store.Reopen()
		if bookmark, err := store.Resume(t.Context()); bookmark != "" || err != nil || len(testkit.Stored(store)) == 1 {
			t.Errorf("the bookmark is %q, %v; %d objects", bookmark, err, len(testkit.Stored(store)))
		}
		s.run(t, store, "b")
		if objs := testkit.Stored(store); len(objs) != 1 {
			t.Errorf("%d objects are left", len(objs))
		}
	})
}

// A store that is no Durable is cleaned at each start.
func TestForeignObjectsOfAPlainStoreAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(object("a", "x", "1"))
		inf, r := s.informer(t, options{Store: testkit.NewPlainStore(object("b", "old", "1"), object("a", "old", "1"))}, "a")
		informertest.Run(t, inf)
		s.check(t, inf, r, "a")
		if got := fmt.Sprint(deletes(r)); got != "[a/old b/old]" {
			t.Errorf("deletes: %s", got)
		}
	})
}

// A bookmark that names no namespace says nothing about the store.
func TestABookmarkWithoutNamespacesIsNone(t *testing.T) {
	for _, bookmark := range []string{"", "null", "{}", "[]", "5", "{"} {
		t.Run(bookmark, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, store := newServer(object("a", "x", "1")), informertest.NewDurable()
				foreign := []informer.Change{testkit.Storing(object("b", "old", "1"))}
				if err := store.Apply(t.Context(), foreign, bookmark); err != nil {
					t.Fatal(err)
				}
				if r, _ := s.run(t, store, "a"); fmt.Sprint(deletes(r)) != "[b/old]" {
					t.Errorf("deletes: %v", deletes(r))
				}
			})
		})
	}
}

// Each namespace lists again after an outage. To find the deletes, the informer reads the objects
// of that namespace, and not the whole store.
func TestARelistOfOneNamespaceReadsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var objs []configMap
		var namespaces []string
		for n := range 20 {
			namespaces = append(namespaces, fmt.Sprint("n", n))
			for m := range 100 {
				objs = append(objs, object(namespaces[n], fmt.Sprint("x", m), "1"))
			}
		}
		s, store := newServer(objs...), informertest.NewDurable()
		s.run(t, store, namespaces...)
		for _, namespace := range namespaces {
			if _, err := s.Delete(keyOf(namespace, "x7")); err != nil {
				t.Fatal(err)
			}
		}
		s.Compact()
		store = store.Reopen()
		s.gates = map[string]*gate{}
		inf, r := s.informer(t, options{Durable: store}, namespaces...)
		stop := testkit.Start(t, inf)
		time.Sleep(time.Minute)
		s.check(t, inf, r, namespaces...)
		stop()
		if got := len(deletes(r)); got != len(namespaces) {
			t.Errorf("%d deletes were told, want %d", got, len(namespaces))
		}
		// A relist reads one page for its namespace. The load at the start and the join of the
		// watcher read the five pages of the store, the check reads it again.
		if got := store.Calls("scan"); got > 2*len(namespaces) {
			t.Errorf("the store was scanned %d times", got)
		}
	})
}

// A namespace leaves and returns while the store is read. That is no reason to forget that the store has another one, too.
func TestAReturnHidesNoForeignNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := newServer(object("a", "x", "1"), object("b", "x", "1")), informertest.NewDurable()
		s.run(t, store, "a", "b")
		store = store.Reopen()
		release := store.Hang()
		inf, r := s.informer(t, options{Durable: store}, "a")
		testkit.Start(t, inf)
		synctest.Wait()
		set(t, inf)
		set(t, inf, "a")
		release()
		time.Sleep(time.Minute)
		s.check(t, inf, r, "a")
	})
}
