package index

import (
	"context"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/object"
)

// Native are the indexes of a store that has some itself.
type Native interface {
	GetIndexers() cache.Indexers
	AddIndexers(indexers cache.Indexers) error
	ByIndex(ctx context.Context, name, value string) (object.Entries, error)
}

// nativeOf returns the indexes of a store, or nil if it has none.
func nativeOf(s Scan) Native {
	if indexer, ok := s.plain.(cache.Indexer); ok {
		return ofClientGo{indexer}
	}
	native, _ := s.keyed.(Native)
	return native
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
