package storetest

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

// indexerChecks are the checks of a cache.Indexer and an informer.DurableIndexer, whose
// indexes an informer uses.
var indexerChecks = []check{
	{"finds by the indexes that it had while it was empty", whyIndexes, func(c *checker) { findsByIndex(c, false) }},
	{"finds by the indexes that it got when it was filled", "Handlers and controllers add indexes while the informer runs.", func(c *checker) { findsByIndex(c, true) }},
	{"indexes the last state of an object", whyIndexes, indexesTheLast},
	{"indexes what replaces everything", whyIndexes, indexesReplaced},
	{"finds an object under all of its values", whyIndexes, findsAllValues},
	{"finds by the values of an object", "Listers by namespace use this.", findsLikeAnObject},
	{"reports an index that it does not have", "A reader that misspells a name would believe an empty answer.", unknownIndex},
	{"does not take a second index of one name", "The informer adds an index by namespace, and relies on the error.", takenIndex},
	{"keeps an object that has no value", "An index function returns no values for an object that it does not apply to.", noValue},
	{"finds objects of one name under different keys", whyKeys, findsByIndexUnderKeys},
	{"may be asked by index while it is written", "Readers and the writer are goroutines of their own.", indexedWhileWritten},
}

const whyIndexes = "ByIndex of the informer and of the SharedIndexInformer returns the store's answer."

// byVersion indexes by the resourceVersion. byTags indexes by the UID, and puts every object
// under "all", but gives no values to objects of version 7.
var (
	byVersion = cache.IndexFunc(func(obj any) ([]string, error) {
		object, err := meta.Accessor(obj)
		if err != nil {
			return nil, err
		}
		return []string{object.GetResourceVersion()}, nil
	})
	byTags = cache.IndexFunc(func(obj any) ([]string, error) {
		object, err := meta.Accessor(obj)
		if err != nil || object.GetResourceVersion() == "7" {
			return nil, err
		}
		return []string{"all", string(object.GetUID())}, nil
	})
)

func (c *checker) indexer() indexes { return c.store.indexes() }

// clientGo returns the store as a cache.Indexer. If the store is not a cache.Store, it skips
// the rest of the check.
func (c *checker) clientGo() cache.Indexer {
	p, ok := c.store.(plain)
	if !ok {
		c.SkipNow()
	}
	return p.Store.(cache.Indexer)
}

func (c *checker) addIndexes() {
	c.Helper()
	if c.indexer().GetIndexers() == nil {
		c.Fatal("GetIndexers returned nil: an informer cannot add any. client-go's NewIndexer must be given a map: cache.Indexers{}")
	}
	if err := c.indexer().AddIndexers(cache.Indexers{"version": byVersion, "tags": byTags}); err != nil {
		c.Fatalf("AddIndexers: %v", err)
	}
	for _, name := range []string{"version", "tags"} {
		if c.indexer().GetIndexers()[name] == nil {
			c.Errorf("GetIndexers does not return %q, which was added", name)
		}
	}
}

func (c *checker) wantIndexed(index, value string, objs ...informer.AnyObject) {
	c.Helper()
	what := "(" + index + ", " + value + ")"
	found, err := c.indexer().ByIndex(c.Context(), index, value)
	if err != nil {
		c.Errorf("ByIndex%s: %v", what, err)
	}
	c.same("ByIndex"+what, describeAll(objs), describeEach(found))
	wanted := mapped(objs, func(obj informer.AnyObject) string { return keyOf(obj) })
	c.same("the keys of ByIndex"+what, wanted, keysOf(found))
	if p, ok := c.indexer().(plainIndexes); ok {
		keys, err := p.IndexKeys(index, value)
		if err != nil {
			c.Errorf("IndexKeys%s: %v", what, err)
		}
		c.same("IndexKeys"+what, wanted, keys)
	}
}

// wantValues fails the check unless an index has exactly these values. It checks nothing for
// an informer.DurableIndexer.
func (c *checker) wantValues(index string, values ...string) {
	c.Helper()
	if p, ok := c.indexer().(plainIndexes); ok {
		c.same("ListIndexFuncValues("+index+")", values, p.ListIndexFuncValues(index))
	}
}

func findsByIndex(c *checker, filled bool) {
	a, b, cluster := c.object("default/a", 1), c.object("default/b", 1), c.object("system:node", 2)
	if !filled {
		c.addIndexes()
		c.wantIndexed("version", "1")
		c.wantValues("version")
	}
	c.add(a, b, cluster)
	if filled {
		c.addIndexes()
	}
	c.wantIndexed("version", "1", a, b)
	c.wantIndexed("version", "2", cluster)
	c.wantIndexed("version", "3")
	c.wantIndexed("tags", "all", a, b, cluster)
	c.wantValues("version", "1", "2")
	c.add(c.object("default/c", 3))
	c.wantIndexed("version", "3", c.object("default/c", 3))
}

func indexesTheLast(c *checker) {
	c.addIndexes()
	a, b := c.object("default/a", 1), c.object("default/b", 1)
	c.add(a, b)
	newer := c.object("default/a", 2)
	c.update(newer)
	c.wantIndexed("version", "1", b)
	c.wantIndexed("version", "2", newer)
	c.wantIndexed("tags", "all", newer, b)
	c.delete(b)
	c.wantIndexed("version", "1")
	c.wantIndexed("tags", "all", newer)
	c.wantValues("version", "2")
	again := c.incarnation("default/a", "2", 3)
	c.update(again)
	c.wantIndexed("tags", string(newer.GetUID()))
	c.wantIndexed("tags", string(again.GetUID()), again)
}

