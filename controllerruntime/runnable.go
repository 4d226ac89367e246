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

// Runnable makes an informer, or an informer.Group, a part of a manager:
//
//	err := mgr.Add(controllerruntime.Runnable(inf))
//
// The manager treats the informer as one of its caches. It starts the informer before any
// controller and stops it after the last reconcile has returned. It runs the informer on every
// replica, leader or not: an informer only reads, and a replica that becomes the leader should
// not have to wait for a first list while no other replica is working.
//
// A controller of package enqueue, as a member of a group, should only work on the leader: give
// it the manager's Elected channel as Options.Elected. Then its informers are in sync on every
// replica, and a new leader begins at once. A group stops its controllers before its informers,
// and a manager that stops by itself keeps its lease until that is done. A manager whose lease
// is lost returns from Start at once. So the process must end then, as always with a manager.
// A manager ends its parts in both cases alike. So a controller with Elected does not drain in it.
//
// A watcher that writes should only run on the leader, too. Either let the watcher put work into
// the queue of a controller, or add the watcher when the manager's Elected channel is closed.
// The watcher then gets the state of that time first.
//
// The manager does not wait until the informer has synced. An informer that cannot sync,
// because its CRD is missing for example, therefore does not hold up the others. See Synced
// for a controller that must wait.
//
// The informer logs to the logger that was given to controller-runtime's log.SetLogger, and
// logs nothing before SetLogger is called. manager.Options.Logger has no effect.
func Runnable(m interface{ Run(context.Context) error }) manager.Runnable {
	return runnable{m}
}

type runnable struct {
	member interface{ Run(context.Context) error }
}

// GetCache marks the Runnable as one of the manager's caches, which it stops last, after all
// reconciles have returned. The manager only calls WaitForCacheSync of the result.
func (runnable) GetCache() cache.Cache { return syncedAtOnce{} }

type syncedAtOnce struct{ cache.Cache }

func (syncedAtOnce) WaitForCacheSync(context.Context) bool { return true }

// Start runs the informer. It blocks until ctx ends or the informer fails.
func (r runnable) Start(ctx context.Context) error {
	if object.IsNil(r.member) {
		return errors.New("the informer given to Runnable is nil")
	}
	return r.member.Run(klog.NewContext(ctx, log.FromContext(ctx)))
}
