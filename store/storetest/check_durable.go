package storetest

import (
	"slices"
	"strconv"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
)

// durableChecks are the checks of an informer.Durable.
var durableChecks = []check{
	{"has no bookmark and no tombstones at first", "An informer that finds a bookmark does not list.", beginsEmpty},
	{"applies changes in their order and sets the bookmark", whyApply, appliesInOrder},
	{"applies a large list", "A first list is applied in large steps.", appliesMuch},
	{"sets a bookmark without changes, and takes it away", "A bookmark from the server comes without a change. Before a relist the informer removes the bookmark, because until the end of the relist the objects are not the state at any version.", appliesBookmarks},
	{"applies the same again without a difference", "An Apply that failed may have taken effect, and is repeated.", appliesAgain},
	{"stores what is there already", "Earlier calls that failed may have taken effect.", appliesAnything},
	{"keeps objects under the keys that it is given", whyKeys, keepsKeys},
	{"tells tombstones of one UID apart by their keys", whyKeys, buriesUnderKeys},
	{"keeps what is deleted as a tombstone", whyTombstones, keepsTombstones},
	{"keeps a tombstone of what was not there", "A call that failed may have taken effect: the object is gone, but the tombstone must still be there.", buriesAbsent},
	{"tells tombstones apart by key and UID", "An object that was deleted, created again and deleted gives watchers two deletes.", buriesEach},
	{"deletes without a tombstone", "The objects of a cluster that is only out of reach leave the store, and no watcher gets their deletes.", removesWithoutTombstones},
	{"deletes and adds one key in one step, in either order", "An object may be created again, and deleted again, within one step.", appliesBoth},
	{"forgets tombstones by key and UID", "A tombstone that is not forgotten leads to a delete event after each restart; one that is forgotten too early leads to none.", forgets},
	{"does not change what it is given to apply", "All watchers get the same objects, at the same time.", appliesUnchanged},
	{"applies all or nothing if the ctx ends", "The informer may be stopped at any moment, and the next informer trusts the bookmark.", appliesAllOrNothing},
	{"may be read while changes are applied", "Watchers, readers and the writer are goroutines of their own.", appliedWhileRead},
	{"finds everything again when it is reopened", "A Durable exists for this.", findsAgain},
	{"finds a whole state again after a crash", whyCrash, findsAgainAfterCrash},
	{"is right after any history", "All of the above, in any order.", durableHistories},
}

const (
	whyApply      = "The objects are the state of the source at the bookmark, whenever the process ends."
	whyKeys       = "The informer decides what a key is. Objects of several clusters may have the same namespace, name and UID."
	whyTombstones = "A watcher that did not get the delete before the process ended gets it from the next process, by the tombstone."
	whyCrash      = "The informer watches from the bookmark on: changes up to that version that the store lacks are missed, and newer ones that it has are delivered twice. A bookmark that is ahead of the objects loses changes forever."
)

func beginsEmpty(c *checker) { c.wantModel(newModel()) }

func appliesInOrder(c *checker) {
	m := newModel()
	a, b := c.object("default/a", 1), c.object("b", 2)
	c.apply(m, "2", putting(a), putting(b))
	c.wantModel(m)
	c.apply(m, "4", putting(c.object("b", 3)), putting(c.object("b", 4)), deleting(a), putting(c.object("default/c", 4)))
	c.wantModel(m)
	c.wantAbsent("default/a")
}

func appliesMuch(c *checker) {
	m := newModel()
	var first, second []informer.Change
	for i := range c.rounds(3000) {
		key := "default/o-" + string(rune('a'+i%26)) + "-" + strconv.Itoa(i)
		first = append(first, putting(c.object(key, i+1)))
		if i%3 == 0 {
			second = append(second, deleting(c.object(key, i+1)))
		} else {
			second = append(second, putting(c.object(key, i+10_000)))
		}
	}
	c.apply(m, "3000", first...)
	c.wantModel(m)
	c.apply(m, "13000", second...)
	c.wantModel(m)
	var all = map[string][]types.UID{}
	for _, change := range second {
		all[change.Key] = append(all[change.Key], change.Object.GetUID())
	}
	c.forget(m, all)
	c.wantModel(m)
}

