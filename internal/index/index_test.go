package index

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/object"
)

type configMap = *corev1.ConfigMap

func configured(name, value string) configMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Data:       map[string]string{"value": value},
	}
}

var errNoValue = errors.New("it has no value")

// byValue fails for an object without a value.
var byValue = Untyped(map[string]func(configMap) ([]string, error){"value": func(obj configMap) ([]string, error) {
	if obj.Data["value"] == "" {
		return nil, errNoValue
	}
	return []string{obj.Data["value"]}, nil
}})

// stores are an empty store of each kind that an Index treats differently.
var stores = map[string]func() cache.Store{
	"native":  func() cache.Store { return cache.NewIndexer(keyFunc, cache.Indexers{}) },
	"overlay": func() cache.Store { return newPlain() },
	"paged":   func() cache.Store { return &pagedStore{Store: newPlain(), size: 2} },
}

// plain is a store that is not a cache.Indexer. The one that cache.NewStore returns is.
type plain struct{ cache.Store }

func newPlain() plain { return plain{cache.NewStore(keyFunc)} }

var keyFunc = cache.DeletionHandlingMetaNamespaceKeyFunc

func eachStore(t *testing.T, test func(t *testing.T, store cache.Store)) {
	for name, empty := range stores {
		t.Run(name, func(t *testing.T) { test(t, empty()) })
	}
}

func storeOf(x *Index[configMap]) cache.Store {
	if k, ok := x.scan.keyed.(keyed); ok {
		return k.Store
	}
	return x.scan.plain
}

