package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/object"
)

// Index finds the objects of a store by a value. It uses the store's own indexes if there are any,
// and overlays otherwise. New makes an Index, which must not be copied. Its methods may be called
// from any goroutine, but Begin and Check only from the one that writes the store. A method that
// reads the store blocks as long as the store does.
type Index[T object.Object] struct {
	scan   Scan
	native Native // the indexes of the store, or nil
	// failed is true if a function may have failed for the object that was written last.
	failed atomic.Bool

	mu       sync.Mutex // held to change the rest
	live     bool       // Begin was called
	funcs    atomic.Pointer[cache.Indexers]
	overlays atomic.Pointer[[]*overlay] // none if the store has indexes of its own
}

// New returns an Index with these index functions over the store that scan reads. If the store has
// indexes of its own, New adds the functions to it, except one by namespace if it has that already.
// It returns an error if the store refuses them.
func New[T object.Object](scan Scan, indexers cache.Indexers) (*Index[T], error) {
	x := &Index[T]{scan: scan, native: nativeOf(scan)}
	x.funcs.Store(&cache.Indexers{})
	x.overlays.Store(&[]*overlay{})
	if x.native != nil && x.native.GetIndexers()[cache.NamespaceIndex] != nil {
		indexers = maps.Clone(indexers)
		delete(indexers, cache.NamespaceIndex)
	}
	return x, x.Add(indexers)
}

// Scan returns the Scan that reads the store.
func (x *Index[T]) Scan() Scan { return x.scan }

// Native reports whether the store has indexes of its own.
func (x *Index[T]) Native() bool { return x.native != nil }

