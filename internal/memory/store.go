package memory

import (
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"
)

// Store keeps objects in memory, in a part for each source. New makes a Store. Its methods and those of its
// Parts may be called from any goroutine. Methods that write, Failed and Failure block while another method
// writes. Snapshot waits for a write that is under way. No other method blocks.
type Store struct {
	hash   func(string) uint64
	number uint64 // is the order in which the locks of several stores are taken
	state  atomic.Pointer[state]

	freeze sync.Mutex // held while nodes are changed, and for a moment by a snapshot
	// These belong to freeze.
	last  batch
	spare *state // is used by the next write

	mu     sync.Mutex // held by a writer; protects the rest
	terms  []term     // scratch
	failed map[Ref][]error
	wrote  func(obj any) // called after a write with its last object; nil for none
}

// state is everything that a store has. It never changes.
type state struct {
	functions *functions
	parts     *node // by their sources
	at        any
}

// Ref is the place of an object in a store.
type Ref struct{ Source, Key string }

// New returns an empty store with these indexes, or an error if one of the functions is nil.
func New(indexers cache.Indexers) (*Store, error) {
	seed := maphash.MakeSeed() // another one in each process, so that no client can choose keys with the same hash
	return newStore(indexers, func(s string) uint64 { return maphash.String(seed, s) })
}

var stores atomic.Uint64 // that were made

func newStore(indexers cache.Indexers, hash func(string) uint64) (*Store, error) {
	f, err := (&functions{}).with(indexers)
	if err != nil {
		return nil, err
	}
	s := &Store{hash: hash, number: stores.Add(1), last: batch{write: write{hash: hash}}, spare: &state{}, failed: map[Ref][]error{}}
	s.state.Store(&state{functions: f})
	return s, nil
}

// Part is the part of a store for one source.
type Part struct {
	store  *Store
	source string
	hash   uint64
}

// Part returns the part for a source. A part without objects costs nothing.
func (s *Store) Part(source string) Part { return Part{s, source, s.hash(source)} }

// Change is a change of an object, with the results of Apply.
type Change struct {
	Part   Part
	Key    string
	Object any  // the object to store; for a delete the state that came with it, or nil
	Delete bool // remove the object of the key
	Insert bool // leave an object that the key has as it is

	Before  any     // the object that the key had before
	Existed bool    // there was one
	Failed  []error // of index functions: the object is stored, but not in their indexes

	terms int // where its terms end
}

// Kept reports whether an Insert has changed nothing, because the key had an object. Failed is nil then.
func (c *Change) Kept() bool { return c.Insert && c.Existed }

// Get returns the object of a key.
func (p Part) Get(key string) (obj any, exists bool) {
	c := contentOf(p.store.state.Load().parts, p.hash, p.source)
	if c == nil {
		return nil, false
	}
	_, found := c.objects.find(p.store.hash(key), key)
	if found == nil {
		return nil, false
	}
	return *found, true
}

// Put stores an object under a key. It returns the results Before, Existed and Failed of the Change.
func (p Part) Put(key string, obj any) (before any, existed bool, failed []error) {
	changes := [1]Change{{Part: p, Key: key, Object: obj}}
	p.store.Apply(changes[:], nil)
	return changes[0].Before, changes[0].Existed, changes[0].Failed
}

// Remove removes the object of a key, and returns it. last is the last state of the object, which came with its
// delete, or nil.
func (p Part) Remove(key string, last any) (before any, existed bool) {
	changes := [1]Change{{Part: p, Key: key, Object: last, Delete: true}}
	p.store.Apply(changes[:], nil)
	return changes[0].Before, changes[0].Existed
}

// Apply makes changes in their order, and sets their results. A snapshot has all of them or none. If at is not
// nil, later snapshots return it from At.
func (s *Store) Apply(changes []Change, at any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.apply(changes, at)
	if n := len(changes); n > 0 && s.wrote != nil && changes[n-1].Object != nil {
		s.wrote(changes[n-1].Object)
	}
}

// atOnce is the maximum number of changes for which a snapshot has to wait.
const atOnce = 256

