package parity_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// A store without indexes still gives the client-go view an indexer. The tests of internal/index
// have the details of it.
func TestAnyStoreIsServedAsAnIndexer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "x"), object("b", "y"), object("c", "y"))
		store := informertest.NewStore(nil)
		var errs errorLog
		inf := configured(src, &corev1.ConfigMap{}, anyOptions{Store: store, ErrorHandler: errs.Handle}, byNamespace())
		indexer := inf.GetIndexer()
		wantError(t, false, "Add", indexer.Add(object("z", "y"))) // before the start, as a user's test would do
		wantError(t, false, "AddIndexers", inf.AddIndexers(byValue()))
		checkByIndex(t, inf, "y", "z@")
		runShared(t, inf)
		checkByIndex(t, inf, "y", "b@2", "c@3")
		equal(t, "in the namespace", testkit.Count(indexer.ByIndex(cache.NamespaceIndex, "default")), 3)
		change(t, src, "b=x", "-c")
		synctest.Wait()
		checkByIndex(t, inf, "y")
		checkByIndex(t, inf, "x", "a@1", "b@4")

		wantError(t, false, "AddIndexers", inf.AddIndexers(cache.Indexers{"letter": func(obj any) ([]string, error) {
			if name := obj.(configMap).Name; name != "b" {
				return []string{name[:1]}, nil
			}
			return nil, errors.New("has no letter")
		}}))
		if keys, err := indexer.IndexKeys("letter", "a"); err != nil || !slices.Equal(keys, []string{"default/a"}) {
			t.Errorf("with the letter: %v, %v", keys, err)
		}
		if got := errs.Take(); len(got) != 1 || !strings.Contains(got[0].Error(), "default/b") {
			t.Errorf("reported %v", got)
		}
		wantError(t, true, "AddIndexers again", inf.AddIndexers(byValue()))
		wantError(t, false, "Add", indexer.Add(object("gone", "old")))
		wantError(t, false, "Replace", indexer.Replace([]any{object("a", "x"), object("r", "z")}, ""))
		checkByIndex(t, inf, "z", "r@")
		equal(t, "values after Replace", sorted(indexer.ListIndexFuncValues("value")), "[x z]")
		noError(t, store.Err())
	})
}

// TestAnIndexMayBeAddedWhileTheStoreChanges adds indexes during writes. In the end every
// object must be found under its last value only.
func TestAnIndexMayBeAddedWhileTheStoreChanges(t *testing.T) {
	for round := range 20 {
		src := informertest.NewSource[configMap]()
		native := testkit.NewInformer(t, src, options{Store: informertest.NewStore(nil)})
		inf := native.SharedIndexInformer()
		stop := testkit.Start(t, native)
		var done sync.WaitGroup
		done.Go(func() {
			for n := range 300 {
				if n%7 == 6 {
					_, _ = src.Delete(keyOf(fmt.Sprint("o", n%10)))
				} else {
					src.Apply(object(fmt.Sprint("o", n%10), fmt.Sprint(n%3)))
				}
			}
		})
		names := []string{"first", "second", "third"}
		for _, name := range names {
			done.Go(func() { wantError(t, false, "AddIndexers", inf.AddIndexers(cache.Indexers{name: byValueFunc})) })
		}
		done.Wait()
		must(t, native.WaitForVersion(t.Context(), "", src.ResourceVersion()))
		want := map[string][]string{}
		for _, obj := range src.Objects() {
			want[obj.Data["value"]] = append(want[obj.Data["value"]], "default/"+obj.Name)
		}
		for _, name := range names {
			for _, value := range []string{"0", "1", "2"} {
				keys, err := inf.GetIndexer().IndexKeys(name, value)
				if err != nil || !slices.Equal(sorted(keys), sorted(want[value])) {
					t.Errorf("with %s %s: %v, %v, want %v", name, value, keys, err, want[value])
				}
			}
		}
		stop()
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
}

func TestObjectsThatAnyStoreRefusesAreNotInTheIndexes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, down := testkit.NewPlainStore(), errors.New("it is down")
		inf := configured(informertest.NewSource(object("a", "x")), &corev1.ConfigMap{}, anyOptions{Store: store}, cache.Indexers{
			"value": func(obj any) ([]string, error) {
				if obj.(configMap).Name == "bad" {
					return nil, down
				}
				return byValueFunc(obj)
			},
		})
		runShared(t, inf)
		indexer := inf.GetIndexer()
		store.SetFail(func(string, string) error { return down })
		_, err := indexer.Index("value", object("other", "x"))
		wantError(t, true, "Index while the store cannot be read", err)
		wantError(t, true, "Add", indexer.Add(object("b", "y")))
		wantError(t, true, "Delete", indexer.Delete(object("a", "x")))
		wantError(t, true, "Replace", indexer.Replace([]any{object("b", "y")}, ""))
		store.SetFail(nil)
		if found, err := indexer.Index("value", object("bad", "x")); !errors.Is(err, down) {
			t.Errorf("Index of an object whose index function fails: %v, %v", found, err)
		}
		checkByIndex(t, inf, "x", "a@1")
		equal(t, "values", indexer.ListIndexFuncValues("value"), "[x]")
	})
}
