package model_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/store"
)

// The stores of TestModel. All except the default store record in a ledger what they take, and
// fail on demand.

type storeKind string

const (
	defaultStore   storeKind = "the default store"
	plainStore     storeKind = "a plain store" // client-go's, without indexes
	copyingStore   storeKind = "a store that copies"
	projectedStore storeKind = "a projection"
	indexedStore   storeKind = "a store with indexes"
	durableStore   storeKind = "a durable store"
)

// same reports whether the store returns the object it was given, not a copy.
func (k storeKind) same() bool { return k != copyingStore && k != projectedStore }

// shelf holds the contents of the store. It outlives a process.
type shelf struct {
	t       *torture
	indexer cache.Indexer
	durable *durable
}

func newShelf(t *torture) *shelf {
	s := &shelf{t: t}
	switch t.store {
	case projectedStore:
		s.indexer = store.NewProjection(func(obj configMap) configMap {
			kept := obj.DeepCopy()
			kept.Labels = map[string]string{"kept": "little"}
			return kept
		})
	case durableStore:
		s.durable = informertest.NewDurable()
	default:
		s.indexer = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	}
	return s
}

// contents returns the objects in the store. No fault affects it.
func (s *shelf) contents() (objs []configMap) {
	if s.durable != nil {
		return testkit.Stored(s.durable)
	}
	for _, obj := range s.indexer.List() {
		objs = append(objs, obj.(configMap))
	}
	return objs
}

// open gives a process its store.
func (s *shelf) open(l *incarnation) {
	switch {
	case s.durable != nil:
		l.faults.trouble = s.durable.StoreFaults
		l.durable = &takingDurable{Durable: s.durable, life: l}
	case s.t.store != defaultStore:
		l.store = s.openPlain(l)
	}
}

func (s *shelf) openPlain(l *incarnation) cache.Store {
	if s.t.store == indexedStore { // the indexes of the previous process must not be there for this one
		objs := s.indexer.List()
		s.indexer = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		for _, obj := range objs {
			_ = s.indexer.Add(obj)
		}
	}
	kept := cache.Store(s.indexer)
	if s.t.store == copyingStore {
		kept = copying{kept}
	}
	front := informertest.NewStore(kept)
	l.faults.trouble = front.StoreFaults
	if s.t.store != indexedStore {
		return front
	}
	return &struct {
		*informertest.Store
		indexesOnly
	}{front, s.indexer}
}

// indexesOnly has the methods that cache.Indexer adds to cache.Store.
type indexesOnly interface {
	Index(indexName string, obj any) ([]any, error)
	IndexKeys(indexName, indexedValue string) ([]string, error)
	ListIndexFuncValues(indexName string) []string
	ByIndex(indexName, indexedValue string) ([]any, error)
	GetIndexers() cache.Indexers
	AddIndexers(newIndexers cache.Indexers) error
}

// copying is a store that returns copies.
type copying struct{ cache.Store }

func (s copying) GetByKey(key string) (item any, exists bool, err error) {
	item, exists, err = s.Store.GetByKey(key)
	if exists {
		item = item.(configMap).DeepCopy()
	}
	return item, exists, err
}

func (s copying) List() []any {
	all := s.Store.List()
	for i := range all {
		all[i] = all[i].(configMap).DeepCopy()
	}
	return all
}

// takingDurable is a Durable that records its writes in the ledger.
type takingDurable struct {
	*informertest.Durable
	life *incarnation

	mu    sync.Mutex // protects the rest
	asked []informer.Change
	noted bool
}

func (s *takingDurable) Scan(ctx context.Context, after string, limit int) ([]informer.Entry, error) {
	return s.Durable.Scan(ctx, after, min(limit, 2))
}

func (s *takingDurable) Apply(ctx context.Context, changes []informer.Change, bookmark string) error {
	s.mu.Lock()
	if again := slices.Equal(s.asked, changes); !again {
		s.noted = false
	}
	s.asked = slices.Clone(changes)
	s.mu.Unlock()
	err := s.Durable.Apply(ctx, changes, bookmark)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.asked, s.noted = nil, false
	}
	if errors.Is(err, informer.ErrPermanent) {
		for _, change := range changes {
			s.life.faults.doubt(change.Key)
		}
	}
	return err
}

// took is called when an Apply has taken effect.
func (s *takingDurable) took() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, change := range s.asked {
		switch {
		case s.noted:
		case change.Delete:
			s.life.take(change.Key, nothing)
		default:
			s.life.take(change.Key, presenceOf(change.Object.(configMap)))
		}
	}
	s.noted = true
}

// modelFaults are the faults of the store of one process.
type modelFaults struct {
	trouble *informertest.StoreFaults // nil for the default store

	mu       sync.Mutex // protects the rest
	next     []*modelFault
	cut      bool            // the process has crashed
	unsure   bool            // a write may have taken effect
	refusals map[string]bool // by key: a change may be missing until the next list
	refused  map[string]bool // by key: a change was ever missing
	ever     bool
	since    time.Time // time of the last trouble
	release  func()
	slow     bool
}

// modelFault makes some of the next store operations fail.
type modelFault struct {
	op     string // name of the operation; if empty, any that writes or reads one object
	after  bool   // the operation takes effect first
	refuse bool
	first  int // how many operations do not fail
	times  int // how many then fail
}

func (m *modelFaults) add(f *modelFault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next, m.ever, m.since = append(m.next, f), true, time.Now()
}

// ask returns the error of an operation, before it takes effect or after that.
func (m *modelFaults) ask(op, key string, after bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cut {
		return fmt.Errorf("the process has crashed: %w", errInjected)
	}
	var err error
	for _, f := range m.next {
		if err != nil || f.after != after || f.op != "" && f.op != op || f.refuse && m.unsure || f.times == 0 {
			continue
		}
		if f.first > 0 {
			f.first--
			continue
		}
		f.times--
		m.since = time.Now()
		if err = fmt.Errorf("%s of %q: %w", op, key, errInjected); f.refuse {
			m.refusals[key], m.refused[key] = true, true
			err = fmt.Errorf("%w: %w", err, informer.ErrPermanent)
		}
	}
	if after && slices.Contains([]string{"add", "update", "delete", "apply"}, op) {
		m.unsure = err != nil
	}
	return err
}

// doubt notes that the store or Transform has refused a change of a key.
func (m *modelFaults) doubt(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refusals[key], m.refused[key] = true, true
}

// active reports whether the store is in trouble now or was a moment ago, or whether the last
// write failed after it had taken effect. In that case no watcher may have got the change.
func (m *modelFaults) active() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wrongLocked() || m.unsure || m.ever && time.Since(m.since) < 15*time.Second
}

func (m *modelFaults) heal() {
	m.mu.Lock()
	if m.wrongLocked() {
		m.since = time.Now()
	}
	m.next, m.slow = nil, false
	m.mu.Unlock()
	m.unhang()
	if m.trouble != nil {
		m.trouble.Delay(0)
	}
}

func (m *modelFaults) wrongLocked() bool { return len(m.next) > 0 || m.slow || m.release != nil }

func (m *modelFaults) unhang() {
	m.mu.Lock()
	release := m.release
	m.release = nil
	m.mu.Unlock()
	if release != nil {
		release()
	}
}