func (s *Store) apply(changes []Change, at any) {
	f, terms := s.state.Load().functions, s.terms[:0]
	for i := range changes {
		c := &changes[i]
		if !c.Delete {
			terms, c.Failed = f.evaluate(terms, 0, c.Object)
		}
		c.terms = len(terms)
	}
	s.publish(func(w *batch, next *state) {
		if at != nil {
			next.at = at
		}
		w.copies = len(changes) > atOnce
		from := 0
		for i := range changes {
			if i > 0 && i%atOnce == 0 { // a snapshot may come between, with the state before the write
				s.freeze.Unlock()
				s.freeze.Lock()
			}
			c := &changes[i]
			now := terms[from:c.terms]
			from = c.terms
			next.parts = w.in(next.parts, c.Part.hash, c.Part.source, len(f.list), func(in *content) {
				var before *any
				if c.Delete {
					before = w.remove(in, c.Key)
				} else {
					before = w.put(in, c.Key, c.Object, now, c.Insert)
				}
				if before != nil {
					c.Before, c.Existed = *before, true
				}
			})
		}
	})
	for i := range changes {
		c := &changes[i]
		if c.Kept() {
			c.Failed = nil
			continue
		}
		s.note(Ref{c.Part.source, c.Key}, c.Failed)
	}
	if clear(terms); cap(terms) <= 1000 {
		s.terms = terms
	}
}

// publish calls f to change a copy of the state, and makes the copy the state.
func (s *Store) publish(f func(w *batch, next *state)) {
	s.freeze.Lock()
	defer s.freeze.Unlock()
	s.last.stamp++
	now, next := s.state.Load(), s.spare
	*next = *now
	f(&s.last, next)
	if *next != *now {
		s.state.Store(next)
		next = &state{}
	}
	*next, s.spare = state{}, next
}

// note keeps the errors of the index functions for an object, or forgets earlier ones if there are none.
func (s *Store) note(r Ref, failed []error) {
	if len(failed) > 0 {
		s.failed[r] = failed
	} else if len(s.failed) > 0 {
		delete(s.failed, r)
	}
}

// Failed returns the errors of the index functions for each object. An object is in the result if a function
// has failed for its last write.
func (s *Store) Failed() map[Ref][]error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.failed)
}

// Failure returns the errors of Failed for one object, or nil.
func (s *Store) Failure(r Ref) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed[r]
}

// Reindex calls the index functions for the object of a key again, if there is one, and returns their errors.
func (p Part) Reindex(key string) []error {
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	obj, exists := p.Get(key)
	if !exists {
		return nil
	}
	changes := [1]Change{{Part: p, Key: key, Object: obj}}
	p.store.apply(changes[:], nil)
	return changes[0].Failed
}

// Drop removes all objects of the part in one step.
func (p Part) Drop() {
	s := p.store
	s.mu.Lock()
	defer s.mu.Unlock()
	s.publish(func(w *batch, next *state) {
		next.parts = w.change(next.parts, p.hash, p.source, settled, func(*identity, *any) (*identity, *any) { return nil, nil })
	})
	maps.DeleteFunc(s.failed, func(r Ref, _ []error) bool { return r.Source == p.source })
}

// Replace replaces all objects in the store by objects, in one step for readers. It calls published before the
// next write.
func (s *Store) Replace(objects map[Ref]any, published func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.failed)
	s.rebuild(s.state.Load().functions, func(add func(r Ref, obj any, terms []term, first int)) {
		for r, obj := range objects {
			add(r, obj, nil, 0)
		}
	})
	published()
}

// AddIndexers adds indexes, for all objects in one step. If a name is taken or a function is nil, it returns an
// error and adds none.
func (s *Store) AddIndexers(indexers cache.Indexers) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.state.Load()
	f, err := now.functions.with(indexers)
	if err != nil {
		return err
	}
	s.rebuild(f, func(add func(r Ref, obj any, terms []term, first int)) {
		now.parts.walk(func(source *identity, c *any) bool {
			return (*c).(*content).objects.walk(func(id *identity, obj *any) bool {
				add(Ref{source.key, id.key}, *obj, slices.Clip(*id.terms), len(now.functions.list))
				return true
			})
		})
	})
	return nil
}

// rebuild makes a new state, and publishes it. fill must call add for each object, with its values in the first
// indexes. rebuild does not call the functions of these indexes.
func (s *Store) rebuild(f *functions, fill func(add func(r Ref, obj any, terms []term, first int))) {
	next := &state{functions: f, at: s.state.Load().at}
	w := &batch{write: write{stamp: s.last.stamp + 1, hash: s.hash}} // the lock of writers keeps it the next write
	fill(func(r Ref, obj any, terms []term, first int) {
		terms, failed := f.evaluate(terms, first, obj)
		next.parts = w.in(next.parts, s.hash(r.Source), r.Source, len(f.list), func(c *content) { w.put(c, r.Key, obj, terms, false) })
		if len(failed) > 0 {
			s.failed[r] = append(s.failed[r], failed...)
		}
	})
	s.publish(func(_ *batch, now *state) { *now = *next })
}

// Indexers returns the index functions by name.
func (s *Store) Indexers() cache.Indexers {
	indexers, f := cache.Indexers{}, s.state.Load().functions
	for n, name := range f.names {
		indexers[name] = f.list[n]
	}
	return indexers
}
