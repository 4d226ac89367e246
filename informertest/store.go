package informertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
)

// Store is a [cache.Store] that fails, hangs or is slow on demand, to be given to
// an informer as its store. Until it is told otherwise everything works, at once.
//
// It is always strict. To Add what is there, to Update or Delete what is not, to
// hand in a [cache.DeletedFinalStateUnknown], and to write an object while another
// write of it is under way, are errors that name the operation and the key, and
// have no effect. Err returns the first of them, which whoever tries again may
// have hidden.
//
// Its operations are, as Fail, FailAfter and Calls name them, "get" (Get and
// GetByKey), "add", "update", "delete", "list", "list keys", "replace", "resync",
// "bookmark" and "last version" (LastStoreSyncResourceVersion).
//
// Fail, FailAfter, FailRandomly, Hang and Delay make something go wrong, and each
// stays until it is changed or Heal is called. They and all other methods may be
// called from any goroutine at any time. Only the operations block, where Hang and
// Delay say so, and nothing is locked meanwhile, nor while a function of the
// test's is called.
//
// It hands out the very objects that it was given, unless the store behind it does
// otherwise. It is no [cache.Indexer], whatever is behind it. It takes time only
// from package time; to use it in a testing/synctest bubble, create it there. A
// Store is made by [NewStore] and must not be copied.
type Store struct {
	inner cache.Store

	mu      sync.Mutex // protects the rest
	fail    func(op, key string) error
	after   func(op, key string) error
	hangs   map[chan struct{}]bool // closed when released
	delay   time.Duration
	calls   map[string]int
	writing map[string]bool // the keys of the writes under way
	misuse  error           // the first
}

var _ cache.Store = (*Store)(nil)

// NewStore returns a store that keeps its objects in inner, which must key them
// as cache.MetaNamespaceKeyFunc does and may hold some. The default, if inner is
// nil, is client-go's store in memory. To fill a store past all that is said here,
// write to inner.
func NewStore(inner cache.Store) *Store {
	if inner == nil {
		inner = cache.NewStore(cache.MetaNamespaceKeyFunc)
	}
	return &Store{
		inner:   inner,
		hangs:   map[chan struct{}]bool{},
		calls:   map[string]int{},
		writing: map[string]bool{},
	}
}

// Fail lets f decide, from now on, which operations fail: if it returns an error,
// that is what the operation returns, without any effect. It is called once for
// each operation that can return an error, after it has waited for Hang and Delay.
// The key of "replace" and "resync" is empty. f is called from as many goroutines
// at once as use the store; it may block, and may call the Store, but not write the
// object of that key. nil, the default, lets them work. It does not block.
func (s *Store) Fail(f func(op, key string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = f
}

// FailAfter is as Fail, but f is called when the operation has taken effect, which
// stays. It is not called for an operation that has failed. It does not block.
func (s *Store) FailAfter(f func(op, key string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after = f
}

// FailRandomly lets operations fail with that probability, from 0 to 1, half of
// them without any effect and half after it. It takes the place of what Fail and
// FailAfter were given. The same seed makes the same operations fail, if they are
// the same in the same order. It does not block.
func (s *Store) FailRandomly(seed uint64, probability float64) {
	random := lockedRand{rand: rand.New(rand.NewPCG(seed, 0))}
	failing := func(probability float64, when string) func(op, key string) error {
		return func(op, key string) error {
			if random.Float64() >= probability {
				return nil
			}
			return fmt.Errorf("informertest: %s of %q failed by chance %s its effect", op, key, when)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = failing(probability/2, "before")
	s.after = failing(probability/(2-probability), "after") // of those that did not fail before
}

// Hang lets each operation that begins from now on wait until release is called,
// which may be done more than once. If there are several hangs, it waits until all
// are released. An informer that is stopped waits for its store: release before
// that. Neither Hang nor release blocks.
func (s *Store) Hang() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	hang := make(chan struct{})
	s.hangs[hang] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.hangs[hang] {
			delete(s.hangs, hang)
			close(hang)
		}
	}
}

// Delay lets each operation that begins from now on take d, or no time if d is 0,
// the default. It does not block.
func (s *Store) Delay(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = d
}

// Heal ends all that Fail, FailAfter, FailRandomly, Hang and Delay have begun, but
// for the time that an operation is already waiting for. It does not block.
func (s *Store) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail, s.after, s.delay = nil, nil, 0
	for hang := range s.hangs {
		close(hang)
	}
	clear(s.hangs)
}

// Calls returns how many operations of that name have begun, which includes those
// that wait and those that failed. It does not block.
func (s *Store) Calls(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}

// Err returns the first error of an operation that was wrong to ask for, as the
// operation itself did, or nil if there was none. It does not block.
func (s *Store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.misuse
}

// Add stores an object that is not there.
func (s *Store) Add(obj any) error { return s.write("add", obj, false, s.inner.Add) }

// Update replaces an object that is there.
func (s *Store) Update(obj any) error { return s.write("update", obj, true, s.inner.Update) }

// Delete removes an object that is there.
func (s *Store) Delete(obj any) error { return s.write("delete", obj, true, s.inner.Delete) }

// Get returns what is stored under the key of obj.
func (s *Store) Get(obj any) (item any, exists bool, err error) {
	key, wrong := keyOfAny(obj)
	return s.get(key, wrong)
}

// GetByKey returns what is stored under a key.
func (s *Store) GetByKey(key string) (item any, exists bool, err error) { return s.get(key, nil) }

// List returns all objects.
func (s *Store) List() []any {
	s.begin("list")
	return s.inner.List()
}

// ListKeys returns the keys of all objects.
func (s *Store) ListKeys() []string {
	s.begin("list keys")
	return s.inner.ListKeys()
}

// Replace stores the objects of a list in place of all others.
func (s *Store) Replace(objs []any, rv string) error {
	return s.do("replace", "", func() error { return s.inner.Replace(objs, rv) })
}

// Resync does what it does to the store behind.
func (s *Store) Resync() error { return s.do("resync", "", s.inner.Resync) }

// Bookmark notes a resourceVersion.
func (s *Store) Bookmark(rv string) {
	s.begin("bookmark")
	s.inner.Bookmark(rv)
}

// LastStoreSyncResourceVersion returns the resourceVersion that the store behind
// has noted. client-go's own return "" unless its feature AtomicFIFO is on.
func (s *Store) LastStoreSyncResourceVersion() string {
	s.begin("last version")
	return s.inner.LastStoreSyncResourceVersion()
}

// begin counts an operation and waits for as long as it is to take.
func (s *Store) begin(op string) {
	s.mu.Lock()
	s.calls[op]++
	s.mu.Unlock()
	for hang := s.hang(); hang != nil; hang = s.hang() {
		<-hang
	}
	s.mu.Lock()
	delay := s.delay
	s.mu.Unlock()
	time.Sleep(delay)
}

// hang returns one of the hangs, or nil.
func (s *Store) hang() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	for hang := range s.hangs {
		return hang
	}
	return nil
}

