package controllerruntime

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/customcacheinformer/informer/internal/object"
)

// Synced returns a source that makes its controller wait before the first reconcile, until
// the informer m has synced. If src is a SyncingSource, the controller also waits until src
// has synced:
//
//	controllerruntime.Synced(&source.Informer{Informer: inf.SharedIndexInformer(), Handler: h}, inf)
//
// A controller does not wait for a plain source.Informer: reconciles begin with the first
// object that arrives, and a reconciler that lists other objects may find only half of them.
// The manager's own caches do not need Synced, because the manager waits for them.
//
// If the informer has not synced within the controller's CacheSyncTimeout, the manager stops
// with an error that wraps an *informer.SyncError with the reason. If src or m is nil, the manager
// stops with an error too. Synced itself does not block.
func Synced(src source.Source, m interface{ WaitForSync(context.Context) error }) source.SyncingSource {
	return syncedSource{src, m}
}

type syncedSource struct {
	source.Source
	member interface{ WaitForSync(context.Context) error }
}

// String returns the name of the inner source, for the controller's errors.
func (s syncedSource) String() string { return fmt.Sprint(s.Source) }

// Start starts the inner source.
func (s syncedSource) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	switch {
	case object.IsNil(s.Source):
		return errors.New("the source given to Synced is nil")
	case object.IsNil(s.member):
		return errors.New("the informer given to Synced is nil")
	}
	return s.Source.Start(ctx, queue)
}

// WaitForSync blocks until the inner source and the informer have synced. It returns the
// first error of the two.
func (s syncedSource) WaitForSync(ctx context.Context) error {
	if inner, ok := s.Source.(source.SyncingSource); ok {
		if err := inner.WaitForSync(ctx); err != nil {
			return err
		}
	}
	return s.member.WaitForSync(ctx)
}
