package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// scanChecks are the checks of Scan of an informer.Durable.
var scanChecks = []check{
	{"gives everything once and in order, whatever the size of the pages", whyPages, pagesOfAnySize},
	{"gives what comes after a key, also if that is not there", "The object that ended a page may be deleted before the next page is asked for.", scansAfter},
	{"gives nothing of an empty store", "An empty result means the end of the objects; an error would be retried forever.", scansEmpty},
	{"gives the objects as they were stored", "Watchers that join get the objects that Scan returns.", scansWhole},
	{"gives a page that does not change any more", "The page is read while the store is written.", scansSnapshots},
	{"does not take the end of a ctx for the end of the objects", "Objects that are then left out would count as deleted.", scansWithoutCtx},
	{"misses and doubles nothing if it is written between pages", whyWritten, writesBetweenPages},
	{"misses and doubles nothing if it is written meanwhile", whyWritten, scansWhileWritten},
}

const (
	whyPages   = "A watcher that joins gets the objects of the pages, and never learns of an object that is in no page."
	whyWritten = "The informer keeps writing while it reads. It corrects objects that have changed since the read began, and takes all others from the pages."
)

func pagesOfAnySize(c *checker) {
	objs := c.odd()
	for _, i := range []int{7, 3, 11} { // add them in another order than that of the keys
		for j := range objs {
			k := (j*i + i) % len(objs)
			objs[j], objs[k] = objs[k], objs[j]
		}
	}
	c.add(objs...)
	want := describeAll(objs)
	for _, limit := range []int{1, 2, 3, 7, len(objs) - 1, len(objs), len(objs) + 1, 100_000, 1<<31 - 1} {
		c.same(fmt.Sprintf("Scan in pages of %d", limit), want, describeEach(c.scan(limit)))
	}
	c.delete(objs[:len(objs)/2]...)
	c.same("Scan after half was deleted", describeAll(objs[len(objs)/2:]), describeEach(c.scan(3)))
}

func scansAfter(c *checker) {
	c.add(c.object("b", 1), c.object("b/a", 2), c.object("b/c", 3), c.object("b-b/a", 4), c.object("d", 5))
	for after, want := range map[string][]string{
		"":       {"b", "b-b/a", "b/a", "b/c", "d"},
		"a":      {"b", "b-b/a", "b/a", "b/c", "d"},
		"b":      {"b-b/a", "b/a", "b/c", "d"},
		"b-":     {"b-b/a", "b/a", "b/c", "d"},
		"b-b/a":  {"b/a", "b/c", "d"},
		"b/":     {"b/a", "b/c", "d"},
		"b/a":    {"b/c", "d"},
		"b/b":    {"b/c", "d"},
		"c":      {"d"},
		"d":      {},
		"e/f":    {},
		"\uffff": {},
	} {
		objs, err := c.tryScan(after, 2, func(string) {})
		if got := keysOf(objs); err != nil || !slices.Equal(got, want) {
			c.Errorf("after %q come %q, %v, want %q", after, got, err, want)
		}
	}
}

func scansEmpty(c *checker) {
	for range 2 {
		for _, after := range []string{"", "default/a"} {
			if page := c.page(after, 10); len(page) > 0 {
				c.Errorf("Scan(%q) of an empty store returned %v", after, describeEach(page))
			}
		}
		c.add(c.object("default/a", 1))
		c.delete(c.object("default/a", 1))
	}
}

func scansWhole(c *checker) {
	want := c.full("default/a", 1)
	c.add(copyOf(want))
	page := c.page("", 2)
	if len(page) != 1 {
		c.Fatalf("Scan returned %s, want one object", short(describeEach(page)))
	}
	c.wantEqual("Scan", want, page[0].Object)
}

func scansSnapshots(c *checker) {
	c.add(c.object("default/a", 1), c.object("default/b", 2))
	page := c.page("", 5)
	before := describeEach(page)
	c.update(c.object("default/a", 3))
	c.delete(c.object("default/b", 2))
	c.same("the slice that Scan returned, after later writes", before, describeEach(page))
	clear(page)
	c.same("Scan, after the caller has changed its slice", []string{describe(c.object("default/a", 3))}, describeEach(c.page("", 5)))
}

// scansWithoutCtx checks Scan with a ctx that ends. Scan may return objects nevertheless,
// but then all of them.
func scansWithoutCtx(c *checker) {
	c.add(c.odd()...)
	want := describeEach(c.page("", 1000))
	ended, cancel := context.WithCancel(c.Context())
	cancel()
	ctxs := []context.Context{ended}
	for n := range 20 {
		ctxs = append(ctxs, endsWhenAskedFor(c.Context(), n))
	}
	for _, ctx := range ctxs {
		if page, err := c.lasting().Scan(ctx, "", 1000); err == nil {
			c.same("Scan with a ctx that ends, without an error", want, describeEach(page))
		}
	}
}

func writesBetweenPages(c *checker) {
	for _, limit := range []int{1, 2, 3, 5} {
		throughout := c.throughout()
		c.add(throughout...)
		passing := []string{"default/s", "default/u"} // and keys just before and just after each of throughout
		for _, obj := range throughout {
			passing = append(passing, keyOf(obj)+"x", strings.TrimSuffix(keyOf(obj), "x"))
		}
		n := 0
		read, err := c.tryScan("", limit, func(last string) {
			n++
			for i, key := range passing {
				if key == last || i%3 == n%3 { // the key that ended the page goes too
					c.comeOrGo(c.object(key, n+1000))
				}
			}
			c.update(c.object(keyOf(throughout[n%len(throughout)]), n+1000))
		})
		if err != nil {
			c.Fatal(err)
		}
		c.wantThroughout("Scan", throughout, keysOf(read))
		for _, key := range keysOf(c.all()) {
			c.delete(c.object(key, 1))
		}
	}
}

func scansWhileWritten(c *checker) {
	throughout := c.throughout()
	read := func(limit int) func() {
		return func() {
			if all, err := c.tryScan("", limit, func(string) {}); err != nil {
				c.Error(err)
			} else {
				c.wantThroughout("Scan", throughout, keysOf(all))
			}
		}
	}
	c.writesWhileRead(throughout, c.comesAndGoes(throughout), read(1), read(7), read(1000))
}
