package enqueue

import (
	"cmp"
	"container/list"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	// shown is how many calls and failures Health shows.
	shown = 10
	// givenUpKept is how many keys that were given up the state remembers.
	givenUpKept = 1000
)

// state is what a controller knows of its keys: the calls under way, the keys that fail, and the
// deletes that wait for a key. Its methods do not block and may be called from any goroutine.
type state[K comparable] struct {
	mu      sync.Mutex // protects the rest
	calls   map[K]call[K]
	failing map[K]*failure
	givenUp list.List // the keys in failing that were given up, the oldest first
	deletes deletes[K]

	succeeded, again, failed, gaveUp int // as in Health
	took                             [tookLimits + 1]int
	tookSum                          time.Duration
	lastSuccess                      time.Time
	stopped                          time.Time // when the ctx of all calls ended; zero before
}

type call[K comparable] struct {
	begun   time.Time
	deletes sets.Set[deletion] // the deletes that were known when it began
}

type failure struct {
	since    time.Time
	failures int // in a row, since the last time that the key was given up
	err      error
	givenUp  *list.Element // nil if another attempt follows
}

func newState[K comparable]() *state[K] {
	none := deletes[K]{waiting: map[K]sets.Set[deletion]{}, open: map[deletion]int{}, spans: map[deletion]span{}}
	return &state[K]{calls: map[K]call[K]{}, failing: map[K]*failure{}, deletes: none}
}

func (s *state[K]) begin(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[key] = call[K]{begun: time.Now(), deletes: s.deletes.take(key)}
}

// cancelled notes that the call for key has returned because its ctx is done.
func (s *state[K]) cancelled(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deletes.putBack(key, s.endLocked(key).deletes)
}

// success notes that the call for key has returned nil. again reports whether reconcile asked for
// another call: then the deletes of the call keep waiting for the key.
func (s *state[K]) success(key K, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.endLocked(key)
	if again {
		s.deletes.putBack(key, c.deletes)
		s.again++
	} else {
		s.deletes.settle(c.deletes)
	}
	s.succeeded++
	s.lastSuccess = time.Now()
	s.tookLocked(s.lastSuccess.Sub(c.begun))
	if f := s.failing[key]; f != nil {
		s.forgetLocked(key, f)
	}
}

// tookLocked counts how long a call took.
func (s *state[K]) tookLocked(took time.Duration) {
	n := 0
	for limit := firstLimit; n < tookLimits && took > limit; limit *= 4 {
		n++
	}
	s.took[n]++
	s.tookSum += took
}

// failure notes that the call for key has returned err. It returns how often in a row the key has
// failed, this time included. permanent reports whether err is permanent: then the deletes of the
// call are handled. giveUp gets the number of failures and reports whether the key is given up.
func (s *state[K]) failure(key K, err error, permanent bool, giveUp func(failures int) bool) (failures int, gaveUp bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.endLocked(key)
	if permanent {
		s.deletes.settle(c.deletes)
	} else {
		s.deletes.putBack(key, c.deletes)
	}
	s.failed++
	now := time.Now()
	s.tookLocked(now.Sub(c.begun))
	f := s.failing[key]
	switch {
	case f == nil:
		f = &failure{since: now}
		s.failing[key] = f
	case f.givenUp != nil: // an event has led to this attempt
		s.givenUp.Remove(f.givenUp)
		f.givenUp, f.failures = nil, 0
	}
	f.failures, f.err = f.failures+1, err
	if gaveUp = giveUp(f.failures); gaveUp {
		s.gaveUp++
		f.givenUp = s.givenUp.PushBack(key)
		if s.givenUp.Len() > givenUpKept {
			oldest := s.givenUp.Front().Value.(K)
			s.forgetLocked(oldest, s.failing[oldest])
		}
	}
	return f.failures, gaveUp
}

// leave forgets the failures of key, because another replica has the key.
func (s *state[K]) leave(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.failing[key]; f != nil {
		s.forgetLocked(key, f)
	}
}

// leaveGivenUp forgets the failures of the keys that were given up and are foreign. No call for such a key comes, which
// would find that another replica has it.
func (s *state[K]) leaveGivenUp(foreign func(K) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := s.givenUp.Front(); e != nil; {
		key := e.Value.(K)
		e = e.Next() // before the element is removed
		if foreign(key) {
			s.forgetLocked(key, s.failing[key])
		}
	}
}

// deleted notes a delete that led to keys, and when the delete happened. The zero span means that
// this is not known.
func (s *state[K]) deleted(d deletion, at span, keys []K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deletes.add(d, at, keys)
}

