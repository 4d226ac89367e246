package informer

import (
	"sync"

	"k8s.io/client-go/tools/cache"
)

// overlay holds indexes, in memory, of a store that has none: keys and values only.
// It may be added while the store is written to.
type overlay struct {
	funcs cache.Indexers
	index cache.ThreadSafeStore // of values

	mu       sync.Mutex          // protects the rest, and orders fill behind update and delete
	written  map[string]struct{} // keys that fill must not touch any more
	finished bool                // everything that the store held at the start is there
}

// values are what an overlay keeps of an object: its values by the name of the index.
type values map[string][]string

func newOverlay(funcs cache.Indexers) *overlay {
	lookup := cache.Indexers{}
	for name := range funcs {
		lookup[name] = func(obj any) ([]string, error) { return obj.(values)[name], nil }
	}
	return &overlay{funcs: funcs, index: cache.NewThreadSafeStore(lookup, cache.Indices{}), written: map[string]struct{}{}}
}

// update and delete follow a write of the store.
func (o *overlay) update(key string, vals values) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.index.Update(key, vals)
	o.wroteLocked(key)
}

func (o *overlay) delete(key string) {
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

// fill takes in an object as a listing had it, unless it was written since.
func (o *overlay) fill(key string, vals values) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, newer := o.written[key]; !newer {
		o.index.Update(key, vals)
	}
}

// complete ends what fill and the first updates do.
func (o *overlay) complete() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.finished, o.written = true, nil
}

// keys returns the keys of the objects with that value of an index, and whether they
// are all.
func (o *overlay) keys(name, value string) (keys []string, complete bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	keys, err := o.index.IndexKeys(name, value)
	return keys, err == nil && o.finished
}

// values returns all values of an index.
func (o *overlay) values(name string) []string {
	return o.index.ListIndexFuncValues(name)
}
