package parity_test

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/informertest"
)

func TestSharedIndexes(t *testing.T) {
	sharedCases{
		"of the constructor follow the source":     indexesOfTheConstructor,
		"added before the start follow the source": indexesBeforeTheStart,
		"added while it runs have what is there":   indexesWhileItRuns,
		"answer every question":                    indexesAnswerAll,
		"of one name conflict":                     indexesConflict,
		"serve generated listers":                  indexesServeListers,
		"are served without one by namespace too":  listersWithoutAnIndex,
	}.inBubbles(t)
}

// byNamespace returns a new map each time, because client-go's informer changes the map it is
// given.
func byNamespace() cache.Indexers {
	return cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
}

// checkByIndex fails the test unless the index "value" has exactly the objects in want under
// value.
func checkByIndex(t *testing.T, inf cache.SharedIndexInformer, value string, want ...string) {
	t.Helper()
	objs, err := inf.GetIndexer().ByIndex("value", value)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, obj := range objs {
		got = append(got, stateOf(obj))
	}
	if !slices.Equal(sorted(got), sorted(want)) {
		t.Errorf("the index has %v under %q, not %v", got, value, want)
	}
}

func indexesOfTheConstructor(t *testing.T, s shared) {
	src := two()
	inf := s.make(src, &corev1.ConfigMap{}, 0, byValue())
	runShared(t, inf)
	checkFollows(t, inf, src)
}

func indexesBeforeTheStart(t *testing.T, s shared) {
	src := two()
	inf := s.new(src, 0)
	wantError(t, false, "AddIndexers", inf.AddIndexers(byValue()))
	runShared(t, inf)
	checkFollows(t, inf, src)
}

func indexesWhileItRuns(t *testing.T, s shared) {
	src := two()
	inf := s.make(src, &corev1.ConfigMap{}, 0, byNamespace())
	runShared(t, inf)
	wantError(t, false, "AddIndexers", inf.AddIndexers(byValue()))
	checkFollows(t, inf, src)
	want := []string{cache.NamespaceIndex, "value"}
	if got := slices.Sorted(maps.Keys(inf.GetIndexer().GetIndexers())); !slices.Equal(got, want) {
		t.Errorf("the indexers are %v", got)
	}
}

// checkFollows checks that the index "value" follows changes of src, whose objects are those
// of two.
func checkFollows(t *testing.T, inf cache.SharedIndexInformer, src *source) {
	t.Helper()
	synctest.Wait()
	checkByIndex(t, inf, "1", "a@1", "b@2")
	src.Apply(object("a", "2"))
	src.Apply(object("c", "1"))
	remove(t, src, "b")
	synctest.Wait()
	checkByIndex(t, inf, "1", "c@4")
	checkByIndex(t, inf, "2", "a@3")
	missing(src, func() {
		src.Apply(object("a", "1"))
		remove(t, src, "c")
	})
	checkByIndex(t, inf, "1", "a@6")
	checkByIndex(t, inf, "2")
}

func indexesAnswerAll(t *testing.T, s shared) {
	inf := s.make(two(), &corev1.ConfigMap{}, 0, byValue())
	runShared(t, inf)
	indexer := inf.GetIndexer()
	checkNames := func(what string, got []string, err error, want ...string) {
		t.Helper()
		if err != nil || !slices.Equal(sorted(got), want) {
			t.Errorf("%s: %v (%v)", what, got, err)
		}
	}
	keys, err := indexer.IndexKeys("value", "1")
	checkNames("IndexKeys", keys, err, "default/a", "default/b")
	keys, err = indexer.IndexKeys("value", "2")
	checkNames("IndexKeys of nothing", keys, err)
	checkNames("ListIndexFuncValues", indexer.ListIndexFuncValues("value"), nil, "1")
	checkNames("ListKeys", indexer.ListKeys(), nil, "default/a", "default/b")
	objs, err := indexer.Index("value", object("not stored", "1"))
	if err != nil || len(objs) != 2 {
		t.Errorf("Index: %v (%v)", objs, err)
	}
	if got := indexer.GetIndexers(); got["value"] == nil || got["unknown"] != nil {
		t.Errorf("GetIndexers: %v", got)
	}
	obj, exists, err := indexer.Get(object("a", "not this"))
	if err != nil || !exists || stateOf(obj) != "a@1" {
		t.Errorf("Get: %v (%v)", obj, err)
	}
	_, exists, err = indexer.GetByKey("default/none")
	if err != nil || exists {
		t.Errorf("GetByKey of nothing: %t (%v)", exists, err)
	}
	_, err = indexer.ByIndex("unknown", "1")
	wantError(t, true, "ByIndex", err)
	_, err = indexer.Index("unknown", object("a", "1"))
	wantError(t, true, "Index", err)
	_, err = indexer.IndexKeys("unknown", "1")
	wantError(t, true, "IndexKeys", err)
}

