package controllerruntime

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Synced returns a source that a controller waits for, until the informer behind it
// has synced, and src too if it can say so, before it reconciles anything:
//
//	controllerruntime.Synced(&source.Informer{Informer: inf.SharedIndexInformer(), Handler: h}, inf)
//
// A source.Informer alone is not waited for: reconciles begin with the first object
// that arrives, and a reconciler that lists others may find half of them. The
// manager's own caches do not need this, as it waits for them.
//
// If the informer has not synced within the controller's CacheSyncTimeout, the manager
// stops with the *informer.SyncError that says why.
func Synced(src source.Source, m interface{ WaitForSync(context.Context) error }) source.SyncingSource {
	return syncedSource{src, m}
}

type syncedSource struct {
	source.Source
	member interface{ WaitForSync(context.Context) error }
}

// String is what the controller's errors call it.
func (s syncedSource) String() string { return fmt.Sprint(s.Source) }

// WaitForSync is how the controller waits.
func (s syncedSource) WaitForSync(ctx context.Context) error {
	if inner, ok := s.Source.(source.SyncingSource); ok {
		if err := inner.WaitForSync(ctx); err != nil {
			return err
		}
	}
	return s.member.WaitForSync(ctx)
}