// Add adds indexes. It reads the whole store if Begin was called before. If a name is taken already, a
// function is nil or the store fails, Add returns an error and adds none of them.
func (x *Index[T]) Add(indexers cache.Indexers) error {
	for name, f := range indexers {
		if f == nil {
			return fmt.Errorf("the function of index %q is nil", name)
		}
	}
	indexers = maps.Clone(indexers) // the caller's map may change later
	if x.native != nil {
		return x.addNative(indexers)
	}
	o, live, err := x.addOverlay(indexers)
	if err != nil || !live {
		return err
	}
	err = x.scan.Each(context.Background(), func(e object.Entry) bool {
		if obj, ok := e.Object.(T); ok {
			o.fill(e.Key(), x.evaluateAll(o.funcs, obj))
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

// addNative adds indexes to a store with indexes of its own. It holds no lock while the store indexes
// its objects.
func (x *Index[T]) addNative(indexers cache.Indexers) error {
	if x.native.GetIndexers() == nil && len(indexers) > 0 {
		return errors.New("the store was made without a map of indexers, so that it cannot be given any: use cache.Indexers{}")
	}
	guarded := indexers
	if _, own := x.native.(ofMemory); !own {
		guarded = cache.Indexers{}
		for name, f := range indexers {
			guarded[name] = func(raw any) ([]string, error) { return x.evaluate(f, raw), nil }
		}
	}
	if err := x.native.AddIndexers(guarded); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.registerLocked(indexers)
	return nil
}

// addOverlay adds an overlay that follows every write from now on. If live is true, the caller must
// fill the overlay with the objects in the store. Otherwise the caller of Begin does.
func (x *Index[T]) addOverlay(indexers cache.Indexers) (o *overlay, live bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for name := range indexers {
		if (*x.funcs.Load())[name] != nil {
			return nil, false, fmt.Errorf("there is an index %q already", name)
		}
	}
	o = newOverlay(indexers)
	overlays := append(slices.Clone(*x.overlays.Load()), o)
	x.overlays.Store(&overlays)
	x.registerLocked(indexers)
	return o, x.live, nil
}

func (x *Index[T]) registerLocked(indexers cache.Indexers) {
	funcs := maps.Clone(*x.funcs.Load())
	maps.Copy(funcs, indexers)
	x.funcs.Store(&funcs)
}

// drop removes an overlay that could not be filled.
func (x *Index[T]) drop(o *overlay) {
	x.mu.Lock()
	defer x.mu.Unlock()
	overlays := slices.DeleteFunc(slices.Clone(*x.overlays.Load()), func(other *overlay) bool { return other == o })
	x.overlays.Store(&overlays)
	funcs := maps.Clone(*x.funcs.Load())
	for name := range o.funcs {
		delete(funcs, name)
	}
	x.funcs.Store(&funcs)
}

// Begin hands the store over to the informer. The caller must then read the store, call Wrote for
// each object in it, and after that call filled. Begin must be called only once.
func (x *Index[T]) Begin() (filled func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.live = true
	overlays := *x.overlays.Load()
	return func() {
		for _, o := range overlays {
			o.complete()
		}
	}
}

// Wrote updates the overlays after a write of the store. exists is whether the store now has obj
// under key. For writes of one key, Wrote must be called in their order. It does nothing if the store
// has indexes of its own.
func (x *Index[T]) Wrote(key string, obj T, exists bool) {
	for _, o := range *x.overlays.Load() {
		if exists {
			o.put(key, x.evaluateAll(o.funcs, obj))
		} else {
			o.remove(key)
		}
	}
}

// Check returns the errors of the index functions for obj, which must be the object that was written
// last. It calls the functions only if one of them has failed since the last Check.
func (x *Index[T]) Check(obj T) []error {
	if !x.failed.Swap(false) {
		return nil
	}
	return x.CheckFound(obj)
}

// CheckFound returns the errors of the index functions for obj, which was in the store before the
// informer took the store over. It calls all functions, because the store may have indexed obj long
// ago. For the informer's own store it returns nil: that store remembers which functions have failed,
// and is asked instead.
func (x *Index[T]) CheckFound(obj T) []error {
	if _, own := x.native.(ofMemory); own {
		return nil
	}
	return Failures(*x.funcs.Load(), obj)
}

// evaluate calls an index function. If the function fails, evaluate returns no values, and Check
// returns the error later. The indexer of client-go would panic on an error while it holds its lock.
func (x *Index[T]) evaluate(f cache.IndexFunc, raw any) []string {
	vals, err := f(raw)
	if err != nil {
		x.failed.Store(true)
		return nil
	}
	return vals
}

func (x *Index[T]) evaluateAll(funcs cache.Indexers, obj T) values {
	vals := values{}
	for name, f := range funcs {
		vals[name] = x.evaluate(f, obj)
	}
	return vals
}

// Find returns the objects with this value of the index, in no particular order. It returns an error
// if there is no such index, if the store fails, or if an object is of another type.
func (x *Index[T]) Find(name, value string) ([]T, error) {
	if x.native != nil {
		found, err := x.native.ByIndex(context.Background(), name, value)
		if err != nil {
			return nil, err
		}
		return typed[T](found)
	}
	var objs []T
	err := x.each(name, value, func(_ object.Entry, obj T) { objs = append(objs, obj) })
	if err != nil {
		return nil, err
	}
	return objs, nil
}

// FindUnder is like Find, but returns only the objects whose keys begin with prefix. It still reads
// all objects with the value.
func (x *Index[T]) FindUnder(prefix, name, value string) (objs []T, err error) {
	err = x.each(name, value, func(e object.Entry, obj T) {
		if strings.HasPrefix(e.Key(), prefix) {
			objs = append(objs, obj)
		}
	})
	if err != nil {
		return nil, err
	}
	return objs, nil
}

func (x *Index[T]) each(name, value string, visit func(e object.Entry, obj T)) error {
	if x.native != nil {
		found, err := x.native.ByIndex(context.Background(), name, value)
		for n := 0; err == nil && n < found.Len(); n++ {
			var obj T
			if obj, err = asStored[T](found.At(n)); err == nil {
				visit(found.At(n), obj)
			}
		}
		return err
	}
	o, err := x.overlayOf(name)
	if err != nil {
		return err
	}
	keys, complete := o.keys(name, value)
	if !complete {
		var wrong error
		err := x.scan.Each(context.Background(), func(e object.Entry) bool {
			var obj T
			if obj, wrong = asStored[T](e); wrong == nil && x.matches(obj, o.funcs[name], value) {
				visit(e, obj)
			}
			return wrong == nil
		})
		return cmp.Or(err, wrong)
	}
	for _, key := range keys {
		obj, exists, err := Get[T](context.Background(), x.scan, key)
		if err != nil {
			return err
		}
		if exists && x.matches(obj, o.funcs[name], value) { // it may have changed since
			visit(object.Keyed(key, obj), obj)
		}
	}
	return nil
}

func (x *Index[T]) functions() cache.Indexers {
	if x.native != nil {
		return x.native.GetIndexers()
	}
	return *x.funcs.Load()
}

func (x *Index[T]) function(name string) (cache.IndexFunc, error) {
	f := x.functions()[name]
	if f == nil {
		return nil, fmt.Errorf("there is no index %q", name)
	}
	return f, nil
}

func (x *Index[T]) overlayOf(name string) (*overlay, error) {
	for _, o := range *x.overlays.Load() {
		if o.funcs[name] != nil {
			return o, nil
		}
	}
	return nil, fmt.Errorf("there is no index %q", name)
}

// matches reports whether f returns value for obj. It takes the function and not its name, because
// drop may remove the name while another goroutine still reads the overlay.
func (x *Index[T]) matches(obj T, f cache.IndexFunc, value string) bool {
	return slices.Contains(x.evaluate(f, obj), value)
}
