package store

import (
	"fmt"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/object"
)

// NewProjection returns a store in memory that keeps only the part of each object that keep
// returns. See the package's documentation for simpler ways, and for the effects on watchers.
//
// keep returns another object with less in it, or its argument itself. It must not change its
// argument, which all watchers share: to remove something, copy the object, or better, make a
// new object with the parts to keep. The result must not share memory with parts of the
// argument that should become free. It must have the same namespace, name, UID and
// resourceVersion, because an informer that lists again compares them to find changes. keep
// is called once for each object that is written, from the goroutine that writes, while no
// lock is held.
//
// A write is refused if its argument is not a T, if keep returns nil, or if keep changes one
// of those four fields. The error wraps [informer.ErrPermanent] and names the key, the store
// stays unchanged, and watchers do not see the change. If one object of a Replace is refused,
// the whole Replace is.
//
// The store is client-go's indexer, and may be used from any goroutine. A call blocks only
// while another call is under way. NewProjection panics if keep is nil.
func NewProjection[T informer.Object](keep func(T) T) cache.Indexer {
	if keep == nil {
		panic("store: NewProjection: keep is nil")
	}
	return &projection[T]{Indexer: cache.NewIndexer(object.CacheKey, cache.Indexers{}), keep: keep}
}

type projection[T informer.Object] struct {
	cache.Indexer
	keep func(T) T
}

func (p *projection[T]) Add(obj any) error {
	kept, err := p.reduce(obj)
	if err != nil {
		return fmt.Errorf("store: add: %w", err)
	}
	return p.Indexer.Add(kept)
}

func (p *projection[T]) Update(obj any) error {
	kept, err := p.reduce(obj)
	if err != nil {
		return fmt.Errorf("store: update: %w", err)
	}
	return p.Indexer.Update(kept)
}

// Replace stores the results of keep for objs, and removes all other objects.
func (p *projection[T]) Replace(objs []any, resourceVersion string) error {
	all := make([]any, 0, len(objs))
	for _, obj := range objs {
		kept, err := p.reduce(obj)
		if err != nil {
			return fmt.Errorf("store: replace: %w", err)
		}
		all = append(all, kept)
	}
	return p.Indexer.Replace(all, resourceVersion)
}

// reduce returns the result of keep for raw, and checks both.
func (p *projection[T]) reduce(raw any) (T, error) {
	var none T
	obj, ok := raw.(T)
	if !ok || object.IsNil(obj) {
		return none, fmt.Errorf("it was given a %T, want a %T that is not nil: %w", raw, none, informer.ErrPermanent)
	}
	key := cache.MetaObjectToName(obj).String()
	kept := p.keep(obj)
	if object.IsNil(kept) {
		return none, fmt.Errorf("%s: keep returned nil: %w", key, informer.ErrPermanent)
	}
	if kept == obj {
		return obj, nil
	}
	for _, field := range []struct{ name, was, is string }{
		{"namespace", obj.GetNamespace(), kept.GetNamespace()},
		{"name", obj.GetName(), kept.GetName()},
		{"UID", string(obj.GetUID()), string(kept.GetUID())},
		{"resourceVersion", obj.GetResourceVersion(), kept.GetResourceVersion()},
	} {
		if field.is != field.was {
			return none, fmt.Errorf("%s: keep has made %s %q of %q: %w", key, field.name, field.is, field.was, informer.ErrPermanent)
		}
	}
	return kept, nil
}
