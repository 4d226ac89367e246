package informer

import (
	"context"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/index"
	"github.com/customcacheinformer/informer/internal/object"
)

func (s *sharedIndexInformer[T]) GetStore() cache.Store { return s.GetIndexer() }

func (s *sharedIndexInformer[T]) GetIndexer() cache.Indexer { return s.core.index.Indexer() }

func (s *sharedIndexInformer[T]) AddIndexers(indexers cache.Indexers) error {
	if s.IsStopped() {
		return s.failed("AddIndexers", ErrStopped)
	}
	if err := s.core.index.Add(indexers); err != nil {
		return s.failed("AddIndexers", err)
	}
	for _, obj := range s.core.All() {
		for _, err := range index.Failures(indexers, obj) {
			s.core.report(context.Background(), &ObjectError{Op: "index", Key: object.Key(obj), Err: err})
		}
	}
	return nil
}
