package controllerruntime

import (
	"context"
	"errors"

	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Runnable makes an informer, or an informer.Group, a part of a manager:
//
//	err := mgr.Add(controllerruntime.Runnable(inf))
//
// The manager treats it as one of its caches: it runs before any controller starts and
// until the last reconcile has returned, on every replica, leader or not. An informer
// only reads, and the replica that becomes leader is to find its state there and not to
// wait for a first list just when nobody is at work. A watcher that writes belongs to
// the leader: put what is to be done into the queue of a controller, or add the watcher
// when the manager's Elected channel is closed, and it is told the state of that time.
//
// The manager does not wait until the informer has synced, so that one that cannot, for
// want of a CRD for example, does not stop the others; see Synced for a controller that
// waits.
//
// What the informer logs goes to the logger that controller-runtime's log.SetLogger was
// given, and nowhere before that; manager.Options.Logger does not count.
func Runnable(m interface{ Run(context.Context) error }) manager.Runnable {
	return runnable{m}
}

type runnable struct {
	member interface{ Run(context.Context) error }
}

// GetCache is how the manager knows its caches, which it stops last, when all
// reconciles have returned. It only asks it whether it has synced.
func (runnable) GetCache() cache.Cache { return syncedAtOnce{} }

type syncedAtOnce struct{ cache.Cache }

func (syncedAtOnce) WaitForCacheSync(context.Context) bool { return true }

// Start blocks until ctx ends or the informer fails.
func (r runnable) Start(ctx context.Context) error {
	if isNil(r.member) {
		return errors.New("the informer given to Runnable is nil")
	}
	return r.member.Run(klog.NewContext(ctx, log.FromContext(ctx)))
}
