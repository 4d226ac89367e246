package store

import (
	"fmt"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

// NewProjection returns a store in memory that keeps of each object what keep leaves.
// See the package's documentation for what is simpler, and for what watchers see.
//
// keep returns another object with less in it, or the very one that it was given. It
// must not change that one, which all watchers share: to take something out of it,
// copy it, or better, make a new object of what is to stay. It must not return what
// shares memory with it that should become free. Namespace, name, UID and
// resourceVersion must stay, because a relist tells by them what is new. It is called
// once for each write, from the goroutine that writes, with nothing locked.
//
// A write is refused, with an error that wraps [informer.ErrPermanent] and names the
// key, if what it is given is no T, or if keep returns nil or has not kept those four:
// the store then stays as it is, and watchers are not told of the change. Replace is
// refused as a whole.
//
// The store is client-go's indexer, and may be used from any goroutine. No call blocks
// but for the time that another one takes. NewProjection panics if keep is nil, because
// that is a mistake in the program.
func NewProjection[T informer.Object](keep func(T) T) cache.Indexer {
	if keep == nil {
		panic("store: NewProjection: keep is nil")
	}
	return &projection[T]{Indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}), keep: keep}
}

// projection is an indexer that reduces what comes in.
type projection[T informer.Object] struct {
	cache.Indexer
	keep func(T) T
}

// Add stores what keep leaves of an object.
func (p *projection[T]) Add(obj any) error {
	kept, err := p.reduce(obj)
	if err != nil {
		return fmt.Errorf("store: add: %w", err)
	}
	return p.Indexer.Add(kept)
}

// Update stores what keep leaves of an object.
func (p *projection[T]) Update(obj any) error {
	kept, err := p.reduce(obj)
	if err != nil {
		return fmt.Errorf("store: update: %w", err)
	}
	return p.Indexer.Update(kept)
}

// Replace stores what keep leaves of the objects, in place of all others.
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

// reduce returns what is kept of an object.
func (p *projection[T]) reduce(raw any) (T, error) {
	var none T
	obj, ok := raw.(T)
	if !ok || obj == none {
		return none, fmt.Errorf("it was given a %T, want a %T that is not nil: %w", raw, none, informer.ErrPermanent)
	}
	key := cache.MetaObjectToName(obj).String()
	kept := p.keep(obj)
	if kept == none {
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
