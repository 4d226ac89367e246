package memory

import (
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/features"
	"k8s.io/client-go/tools/cache"
)

// Indexer is a store as client-go shows its own, for programs that read and write it by objects. Its methods do what
// the interfaces cache.Indexer and cache.TransactionStore demand, and return slices and maps of the caller's own. It
// does not panic for an index function that fails: see IndexerOptions.Failed.
type Indexer struct {
	store   *Store
	options IndexerOptions
	gauge   cache.GaugeMetric // nil for none
	version atomic.Pointer[string]
}

var _ interface {
	cache.Indexer
	cache.TransactionStore
} = &Indexer{}

// IndexerOptions are the settings of an Indexer.
type IndexerOptions struct {
	// KeyFunc makes the key of an object, or of a tombstone. It must be set.
	KeyFunc cache.KeyFunc
	// Source returns the source that has a key. By default the store has one source, "".
	Source func(key string) string
	// Identifier and Metrics are as for cache.WithStoreMetrics. By default nothing is measured.
	Identifier cache.InformerNameAndResource
	Metrics    cache.InformerMetricsProvider
	// Failed is called with the errors of index functions for an object that was stored anyway.
	Failed func(r Ref, errs []error)
}

// NewIndexer returns an Indexer over a store. Its version follows all writes of the store from now on, so a store can
// have one Indexer.
func NewIndexer(store *Store, options IndexerOptions) *Indexer {
	x := &Indexer{store: store, options: options}
	if options.Source == nil {
		x.options.Source = func(string) string { return "" }
	}
	if options.Failed == nil {
		x.options.Failed = func(Ref, []error) {}
	}
	if options.Metrics != nil && options.Identifier.Reserved() {
		x.gauge = options.Metrics.NewStoreResourceVersionMetric(options.Identifier)
	}
	store.mu.Lock()
	defer store.mu.Unlock()
	store.wrote = func(obj any) {
		if m, err := meta.Accessor(obj); err == nil { // a tombstone has none
			x.setVersion(m.GetResourceVersion())
		}
	}
	return x
}

// Store returns the store.
func (x *Indexer) Store() *Store { return x.store }

// setVersion is called by one writer at a time.
func (x *Indexer) setVersion(version string) {
	x.version.Store(&version)
	if x.gauge == nil {
		return
	}
	digits := version[max(0, len(version)-15):] // as in client-go: a float64 has no room for more
	if n, err := strconv.ParseInt(digits, 10, 64); err == nil || version == "" {
		x.gauge.Set(float64(n))
	}
}

// Bookmark sets the version that LastStoreSyncResourceVersion returns.
func (x *Indexer) Bookmark(version string) {
	x.store.mu.Lock()
	defer x.store.mu.Unlock()
	x.setVersion(version)
}

// LastStoreSyncResourceVersion returns the version of the last write or bookmark. As in client-go, it is "" unless the
// feature AtomicFIFO is on.
func (x *Indexer) LastStoreSyncResourceVersion() string {
	if v := x.version.Load(); v != nil && features.FeatureGates().Enabled(features.AtomicFIFO) {
		return *v
	}
	return ""
}

// change returns a change of an object, or a cache.KeyError.
func (x *Indexer) change(obj any, remove bool) (Change, error) {
	key, err := x.options.KeyFunc(obj)
	if err != nil {
		return Change{}, cache.KeyError{Obj: obj, Err: err}
	}
	return Change{Part: x.store.Part(x.options.Source(key)), Key: key, Object: obj, Delete: remove}, nil
}

func (x *Indexer) apply(changes ...Change) {
	x.store.Apply(changes, nil)
	for _, c := range changes {
		if len(c.Failed) > 0 {
			x.options.Failed(Ref{c.Part.source, c.Key}, c.Failed)
		}
	}
}

func (x *Indexer) write(obj any, remove bool) error {
	c, err := x.change(obj, remove)
	if err == nil {
		x.apply(c)
	}
	return err
}

// Add stores an object.
func (x *Indexer) Add(obj any) error { return x.write(obj, false) }

// Update stores an object.
func (x *Indexer) Update(obj any) error { return x.write(obj, false) }

