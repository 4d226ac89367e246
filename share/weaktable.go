package share

import (
	"reflect"
	"runtime"
	"sync"
	"weak"
)

// weakTable is a hash table of parts. It holds weak pointers, so a part is collected when no object
// uses it any more.
type weakTable struct {
	stripes [64]stripe
}

// stripe is a section of the table with its own lock. It uses open addressing, with linear probing.
type stripe struct {
	mu    sync.Mutex
	slots []slot // their number is a power of two
	used  int    // how many slots are not empty, including slots of collected parts
	_     [64]byte
}

// slot is an entry. Its identity describes the memory behind the pointer.
type slot struct {
	hash uint64
	part weak.Pointer[byte]
	identity
}

// identity describes the memory of a part: count consecutive values of a type, the bytes of a
// string, or a map. The zero identity marks an empty slot.
type identity struct {
	typ   uint32 // see typeNumber
	count uint32 // 0 for a map
}

// minSlots is how many slots a stripe has at least, unless it is empty.
const minSlots = 16

func (e *weakTable) stripe(hash uint64) *stripe { return &e.stripes[hash>>58] }

// get returns the part that was put under a hash and an identity, or nil if there is none or it was
// collected.
func (e *weakTable) get(hash uint64, id identity) address {
	s := e.stripe(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.slots) == 0 {
		return nil
	}
	return strong(s.find(hash, id).part)
}

func (e *weakTable) put(hash uint64, id identity, part address) {
	w := weakTo(part)
	s := e.stripe(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used*4 >= len(s.slots)*3 {
		s.rebuild(1)
	}
	to := s.find(hash, id)
	if to.typ == 0 {
		s.used++
	}
	*to = slot{hash, w, id}
}

// find returns the slot of a part, or the empty slot where it can be put.
func (s *stripe) find(hash uint64, id identity) *slot {
	mask := uint64(len(s.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		if at := &s.slots[i]; at.typ == 0 || at.hash == hash && at.identity == id {
			return at
		}
	}
}

// rebuild drops the parts that were collected. It makes room for twice the parts that are left and
// more others. An empty stripe gets no slots.
func (s *stripe) rebuild(more int) {
	live := s.live()
	size, need := 0, len(live)+more
	if need > 0 {
		size = minSlots
	}
	for size < 2*need {
		size *= 2
	}
	s.slots, s.used = make([]slot, size), len(live)
	for _, at := range live {
		*s.find(at.hash, at.identity) = at
	}
}

func (s *stripe) live() (all []slot) {
	for i := range s.slots {
		if at := &s.slots[i]; at.typ != 0 && strong(at.part) != nil {
			all = append(all, *at)
		}
	}
	return all
}

// sweep drops the parts that were collected, if they are at least a quarter of the first stripe.
// All stripes are alike, because the hash chooses the stripe.
func (e *weakTable) sweep() {
	first := &e.stripes[0]
	first.mu.Lock()
	worthIt := len(first.live()) <= first.used*3/4
	first.mu.Unlock()
	if !worthIt {
		return
	}
	for i := range e.stripes {
		s := &e.stripes[i]
		s.mu.Lock()
		s.rebuild(0)
		s.mu.Unlock()
	}
}

// sweepAfterCollections sweeps the table after each garbage collection, as long as the program uses
// the table. It learns of a garbage collection from the cleanup of an object that nothing refers
// to.
func (e *weakTable) sweepAfterCollections() {
	sentinel := &struct{ _ [64]byte }{}
	runtime.AddCleanup(sentinel, func(w weak.Pointer[weakTable]) {
		if e := w.Value(); e != nil {
			e.sweep()
			e.sweepAfterCollections()
		}
	}, weak.Make(e))
}

// size returns the number of entries, and the bytes that they take.
func (e *weakTable) size() (n, bytes int) {
	for i := range e.stripes {
		s := &e.stripes[i]
		s.mu.Lock()
		n += s.used
		bytes += len(s.slots) * int(reflect.TypeFor[slot]().Size())
		s.mu.Unlock()
	}
	return n, bytes
}
