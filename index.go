package informer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/object"
)

// index finds objects by a value: by the store's own indexes if it is a
// cache.Indexer, else by overlays.
type index[T Object] struct {
	store  cache.Store
	scan   scan
	native cache.Indexer // the store, or nil
	// failed says that a function may have failed on the object that was written last.
	failed atomic.Bool

	mu    sync.Mutex // held to change the rest
	live  bool       // the store is not filled by others any more
	funcs atomic.Pointer[cache.Indexers]
	own   atomic.Pointer[[]*overlay] // none if there is a native one
}

// newIndex adds indexers to store, if it is an Indexer. One by namespace that it
// has already is left alone.
func newIndex[T Object](store cache.Store, indexers cache.Indexers) (*index[T], error) {
	x := &index[T]{store: store, scan: newScan(store)}
	x.native, _ = store.(cache.Indexer)
	x.funcs.Store(&cache.Indexers{})
	x.own.Store(&[]*overlay{})
	if x.native != nil && x.native.GetIndexers()[cache.NamespaceIndex] != nil {
		indexers = maps.Clone(indexers)
		delete(indexers, cache.NamespaceIndex)
	}
	return x, x.add(indexers)
}

// add adds indexers, also for what the store holds already. A name that is taken is
// an error.
func (x *index[T]) add(indexers cache.Indexers) error {
	if x.native != nil {
		return x.addNative(indexers)
	}
	o, live, err := x.overlay(indexers)
	if err != nil || !live {
		return err
	}
	err = x.scan.each(context.Background(), func(stored any) bool {
		if obj, ok := stored.(T); ok {
			o.fill(object.Key(obj), x.evaluateAll(o.funcs, obj))
		}
		return true
	})
	if err != nil {
		x.drop(o)
		return err
	}
	o.complete()
	return nil
}

// addNative holds no lock while the store indexes what it has.
func (x *index[T]) addNative(indexers cache.Indexers) error {
	if x.native.GetIndexers() == nil && len(indexers) > 0 {
		return errors.New("the store was made without a map of indexers, so that it cannot be given any: use cache.Indexers{}")
	}
	guarded := cache.Indexers{}
	for name, f := range indexers {
		guarded[name] = func(raw any) ([]string, error) { return x.evaluate(f, raw), nil }
	}
	if err := x.native.AddIndexers(guarded); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.know(indexers)
	return nil
}

// overlay makes an overlay that takes part in every write from now on. If it is live,
// what is in the store already is still to be put into it; else begin will see to
// that.
func (x *index[T]) overlay(indexers cache.Indexers) (o *overlay, live bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for name := range indexers {
		if x.has(name) {
			return nil, false, fmt.Errorf("there is an index %q already", name)
		}
	}
	o = newOverlay(indexers)
	own := append(slices.Clone(*x.own.Load()), o)
	x.own.Store(&own)
	x.know(indexers)
	return o, x.live, nil
}

// know adds to funcs. mu is held.
func (x *index[T]) know(indexers cache.Indexers) {
	funcs := maps.Clone(*x.funcs.Load())
	maps.Copy(funcs, indexers)
	x.funcs.Store(&funcs)
}

// drop takes an overlay out that could not be filled.
func (x *index[T]) drop(o *overlay) {
	x.mu.Lock()
	defer x.mu.Unlock()
	own := slices.DeleteFunc(slices.Clone(*x.own.Load()), func(other *overlay) bool { return other == o })
	x.own.Store(&own)
	funcs := maps.Clone(*x.funcs.Load())
	for name := range o.funcs {
		delete(funcs, name)
	}
	x.funcs.Store(&funcs)
}

func (x *index[T]) has(name string) bool { return (*x.funcs.Load())[name] != nil }

// begin is called before the store is listed for the first time, all of which is then
// to be given to wrote, and what it returns is called after that.
func (x *index[T]) begin() (filled func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.live = true
	own := *x.own.Load()
	return func() {
		for _, o := range own {
			o.complete()
		}
	}
}

