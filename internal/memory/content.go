package memory

import (
	"slices"
	"strings"
)

// content holds the objects of a source with their indexes. Like a node of a trie, only the write that made it
// may change it.
type content struct {
	stamp   uint64
	objects *node
	// tables has a trie of the values of each index, by its number. The object of a value is the trie of the
	// identities that have the value. So an update that does not change the values of an object does not change
	// the tables.
	tables []*node
}

// batch is a write that changes parts of a store.
type batch struct {
	write
	spare *content // nil, or is used for the next change of a part
}

// contentOf returns the content of a part, or nil.
func contentOf(parts *node, hash uint64, source string) *content {
	if _, c := parts.find(hash, source); c != nil {
		return (*c).(*content)
	}
	return nil
}

// membersOf returns the identities that have a value.
func (c *content) membersOf(index int, hash uint64, value string) *node {
	if _, members := c.tables[index].find(hash, value); members != nil {
		return (*members).(*node)
	}
	return nil
}

// in calls f to change the content of the part of a source, and returns the changed parts. It removes a part
// without objects.
func (w *batch) in(parts *node, hash uint64, source string, indexes int, f func(c *content)) *node {
	return w.change(parts, hash, source, settled, func(id *identity, obj *any) (*identity, *any) {
		next := w.spare
		if next == nil {
			next = &content{}
		}
		w.spare = nil
		var before content
		if obj != nil {
			before = *(*obj).(*content)
		} else {
			before.tables, id = make([]*node, indexes), &identity{key: source}
		}
		*next = before
		f(next)
		switch {
		case next.objects == nil:
			return nil, nil
		case obj != nil && next.objects == before.objects && next.stamp == before.stamp:
			*next, w.spare = content{}, next
			return id, obj // changed in place, or not at all
		}
		all := any(next)
		return id, &all
	})
}

// put stores an object with its index values, and returns the object that the key had before, or nil. If insert
// is true and the key has an object, put changes nothing.
func (w *batch) put(c *content, key string, obj any, terms []term, insert bool) (before *any) {
	var old, id *identity
	hash := w.hash(key)
	c.objects = w.change(c.objects, hash, key, live, func(was *identity, had *any) (*identity, *any) {
		old, id, before = was, was, had
		if insert && had != nil {
			return was, had
		}
		if was == nil || !slices.Equal(*was.terms, terms) {
			id = &identity{key, w.remember(c, terms)}
		}
		return id, &obj
	})
	w.move(c, hash, old, id)
	return before
}

// remove removes the object of a key and returns it, or returns nil if there is none.
func (w *batch) remove(c *content, key string) (before *any) {
	var old *identity
	hash := w.hash(key)
	c.objects = w.change(c.objects, hash, key, live, func(was *identity, had *any) (*identity, *any) {
		old, before = was, had
		return nil, nil
	})
	w.move(c, hash, old, nil)
	return before
}

// move replaces the identity before by after in all indexes. Either may be nil.
func (w *batch) move(c *content, hash uint64, before, after *identity) {
	if before == after {
		return
	}
	if c.stamp != w.stamp {
		c.stamp, c.tables = w.stamp, slices.Clone(c.tables)
	}
	var now []term
	if after != nil {
		now = *after.terms
	}
	for _, t := range now {
		w.place(c, t, hash, after, after)
	}
	if before == nil {
		return
	}
	for _, t := range *before.terms {
		if _, stays := slices.BinarySearchFunc(now, t, term.compare); !stays {
			w.place(c, t, hash, before, nil)
		}
	}
}

// place replaces, among the identities of a value, the identity with the key of id by after. If after is nil,
// it removes that identity.
func (w *batch) place(c *content, t term, hash uint64, id, after *identity) {
	valueHash := w.hash(t.value)
	c.tables[t.index] = w.change(c.tables[t.index], valueHash, t.value, settled, func(of *identity, members *any) (*identity, *any) {
		var had *node
		if members != nil {
			had = (*members).(*node)
		} else if of = (&identity{t.value, id.terms}); len(*id.terms) > 1 {
			of.terms = &[]term{t}
		}
		size := had.len()
		now := w.change(had, hash, id.key, settled, func(*identity, *any) (*identity, *any) { return after, nil })
		switch {
		case now == nil:
			return nil, nil
		case now == had && now.len() == size:
			return of, members
		}
		all := any(now)
		return of, &all
	})
}

var noTerms = &[]term{}

// remember returns a list of these values. The list does not share text with an object, because that could keep
// the object in memory.
func (w *batch) remember(c *content, terms []term) *[]term {
	if len(terms) == 0 {
		return noTerms
	}
	list := slices.Clone(terms)
	for n, t := range terms {
		of, _ := c.tables[t.index].find(w.hash(t.value), t.value)
		switch {
		case of == nil:
			list[n].value = strings.Clone(t.value)
		case len(terms) == 1:
			return of.terms
		default:
			list[n].value = of.key
		}
	}
	return &list
}
