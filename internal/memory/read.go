package memory

import (
	"cmp"
	"iter"
	"runtime"
	"slices"
)

// Now returns the current state without making a snapshot, and does not block. The state may still show updates
// of objects, until a key or an index value changes. Each object that it shows had the index values by which it
// was found.
func (s *Store) Now() *Snapshot { return &Snapshot{*s.state.Load(), s.hash, nil} }

// Snapshot returns a snapshot of all parts. It waits for a write that is under way, but not for index
// functions.
func (s *Store) Snapshot() *Snapshot { return Snapshots(s)[0] }

// Snapshots returns snapshots of several stores at one moment: no store is written between two of the
// snapshots.
func Snapshots(stores ...*Store) (all []*Snapshot) {
	ordered := slices.SortedFunc(slices.Values(stores), func(a, b *Store) int { return cmp.Compare(a.number, b.number) })
	for _, s := range slices.Compact(ordered) {
		s.freeze.Lock()
		defer s.freeze.Unlock()
		s.last.mark = s.last.stamp
	}
	for _, s := range stores {
		all = append(all, s.Now())
	}
	return all
}

// Snapshot is the state of a store, or of one part, between two writes. It never changes. It keeps its objects
// in memory, and need not be closed.
type Snapshot struct {
	state
	hash func(string) uint64
	only *content // nil for all
}

// At returns the at of the last Apply that had one, or nil.
func (v *Snapshot) At() any { return v.at }

// In returns the snapshot of one source.
func (v *Snapshot) In(source string) *Snapshot {
	in := *v
	if in.only = contentOf(v.parts, v.hash(source), source); in.only == nil {
		in.parts = nil
	}
	return &in
}

func (v *Snapshot) each(visit func(c *content)) {
	if v.only != nil {
		visit(v.only)
		return
	}
	v.parts.walk(func(_ *identity, c *any) bool { visit((*c).(*content)); return true })
}

// Get returns the object of a key. If several parts have the key, it returns the object of any of them.
func (v *Snapshot) Get(key string) (obj any, exists bool) {
	hash := v.hash(key)
	v.each(func(c *content) {
		if _, found := c.objects.find(hash, key); found != nil {
			obj, exists = *found, true
		}
	})
	return obj, exists
}

// Entries returns all objects.
func (v *Snapshot) Entries() (all Entries) {
	v.each(func(c *content) { all = append(all, entries{objects: c.objects}) })
	return all
}

// ByIndex returns the objects that have a value in an index. It returns an error if the snapshot has no such
// index.
func (v *Snapshot) ByIndex(name, value string) (found Entries, err error) {
	n, err := v.functions.number(name)
	if err != nil {
		return nil, err
	}
	hash := v.hash(value)
	v.each(func(c *content) {
		if members := c.membersOf(n, hash, value); members != nil {
			found = append(found, entries{c.objects, members, v.hash})
		}
	})
	return found, nil
}

// Values returns all values of an index, each once and in no particular order. It returns an error if the
// snapshot has no such index.
func (v *Snapshot) Values(name string) ([]string, error) {
	n, err := v.functions.number(name)
	if err != nil {
		return nil, err
	}
	all, seen := []string{}, map[string]bool{}
	v.each(func(c *content) {
		c.tables[n].walk(func(of *identity, _ *any) bool {
			if !seen[of.key] {
				seen[of.key] = true
				all = append(all, of.key)
			}
			return true
		})
	})
	return all, nil
}

// Entries are objects with their keys, in no particular order. The Entries of a [Snapshot] never change.
type Entries []entries

// entries are the objects of a part that are in members, or all if members is nil.
type entries struct {
	objects *node
	members *node
	hash    func(string) uint64
}

// Len returns the number of entries.
func (es Entries) Len() (n int) {
	for _, e := range es {
		if e.members != nil {
			n += e.members.len()
		} else {
			n += e.objects.len()
		}
	}
	return n
}

// All yields each object with its key.
func (es Entries) All() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		es.walk(func(id *identity, obj *any) bool { return yield(id.key, *obj) })
	}
}

// Objects returns the objects in a new slice.
func (es Entries) Objects() []any {
	objs := make([]any, 0, es.Len())
	for some := range es.Chunks() {
		objs = append(objs, some...)
	}
	return objs
}

// Chunks yields the objects, some at a time, in a slice that the next chunk overwrites. A loop over a chunk
// makes no calls, so the processor can load several objects from memory at once.
func (es Entries) Chunks() iter.Seq[[]any] {
	return func(yield func([]any) bool) {
		buffer := make([]any, 0, min(es.Len(), maxLeaf))
		es.leaves(func(e entries, leaf *node) bool {
			some := buffer
			for i := range leaf.pairs {
				some = append(some, *leaf.pairs[i].obj.Load())
			}
			for _, id := range leaf.ids {
				_, obj := e.objects.find(e.hash(id.key), id.key)
				some = append(some, *obj)
			}
			return yield(some)
		})
	}
}

// Keys returns the keys in a new slice.
func (es Entries) Keys() []string {
	keys := make([]string, 0, es.Len())
	es.walk(func(id *identity, _ *any) bool { keys = append(keys, id.key); return true })
	return keys
}

func (es Entries) walk(visit func(*identity, *any) bool) {
	es.leaves(func(e entries, leaf *node) bool {
		for at := range leaf.size {
			id, obj := leaf.item(at)
			if obj == nil {
				_, obj = e.objects.find(e.hash(id.key), id.key)
			}
			if !visit(id, obj) {
				return false
			}
		}
		return true
	})
}

// givesWay is how many objects a walk visits before it yields to other goroutines. The scheduler would let it
// run for 10 ms, and if many goroutines list at once, a new change would wait for all of them.
const givesWay = 1000

func (es Entries) leaves(visit func(e entries, leaf *node) bool) {
	visited := 0
	for _, e := range es {
		of := e.objects
		if e.members != nil {
			of = e.members
		}
		if !of.leaves(func(leaf *node) bool {
			if visited += leaf.size; visited >= givesWay {
				visited = 0
				runtime.Gosched()
			}
			return visit(e, leaf)
		}) {
			return
		}
	}
}

// Walk returns the entries of a snapshot one after the other. The caller may pause for any time between them.
// Only one goroutine at a time may use it.
type Walk struct {
	parts []*node // those that are left
	path  []step
	left  int
}

// step is a node on the path of a walk, and the next place in it.
type step struct {
	of *node
	at int
}

// Walk returns a Walk through all objects.
func (v *Snapshot) Walk() *Walk {
	w := &Walk{}
	v.each(func(c *content) {
		w.parts = append(w.parts, c.objects)
		w.left += c.objects.len()
	})
	return w
}

// Len returns the number of entries that are left. It returns 0 for a nil Walk.
func (w *Walk) Len() int {
	if w == nil {
		return 0
	}
	return w.left
}

// Next returns the next entry. ok is false after the last.
func (w *Walk) Next() (key string, obj any, ok bool) {
	for len(w.path)+len(w.parts) > 0 {
		if len(w.path) == 0 {
			w.path, w.parts = append(w.path, step{of: w.parts[0]}), w.parts[1:]
		}
		top := &w.path[len(w.path)-1]
		n, at := top.of, top.at
		top.at++
		switch {
		case n.kids == nil && at < n.size:
			id, obj := n.item(at)
			w.left--
			return id.key, *obj, true
		case n.kids != nil && at < fan:
			if kid := n.kid(at); kid != nil {
				w.path = append(w.path, step{of: kid})
			}
		default:
			w.path = w.path[:len(w.path)-1]
		}
	}
	return "", nil, false
}