func appliesBookmarks(c *checker) {
	m := newModel()
	c.apply(m, "10")
	c.wantModel(m)
	c.apply(m, "")
	c.wantModel(m)
	c.apply(m, "11", putting(c.object("default/a", 11)))
	c.apply(m, "", putting(c.object("default/a", 12)))
	c.wantModel(m)
	c.apply(m, "9") // a restored server counts from an earlier version
	c.apply(m, "18446744073709551616")
	c.wantModel(m)
}

func appliesAgain(c *checker) {
	m := newModel()
	a := c.object("default/a", 1)
	again := c.incarnation("default/a", "2", 3)
	steps := [][]informer.Change{
		{putting(a), putting(c.object("default/b", 2))},
		{putting(c.object("default/b", 3))},
		{deleting(a), putting(again)},
		{deleting(again), deleting(c.object("default/b", 3))},
		{},
	}
	for i, changes := range steps {
		for range 3 {
			c.apply(m, strconv.Itoa(i+1), changes...)
			c.wantModel(m)
		}
	}
}

func appliesAnything(c *checker) {
	m := newModel()
	c.apply(m, "1", putting(c.object("default/a", 1)))
	c.apply(m, "2", putting(c.object("default/a", 2)))
	c.wantModel(m)
	c.apply(m, "3", putting(c.incarnation("default/a", "2", 3)))
	c.wantModel(m)
}

// These are keys that an informer may give to objects whose namespace and name are the
// same.
const eastA, westA = "east|default/a", "west|default/a"

func keepsKeys(c *checker) {
	m := newModel()
	put := func(key string, obj informer.AnyObject) informer.Change {
		return informer.Change{Entry: under(key, obj)}
	}
	east, west := c.object("default/a", 1), c.object("default/a", 2)
	c.apply(m, "2", put(eastA, east), put(westA, west), put("default/a", c.object("default/a", 3)), put("a key of its own", c.object("b", 4)))
	c.wantModel(m)
	c.apply(m, "5", put(westA, c.object("default/a", 5)))
	c.wantModel(m)
	c.over(c.durable.Reopen(c.T, c.lasting()))
	c.wantModel(m)
	c.apply(m, "6", informer.Change{Entry: under(eastA, east), Delete: true})
	c.wantModel(m)
	c.wantAbsent(eastA)
	c.wantAbsent("b")
}

func buriesUnderKeys(c *checker) {
	m := newModel()
	bury := func(key string, version int) informer.Change {
		return informer.Change{Entry: under(key, c.object("default/a", version)), Delete: true}
	}
	c.apply(m, "1", informer.Change{Entry: under(eastA, c.object("default/a", 1))}, informer.Change{Entry: under(westA, c.object("default/a", 1))})
	c.apply(m, "2", bury(eastA, 1), bury(westA, 1), bury("default/a", 2))
	c.wantModel(m)
	c.over(c.durable.Reopen(c.T, c.lasting()))
	c.wantModel(m)
	c.forget(m, map[string][]types.UID{eastA: {"uid-default/a-1"}})
	c.wantModel(m)
	c.forget(m, map[string][]types.UID{"default/a": {"uid-default/a-1"}})
	c.wantModel(m)
}

func removesWithoutTombstones(c *checker) {
	m := newModel()
	remove := func(key string) informer.Change {
		return informer.Change{Entry: under(key, c.object("default/a", 1)), Delete: true, NoTombstone: true}
	}
	put := func(key string) informer.Change { return informer.Change{Entry: under(key, c.object("default/a", 1))} }
	c.apply(m, "1", put(eastA), put(westA))
	c.apply(m, "2", remove(eastA), informer.Change{Entry: under(westA, c.object("default/a", 1)), Delete: true})
	c.wantModel(m)
	c.wantAbsent(eastA)
	c.apply(m, "3", put(westA), remove(westA), remove("default/a")) // the tombstone of westA stays, and default/a is not there
	c.over(c.durable.Reopen(c.T, c.lasting()))
	c.wantModel(m)
	c.wantAbsent(westA)
}

