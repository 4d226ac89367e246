package memory

import (
	"slices"
	"sync/atomic"
)

const (
	bits    = 4         // of a hash for each level of a trie
	fan     = 1 << bits // places of a branch
	maxLeaf = 32        // items of a leaf, unless the hashes of more are equal
	end     = 64        // bits of a hash
)

// node is a node of a hash trie: a branch with kids, or a leaf with items in no particular order. Nil is an
// empty trie. A node that a reader may have never changes, except for the objects of a leaf: see write.
//
// A leaf that gets too large is divided in two, by the next bit of the hashes. So a branch may have the same
// leaf in several places: in all places if the depth of the leaf is 0, in every second place if it is 1, and in
// one place if it is bits.
type node struct {
	stamp uint64 // the write that has made the node
	size  int    // number of items below
	kids  *[fan]*node
	*leaf
}

// leaf holds the items of a leaf. A search first looks at the tags, which are next to each other in memory. A tag
// is 16 bits of a hash, beginning with the bits of the branch. So most leaves can be divided without computing
// the hashes again.
type leaf struct {
	tags  [maxLeaf + 1]uint16 // also of the item that makes a leaf too large
	depth uint8               // bits of the branch that are the same in the hashes of all items
	pairs []pair              // nil if the trie has only identities
	ids   []*identity         // nil if the trie has objects
}

type pair struct {
	id  *identity
	obj atomic.Pointer[any]
}

// identity is a key with the index values of its object. It never changes: an object that gets other values
// gets a new identity.
type identity struct {
	key   string
	terms *[]term // in order; all objects that have one and the same value share a list
}

// write changes tries. It changes nodes that it has made, and copies all others. In a live trie it also
// replaces an object of the same identity in place if no snapshot can have the leaf. Readers without a snapshot
// see that at once.
type write struct {
	stamp  uint64
	mark   uint64 // the last write that a snapshot has seen
	copies bool   // a snapshot may be taken before the write has ended
	hash   func(string) uint64
}

// changer gets an item and returns its replacement. Both values are nil if there is no item. obj is also nil in
// a trie of identities.
type changer func(id *identity, obj *any) (*identity, *any)

// live is for tries of objects, and settled for tries of tries, which the write may still change.
const live, settled = true, false

func (n *node) len() int {
	if n == nil {
		return 0
	}
	return n.size
}

// find returns the identity of a key and its object, or nil and nil.
func (n *node) find(hash uint64, key string) (*identity, *any) {
	rest := hash
	for path := hash; n != nil && n.kids != nil; path >>= bits {
		rest = path
		n = n.kids[path%fan]
	}
	return n.item(n.search(uint16(rest), key))
}

// item returns an item of a leaf, or nil and nil for place -1.
func (n *node) item(at int) (*identity, *any) {
	switch {
	case at < 0:
		return nil, nil
	case n.pairs != nil:
		return n.pairs[at].id, n.pairs[at].obj.Load()
	}
	return n.ids[at], nil
}

// search returns the place of a key in a leaf, or -1.
func (n *node) search(tag uint16, key string) int {
	if n == nil {
		return -1
	}
	for at, t := range n.tags[:min(n.size, len(n.tags))] {
		if t == tag && n.id(at).key == key {
			return at
		}
	}
	for at := len(n.tags); at < n.size; at++ {
		if n.id(at).key == key {
			return at
		}
	}
	return -1
}

func (n *node) id(at int) *identity {
	if n.pairs != nil {
		return n.pairs[at].id
	}
	return n.ids[at]
}

// walk calls visit for each item until visit returns false. It reports whether it has visited all items.
func (n *node) walk(visit func(*identity, *any) bool) bool {
	return n.leaves(func(leaf *node) bool {
		for at := range leaf.size {
			if !visit(leaf.item(at)) {
				return false
			}
		}
		return true
	})
}

// leaves calls visit for each leaf until visit returns false. It reports whether it has visited all leaves.
func (n *node) leaves(visit func(*node) bool) bool {
	switch {
	case n == nil:
	case n.kids == nil:
		return visit(n)
	default:
		for at := range fan {
			if kid := n.kid(at); kid != nil && !kid.leaves(visit) {
				return false
			}
		}
	}
	return true
}

