package index

import (
	"context"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/memory"
	"github.com/customcacheinformer/informer/internal/object"
)

// Native is a store with indexes of its own.
type Native interface {
	GetIndexers() cache.Indexers
	AddIndexers(indexers cache.Indexers) error
	ByIndex(ctx context.Context, name, value string) (object.Entries, error)
}

// nativeOf returns the store as a Native, or nil if it has no indexes.
func nativeOf(s Scan) Native {
	switch store := s.plain.(type) {
	case *memory.Indexer:
		return ofMemory{store}
	case cache.Indexer:
		return ofClientGo{store}
	}
	native, _ := s.keyed.(Native)
	return native
}

// ofMemory is the informer's own store. Its index functions may return errors.
type ofMemory struct{ *memory.Indexer }

func (o ofMemory) ByIndex(_ context.Context, name, value string) (object.Entries, error) {
	var all object.Entries
	found, err := o.Store().Now().ByIndex(name, value)
	for key, obj := range found.All() {
		all.Append(key, obj)
	}
	return all, err
}

type ofClientGo struct{ indexer cache.Indexer }

func (o ofClientGo) GetIndexers() cache.Indexers { return o.indexer.GetIndexers() }
func (o ofClientGo) AddIndexers(indexers cache.Indexers) error {
	return o.indexer.AddIndexers(indexers)
}

func (o ofClientGo) ByIndex(_ context.Context, name, value string) (object.Entries, error) {
	objs, err := o.indexer.ByIndex(name, value)
	return object.Unkeyed(objs), err
}