// wrote follows a write of the store, if the store does not index by itself.
func (x *index[T]) wrote(key string, obj T, exists bool) {
	for _, o := range *x.own.Load() {
		if exists {
			o.update(key, x.evaluateAll(o.funcs, obj))
		} else {
			o.delete(key)
		}
	}
}

// check returns what functions have failed with for obj, which was written last.
func (x *index[T]) check(obj T) []error {
	if !x.failed.Swap(false) {
		return nil
	}
	return failures(*x.funcs.Load(), obj)
}

func failures(funcs cache.Indexers, obj any) []error {
	var errs []error
	for name, f := range funcs {
		if _, err := f(obj); err != nil {
			errs = append(errs, fmt.Errorf("index %q: %w", name, err))
		}
	}
	return errs
}

// evaluate calls an index function. An object for which it fails has no values:
// client-go's indexer would panic on the error, while it is locked. See check.
func (x *index[T]) evaluate(f cache.IndexFunc, raw any) []string {
	vals, err := f(raw)
	if err != nil {
		x.failed.Store(true)
		return nil
	}
	return vals
}

func (x *index[T]) evaluateAll(funcs cache.Indexers, obj T) values {
	vals := values{}
	for name, f := range funcs {
		vals[name] = x.evaluate(f, obj)
	}
	return vals
}

// find returns the objects with that value.
func (x *index[T]) find(name, value string) ([]T, error) {
	if x.native != nil {
		found, err := x.native.ByIndex(name, value)
		if err != nil {
			return nil, err
		}
		return typed[T](found)
	}
	o, err := x.of(name)
	if err != nil {
		return nil, err
	}
	keys, complete := o.keys(name, value)
	if !complete {
		found, err := all[T](context.Background(), x.scan)
		return slices.DeleteFunc(found, func(obj T) bool { return !x.matches(obj, o.funcs[name], value) }), err
	}
	objs := make([]T, 0, len(keys))
	for _, key := range keys {
		obj, exists, err := storeGet[T](x.store, key)
		if err != nil {
			return nil, err
		}
		if exists && x.matches(obj, o.funcs[name], value) { // or it has changed since
			objs = append(objs, obj)
		}
	}
	return objs, nil
}

// of returns the overlay that has the index.
func (x *index[T]) of(name string) (*overlay, error) {
	for _, o := range *x.own.Load() {
		if o.funcs[name] != nil {
			return o, nil
		}
	}
	return nil, fmt.Errorf("there is no index %q", name)
}

// matches is given the function, because that of an index which cannot be filled is
// forgotten while others still read.
func (x *index[T]) matches(obj T, f cache.IndexFunc, value string) bool {
	return slices.Contains(x.evaluate(f, obj), value)
}

// untyped returns indexers that may be asked about anything: a lister asks a
// cache.Indexer for a namespace with something that is no T. Such has no values.
func untyped[T Object](indexers cache.TypedIndexers[T]) cache.Indexers {
	all := cache.Indexers{}
	for name, f := range indexers {
		all[name] = func(raw any) ([]string, error) {
			if obj, ok := raw.(T); ok {
				return f(obj)
			}
			return nil, nil
		}
	}
	return all
}

// byNamespace returns the index function of cache.NamespaceIndex. It makes no new
// slice for an object that is in the namespace of the one before: it is called twice
// per update.
func byNamespace() cache.IndexFunc {
	var last atomic.Pointer[[]string]
	return func(raw any) ([]string, error) {
		obj, ok := raw.(metav1.Object)
		if !ok {
			return cache.MetaNamespaceIndexFunc(raw)
		}
		ns := obj.GetNamespace()
		if vals := last.Load(); vals != nil && (*vals)[0] == ns {
			return *vals, nil
		}
		vals := []string{ns}
		last.Store(&vals)
		return vals, nil
	}
}