// eachDelete calls f for each delete that is not handled and each key that it waits for, also
// those of calls under way. If f returns true, the delete no longer waits for the key, unless a
// call has the delete. f must not block.
func (s *state[K]) eachDelete(f func(key K, d deletion, at span) (handled bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, c := range s.calls {
		for d := range c.deletes {
			f(key, d, s.deletes.spans[d])
		}
	}
	for key, waiting := range s.deletes.waiting {
		for d := range waiting {
			if f(key, d, s.deletes.spans[d]) {
				waiting.Delete(d)
				s.deletes.settle(sets.New(d))
			}
		}
		if len(waiting) == 0 {
			delete(s.deletes.waiting, key)
		}
	}
}

func (s *state[K]) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.deletes.waiting)
}

// waits reports whether a delete waits for key, or has a call under way.
func (s *state[K]) waits(key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.deletes.waiting[key]) > 0 || len(s.calls[key].deletes) > 0
}

// drop makes all deletes stop waiting for key, except those of a call under way. It reports whether there were any.
func (s *state[K]) drop(key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.deletes.take(key)
	s.deletes.settle(taken)
	return len(taken) > 0
}

func (s *state[K]) keeps(d deletion) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deletes.open[d] > 0
}

func (s *state[K]) endLocked(key K) call[K] {
	c := s.calls[key]
	delete(s.calls, key)
	return c
}

func (s *state[K]) forgetLocked(key K, f *failure) {
	delete(s.failing, key)
	if f.givenUp != nil {
		s.givenUp.Remove(f.givenUp)
	}
}

func (s *state[K]) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = time.Now()
}

func (s *state[K]) busy() (keys []K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.calls {
		keys = append(keys, key)
	}
	return keys
}

// health fills in the fields of h that the state knows. next returns when a key is tried again.
func (s *state[K]) health(h *Health, next func(K) time.Time) {
	calls, failures := s.counts(h)
	now := time.Now()
	// The lock is not held here, because a key's method String is the program's code.
	for _, c := range calls {
		h.Calls = append(h.Calls, KeyHealth{Key: fmt.Sprint(c.key), For: now.Sub(c.at)})
	}
	for _, f := range failures {
		h.Failures = append(h.Failures, KeyHealth{
			Key: fmt.Sprint(f.key), Failures: f.value.failures, For: now.Sub(f.at), GaveUp: f.value.givenUp != nil, NextTry: next(f.key), Err: f.value.err,
		})
	}
}

func (s *state[K]) counts(h *Health) (calls first[K, call[K]], failures first[K, failure]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, c := range s.calls {
		calls.add(key, c, c.begun)
	}
	for key, f := range s.failing {
		failures.add(key, *f, f.since)
	}
	h.Busy, h.Failing, h.Deletes = len(s.calls), len(s.failing), len(s.deletes.open)
	h.Succeeded, h.Again, h.Failed, h.GaveUp, h.LastSuccess = s.succeeded, s.again, s.failed, s.gaveUp, s.lastSuccess.Round(0)
	h.Took, h.TookSum = s.took, s.tookSum
	return calls, failures
}

// first holds the oldest of the things that were added, at most shown, in the order of their
// times.
type first[K comparable, V any] []aged[K, V]

type aged[K comparable, V any] struct {
	key   K
	value V
	at    time.Time
}

func (f *first[K, V]) add(key K, value V, at time.Time) {
	i, _ := slices.BinarySearchFunc(*f, at, func(a aged[K, V], at time.Time) int {
		return cmp.Or(a.at.Compare(at), -1) // after those of the same time
	})
	if i == shown {
		return
	}
	*f = slices.Insert(*f, i, aged[K, V]{key, value, at})
	*f = (*f)[:min(len(*f), shown)]
}

// defaultHangTimeout is the default of Options.HangTimeout.
const defaultHangTimeout = time.Hour

// stopLimit is how long a call may last after a stop before Live of the controller's Health
// returns an error.
const stopLimit = time.Minute

// stuck returns how long no worker has been able to take a waiting key, if that is limit or more.
// Otherwise it returns how long a stop has been waiting for calls, if that is stopLimit or more,
// or limit if that is less. Otherwise it returns 0.
func (s *state[K]) stuck(workers int, waiting bool, limit time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var full time.Time // since when all workers are in their calls
	if waiting && len(s.calls) >= workers {
		for _, c := range s.calls {
			if c.begun.After(full) {
				full = c.begun
			}
		}
	}
	if d := time.Since(full); !full.IsZero() && d >= limit {
		return d
	}
	if d := time.Since(s.stopped); len(s.calls) > 0 && !s.stopped.IsZero() && d >= min(limit, stopLimit) {
		return d
	}
	return 0
}
