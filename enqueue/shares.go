package enqueue

import (
	"reflect"
	"time"
)

// patience is how long a call of a controller over clusters may last before another worker takes its place.
const patience = time.Second

// shares holds the keys that are ready, by cluster. The cluster with the fewest calls is served first, so that a cluster that
// floods does not hold up the others. A cluster whose last call was slow gets one call at a time, so that hanging calls do
// not pile up. fifo.mu protects it.
type shares[K comparable] struct {
	workers  int
	clusters map[string]*share[K] // only clusters with keys, calls, or a slow last call
	slow     map[K]bool           // the keys of calls that have lasted longer than patience
}

type share[K comparable] struct {
	keys  []waitingKey[K] // the oldest first
	calls int
	slow  bool // the last call to end was slow, or one under way lasts longer than patience
}

type waitingKey[K comparable] struct {
	key K
	at  time.Time
}

// newShares returns the shares for keys of type K, or nil if these have no cluster.
func newShares[K comparable](workers int) *shares[K] {
	if reflect.TypeFor[K]() != reflect.TypeFor[Key]() {
		return nil
	}
	return &shares[K]{workers: workers, clusters: map[string]*share[K]{}, slow: map[K]bool{}}
}

func (s *shares[K]) of(key K) *share[K] {
	cluster := any(key).(Key).Cluster
	if s.clusters[cluster] == nil {
		s.clusters[cluster] = &share[K]{}
	}
	return s.clusters[cluster]
}

// free returns how many more calls a cluster may have: a slow one may have one call, and others as many as there are
// workers. It may be less than 0.
func (s *shares[K]) free(c *share[K]) int {
	if c.slow {
		return 1 - c.calls
	}
	return s.workers - c.calls
}

// count returns how many keys a worker may take.
func (s *shares[K]) count() (n int) {
	for _, c := range s.clusters {
		n += min(len(c.keys), max(0, s.free(c)))
	}
	return n
}

func (s *shares[K]) push(key K, now time.Time) {
	c := s.of(key)
	c.keys = append(c.keys, waitingKey[K]{key, now})
}

// pop removes and returns the oldest key of the cluster with the fewest calls. There must be a key that a worker may take.
func (s *shares[K]) pop() K {
	var next *share[K]
	for _, c := range s.clusters {
		if len(c.keys) == 0 || s.free(c) <= 0 {
			continue
		}
		if next == nil || c.calls < next.calls || c.calls == next.calls && c.keys[0].at.Before(next.keys[0].at) {
			next = c
		}
	}
	key := next.keys[0].key
	next.keys = next.keys[1:]
	next.calls++
	return key
}

// noteSlow notes that the call for a key lasts longer than patience.
func (s *shares[K]) noteSlow(key K) {
	s.slow[key] = true
	s.of(key).slow = true
}

// done notes that the call for a key is over.
func (s *shares[K]) done(key K) {
	c := s.of(key)
	c.calls--
	c.slow = s.slow[key]
	delete(s.slow, key)
	if c.calls == 0 && len(c.keys) == 0 && !c.slow {
		delete(s.clusters, any(key).(Key).Cluster)
	}
}

// oldest returns how many keys there are, and when the oldest came.
func (s *shares[K]) oldest() (n int, at time.Time) {
	for _, c := range s.clusters {
		n += len(c.keys)
		if len(c.keys) > 0 && (at.IsZero() || c.keys[0].at.Before(at)) {
			at = c.keys[0].at
		}
	}
	return n, at
}