func indexesConflict(t *testing.T, s shared) {
	inf := s.make(two(), &corev1.ConfigMap{}, 0, byValue())
	wantError(t, true, "AddIndexers before the start", inf.AddIndexers(byValue()))
	wantError(t, true, "AddIndexers of the indexer", inf.GetIndexer().AddIndexers(byValue()))
	runShared(t, inf)
	wantError(t, true, "AddIndexers while it runs", inf.AddIndexers(byValue()))
	both := cache.Indexers{"value": byValueFunc, "other": byValueFunc}
	wantError(t, true, "AddIndexers with one new and one existing index", inf.AddIndexers(both))
	if got := inf.GetIndexer().GetIndexers(); got["value"] == nil || got["other"] != nil {
		t.Errorf("the indexers are %v", slices.Collect(maps.Keys(got)))
	}
	checkByIndex(t, inf, "1", "a@1", "b@2")
}

func indexesServeListers(t *testing.T, s shared) {
	checkLister(t, s, byNamespace())
}

func listersWithoutAnIndex(t *testing.T, s shared) {
	checkLister(t, s, nil)
}

func checkLister(t *testing.T, s shared, indexers cache.Indexers) {
	elsewhere := object("c", "2")
	elsewhere.Namespace = "elsewhere"
	src := informertest.NewSource(object("a", "1"), object("b", "2"), elsewhere)
	inf := s.make(src, &corev1.ConfigMap{}, 0, indexers)
	lister := corelisters.NewConfigMapLister(inf.GetIndexer())
	runShared(t, inf)
	count := func(what string, want int, list func(labels.Selector) ([]*corev1.ConfigMap, error), sel labels.Selector) {
		t.Helper()
		if objs, err := list(sel); err != nil || len(objs) != want {
			t.Errorf("%s: %v (%v)", what, objs, err)
		}
	}
	value2 := labels.SelectorFromSet(labels.Set{"value": "2"})
	count("all", 3, lister.List, labels.Everything())
	count("selected", 2, lister.List, value2)
	count("of a namespace", 2, lister.ConfigMaps("default").List, labels.Everything())
	count("selected of a namespace", 1, lister.ConfigMaps("default").List, value2)
	count("of all namespaces", 3, lister.ConfigMaps(metav1.NamespaceAll).List, labels.Everything())
	if obj, err := lister.ConfigMaps("elsewhere").Get("c"); err != nil || obj != must(inf.GetStore().GetByKey("elsewhere/c")) {
		t.Errorf("Get: %v (%v)", obj, err)
	}
	if _, err := lister.ConfigMaps("default").Get("c"); !apierrors.IsNotFound(err) {
		t.Errorf("Get of nothing: %v", err)
	}
}

// must returns the object that a store returned, and panics if there is none.
func must(obj any, exists bool, err error) any {
	if err != nil || !exists {
		panic("the store does not have the object")
	}
	return obj
}

func TestSharedStore(t *testing.T) {
	sharedCases{
		"and indexer are one":                              storeAndIndexerAreOne,
		"may be filled before the start":                   seededStore,
		"that was filled lets a handler hear what is gone": seededStoreIsCorrected,
		"that was filled is told before it is corrected":   seededStoreIsTold,
		"is as old as LastSyncResourceVersion says":        lastVersionFollows,
		"says itself how old it is":                        storeVersionFollows,
		"does not change by the controller":                controllerDoesNothing,
	}.inBubbles(t)
}

func storeAndIndexerAreOne(t *testing.T, s shared) {
	src := two()
	inf := s.make(src, &corev1.ConfigMap{}, 0, byValue())
	if err := inf.GetStore().Add(object("s", "1")); err != nil {
		t.Fatal(err)
	}
	if _, exists, err := inf.GetIndexer().GetByKey("default/s"); err != nil || !exists {
		t.Errorf("the indexer does not have the object of the store (%v)", err)
	}
	checkByIndex(t, inf, "1", "s@")
	if err := inf.GetIndexer().Update(object("s", "2")); err != nil {
		t.Fatal(err)
	}
	checkByIndex(t, inf, "2", "s@")
	if err := inf.GetIndexer().Delete(object("s", "2")); err != nil {
		t.Fatal(err)
	}
	checkShared(t, inf)
	runShared(t, inf)
	for _, name := range []string{"a", "b"} {
		if obj, _, _ := inf.GetIndexer().GetByKey("default/" + name); obj != cached(t, inf, name) {
			t.Errorf("the store and the indexer have different objects for %s", name)
		}
	}
}

