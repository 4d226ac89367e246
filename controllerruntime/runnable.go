package controllerruntime

import (
	"context"
	"errors"

	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/customcacheinformer/informer/internal/object"
)

// Runnable returns a manager.Runnable that runs m, an informer or an informer.Group, as a part
// of a manager:
//
//	err := mgr.Add(controllerruntime.Runnable(inf))
//
// The manager treats the informer as one of its caches. It starts the informer before any
// controller and stops it after the last reconcile has returned. It runs the informer on every
// replica, leader or not. An informer only reads, and a replica that becomes the leader should
// not have to wait for a first list.
//
// A controller of package enqueue, as a member of a group, should work only on the leader: set
// its Options.Elected to the manager's Elected channel. Then its informers are in sync on every
// replica, and a new leader begins at once. A group stops its controllers before its informers,
// and a manager that shuts down keeps its lease until both have stopped, but at most for its
// GracefulShutdownTimeout. A manager whose lease is lost returns from Start at once, so the
// process must end then, as always with a manager. A controller cannot tell these two cases
// apart, so it ignores DrainTimeout if Elected is set without Lost.
//
// A watcher that writes should run only on the leader, too. Either let the watcher put work
// into the queue of a controller, or add the watcher when the manager's Elected channel is
// closed. The watcher then gets the state of that time first.
//
// The manager does not wait until the informer has synced. So an informer that cannot sync, for
// example because its CRD is missing, does not hold up the others. See [Synced] for a
// controller that must wait.
//
// The informer logs to the logger that was given to controller-runtime's log.SetLogger, and
// logs nothing before SetLogger is called. manager.Options.Logger has no effect. If m is nil,
// the manager stops with an error.
func Runnable(m interface{ Run(context.Context) error }) manager.Runnable {
	return runnable{m}
}

type runnable struct {
	member interface{ Run(context.Context) error }
}

// GetCache marks the Runnable as one of the manager's caches. The manager stops these last,
// after all reconciles have returned. It calls only WaitForCacheSync of the result.
func (runnable) GetCache() cache.Cache { return syncedAtOnce{} }

type syncedAtOnce struct{ cache.Cache }

func (syncedAtOnce) WaitForCacheSync(context.Context) bool { return true }

// Start runs the informer. It blocks until Run of the informer returns, and returns its error.
func (r runnable) Start(ctx context.Context) error {
	if object.IsNil(r.member) {
		return errors.New("the informer given to Runnable is nil")
	}
	return r.member.Run(klog.NewContext(ctx, log.FromContext(ctx)))
}
