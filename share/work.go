package share

import (
	"hash/maphash"
	"sync"
)

type common struct {
	seed  maphash.Seed
	salt  uint64 // goes into each hash, so that no client can choose values with equal hashes
	known weakTable
	places
	works sync.Pool // of *work
}

func (c *common) borrow() *work {
	if w, ok := c.works.Get().(*work); ok {
		return w
	}
	return &work{common: c, maps: map[address]struct{}{}}
}

func (c *common) giveBack(w *work) {
	w.forget()
	clear(w.maps)
	*w = work{common: c, parts: w.parts, entries: w.entries, maps: w.maps}
	c.works.Put(w)
}

// work is the state of a walk over one object. The first pass, hash, notes the hash of each part.
// The second pass, replace, visits the parts in the same order.
type work struct {
	*common
	parts    []part
	entries  []mapEntry // of the maps among the parts
	next     int        // the number of the part that replace visits next
	depth    int
	met      int  // how many parts hash and update have visited
	hashed   int  // how many parts hash has visited; parts in an otherMap count once for each level
	compared int  // how many parts equal has compared
	refused  bool // the object is too deep or has too many parts

	maps        map[address]struct{} // the maps that the walk has been in
	hits, saved int64
	copied      int // how many bytes of copies went into the table
}

// part is what hash notes about a part.
type part struct {
	hash    uint64
	after   int // the number of the first part that is not inside this one
	entries int // of a map: its entries begin here in work.entries
	length  int // of a map: how many entries it has
}

// mapEntry is an entry of a map. The entries are kept because each loop over a map has another
// order.
type mapEntry struct {
	key       string
	keyHash   uint64
	text      string // of a stringMap
	textHash  uint64
	value     any // of an anyMap
	valuePart int // of an anyMap: the number of the first part of the value
}

// These limits are far above what an object of an API server has. They end the walk over an object
// that has a cycle.
const (
	maxDepth = 1_000
	maxParts = 1 << 19
	// maxCompared is higher, because an update compares a part once for each changed part around it.
	maxCompared = 4 * maxParts
)

// forget drops the notes of the first pass. If they were many, it frees their memory, so that one
// huge object does not keep it forever.
func (w *work) forget() {
	const keep = 1 << 14
	clear(w.entries)
	w.parts, w.entries = w.parts[:0], w.entries[:0]
	if cap(w.parts) > keep {
		w.parts = nil
	}
	if cap(w.entries) > keep {
		w.entries = nil
	}
}

// hit notes that a part was replaced, and how many bytes that saves.
func (w *work) hit(saves uintptr) { w.hits, w.saved = w.hits+1, w.saved+int64(saves) }

// again reports whether the walk has visited a map before. A map goes into the table without a copy,
// so others may read it by then.
func (w *work) again(m address) bool {
	before := len(w.maps)
	w.maps[m] = struct{}{}
	return len(w.maps) == before
}
