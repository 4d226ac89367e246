package storetest

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/customcacheinformer/informer"
)

// storeChecks are the checks of every cache.Store.
var storeChecks = []check{
	{"finds what was added under its key", "An informer asks by key whether an object exists. If it does not find the object, it adds it again at every relist.", findsByKey},
	{"reports an object that it does not have as absent", "An error is not an absence: the informer would retry forever, and watchers would get no event.", absentIsNoError},
	{"keeps the last state of an object", "Get, a watcher that joins, and the Old of the next event use the object that the store returns.", keepsTheLast},
	{"does not find what was deleted", "A watcher that joins would get an object that is gone.", forgetsDeleted},
	{"returns what it was given", "Watchers get the store's objects, as Old and as their initial state, and a relist finds changes by UID and resourceVersion.", returnsAll},
	{"does not change what it is given", "All watchers get the same object, at the same time.", changesNothing},
	{"finds an object by an object of its key", "cache.Store says so, and listers rely on it.", findsByObject},
	{"lists everything", "If List leaves out an object at the start, no watcher gets it, nor its delete. If ListKeys leaves out a key, client-go's own code takes the object for deleted.", listsAll},
	{"lists what does not change any more", "The list is read while the store is written.", listsSnapshots},
	{"replaces everything", "cache.Store says so; programs fill a store that way before the informer runs.", replacesAll},
	{"keeps its objects when it gets a bookmark", "An informer passes bookmarks to every store, several times a minute.", bearsBookmarks},
	{"may be read while it is written", "Watchers, readers and the writer are goroutines of their own. Watchers get an object that is missing from a list for a moment as if it were new.", bearsReaders},
	{"is right after any history", "All of the above, in any order.", plainHistories},
}

// objectChecks are the storeChecks that an informer.Durable must pass, too.
var objectChecks = slices.DeleteFunc(slices.Clone(storeChecks), func(c check) bool {
	return !slices.Contains([]string{
		"finds what was added under its key", "keeps the last state of an object", "does not find what was deleted", "returns what it was given",
	}, c.name)
})

// odd returns objects with keys that may break a store: cluster-scoped keys, keys of RBAC with
// colons, long keys, and keys that are sorted differently than their namespaces and names.
func (c *checker) odd() []informer.AnyObject {
	var objs []informer.AnyObject
	for _, namespace := range []string{"", "a/", "a-b/", "default/", strings.Repeat("n", 63) + "/"} {
		for _, name := range []string{"a", "b", "a.b", "a-b", "system:node", "system:controller:b", "10.0.0.1", "a%2fb", "UPPER", strings.Repeat("x", 253)} {
			objs = append(objs, c.object(namespace+name, len(objs)+1))
		}
	}
	return objs
}

func findsByKey(c *checker) {
	objs := c.odd()
	for _, obj := range objs {
		c.wantAbsent(keyOf(obj))
		c.add(obj)
		if got := describe(c.get(keyOf(obj))); got != describe(obj) {
			c.Fatalf("under %q the store has %s right after %s was added", keyOf(obj), got, describe(obj))
		}
	}
	c.want(objs...)
}

func absentIsNoError(c *checker) {
	c.add(c.object("default/a", 1))
	for _, key := range []string{"default/b", "a", "b", "b/a", "default", "default/", ""} {
		c.wantAbsent(key)
	}
	obj, exists, err := c.plain().Get(c.object("default/b", 1))
	if obj != nil || exists || err != nil {
		c.Errorf("Get of an object that does not exist: %v, %v, %v, want nil, false and no error", obj, exists, err)
	}
}

func keepsTheLast(c *checker) {
	c.add(c.object("default/a", 1), c.object("default/b", 2))
	c.update(c.object("default/a", 3))
	c.want(c.object("default/a", 3), c.object("default/b", 2))
	again := c.incarnation("default/a", "2", 4) // deleted and created again while the watch was interrupted
	c.update(again)
	c.want(again, c.object("default/b", 2))
}

