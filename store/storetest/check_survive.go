package storetest

import (
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
)

func fillForReopening(c *checker) *model {
	c.Helper()
	m := newModel()
	for i, obj := range c.odd() {
		c.apply(m, strconv.Itoa(i+1), putting(obj))
	}
	c.apply(m, "1000", deleting(c.kept("default/a")), deleting(c.kept("system:node")), putting(c.incarnation("default/a", "2", 1000)))
	c.apply(m, "1001", deleting(c.kept("default/a")), deleting(c.kept("default/b")))
	c.forget(m, map[string][]types.UID{"default/b": {"uid-default/b-1"}})
	return m
}

func findsAgain(c *checker) {
	m := fillForReopening(c)
	c.wantModel(m)
	for i := range 3 {
		c.over(c.durable.Reopen(c.T, c.lasting()))
		c.wantModel(m)
		c.apply(m, strconv.Itoa(2000+i), putting(c.object("default/a.b", 2000+i)))
	}
	c.apply(m, "")
	c.over(c.durable.Reopen(c.T, c.lasting()))
	c.wantModel(m)
	full := c.full("default/full", 3000)
	c.apply(m, "3000", putting(copyOf(full)))
	c.over(c.durable.Reopen(c.T, c.lasting()))
	c.wantModel(m)
	c.wantEqual("Get, when it is reopened", full, c.get("default/full"))
	page := c.page("default/ful", 1)
	if len(page) != 1 {
		c.Fatalf("Scan returned %s, want one object", short(describeEach(page)))
	}
	c.wantEqual("Scan, when it is reopened", full, page[0].Object)
}

func findsAgainAfterCrash(c *checker) {
	if c.durable.Crash == nil {
		c.Skip("DurableOptions.Crash is nil: the state after a crash is not checked")
	}
	h := &chronicle{checker: c, now: newModel()}
	h.note()
	one := c.object("default/a", 1)
	steps := []func(){
		func() { c.apply(h.now, "1", putting(one), putting(c.object("default/b", 1))) },
		func() { c.apply(h.now, "2", putting(c.object("default/b", 2))) },
		func() { c.apply(h.now, "3", deleting(one), putting(c.incarnation("default/a", "2", 3))) },
		func() { c.forget(h.now, map[string][]types.UID{"default/a": {one.GetUID()}}) },
		func() { c.apply(h.now, "") },
		func() { c.apply(h.now, "", putting(c.object("default/c", 4))) },
		func() { c.apply(h.now, "5") },
	}
	// Crash after no step, after the first step, after the first two and so on, each time with
	// a new store.
	for n := range len(steps) + 1 {
		*c = *newChecker(c.T, c.suite)
		h.now, h.past = newModel(), nil
		h.note()
		for _, step := range slices.Clip(steps[:n]) {
			step()
			h.note()
		}
		h.crash()
		c.wantModel(h.now)
		h.note()
		c.apply(h.now, "6", putting(c.object("default/d", 6))) // the store must still work
		h.note()
		h.crash()
		c.wantModel(h.now)
	}
}