func keepsTombstones(c *checker) {
	m := newModel()
	want := c.full("default/a", 1)
	c.apply(m, "2", putting(copyOf(want)), putting(c.object("default/b", 2)))
	c.apply(m, "3", deleting(c.kept("default/a")))
	c.wantModel(m)
	tombstones := func() []informer.Entry {
		got, err := c.lasting().Tombstones(c.Context())
		if err != nil || len(got) != 1 {
			c.Fatalf("Tombstones: %v, %v", describeEach(got), err)
		}
		return got
	}
	c.wantEqual("Tombstones", want, tombstones()[0].Object)
	clear(tombstones())
	c.wantModel(m)
	c.apply(m, "4", putting(c.incarnation("default/a", "2", 4)))
	c.wantModel(m)
	c.over(c.durable.Reopen(c.T, c.lasting()))
	c.wantEqual("Tombstones, when it is reopened", want, tombstones()[0].Object)
}

func buriesAbsent(c *checker) {
	m := newModel()
	c.apply(m, "1", deleting(c.object("default/a", 1)))
	c.wantModel(m)
}

func buriesEach(c *checker) {
	m := newModel()
	one, two, other := c.incarnation("default/a", "1", 1), c.incarnation("default/a", "2", 3), c.object("default/b", 5)
	other.SetUID(one.GetUID())
	none := c.object("default/c", 6)
	none.SetUID("") // objects of fakes have no UID
	c.apply(m, "1", putting(one))
	c.apply(m, "2", deleting(one))
	c.apply(m, "3", putting(two))
	c.apply(m, "4", deleting(two))
	c.apply(m, "6", putting(other), putting(none))
	c.apply(m, "7", deleting(other), deleting(none))
	c.wantModel(m)
	c.apply(m, "8", putting(c.incarnation("default/a", "2", 8)))
	c.apply(m, "9", deleting(c.incarnation("default/a", "2", 8))) // replaces the earlier tombstone of that UID
	c.wantModel(m)
}

func appliesBoth(c *checker) {
	m := newModel()
	one, two := c.incarnation("default/a", "1", 1), c.incarnation("default/a", "2", 2)
	c.apply(m, "1", putting(one))
	c.apply(m, "2", deleting(one), putting(two))
	c.wantModel(m)
	fleeting := c.object("default/b", 3)
	c.apply(m, "4", putting(fleeting), deleting(fleeting))
	c.wantModel(m)
	three := c.incarnation("default/a", "3", 5)
	c.apply(m, "7", deleting(two), putting(three), putting(c.incarnation("default/a", "3", 6)), deleting(c.incarnation("default/a", "3", 6)), putting(c.incarnation("default/a", "4", 7)))
	c.wantModel(m)
}

func forgets(c *checker) {
	m := newModel()
	for i, obj := range []informer.AnyObject{
		c.incarnation("default/a", "1", 1), c.incarnation("default/a", "2", 2), c.incarnation("default/a", "3", 3),
		c.object("default/b", 4), c.object("c", 5), c.object("default/a-b", 6),
	} {
		c.apply(m, strconv.Itoa(i+1), putting(obj))
		c.apply(m, strconv.Itoa(i+1), deleting(obj))
	}
	c.apply(m, "7", putting(c.incarnation("default/a", "2", 7)))
	for _, tombstones := range []map[string][]types.UID{
		nil,
		{"default/a": {}},
		{"default/a": {"none"}, "none": {"uid-default/b-1"}, "default/b": {""}},
		{"default/a": {"uid-default/a-2"}}, // the tombstone of an object that exists again
		{"default/a": {"uid-default/a-2"}},
		{"default/a": {"uid-default/a-1", "uid-default/a-3"}, "c": {"uid-c-1"}},
	} {
		c.forget(m, tombstones)
		c.wantModel(m)
	}
}

