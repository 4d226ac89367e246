package parity_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// A store without indexes still gives the client-go view an indexer.
func TestAnyStoreIsServedAsAnIndexer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "x"), object("b", "y"), object("c", "y"))
		store := informertest.NewStore(nil)
		var errs errorLog
		inf := configured(src, anyOptions{Store: store, ErrorHandler: errs.Handle}, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		indexer := inf.GetIndexer()
		_ = indexer.Add(object("z", "y")) // before the start, as a user's test would do
		byValue := cache.Indexers{"value": func(obj any) ([]string, error) { return []string{obj.(configMap).Data["value"]}, nil }}
		if err := inf.AddIndexers(byValue); err != nil {
			t.Fatal(err)
		}
		checkIndexed(t, indexer, "value", "y", "z")
		runShared(t, inf)
		checkIndexed(t, indexer, "value", "y", "b", "c")
		checkIndexed(t, indexer, cache.NamespaceIndex, "default", "a", "b", "c")
		src.Apply(object("b", "x"))
		_, _ = src.Delete(keyOf("c"))
		synctest.Wait()
		checkIndexed(t, indexer, "value", "y")
		checkIndexed(t, indexer, "value", "x", "a", "b")

		first := func(obj any) ([]string, error) {
			if name := obj.(configMap).Name; name != "b" {
				return []string{name[:1]}, nil
			}
			return nil, errors.New("has no letter")
		}
		if err := inf.AddIndexers(cache.Indexers{"letter": first}); err != nil {
			t.Fatal(err)
		}
		checkIndexed(t, indexer, "letter", "a", "a")
		if got := errs.Take(); len(got) != 1 || !strings.Contains(got[0].Error(), "default/b") {
			t.Errorf("reported %v", got)
		}
		if err := inf.AddIndexers(byValue); err == nil {
			t.Error("AddIndexers accepted an index name that exists already")
		}
		_ = indexer.Add(object("q", "z")) // not by the informer
		checkIndexed(t, indexer, "value", "z", "q")
		_ = indexer.Delete(cache.DeletedFinalStateUnknown{Key: "default/q", Obj: object("q", "z")})
		checkIndexed(t, indexer, "value", "z")
		_ = indexer.Add(object("gone", "old"))
		if err := indexer.Replace([]any{object("a", "x"), object("b", "x"), object("r", "z")}, ""); err != nil {
			t.Fatal(err)
		}
		checkIndexed(t, indexer, "value", "z", "r")
		if got := sorted(indexer.ListIndexFuncValues("value")); !slices.Equal(got, []string{"x", "z"}) {
			t.Errorf("values after Replace: %v", got)
		}
		_ = indexer.Delete(object("r", "z"))
		objs, err := indexer.Index("value", object("other", "x"))
		if err != nil || len(objs) != 2 {
			t.Errorf("the values of another object: %v, %v", objs, err)
		}
		if got := sorted(indexer.ListIndexFuncValues("value")); !slices.Equal(got, []string{"x"}) {
			t.Errorf("values: %v", got)
		}
		if got := slices.Sorted(maps.Keys(indexer.GetIndexers())); !slices.Equal(got, []string{"letter", "namespace", "value"}) {
			t.Errorf("indexers: %v", got)
		}
		for _, ask := range []func() error{
			func() error { _, err := indexer.ByIndex("unknown", "x"); return err },
			func() error { _, err := indexer.IndexKeys("unknown", "x"); return err },
			func() error { _, err := indexer.Index("unknown", object("a", "x")); return err },
			func() error { return indexer.Add("no object") },
		} {
			if ask() == nil {
				t.Error("an impossible request returned no error")
			}
		}
		if err := store.Err(); err != nil {
			t.Error(err)
		}
	})
}

// checkIndexed fails the test unless exactly the objects named in want have that value in the
// index.
func checkIndexed(t *testing.T, indexer cache.Indexer, name, value string, want ...string) {
	t.Helper()
	objs, err := indexer.ByIndex(name, value)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := indexer.IndexKeys(name, value)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, obj := range objs {
		got = append(got, obj.(metav1.Object).GetName())
	}
	if !slices.Equal(sorted(got), want) || len(keys) != len(want) {
		t.Errorf("with %s %q: %v (%v), want %v", name, value, got, keys, want)
	}
}

// TestAnIndexMayBeAddedWhileTheStoreChanges adds indexes during writes. In the end every
// object must be found under its last value only.
func TestAnIndexMayBeAddedWhileTheStoreChanges(t *testing.T) {
	for round := range 20 {
		src := informertest.NewSource[configMap]()
		native := newInformer(t, src, options{Store: informertest.NewStore(nil)})
		inf := native.SharedIndexInformer()
		stop := start(t, native)
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
		for n := range 3 {
			name := fmt.Sprint("value", n)
			done.Go(func() {
				err := inf.AddIndexers(cache.Indexers{name: func(obj any) ([]string, error) { return []string{obj.(configMap).Data["value"]}, nil }})
				if err != nil {
					t.Error(err)
				}
			})
		}
		done.Wait()
		if err := native.WaitForVersion(t.Context(), "", src.ResourceVersion()); err != nil {
			t.Fatal(err)
		}
		for n := range 3 {
			want := map[string][]string{}
			for _, obj := range src.Objects() {
				want[obj.Data["value"]] = append(want[obj.Data["value"]], obj.Name)
			}
			for value := range 3 {
				value := fmt.Sprint(value)
				checkIndexed(t, inf.GetIndexer(), fmt.Sprint("value", n), value, sorted(want[value])...)
			}
		}
		stop()
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
}

func TestWhatAnyStoreRefusesIsNotInTheIndexes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, down := newPlainStore(), errors.New("it is down")
		inf := configured(informertest.NewSource(object("a", "x")), anyOptions{Store: store}, cache.Indexers{
			"value": func(obj any) ([]string, error) {
				if obj.(configMap).Name == "bad" {
					return nil, down
				}
				return []string{obj.(configMap).Data["value"]}, nil
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
		checkIndexed(t, indexer, "value", "x", "a")
		if got := indexer.ListIndexFuncValues("value"); !slices.Equal(got, []string{"x"}) {
			t.Errorf("the values are %q", got)
		}
		if got := indexer.ListIndexFuncValues("unknown"); len(got) != 0 {
			t.Errorf("the values of an index that does not exist are %q", got)
		}
	})
}

// A lister asks for a namespace with a value that is not an object of the informer.
func TestAnIndexMayBeAskedAboutAnything(t *testing.T) {
	for name, store := range map[string]cache.Store{"indexer": nil, "plain": newPlainStore()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inf := newInformer(t, informertest.NewSource(object("a", "1")), options{Store: store, Indexers: informer.Indexers[configMap]{
					"value": func(obj configMap) ([]string, error) { return []string{obj.Data["value"]}, nil },
				}})
				informertest.Run(t, inf)
				indexer := inf.SharedIndexInformer().GetIndexer()
				in := metav1.ObjectMeta{Namespace: "default"}
				for _, like := range []any{&in, &described{meta: in}} {
					if found, err := indexer.Index(cache.NamespaceIndex, like); err != nil || len(found) != 1 {
						t.Errorf("in the namespace of a %T: %v, %v", like, found, err)
					}
					if found, err := indexer.Index("value", like); err != nil || len(found) != 0 {
						t.Errorf("with the value of a %T: %v, %v", like, found, err)
					}
				}
			})
		})
	}
}