func forgetsDeleted(c *checker) {
	c.add(c.object("default/a", 1), c.object("default/b", 2), c.object("other/a", 3), c.object("a", 4))
	c.delete(c.object("default/a", 1))
	c.wantAbsent("default/a")
	c.want(c.object("default/b", 2), c.object("other/a", 3), c.object("a", 4))
	c.delete(c.object("a", 5)) // with the version of the delete, as in a watch event
	c.want(c.object("default/b", 2), c.object("other/a", 3))
	again := c.incarnation("default/a", "2", 6)
	c.add(again)
	c.want(again, c.object("default/b", 2), c.object("other/a", 3))
	c.delete(again, c.object("default/b", 2), c.object("other/a", 3))
	c.want()
}

func returnsAll(c *checker) {
	added, updated, bare := c.full("default/a", 1), c.full("default/a", 2), c.object("default/b", 3)
	updated.SetLabels(map[string]string{"app": "other"})
	c.add(copyOf(added), copyOf(bare))
	c.wantEqual("the object after an add", added, c.get("default/a"))
	c.wantEqual("an object with little metadata", bare, c.get("default/b"))
	c.update(copyOf(updated))
	c.wantEqual("the object after an update", updated, c.get("default/a"))
	for _, e := range c.all() {
		if e.Key == "default/a" {
			c.wantEqual("all objects", updated, e.Object)
		}
	}
}

func changesNothing(c *checker) {
	added, updated, replaced := c.full("default/a", 1), c.full("default/a", 2), c.full("default/a", 3)
	wereAdded, wereUpdated, wereReplaced := copyOf(added), copyOf(updated), copyOf(replaced)
	unchanged := func(after string) {
		c.Helper()
		if !equality.Semantic.DeepEqual([]any{wereAdded, wereUpdated, wereReplaced}, []any{added, updated, replaced}) {
			c.Fatalf("%s has changed an object that was passed to the store", after)
		}
	}
	c.add(added)
	unchanged("Add")
	c.update(updated)
	unchanged("Update")
	if _, _, err := c.plain().Get(updated); err != nil {
		c.Error(err)
	}
	unchanged("Get")
	c.delete(updated)
	unchanged("Delete")
	if err := c.plain().Replace([]any{replaced}, "3"); err != nil {
		c.Error(err)
	}
	unchanged("Replace")
}

func findsByObject(c *checker) {
	c.add(c.object("default/a", 1), c.object("a", 2))
	for _, want := range []informer.AnyObject{c.object("default/a", 1), c.object("a", 2)} {
		got, exists, err := c.plain().Get(c.Object(want.GetNamespace(), want.GetName()))
		if !exists || err != nil || describe(got) != describe(want) {
			c.Errorf("Get of %s: %v, %v, %v", describe(want), describe(got), exists, err)
		}
	}
}

func listsAll(c *checker) {
	c.want()
	var objs []informer.AnyObject
	for i := range c.rounds(1600) {
		obj := c.object(fmt.Sprintf("default/o-%d", i*i), i+1)
		objs = append(objs, obj)
		c.add(obj)
	}
	c.want(objs...)
	half := len(objs) / 2
	c.delete(objs[:half]...)
	c.want(objs[half:]...)
}

func listsSnapshots(c *checker) {
	objs := []informer.AnyObject{c.object("default/a", 1), c.object("default/b", 2), c.object("default/c", 3)}
	c.add(objs...)
	listed, keys := c.plain().List(), c.plain().ListKeys()
	before, keysBefore := describeAll(listed), append([]string(nil), keys...)
	c.update(c.object("default/a", 4))
	c.delete(objs[1])
	c.add(c.object("default/d", 5))
	c.same("the slice that List returned, after later writes", before, describeAll(listed))
	c.same("the slice that ListKeys returned, after later writes", keysBefore, keys)
	clear(listed)
	clear(keys)
	_, _ = append(listed[:0], "mine"), append(keys[:0], "mine")
	c.want(c.object("default/a", 4), objs[2], c.object("default/d", 5)) // unaffected by the caller's changes to its slices
}

func replacesAll(c *checker) {
	c.add(c.object("default/a", 1), c.object("default/b", 2))
	var many []informer.AnyObject
	for i := range 300 {
		many = append(many, c.object(fmt.Sprintf("default/o-%03d", i), i+1))
	}
	for _, objs := range [][]informer.AnyObject{
		{c.object("default/b", 3), c.object("c", 4)},
		{},
		{c.object("default/a", 5)},
		many,
		{c.object("default/z", 6)},
		many,
		{},
	} {
		var list []any
		for _, obj := range objs {
			list = append(list, obj)
		}
		if err := c.plain().Replace(list, "6"); err != nil {
			c.Fatalf("Replace: %v", err)
		}
		c.want(objs...)
	}
}

