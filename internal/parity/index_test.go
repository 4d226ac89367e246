package parity_test

import (
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func TestSharedIndexes(t *testing.T) {
	sharedCases{
		"of the constructor follow the source": func(t *testing.T, s shared) {
			checkFollows(t, s, byValue(), nil, nil)
		},
		"added before the start follow the source": func(t *testing.T, s shared) {
			checkFollows(t, s, byNamespace(), byValue(), nil)
		},
		"added while it runs have what is there": func(t *testing.T, s shared) {
			checkFollows(t, s, byNamespace(), nil, byValue())
		},
		"of one name conflict": func(t *testing.T, s shared) {
			inf := s.make(two(), &corev1.ConfigMap{}, 0, byValue())
			wantError(t, true, "AddIndexers before the start", inf.AddIndexers(byValue()))
			wantError(t, true, "AddIndexers of the indexer", inf.GetIndexer().AddIndexers(byValue()))
			runShared(t, inf)
			wantError(t, true, "AddIndexers while it runs", inf.AddIndexers(byValue()))
			both := cache.Indexers{"value": byValueFunc, "other": byValueFunc}
			wantError(t, true, "AddIndexers with one new and one existing index", inf.AddIndexers(both))
			_, err := inf.GetIndexer().ByIndex("other", "1")
			wantError(t, true, "ByIndex", err)
			checkByIndex(t, inf, "1", "a@1", "b@2")
		},
		"serve generated listers":                 func(t *testing.T, s shared) { checkLister(t, s, byNamespace()) },
		"are served without one by namespace too": func(t *testing.T, s shared) { checkLister(t, s, nil) },
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
	must(t, err)
	checkStates(t, objs, want)
}

// checkFollows checks that the index "value", which one of the arguments has, follows changes of
// the source.
func checkFollows(t *testing.T, s shared, constructor, before, running cache.Indexers) {
	t.Helper()
	src := two()
	inf := s.make(src, &corev1.ConfigMap{}, 0, constructor)
	wantError(t, false, "AddIndexers", inf.AddIndexers(before))
	runShared(t, inf)
	wantError(t, false, "AddIndexers", inf.AddIndexers(running))
	checkByIndex(t, inf, "1", "a@1", "b@2")
	change(t, src, "a=2", "c=1", "-b")
	synctest.Wait()
	checkByIndex(t, inf, "1", "c@4")
	checkByIndex(t, inf, "2", "a@3")
	missing(t, src, "a=1", "-c")
	checkByIndex(t, inf, "1", "a@6")
	checkByIndex(t, inf, "2")
}

func checkLister(t *testing.T, s shared, indexers cache.Indexers) {
	elsewhere := object("c", "2")
	elsewhere.Namespace = "elsewhere"
	inf := s.make(informertest.NewSource(object("a", "1"), object("b", "2"), elsewhere), &corev1.ConfigMap{}, 0, indexers)
	lister := corelisters.NewConfigMapLister(inf.GetIndexer())
	runShared(t, inf)
	value2 := labels.SelectorFromSet(labels.Set{"value": "2"})
	equal(t, "all", testkit.Count(lister.List(labels.Everything())), 3)
	equal(t, "selected", testkit.Count(lister.List(value2)), 2)
	equal(t, "of a namespace", testkit.Count(lister.ConfigMaps("default").List(labels.Everything())), 2)
	equal(t, "selected of a namespace", testkit.Count(lister.ConfigMaps("default").List(value2)), 1)
	equal(t, "of all namespaces", testkit.Count(lister.ConfigMaps(metav1.NamespaceAll).List(labels.Everything())), 3)
	want, _, _ := inf.GetStore().GetByKey("elsewhere/c")
	if obj, err := lister.ConfigMaps("elsewhere").Get("c"); err != nil || obj != want {
		t.Errorf("Get: %v (%v)", obj, err)
	}
	if _, err := lister.ConfigMaps("default").Get("c"); !apierrors.IsNotFound(err) {
		t.Errorf("Get of nothing: %v", err)
	}
}

func TestSharedStore(t *testing.T) {
	sharedCases{
		"and indexer are one": func(t *testing.T, s shared) {
			inf := s.make(two(), &corev1.ConfigMap{}, 0, byValue())
			wantError(t, false, "Add", inf.GetStore().Add(object("s", "1")))
			checkByIndex(t, inf, "1", "s@")
			wantError(t, false, "Update", inf.GetIndexer().Update(object("s", "2")))
			checkByIndex(t, inf, "2", "s@")
			wantError(t, false, "Delete", inf.GetIndexer().Delete(object("s", "2")))
			checkShared(t, inf)
			runShared(t, inf)
			for _, name := range []string{"a", "b"} {
				obj, _, _ := inf.GetIndexer().GetByKey("default/" + name)
				equal(t, name+" is one object in the store and the indexer", obj == cached(t, inf, name), true)
			}
		},
		"that was filled lets a handler hear what is gone": func(t *testing.T, s shared) {
			src := two()
			inf := s.make(src, &corev1.ConfigMap{}, 0, byValue())
			seed(t, inf)
			checkByIndex(t, inf, "seeded", "a@0", "gone@-1")
			h := listen(t, inf)
			runShared(t, inf)
			checkShared(t, inf, "a@1", "b@2")
			checkByIndex(t, inf, "seeded")
			checkByIndex(t, inf, "1", "a@1", "b@2")
			h.expect(t, append(toldOfSeed(s), "update a@0->a@1", "add b@2 initial", "tombstone gone@-1")...)
			checkSynced(t, true, h.reg)
			listen(t, inf).expect(t, "add a@1 initial", "add b@2 initial")
			change(t, src, "a=2")
			h.expect(t, "update a@1->a@3")
		},
		"that was filled is delivered before it is corrected": func(t *testing.T, s shared) {
			src, release := held()
			inf := s.new(src, 0)
			seed(t, inf)
			early := listen(t, inf)
			runShared(t, inf)
			early.expect(t, toldOfSeed(s)...)
			late := listen(t, inf)
			late.expect(t, "add a@0 initial", "add gone@-1 initial")
			release()
			early.expect(t, "update a@0->a@1", "add b@2 initial", "tombstone gone@-1")
			late.expect(t, "update a@0->a@1", "add b@2 initial", "tombstone gone@-1")
		},
		"is as old as its version and LastSyncResourceVersion": func(t *testing.T, s shared) {
			src, inf := s.over(two())
			expect := func(want string) {
				t.Helper()
				synctest.Wait()
				got, ofController := inf.LastSyncResourceVersion(), inf.GetController().LastSyncResourceVersion()
				if short(got) != want || got != ofController {
					t.Errorf("the last version is %q, the controller's is %q, want %q", got, ofController, want)
				}
				if got := short(inf.GetStore().LastStoreSyncResourceVersion()); want != "" && got != want {
					t.Errorf("the version of the store is %s, not %s", got, want)
				}
			}
			expect("")
			stop := runShared(t, inf)
			expect("2")
			change(t, src, "a=2")
			expect("3")
			change(t, src, "-b")
			expect("4")
			src.Compact() // uses up a version that only the bookmark has
			src.Bookmark()
			expect("5")
			missing(t, src, "a=3")
			expect("7")
			stop()
			expect("7")
		},
		"does not change by the controller": func(t *testing.T, s shared) {
			src, inf := s.over(two())
			inf.GetController().Run(t.Context().Done()) // returns at once
			inf.GetController().RunWithContext(t.Context())
			equal(t, "requests of the controller", len(src.Requests()), 0)
			h := listen(t, inf)
			runShared(t, inf)
			inf.GetController().RunWithContext(t.Context())
			h.expect(t, "add a@1 initial", "add b@2 initial")
		},
	}.inBubbles(t)
}

// seed fills the store of an informer with an old version of the object a, and with an object
// that the source does not have.
func seed(t *testing.T, inf cache.SharedIndexInformer) {
	t.Helper()
	for name, version := range map[string]string{"a": "1000", "gone": "999"} {
		obj := object(name, "seeded")
		obj.ResourceVersion = version
		wantError(t, false, "Add", inf.GetIndexer().Add(obj))
	}
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

// client-go's informer takes it, and panics at the first object.
func TestANilIndexFunctionIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, none := informertest.NewSource(object("a", "1")), cache.Indexers{"x": nil}
		func() {
			defer func() {
				if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), `the function of index "x" is nil`) {
					t.Errorf("NewSharedIndexInformer: %v", err)
				}
			}()
			informer.ClientGo{}.NewSharedIndexInformer(src, nil, 0, none)
		}()
		inf := informer.ClientGo{}.NewSharedIndexInformer(src, nil, 0, nil)
		if err := inf.AddIndexers(none); err == nil || !strings.Contains(err.Error(), `the function of index "x" is nil`) {
			t.Errorf("AddIndexers: %v", err)
		}
	})
}
