// Package tombstone decides when the tombstones of a durable store can be removed. A tombstone is
// a deleted object that the store keeps until every watcher has handled the delete, so that the
// delete survives a crash. A watcher that is a [Keeper] decides itself when it has handled a
// delete. The store keeps the objects; this package keeps only their log positions, in memory.
package tombstone

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer/internal/object"
)

// interval is the time between two looks of Follow for tombstones that are due. If the process
// crashes in between, some deletes are delivered a second time.
const interval = time.Second

// Store is the part of a durable store that a Set needs.
type Store interface {
	// Tombstones returns the objects of all tombstones with their keys, in any order.
	Tombstones(ctx context.Context) (object.Entries, error)
}

// ID identifies a tombstone. Two objects that had the same key have different UIDs.
type ID struct {
	Key string
	UID types.UID
}

// Keeper is a watcher that may not have handled a delete when its call returns, because it does
// the work later. Its methods must not block.
type Keeper interface {
	// Keep is called before any event if the store keeps tombstones. If it is not called, the
	// watcher need not remember its deletes.
	Keep()
	// Keeps reports whether the watcher was called for the delete and has not done the work for
	// it.
	Keeps(id ID) bool
}

// Set holds the tombstones that are still needed, because some watcher has not handled the delete.
// The store keeps the deleted objects. The Set keeps only the log positions at which they were
// deleted. New makes a Set, which must not be copied. All methods may be called from any
// goroutine. Only Read and Follow block.
type Set struct {
	store   Store
	handled func() (after, upTo int64, keepers []Keeper)
	added   chan struct{} // gets a token when a tombstone is added
	ripe    atomic.Bool   // Follow has found tombstones that are due, and TakeRipe has not returned them

	mu      sync.Mutex // protects the rest
	deletes map[ID]span
}

// span holds the log positions of the first and the last delete of one object. A position is 0 if
// the object was deleted before the log began. If a server goes back in time, one object may be
// deleted several times. Every watcher must have handled the last delete.
type span struct{ first, last int64 }

// New returns an empty Set over store. The caller must call Add for the tombstones that store has
// already. handled must return the log positions between which every delete is handled, and the
// watchers that may keep some of these deletes. Any goroutine may call handled. It must not block.
func New(store Store, handled func() (after, upTo int64, keepers []Keeper)) *Set {
	return &Set{store: store, handled: handled, deletes: map[ID]span{}, added: make(chan struct{}, 1)}
}

// Add adds tombstones of deletes. position is the log position after these deletes.
func (s *Set) Add(ids []ID, position int64) {
	if len(ids) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		first := position
		if before, again := s.deletes[id]; again {
			first = before.first
		}
		s.deletes[id] = span{first, position}
	}
	select {
	case s.added <- struct{}{}:
	default:
	}
}

// Due returns the tombstones that can be removed, because the first and the last delete are
// handled and no watcher keeps them. The result has UIDs by key, for the store's Forget.
func (s *Set) Due() map[string][]types.UID {
	after, upTo, keepers := s.handled()
	var passed []ID
	s.mu.Lock()
	for id, at := range s.deletes {
		if at.first > after && at.last <= upTo {
			passed = append(passed, id)
		}
	}
	s.mu.Unlock()
	due := map[string][]types.UID{}
	for _, id := range passed {
		if !slices.ContainsFunc(keepers, func(k Keeper) bool { return k.Keeps(id) }) {
			due[id.Key] = append(due[id.Key], id.UID)
		}
	}
	return due
}

// TakeRipe returns Due if Follow has called wake since the last TakeRipe, and otherwise nil. It
// may be called often, because it is then cheap.
func (s *Set) TakeRipe() map[string][]types.UID {
	if !s.ripe.Swap(false) {
		return nil
	}
	return s.Due() // a watcher may have registered in the meantime
}

// Remove removes tombstones that Due has returned and that the store has forgotten.
func (s *Set) Remove(due map[string][]types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, uids := range due {
		for _, uid := range uids {
			delete(s.deletes, ID{key, uid})
		}
	}
}

// Count returns the number of tombstones, or 0 for a nil Set.
func (s *Set) Count() int {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.deletes)
}

// Read reads the tombstones in the store. It returns the objects of those that are in the Set and
// whose first position is at most upTo, with their keys. It blocks as long as the store does, and
// returns the store's error.
func (s *Set) Read(ctx context.Context, upTo int64) (due object.Entries, err error) {
	stored, err := s.store.Tombstones(ctx)
	if err != nil {
		return object.Entries{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := range stored.Len() {
		e := stored.At(n)
		m, err := object.Meta(e.Object)
		if err != nil {
			continue
		}
		key := e.Key()
		if at, ok := s.deletes[ID{key, m.GetUID()}]; ok && at.first <= upTo {
			due.Append(key, e.Object)
		}
	}
	return due, nil
}

// Follow calls Due once a second while there are tombstones. If some are due, it calls wake, and
// not again before the next TakeRipe. It returns when ctx ends. It must run on its own goroutine,
// so that watchers need not look for tombstones when they handle an event.
func (s *Set) Follow(ctx context.Context, wake func()) {
	for {
		select {
		case <-s.added:
		case <-ctx.Done():
			return
		}
		ticker := time.NewTicker(interval)
		for s.Count() > 0 && ctx.Err() == nil {
			select {
			case <-ticker.C:
				if len(s.Due()) > 0 && !s.ripe.Swap(true) {
					wake()
				}
			case <-ctx.Done():
			}
		}
		ticker.Stop()
	}
}