func appliesUnchanged(c *checker) {
	one, two := c.full("default/a", 1), c.full("default/a", 2)
	changes := []informer.Change{putting(one), putting(two), deleting(two), putting(c.incarnation("default/a", "2", 3))}
	before := slices.Clone(changes)
	wereOne, wereTwo := copyOf(one), copyOf(two)
	c.apply(newModel(), "3", changes...)
	if !slices.Equal(before, changes) {
		c.Error("Apply has changed the slice that was passed to it")
	}
	if !equality.Semantic.DeepEqual([]any{wereOne, wereTwo}, []any{one, two}) {
		c.Error("Apply has changed an object that was passed to it")
	}
}

func appliesAllOrNothing(c *checker) {
	m := newModel()
	gone := c.object("default/gone", 1)
	c.apply(m, "2", putting(gone), putting(c.object("default/o-0", 2)))
	changes := []informer.Change{deleting(gone)}
	for i := range 5 {
		changes = append(changes, putting(c.object("default/o-"+strconv.Itoa(i), 10+i)))
	}
	after := m.clone()
	after.apply(changes, "14")
	for n := range 30 {
		err := c.lasting().Apply(endsWhenAskedFor(c.Context(), n), changes, "14")
		state := c.readModel()
		switch {
		case after.same(state):
			m = after // further calls must make no difference
		case err == nil:
			c.Fatalf("Apply with a ctx that ends returned no error, but: %s", after.difference(state))
		case !m.same(state):
			c.Fatalf("Apply with a ctx that ends after %d looks at it has applied a part of the changes: compared with the state before, %s; compared with the state after, %s",
				n, m.difference(state), after.difference(state))
		}
	}
	c.apply(after, "14", changes...)
	c.wantModel(after)
}

func appliedWhileRead(c *checker) {
	throughout := c.throughout()
	var bookmark atomic.Int64
	bookmark.Store(-1) // the value of number for no bookmark
	write := func(i int) {
		obj := c.object("default/t-"+strconv.Itoa(i%13), i)
		changes := []informer.Change{putting(c.object(keyOf(throughout[i%len(throughout)]), i+100)), putting(obj)}
		if i%2 == 1 {
			changes = []informer.Change{deleting(c.object("default/t-"+strconv.Itoa((i-1)%13), i-1))}
		}
		if err := c.lasting().Apply(c.Context(), changes, strconv.Itoa(i)); err != nil {
			c.Errorf("Apply: %v", err)
		}
		bookmark.Store(int64(i))
		if err := c.lasting().Forget(c.Context(), map[string][]types.UID{keyOf(obj): {obj.GetUID()}}); err != nil {
			c.Errorf("Forget: %v", err)
		}
	}
	c.writesWhileRead(throughout, write,
		func() {
			reached := bookmark.Load()
			if rv, err := c.lasting().Resume(c.Context()); err != nil || number(rv) < reached {
				c.Errorf("Resume returned %q, %v, after Apply had set %d", rv, err, reached)
			}
			if _, err := c.lasting().Tombstones(c.Context()); err != nil {
				c.Errorf("Tombstones: %v", err)
			}
		},
		func() {
			page, err := c.lasting().Scan(c.Context(), "", 1000)
			if err != nil {
				c.Errorf("Scan: %v", err)
			}
			c.wantThroughout("Scan", throughout, keysOf(page))
		},
		func() {
			for _, obj := range throughout {
				if _, exists, err := c.store.get(keyOf(obj)); err != nil || !exists {
					c.Errorf("Get of %q: %v, %v", keyOf(obj), exists, err)
				}
			}
		},
	)
}