// kid returns the kid at a place of a branch, or nil if an earlier place has the same kid.
func (n *node) kid(at int) *node {
	kid := n.kids[at]
	if kid.kids == nil && at >= 1<<kid.depth {
		return nil
	}
	return kid
}

// set puts a kid into all of its places. at is one of them.
func (n *node) set(at uint64, kid *node) {
	step := uint64(fan)
	if kid.kids == nil {
		step = 1 << kid.depth
	}
	for at %= step; at < fan; at += step {
		n.kids[at] = kid
	}
}

// change calls f for the item of a key, and returns the trie with the item that f returns.
func (w *write) change(root *node, hash uint64, key string, live bool, f changer) *node {
	root = w.changeBelow(root, hash, key, 0, live, f)
	switch {
	case root.len() == 0:
		return nil
	case root.kids == nil && root.size > maxLeaf:
		return w.branch(root, hash, 0)
	}
	return root
}

func (w *write) changeBelow(n *node, hash uint64, key string, shift int, live bool, f changer) *node {
	if n == nil || n.kids == nil {
		return w.changeLeaf(n, uint16(hash>>max(0, shift-bits)), key, live, f)
	}
	at := hash >> shift % fan
	kid := n.kids[at]
	size := kid.size
	next := w.changeBelow(kid, hash, key, shift+bits, live, f)
	grows := next.size - size
	if next == kid && grows == 0 {
		return n // the kid was changed in place, or not at all
	}
	n = w.own(n, 0)
	n.set(at, next)
	n.size += grows
	switch {
	case grows > 0:
		w.divide(n, hash, shift)
	case grows < 0:
		return w.merge(n, at, shift)
	}
	return n
}

func (w *write) changeLeaf(n *node, tag uint16, key string, live bool, f changer) *node {
	at := n.search(tag, key)
	before, old := n.item(at)
	after, obj := f(before, old)
	switch {
	case before == after && old == obj:
	case before == after && live && !w.copies && n.stamp > w.mark:
		n.pairs[at].obj.Store(obj)
	case before == nil:
		n = w.own(n, 1)
		n.put(n.size, tag, after, obj)
	case after == nil:
		n = w.own(n, 0)
		if end := n.size - 1; end < len(n.tags) { // otherwise all hashes are equal
			tag = n.tags[end]
		}
		last, obj := n.item(n.size - 1)
		n.put(at, tag, last, obj)
		n.cut()
	default:
		n = w.own(n, 0)
		n.put(at, tag, after, obj)
	}
	return n
}

// own returns n if w has made it, and otherwise a copy. The copy of a leaf has room for more items.
func (w *write) own(n *node, room int) *node {
	switch {
	case n == nil:
		return w.newLeaf(0)
	case n.stamp == w.stamp:
		return n
	case n.kids != nil:
		b := w.newBranch(n.size)
		*b.kids = *n.kids
		return b
	}
	c := w.newLeaf(n.depth)
	c.size, c.tags = n.size, n.tags
	if n.pairs != nil {
		c.pairs = grown(n.pairs, room)
	} else {
		c.ids = grown(n.ids, room)
	}
	return c
}

// grown returns a copy of s with room for more elements.
func grown[T any](s []T, room int) []T { return append(make([]T, 0, len(s)+room), s...) }

// newBranch returns a branch without kids, in one piece of memory.
func (w *write) newBranch(size int) *node {
	b := &struct {
		node
		array [fan]*node
	}{}
	b.node = node{stamp: w.stamp, size: size, kids: &b.array}
	return &b.node
}

// newLeaf returns an empty leaf, in one piece of memory.
func (w *write) newLeaf(depth uint8) *node {
	n := &struct {
		node
		items leaf
	}{}
	n.node, n.items.depth = node{stamp: w.stamp, leaf: &n.items}, depth
	return &n.node
}