// Delete removes the object with the key of obj, which may be a tombstone.
func (x *Indexer) Delete(obj any) error { return x.write(obj, true) }

// Resync does nothing.
func (x *Indexer) Resync() error { return nil }

// Transaction makes changes in one step, except those whose objects have no key.
func (x *Indexer) Transaction(txns ...cache.Transaction) *cache.TransactionError {
	failed := &cache.TransactionError{TotalTransactions: len(txns)}
	var changes []Change
	for n, txn := range txns {
		c, err := x.change(txn.Object, txn.Type == cache.TransactionTypeDelete)
		if err != nil {
			failed.Errors = append(failed.Errors, err)
			continue
		}
		failed.SuccessfulIndices = append(failed.SuccessfulIndices, n)
		changes = append(changes, c)
	}
	x.apply(changes...)
	if len(failed.Errors) == 0 {
		return nil
	}
	return failed
}

// Replace changes nothing if one of the objects has no key. If two have the same key, the last one counts.
func (x *Indexer) Replace(list []any, version string) error {
	objects := make(map[Ref]any, len(list))
	for _, obj := range list {
		c, err := x.change(obj, false)
		if err != nil {
			return err
		}
		objects[Ref{c.Part.source, c.Key}] = obj
	}
	x.store.Replace(objects, func() { x.setVersion(version) })
	x.report()
	return nil
}

// AddIndexers is Store.AddIndexers. It also passes on which objects the functions fail for.
func (x *Indexer) AddIndexers(indexers cache.Indexers) error {
	err := x.store.AddIndexers(indexers)
	if err == nil {
		x.report()
	}
	return err
}

// report passes on the errors for all objects.
func (x *Indexer) report() {
	for r, errs := range x.store.Failed() {
		x.options.Failed(r, errs)
	}
}

// List returns all objects of one state.
func (x *Indexer) List() []any { return x.store.Snapshot().Entries().Objects() }

// ListKeys returns all keys of one state.
func (x *Indexer) ListKeys() []string { return x.store.Snapshot().Entries().Keys() }

// Get returns the object with the key of obj.
func (x *Indexer) Get(obj any) (item any, exists bool, err error) {
	c, err := x.change(obj, false)
	if err != nil {
		return nil, false, err
	}
	return x.GetByKey(c.Key)
}

// GetByKey returns the object of a key. Its error is nil.
func (x *Indexer) GetByKey(key string) (item any, exists bool, err error) {
	item, exists = x.store.Part(x.options.Source(key)).Get(key)
	return item, exists, nil
}

// Index returns each object once that has one of the values of obj. obj need not be stored: a lister of client-go
// gives an ObjectMeta that has only a namespace.
func (x *Indexer) Index(name string, obj any) ([]any, error) {
	v := x.store.Snapshot()
	n, err := v.functions.number(name)
	if err != nil {
		return nil, err
	}
	values, err := v.functions.call(n, obj)
	if err != nil {
		return nil, fmt.Errorf("index %q: %w", name, err)
	}
	found, seen := []any{}, map[*identity]bool{}
	for _, value := range values {
		of, _ := v.ByIndex(name, value)
		of.walk(func(id *identity, obj *any) bool {
			if len(values) == 1 || !seen[id] {
				seen[id] = true
				found = append(found, *obj)
			}
			return true
		})
	}
	return found, nil
}

// ByIndex returns the objects that have a value in an index.
func (x *Indexer) ByIndex(name, value string) ([]any, error) {
	found, err := x.store.Snapshot().ByIndex(name, value)
	if err != nil {
		return nil, err
	}
	return found.Objects(), nil
}

// IndexKeys returns the keys in order, as client-go's does.
func (x *Indexer) IndexKeys(name, value string) ([]string, error) {
	found, err := x.store.Snapshot().ByIndex(name, value)
	if err != nil {
		return nil, err
	}
	keys := found.Keys()
	slices.Sort(keys)
	return keys, nil
}

// ListIndexFuncValues returns the values of an index, and none if there is no such index.
func (x *Indexer) ListIndexFuncValues(name string) []string {
	values, _ := x.store.Snapshot().Values(name)
	return values
}

// GetIndexers returns the index functions by name.
func (x *Indexer) GetIndexers() cache.Indexers { return x.store.Indexers() }
