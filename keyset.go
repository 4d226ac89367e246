package informer

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// keySet is what the informer knows to exist, by key, with the UID. It is the
// KnownObjects of a DeltaFIFO, which asks under its lock what a list lacks; the
// store is not asked then, because it may fail or be slow.
type keySet[T Object] struct {
	mu   sync.Mutex // protects uids
	uids map[string]types.UID
}

// ListKeys returns the known keys.
func (s *keySet[T]) ListKeys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := make([]string, 0, len(s.uids))
	for key := range s.uids {
		keys = append(keys, key)
	}
	return keys
}

// GetByKey says that there is something under key: DeltaFIFO wants an object to
// put into a tombstone that only the key is read of.
func (s *keySet[T]) GetByKey(string) (any, bool, error) { return nil, true, nil }

// set notes that key exists.
func (s *keySet[T]) set(key string, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uids[key] = uid
}

// note takes an item into account and returns the change it asks for.
func (s *keySet[T]) note(it *item[T]) change[T] {
	switch {
	case it.kind == itemDelete:
		c := s.forget(it.key)
		c.item = it
		return c
	case it.kind == itemUpsert && !it.broken:
		s.mu.Lock()
		defer s.mu.Unlock()
		uid, known := s.uids[it.key]
		if now := it.obj.GetUID(); !known || uid != now {
			s.uids[it.key] = now
		}
		return change[T]{item: it, key: it.key, known: known, uid: uid}
	}
	return change[T]{item: it, key: it.key}
}

// restore takes a change back.
func (s *keySet[T]) restore(c *change[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.known {
		s.uids[c.key] = c.uid
	} else {
		delete(s.uids, c.key)
	}
}

// forget takes a delete into account and returns the change it asks for.
func (s *keySet[T]) forget(key string) change[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	uid, known := s.uids[key]
	delete(s.uids, key)
	return change[T]{key: key, known: known, uid: uid}
}