// do makes an operation that can fail.
func (s *Store) do(op, key string, effect func() error) error {
	s.begin(op)
	if err := s.ask(&s.fail, op, key); err != nil {
		return err
	}
	if err := effect(); err != nil {
		return err
	}
	return s.ask(&s.after, op, key)
}

// ask calls s.fail or s.after.
func (s *Store) ask(f *func(op, key string) error, op, key string) error {
	s.mu.Lock()
	ask := *f
	s.mu.Unlock()
	if ask == nil {
		return nil
	}
	return ask(op, key)
}

func (s *Store) get(key string, wrong error) (item any, exists bool, err error) {
	err = s.do("get", key, func() (err error) {
		if wrong != nil {
			return s.refuse("get", key, wrong)
		}
		item, exists, err = s.inner.GetByKey(key)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	return item, exists, nil
}

// write makes a write of an object that must be there, or must not.
func (s *Store) write(op string, obj any, mustExist bool, effect func(any) error) error {
	key, wrong := keyOfAny(obj)
	if wrong == nil {
		if s.claim(key) {
			defer s.unclaim(key)
		} else {
			wrong = errors.New("another write of it is under way")
		}
	}
	return s.do(op, key, func() error {
		if wrong != nil {
			return s.refuse(op, key, wrong)
		}
		_, exists, err := s.inner.GetByKey(key)
		switch {
		case err != nil:
			return err
		case exists && !mustExist:
			return s.refuse(op, key, errors.New("it exists"))
		case !exists && mustExist:
			return s.refuse(op, key, errors.New("it does not exist"))
		}
		return effect(obj)
	})
}

// claim returns false if a write of that key is under way. Without it two writers
// could find the same state and both write.
func (s *Store) claim(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writing[key] {
		return false
	}
	s.writing[key] = true
	return true
}

func (s *Store) unclaim(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.writing, key)
}

// refuse returns the error of an operation that was wrong to ask for, and notes it.
func (s *Store) refuse(op, key string, why error) error {
	err := fmt.Errorf("informertest: %s of %q: %w", op, key, why)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.misuse == nil {
		s.misuse = err
	}
	return err
}

// keyOfAny returns the key of an object. If it is none, the error says what it is,
// and the key is what is known of it.
func keyOfAny(obj any) (string, error) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return gone.Key, errors.New("it was given a cache.DeletedFinalStateUnknown")
	}
	name, err := cache.ObjectToName(obj)
	if err != nil {
		return "", fmt.Errorf("it was given a %T: %w", obj, err)
	}
	return name.String(), nil
}

// lockedRand is a source of random numbers for several goroutines.
type lockedRand struct {
	mu   sync.Mutex
	rand *rand.Rand
}

func (r *lockedRand) Float64() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rand.Float64()
}