// put sets the item at a place of a leaf, or appends it if at is the size of the leaf.
func (n *node) put(at int, tag uint16, id *identity, obj *any) {
	if at < len(n.tags) {
		n.tags[at] = tag
	}
	if at == n.size {
		n.size++
	}
	if obj == nil {
		n.ids = room(n.ids, n.size)
		n.ids[at] = id
		return
	}
	n.pairs = room(n.pairs, n.size)
	n.pairs[at].id = id
	n.pairs[at].obj.Store(obj)
}

// room returns s, or a larger copy, with the length size.
func room[T any](s []T, size int) []T {
	if size > cap(s) {
		s = grown(s, 1+len(s)/4)
	}
	return s[:size]
}

// cut removes the last item of a leaf.
func (n *node) cut() {
	n.size--
	if n.pairs != nil {
		n.pairs = slices.Delete(n.pairs, n.size, n.size+1)
	} else {
		n.ids = slices.Delete(n.ids, n.size, n.size+1)
	}
}

// branch returns a branch with the items of a leaf that is too large.
func (w *write) branch(leaf *node, hash uint64, shift int) *node {
	b := w.newBranch(leaf.size)
	leaf.depth = 0
	if shift > 0 {
		w.tag(leaf, shift)
	}
	b.set(0, leaf)
	w.divide(b, hash, shift)
	return b
}

// tag computes the tags of a leaf below a branch.
func (w *write) tag(leaf *node, shift int) {
	for at := range min(leaf.size, len(leaf.tags)) {
		leaf.tags[at] = uint16(w.hash(leaf.id(at).key) >> shift)
	}
}

// divide divides the leaf at the place of a hash until it has no more than maxLeaf items, if that is possible.
// w must have made the leaf.
func (w *write) divide(b *node, hash uint64, shift int) {
	for {
		at := hash >> shift % fan
		leaf := b.kids[at]
		switch {
		case leaf.kids != nil || leaf.size <= maxLeaf:
			return
		case leaf.depth == bits && shift+bits < end:
			b.set(at, w.branch(leaf, hash, shift+bits))
			return
		case leaf.depth == bits:
			return
		}
		halves := w.halves(leaf)
		b.set(at, halves[at>>leaf.depth%2])
		b.set(at^1<<leaf.depth, halves[1-at>>leaf.depth%2])
	}
}

// halves returns the items of a leaf in two leaves, by the next bit of their hashes.
func (w *write) halves(leaf *node) (halves [2]*node) {
	var sizes [2]int
	tags := leaf.tags[:leaf.size]
	for _, tag := range tags {
		sizes[tag>>leaf.depth%2]++
	}
	for i, size := range sizes {
		halves[i] = w.newLeaf(leaf.depth + 1)
		if leaf.pairs != nil {
			halves[i].pairs = make([]pair, 0, size)
		} else {
			halves[i].ids = make([]*identity, 0, size)
		}
	}
	for at, tag := range tags {
		half := halves[tag>>leaf.depth%2]
		id, obj := leaf.item(at)
		half.put(half.size, tag, id, obj)
	}
	return halves
}

// merge merges the leaf at a place with its other half while they have at most maxLeaf/2 items together. It returns the
// branch, or the leaf if the branch has no other.
func (w *write) merge(b *node, at uint64, shift int) *node {
	for {
		leaf := b.kids[at]
		if leaf.kids != nil {
			return b
		}
		if leaf.depth == 0 {
			leaf = w.own(leaf, 0)
			leaf.depth = bits // one place of the branch above
			w.tag(leaf, max(0, shift-bits))
			return leaf
		}
		half := b.kids[at^1<<(leaf.depth-1)]
		if half.kids != nil || half.depth != leaf.depth || half.size+leaf.size > maxLeaf/2 {
			return b // with more, the next items could divide it again
		}
		both := w.newLeaf(leaf.depth - 1)
		for _, n := range []*node{leaf, half} {
			for at := range n.size {
				id, obj := n.item(at)
				both.put(both.size, n.tags[at], id, obj)
			}
		}
		b.set(at, both)
	}
}
