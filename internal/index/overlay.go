package index

import (
	"sync"

	"k8s.io/client-go/tools/cache"
)

// overlay holds indexes in memory, for a store that has none. It holds only keys and values, not
// objects. It may be added while the store is being written: put and remove then follow the
// writes, while fill adds the objects of a listing.
type overlay struct {
	funcs cache.Indexers
	index cache.ThreadSafeStore // of values, by the keys of the objects

	mu       sync.Mutex          // protects the rest, and makes fill see earlier writes
	written  map[string]struct{} // keys that were written since the overlay was made; nil once finished
	finished bool                // all objects of the store are in it
}

type values map[string][]string

func newOverlay(funcs cache.Indexers) *overlay {
	lookup := cache.Indexers{}
	for name := range funcs {
		lookup[name] = func(obj any) ([]string, error) { return obj.(values)[name], nil }
	}
	return &overlay{funcs: funcs, index: cache.NewThreadSafeStore(lookup, cache.Indices{}), written: map[string]struct{}{}}
}

// put updates the overlay after an add or an update of the store.
func (o *overlay) put(key string, vals values) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.index.Update(key, vals)
	o.wroteLocked(key)
}

// remove updates the overlay after a delete of the store.
func (o *overlay) remove(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.index.Delete(key)
	o.wroteLocked(key)
}

func (o *overlay) wroteLocked(key string) {
	if !o.finished {
		o.written[key] = struct{}{}
	}
}

// fill adds an object from a listing, unless put or remove has seen a later write.
func (o *overlay) fill(key string, vals values) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, newer := o.written[key]; !newer {
		o.index.Update(key, vals)
	}
}

// complete records that the whole listing is in the overlay.
func (o *overlay) complete() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.finished, o.written = true, nil
}

// keys returns the keys of the objects with this value of an index. complete reports whether
// these are all such objects of the store.
func (o *overlay) keys(name, value string) (keys []string, complete bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	keys, err := o.index.IndexKeys(name, value)
	return keys, err == nil && o.finished
}

func (o *overlay) values(name string) []string {
	return o.index.ListIndexFuncValues(name)
}