func newIndex(t *testing.T, store cache.Store, indexers cache.Indexers) *Index[configMap] {
	t.Helper()
	x, err := New[configMap](scanOf(store), indexers)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// begin takes the store over as an informer does.
func begin(t *testing.T, x *Index[configMap]) {
	t.Helper()
	filled := x.Begin()
	err := x.scan.Each(t.Context(), func(e object.Entry) bool {
		if obj, ok := e.Object.(configMap); ok {
			x.Wrote(e.Key(), obj, true)
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	filled()
}

// add writes an object as an informer does.
func add(t *testing.T, x *Index[configMap], obj configMap) {
	t.Helper()
	if err := storeOf(x).Add(obj); err != nil {
		t.Fatal(err)
	}
	x.Wrote(object.Key(obj), obj, true)
}

func checkFound(t *testing.T, x *Index[configMap], name, value string, want ...string) {
	t.Helper()
	found, err := x.Find(name, value)
	var names []string
	for _, obj := range found {
		names = append(names, obj.Name)
	}
	slices.Sort(names)
	if err != nil || !slices.Equal(names, want) {
		t.Errorf("%s %q: found %v (%v), want %v", name, value, names, err, want)
	}
}

func TestAnIndexFollowsTheWritesOfAStore(t *testing.T) {
	eachStore(t, func(t *testing.T, store cache.Store) {
		_ = store.Add(configured("before", "x"))
		x := newIndex(t, store, byValue)
		checkFound(t, x, "value", "x", "before") // before Begin, too
		begin(t, x)
		add(t, x, configured("a", "x"))
		add(t, x, configured("b", "y"))
		checkFound(t, x, "value", "x", "a", "before")
		add(t, x, configured("a", "y"))
		gone := configured("before", "x")
		_ = store.Delete(gone)
		x.Wrote(object.Key(gone), gone, false)
		checkFound(t, x, "value", "x")
		checkFound(t, x, "value", "y", "a", "b")
		if _, err := x.Find("unknown", "x"); err == nil {
			t.Error("found by an index that does not exist")
		}
	})
}

func TestAnIndexAddedWhileLiveHasTheWholeStore(t *testing.T) {
	eachStore(t, func(t *testing.T, store cache.Store) {
		x := newIndex(t, store, cache.Indexers{cache.NamespaceIndex: ByNamespace()})
		begin(t, x)
		for i := range 5 {
			add(t, x, configured(fmt.Sprintf("o%d", i), "x"))
		}
		if err := x.Add(byValue); err != nil {
			t.Fatal(err)
		}
		add(t, x, configured("later", "x"))
		checkFound(t, x, "value", "x", "later", "o0", "o1", "o2", "o3", "o4")
		checkFound(t, x, cache.NamespaceIndex, "default", "later", "o0", "o1", "o2", "o3", "o4")
		if err := x.Add(byValue); err == nil {
			t.Error("a second index of one name is no error")
		}
		checkFound(t, x, "value", "x", "later", "o0", "o1", "o2", "o3", "o4")
	})
}

// Until an overlay is complete, the whole store is searched.
func TestAnIndexFindsEverythingWhileItIsFilled(t *testing.T) {
	store := &pagedStore{Store: newPlain(), size: 2}
	x := newIndex(t, store, nil)
	begin(t, x)
	for i := range 5 {
		add(t, x, configured(fmt.Sprintf("o%d", i), "x"))
	}
	filling := true
	store.turn = func(after string) {
		if filling && after != "" { // at the second page
			filling = false
			add(t, x, configured("o0", "y")) // whose page was read before
			checkFound(t, x, "value", "x", "o1", "o2", "o3", "o4")
			checkFound(t, x, "value", "y", "o0")
		}
	}
	if err := x.Add(byValue); err != nil || filling {
		t.Fatal(err, filling)
	}
	checkFound(t, x, "value", "x", "o1", "o2", "o3", "o4")
	checkFound(t, x, "value", "y", "o0")
}

func TestAnIndexThatCannotBeFilledIsNotAdded(t *testing.T) {
	locked := errors.New("locked")
	store := &pagedStore{Store: newPlain(), size: 2}
	x := newIndex(t, store, nil)
	begin(t, x)
	add(t, x, configured("a", "x"))
	store.err = locked
	if err := x.Add(byValue); !errors.Is(err, locked) {
		t.Errorf("added: %v", err)
	}
	if _, err := x.Find("value", "x"); err == nil {
		t.Error("found by an index that was not added")
	}
	store.err = nil
	if err := x.Add(byValue); err != nil {
		t.Errorf("the name is taken still: %v", err)
	}
	checkFound(t, x, "value", "x", "a")
}

func TestAFunctionThatFailsIsReportedOnceAndFindsNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, store cache.Store) {
		x := newIndex(t, store, byValue)
		begin(t, x)
		without := configured("a", "")
		add(t, x, without)
		errs := x.Check(without)
		if len(errs) != 1 || !errors.Is(errs[0], errNoValue) || !strings.Contains(errs[0].Error(), `"value"`) {
			t.Errorf("reported: %v", errs)
		}
		if errs := x.Check(without); errs != nil {
			t.Errorf("reported again: %v", errs)
		}
		if errs := x.CheckFound(without); len(errs) != 1 {
			t.Errorf("of an object that was found: %v", errs)
		}
		checkFound(t, x, "value", "")
		add(t, x, configured("a", "x"))
		if errs := x.Check(configured("a", "x")); errs != nil {
			t.Errorf("reported once it works: %v", errs)
		}
		checkFound(t, x, "value", "x", "a")
	})
}

func TestAnIndexByNamespaceOfTheStoreIsLeftAlone(t *testing.T) {
	store := cache.NewIndexer(keyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	indexers := cache.Indexers{cache.NamespaceIndex: ByNamespace()}
	x := newIndex(t, store, indexers)
	add(t, x, configured("a", "x"))
	checkFound(t, x, cache.NamespaceIndex, "default", "a")
	if len(indexers) != 1 {
		t.Error("it has changed its argument")
	}
}

// The map belongs to the caller, who may change it later.
func TestAnIndexOutlivesTheMapThatItCameIn(t *testing.T) {
	eachStore(t, func(t *testing.T, store cache.Store) {
		x := newIndex(t, store, nil)
		added := maps.Clone(byValue)
		if err := x.Add(added); err != nil {
			t.Fatal(err)
		}
		clear(added)
		begin(t, x)
		add(t, x, configured("a", "x"))
		checkFound(t, x, "value", "x", "a")
	})
}

func TestANilIndexFunctionIsRefused(t *testing.T) {
	eachStore(t, func(t *testing.T, store cache.Store) {
		x := newIndex(t, store, nil)
		if err := x.Add(cache.Indexers{"a": byValue["value"], "b": nil}); err == nil || err.Error() != `the function of index "b" is nil` {
			t.Errorf("got %v", err)
		}
		if err := x.Add(cache.Indexers{"a": byValue["value"]}); err != nil {
			t.Errorf("the index that was refused with it: %v", err)
		}
	})
}

func TestAStoreWithoutAMapOfIndexersIsRefused(t *testing.T) {
	store := cache.NewIndexer(keyFunc, nil)
	if _, err := New[configMap](scanOf(store), byValue); err == nil || !strings.Contains(err.Error(), "cache.Indexers{}") {
		t.Errorf("made: %v", err)
	}
}

// unreadable is a store whose reads by key find nothing, and return an error if it has one.
type unreadable struct {
	plain
	err error
}

func (u unreadable) GetByKey(string) (any, bool, error) { return nil, false, u.err }

func TestAnObjectThatTheStoreHasLostIsNotFound(t *testing.T) {
	x := newIndex(t, unreadable{plain: newPlain()}, byValue)
	begin(t, x)
	add(t, x, configured("a", "x"))
	checkFound(t, x, "value", "x")
}

func TestFindReturnsTheErrorOfTheStore(t *testing.T) {
	locked := errors.New("locked")
	x := newIndex(t, unreadable{newPlain(), locked}, byValue)
	begin(t, x)
	add(t, x, configured("a", "x"))
	if found, err := x.Find("value", "x"); !errors.Is(err, locked) || found != nil {
		t.Errorf("found %v, %v", found, err)
	}
}

func TestAnObjectOfAnotherTypeIsAnError(t *testing.T) {
	eachStore(t, func(t *testing.T, store cache.Store) {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
		_ = store.Add(secret)
		if _, err := All[configMap](t.Context(), scanOf(store), ""); err == nil || !strings.Contains(err.Error(), "*v1.Secret") {
			t.Errorf("All: %v", err)
		}
		if _, exists, err := Get[configMap](t.Context(), scanOf(store), "default/a"); exists || !errors.Is(err, object.ErrWrongType) || !strings.Contains(err.Error(), "*v1.Secret") {
			t.Errorf("Get: %t, %v", exists, err)
		}
		if _, exists, err := Get[configMap](t.Context(), scanOf(store), "default/b"); exists || err != nil {
			t.Errorf("Get of another key: %t, %v", exists, err)
		}
		x := newIndex(t, store, cache.Indexers{cache.NamespaceIndex: ByNamespace()})
		if _, err := x.Find(cache.NamespaceIndex, "default"); err == nil {
			t.Error("Find returns no error")
		}
	})
}

func TestAnIndexerWritesTheStoreAndItsIndexes(t *testing.T) {
	eachStore(t, func(t *testing.T, store cache.Store) {
		if _, ok := store.(*pagedStore); ok {
			t.Skip("it takes no writes by an Indexer")
		}
		x := newIndex(t, store, byValue)
		begin(t, x)
		view := x.Indexer(func(error) {})
		check := func(value string, want ...string) {
			t.Helper()
			checkFound(t, x, "value", value, want...)
			keys, err := view.IndexKeys("value", value)
			slices.Sort(keys)
			if err != nil || len(keys) != len(want) {
				t.Errorf("keys with %q: %v (%v), want %v", value, keys, err, want)
			}
			objs, err := view.ByIndex("value", value)
			if err != nil || len(objs) != len(want) {
				t.Errorf("objects with %q: %v (%v), want %v", value, objs, err, want)
			}
		}
		for _, err := range []error{
			view.Add(configured("a", "x")), view.Add(configured("b", "x")), view.Update(configured("a", "y")),
			view.Delete(cache.DeletedFinalStateUnknown{Key: "default/b", Obj: configured("b", "x")}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		check("y", "a")
		if same, err := view.Index("value", configured("other", "y")); err != nil || len(same) != 1 {
			t.Errorf("like another object: %v (%v)", same, err)
		}
		if err := view.Replace([]any{configured("c", "x"), configured("d", "x")}, "7"); err != nil {
			t.Fatal(err)
		}
		check("x", "c", "d")
		check("y")
		if got := view.ListIndexFuncValues("value"); !slices.Equal(got, []string{"x"}) {
			t.Errorf("values: %v", got)
		}
		if err := view.AddIndexers(cache.Indexers{cache.NamespaceIndex: ByNamespace()}); err != nil {
			t.Fatal(err)
		}
		checkFound(t, x, cache.NamespaceIndex, "default", "c", "d")
		if got := view.GetIndexers(); got["value"] == nil || got[cache.NamespaceIndex] == nil || len(got) != 2 {
			t.Errorf("indexers: %v", got)
		}
	})
}

func TestAnIndexerOverAKeyedStoreOnlyReads(t *testing.T) {
	store := &pagedStore{Store: newPlain(), size: 2}
	x := newIndex(t, store, byValue)
	begin(t, x)
	for _, name := range []string{"a", "b", "c"} {
		add(t, x, configured(name, "x"))
	}
	var failed []error
	view := x.Indexer(func(err error) { failed = append(failed, err) })
	for _, err := range []error{view.Add(configured("d", "x")), view.Update(configured("a", "y")), view.Delete(configured("a", "x")), view.Replace(nil, "")} {
		if !errors.Is(err, errReadOnly) {
			t.Errorf("a write returns %v", err)
		}
	}
	if keys := view.ListKeys(); !slices.Equal(keys, []string{"default/a", "default/b", "default/c"}) || len(view.List()) != 3 {
		t.Errorf("it lists %q and %v", keys, view.List())
	}
	if obj, exists, err := view.Get(configured("b", "")); obj == nil || !exists || err != nil {
		t.Errorf("Get: %v, %t, %v", obj, exists, err)
	}
	if _, _, err := view.Get("text"); err == nil {
		t.Error("a string has a key")
	}
	if found, err := view.ByIndex("value", "x"); err != nil || len(found) != 3 {
		t.Errorf("ByIndex: %v, %v", found, err)
	}
	view.Bookmark("7")
	if err := view.Resync(); err != nil || view.LastStoreSyncResourceVersion() != "" {
		t.Errorf("Resync: %v, version %q", err, view.LastStoreSyncResourceVersion())
	}
	store.err = errors.New("locked")
	if objs := view.List(); objs != nil || len(failed) != 1 || !errors.Is(failed[0], store.err) {
		t.Errorf("of a store that fails it lists %v and reports %v", objs, failed)
	}
}

func TestAnIndexerRefusesAnObjectOfAnotherType(t *testing.T) {
	view := newIndex(t, newPlain(), byValue).Indexer(func(error) {})
	if err := view.Add(&corev1.Secret{}); !errors.Is(err, object.ErrWrongType) {
		t.Errorf("added: %v", err)
	}
	for _, err := range []error{second(view.Index("unknown", nil)), second(view.IndexKeys("unknown", "x")), second(view.ByIndex("unknown", "x"))} {
		if err == nil {
			t.Error("an index that does not exist is no error")
		}
	}
	if got := view.ListIndexFuncValues("unknown"); got != nil {
		t.Errorf("values of an index that does not exist: %v", got)
	}
}

func second[T any](_ T, err error) error { return err }

func TestAnUntypedFunctionHasNoValuesForOtherTypes(t *testing.T) {
	for _, v := range []any{nil, "text", &metav1.ObjectMeta{Namespace: "default"}} {
		if vals, err := byValue["value"](v); vals != nil || err != nil {
			t.Errorf("%T: %v, %v", v, vals, err)
		}
	}
	if _, err := byValue["value"](configured("a", "")); !errors.Is(err, errNoValue) {
		t.Errorf("of an object: %v", err)
	}
}

func TestByNamespaceReturnsOneSliceForOneNamespace(t *testing.T) {
	f := ByNamespace()
	for _, ns := range []string{"a", "a", "", "b"} {
		if vals, err := f(&metav1.ObjectMeta{Namespace: ns}); err != nil || !slices.Equal(vals, []string{ns}) {
			t.Errorf("%q: %v, %v", ns, vals, err)
		}
	}
	obj := configured("a", "")
	if n := testing.AllocsPerRun(100, func() { _, _ = f(obj) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if _, err := f("text"); err == nil {
		t.Error("a string has a namespace")
	}
}