// seed fills the store of an informer with an old version of the object a, and with an object
// that the source does not have.
func seed(t *testing.T, inf cache.SharedIndexInformer) {
	t.Helper()
	for name, version := range map[string]string{"a": "1000", "gone": "999"} {
		obj := object(name, "seeded")
		obj.ResourceVersion = version
		if err := inf.GetIndexer().Add(obj); err != nil {
			t.Fatal(err)
		}
	}
}

func seededStore(t *testing.T, s shared) {
	inf := s.make(two(), &corev1.ConfigMap{}, 0, byValue())
	seed(t, inf)
	checkByIndex(t, inf, "seeded", "a@0", "gone@-1")
	runShared(t, inf)
	checkShared(t, inf, "a@1", "b@2")
	checkByIndex(t, inf, "seeded")
	checkByIndex(t, inf, "1", "a@1", "b@2")
}

func seededStoreIsCorrected(t *testing.T, s shared) {
	src := two()
	inf := s.new(src, 0)
	seed(t, inf)
	var h, late heard
	reg := handle(t, inf, &h)
	runShared(t, inf)
	h.expect(t, append(toldOfSeed(s), "update a@0->a@1", "add b@2 initial", "tombstone gone@-1")...)
	checkSynced(t, "the handler", true, reg)
	handle(t, inf, &late)
	late.expect(t, "add a@1 initial", "add b@2 initial")
	src.Apply(object("a", "2"))
	h.expect(t, "update a@1->a@3")
}

// toldOfSeed returns the events of the seeded objects for a handler that was added before the
// start. Our informer delivers the stored objects as adds, so the handler knows each object
// before an update or a delete of it.
func toldOfSeed(s shared) []string {
	if s.ours() {
		return []string{"add a@0 initial", "add gone@-1 initial"}
	}
	return nil
}

func seededStoreIsTold(t *testing.T, s shared) {
	src := two()
	src.SetFaults(informertest.Faults{HoldLists: true, RejectWatchList: true})
	release := func() { src.SetFaults(informertest.Faults{RejectWatchList: true}) }
	inf := s.new(src, 0)
	seed(t, inf)
	var early, late heard
	handle(t, inf, &early)
	runShared(t, inf)
	early.expect(t, toldOfSeed(s)...)
	handle(t, inf, &late)
	late.expect(t, "add a@0 initial", "add gone@-1 initial")
	release()
	early.expect(t, "update a@0->a@1", "add b@2 initial", "tombstone gone@-1")
	late.expect(t, "update a@0->a@1", "add b@2 initial", "tombstone gone@-1")
}

func lastVersionFollows(t *testing.T, s shared) {
	src := two()
	inf := s.new(src, 0)
	expect := func(want string) {
		t.Helper()
		synctest.Wait()
		got, ofController := inf.LastSyncResourceVersion(), inf.GetController().LastSyncResourceVersion()
		if short(got) != want || got != ofController {
			t.Errorf("the last version is %q, the controller's is %q, want %q", got, ofController, want)
		}
	}
	expect("")
	stop := runShared(t, inf)
	expect("2")
	src.Apply(object("a", "2"))
	expect("3")
	remove(t, src, "b")
	expect("4")
	src.Compact() // uses up a version that only the bookmark has
	src.Bookmark()
	expect("5")
	missing(src, func() { src.Apply(object("a", "3")) })
	expect("7")
	stop()
	expect("7")
}

func storeVersionFollows(t *testing.T, s shared) {
	src := two()
	inf := s.new(src, 0)
	expect := func(after, want string) {
		t.Helper()
		synctest.Wait()
		if got := short(inf.GetStore().LastStoreSyncResourceVersion()); got != want {
			t.Errorf("after %s the version of the store is %s, not %s", after, got, want)
		}
	}
	runShared(t, inf)
	expect("the first list", "2")
	src.Apply(object("a", "2"))
	expect("an update", "3")
	remove(t, src, "b")
	expect("a delete", "4")
	src.Compact()
	src.Bookmark()
	expect("a bookmark", "5")
	missing(src, func() { src.Apply(object("a", "3")) })
	expect("a relist", "7")
}

func controllerDoesNothing(t *testing.T, s shared) {
	src := two()
	inf := s.new(src, 0)
	inf.GetController().Run(t.Context().Done()) // returns at once
	inf.GetController().RunWithContext(t.Context())
	if n := len(src.Requests()); n != 0 {
		t.Errorf("the controller made %d requests", n)
	}
	var h heard
	handle(t, inf, &h)
	runShared(t, inf)
	inf.GetController().RunWithContext(t.Context())
	h.expect(t, "add a@1 initial", "add b@2 initial")
}
