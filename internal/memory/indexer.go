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

// Indexer is a Store with the interfaces of client-go's store, for programs that read and write by objects. It
// implements cache.Indexer and cache.TransactionStore. The caller may change the slices and maps that its
// methods return. If an index function fails, Indexer does not panic, but calls IndexerOptions.Failed.
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
	// KeyFunc returns the key of an object, or of a tombstone. It is required.
	KeyFunc cache.KeyFunc
	// Source returns the source of a key. By default the store has one source, "".
	Source func(key string) string
	// Identifier and Metrics are as for cache.WithStoreMetrics. By default there are no metrics.
	Identifier cache.InformerNameAndResource
	Metrics    cache.InformerMetricsProvider
	// Failed is called with the errors of index functions for an object. The object was stored anyway. Defaults
	// to doing nothing.
	Failed func(r Ref, errs []error)
}

// NewIndexer returns an Indexer over a store. The version of the Indexer follows all later writes of the store.
// A store can have only one Indexer.
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

// setVersion sets the version and the metric. It must be called by one writer at a time.
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

// change returns the Change that stores or removes obj. It returns a cache.KeyError if obj has no key.
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

// Add stores an object. It returns a cache.KeyError if the object has no key.
func (x *Indexer) Add(obj any) error { return x.write(obj, false) }

// Update does the same as Add.
func (x *Indexer) Update(obj any) error { return x.write(obj, false) }

// Delete removes the object with the key of obj, which may be a tombstone. It returns a cache.KeyError if obj
// has no key.
func (x *Indexer) Delete(obj any) error { return x.write(obj, true) }

// Resync does nothing and returns nil.
func (x *Indexer) Resync() error { return nil }

// Transaction makes changes in one step, except those whose objects have no key. The result names these, or is
// nil if there are none.
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

// Replace replaces all objects, and sets the version. If two objects in list have the same key, the last one
// counts. If an object has no key, Replace changes nothing and returns a cache.KeyError.
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

// AddIndexers is Store.AddIndexers. It also calls IndexerOptions.Failed for each object for which a function
// has failed.
func (x *Indexer) AddIndexers(indexers cache.Indexers) error {
	err := x.store.AddIndexers(indexers)
	if err == nil {
		x.report()
	}
	return err
}

// report calls IndexerOptions.Failed for all objects with errors.
func (x *Indexer) report() {
	for r, errs := range x.store.Failed() {
		x.options.Failed(r, errs)
	}
}

// List returns all objects of one snapshot.
func (x *Indexer) List() []any { return x.store.Snapshot().Entries().Objects() }

// ListKeys returns all keys of one snapshot.
func (x *Indexer) ListKeys() []string { return x.store.Snapshot().Entries().Keys() }

// Get returns the object with the key of obj. It returns a cache.KeyError if obj has no key.
func (x *Indexer) Get(obj any) (item any, exists bool, err error) {
	c, err := x.change(obj, false)
	if err != nil {
		return nil, false, err
	}
	return x.GetByKey(c.Key)
}

// GetByKey returns the object of a key. The error is always nil.
func (x *Indexer) GetByKey(key string) (item any, exists bool, err error) {
	item, exists = x.store.Part(x.options.Source(key)).Get(key)
	return item, exists, nil
}

// Index returns the objects that have one of the values of obj in an index, each once. obj need not be stored:
// a lister of client-go passes an ObjectMeta that has only a namespace. Index returns an error if there is no
// such index or its function fails.
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

// ByIndex returns the objects that have a value in an index, or an error if there is no such index.
func (x *Indexer) ByIndex(name, value string) ([]any, error) {
	found, err := x.store.Snapshot().ByIndex(name, value)
	if err != nil {
		return nil, err
	}
	return found.Objects(), nil
}

// IndexKeys returns the sorted keys of the objects that have a value in an index, or an error if there is no
// such index.
func (x *Indexer) IndexKeys(name, value string) ([]string, error) {
	found, err := x.store.Snapshot().ByIndex(name, value)
	if err != nil {
		return nil, err
	}
	keys := found.Keys()
	slices.Sort(keys)
	return keys, nil
}

// ListIndexFuncValues returns the values of an index, or nil if there is no such index.
func (x *Indexer) ListIndexFuncValues(name string) []string {
	values, _ := x.store.Snapshot().Values(name)
	return values
}

// GetIndexers returns the index functions by name.
func (x *Indexer) GetIndexers() cache.Indexers { return x.store.Indexers() }