func bearsBookmarks(c *checker) {
	c.plain().Bookmark("1")
	c.add(c.object("default/a", 2))
	for _, rv := range []string{"3", "10", ""} {
		c.plain().Bookmark(rv)
		_ = c.plain().LastStoreSyncResourceVersion() // client-go's stores return "" unless its feature AtomicFIFO is on
	}
	if err := c.plain().Resync(); err != nil {
		c.Errorf("Resync: %v", err)
	}
	c.want(c.object("default/a", 2))
}

// writesWhileRead adds the objects of throughout. Then it calls write again and again while
// goroutines call the readers, until each reader was called at least three times.
func (c *checker) writesWhileRead(throughout []informer.AnyObject, write func(i int), readers ...func()) {
	c.Helper()
	c.add(throughout...)
	var done atomic.Bool
	var all sync.WaitGroup
	var late atomic.Int64 // how many readers were not called three times yet
	late.Store(int64(len(readers)))
	for _, read := range readers {
		all.Go(func() {
			for n := 1; !done.Load() && !c.Failed(); n++ {
				if read(); n == 3 {
					late.Add(-1)
				}
				runtime.Gosched() // with one processor, let them take turns
			}
		})
	}
	defer all.Wait()
	defer done.Store(true)
	for i := 0; !c.Failed() && (i < c.rounds(240) || late.Load() > 0); i++ {
		write(i)
		runtime.Gosched()
	}
}

// comesAndGoes returns a function write for writesWhileRead. It updates the objects of
// throughout, and adds and deletes a few others.
func (c *checker) comesAndGoes(throughout []informer.AnyObject) func(i int) {
	return func(i int) {
		c.update(c.object(keyOf(throughout[i%len(throughout)]), i+100))
		c.comeOrGo(c.object(fmt.Sprintf("default/t-%d", i%13), i+100))
	}
}

// comeOrGo deletes the object with the key of obj if there is one. Otherwise it adds obj.
func (c *checker) comeOrGo(obj informer.AnyObject) {
	c.Helper()
	_, exists, err := c.store.get(keyOf(obj))
	switch {
	case err != nil:
		c.Fatalf("get of %q: %v", keyOf(obj), err)
	case exists:
		c.delete(obj)
	default:
		c.add(obj)
	}
}

// throughout returns objects whose keys lie between the keys that comesAndGoes adds and
// deletes.
func (c *checker) throughout() []informer.AnyObject {
	var objs []informer.AnyObject
	for i := range 20 {
		objs = append(objs, c.object(fmt.Sprintf("default/t-%d-x", i), i+50))
	}
	return objs
}

// wantThroughout fails the check unless keys has the key of each object of throughout once.
// what is the call that has returned keys.
func (c *checker) wantThroughout(what string, throughout []informer.AnyObject, keys []string) {
	c.Helper()
	count := map[string]int{}
	for _, key := range keys {
		count[key]++
	}
	for _, obj := range throughout {
		if n := count[keyOf(obj)]; n != 1 {
			c.Errorf("%s was there all the time, and %s has returned it %d times", keyOf(obj), what, n)
		}
	}
}

func bearsReaders(c *checker) {
	throughout := c.throughout()
	c.writesWhileRead(throughout, c.comesAndGoes(throughout),
		func() { c.wantThroughout("List", throughout, keysOf(c.all())) },
		func() { c.wantThroughout("ListKeys", throughout, c.plain().ListKeys()) },
		func() {
			for _, obj := range throughout {
				if got, exists, err := c.store.get(keyOf(obj)); err != nil || !exists || !strings.HasPrefix(describe(got), keyOf(obj)+" (") {
					c.Errorf("while others were written, GetByKey(%q) has returned %v, %v, %v", keyOf(obj), describe(got), exists, err)
				}
			}
			c.plain().Bookmark("1")
			c.plain().LastStoreSyncResourceVersion()
		},
	)
}