func indexesReplaced(c *checker) {
	c.addIndexes()
	c.add(c.object("default/a", 1), c.object("default/b", 1))
	if err := c.clientGo().Replace([]any{c.object("default/b", 2)}, "2"); err != nil {
		c.Fatal(err)
	}
	c.wantIndexed("version", "1")
	c.wantIndexed("version", "2", c.object("default/b", 2))
	c.wantIndexed("tags", "all", c.object("default/b", 2))
}

func findsAllValues(c *checker) {
	c.addIndexes()
	a, b := c.object("default/a", 1), c.object("default/b", 2)
	c.add(a, b)
	c.wantIndexed("tags", "all", a, b)
	c.wantIndexed("tags", string(a.GetUID()), a)
	c.wantIndexed("tags", string(b.GetUID()), b)
	c.wantValues("tags", "all", string(a.GetUID()), string(b.GetUID()))
}

func findsLikeAnObject(c *checker) {
	c.addIndexes()
	a, b := c.object("default/a", 1), c.object("default/b", 1)
	c.add(a, b, c.object("default/c", 2))
	for index, want := range map[string][]informer.AnyObject{
		"version": {a, b},
		"tags":    {a, b, c.object("default/c", 2)}, // each object once, though a is under two values
	} {
		found, err := c.clientGo().Index(index, a)
		if err != nil {
			c.Errorf("Index(%s): %v", index, err)
		}
		c.same("Index("+index+") of "+describe(a), describeAll(want), describeAll(found))
	}
}

func unknownIndex(c *checker) {
	c.addIndexes()
	c.add(c.object("default/a", 1))
	if found, err := c.indexer().ByIndex(c.Context(), "none", "1"); err == nil {
		c.Errorf("ByIndex of an index that does not exist: %v and no error", found)
	}
	if keys, err := c.clientGo().IndexKeys("none", "1"); err == nil {
		c.Errorf("IndexKeys of an index that does not exist: %v and no error", keys)
	}
	if found, err := c.clientGo().Index("none", c.object("default/a", 1)); err == nil {
		c.Errorf("Index of an index that does not exist: %v and no error", found)
	}
	if values := c.clientGo().ListIndexFuncValues("none"); len(values) > 0 {
		c.Errorf("ListIndexFuncValues of an index that does not exist: %v", values)
	}
}

func takenIndex(c *checker) {
	c.addIndexes()
	c.add(c.object("default/a", 1))
	if err := c.indexer().AddIndexers(cache.Indexers{"version": byTags}); err == nil {
		c.Error("AddIndexers of a name that is taken returned no error")
	}
	c.wantIndexed("version", "1", c.object("default/a", 1))
	c.wantIndexed("version", "all")
}

func noValue(c *checker) {
	c.addIndexes()
	c.add(c.object("default/a", 7))
	c.want(c.object("default/a", 7))
	c.wantIndexed("tags", "all")
	c.update(c.object("default/a", 8))
	c.wantIndexed("tags", "all", c.object("default/a", 8))
	c.update(c.object("default/a", 7))
	c.wantIndexed("tags", "all")
	c.wantValues("tags")
}

func findsByIndexUnderKeys(c *checker) {
	if _, ok := c.store.(lasting); !ok {
		c.Skip("the keys of a cache.Store follow from its objects")
	}
	c.addIndexes()
	found := func(keys ...string) {
		c.Helper()
		entries, err := c.indexer().ByIndex(c.Context(), "version", "1")
		if err != nil {
			c.Error(err)
		}
		c.same("the keys of ByIndex", keys, keysOf(entries))
	}
	obj, m := c.object("default/a", 1), newModel()
	c.apply(m, "1", informer.Change{Entry: under(eastA, obj)}, informer.Change{Entry: under(westA, obj)})
	found(eastA, westA)
	c.apply(m, "2", informer.Change{Entry: under(eastA, obj), Delete: true})
	found(westA)
	c.apply(m, "3", informer.Change{Entry: under(westA, c.object("default/a", 2))})
	found()
}

func indexedWhileWritten(c *checker) {
	c.addIndexes()
	throughout := c.throughout()
	uids := map[string]informer.AnyObject{}
	for _, obj := range throughout {
		uids[string(obj.GetUID())] = obj
	}
	c.writesWhileRead(throughout, c.comesAndGoes(throughout),
		func() {
			for uid, obj := range uids {
				if found, err := c.indexer().ByIndex(c.Context(), "tags", uid); err != nil || len(found) != 1 || keysOf(found)[0] != keyOf(obj) {
					c.Errorf("while others were written, ByIndex(tags, %s) has returned %v, %v", uid, describeEach(found), err)
				}
			}
		},
		func() {
			c.indexer().GetIndexers()
			p, ok := c.indexer().(plainIndexes)
			if !ok {
				return
			}
			if _, err := p.Index("tags", throughout[0]); err != nil {
				c.Error(err)
			}
			if keys, err := p.IndexKeys("tags", "all"); err != nil || len(keys) < len(throughout) {
				c.Errorf("while others were written, IndexKeys(tags, all) has returned %d keys, %v", len(keys), err)
			}
			p.ListIndexFuncValues("tags")
		},
	)
}
