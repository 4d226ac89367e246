package controllerruntime

import (
	"context"
	"errors"

	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Runnable makes an informer, or an informer.Group, a part of a manager:
//
//	err := mgr.Add(controllerruntime.Runnable(inf))
//
// The manager starts it after its own caches and before its controllers, and stops
// it with them. It does not wait until the informer has synced; see Synced for a
// controller that does.
//
// It runs on every replica, leader or not. An informer only reads, and the replica
// that becomes leader is to find its state there and not to wait for a first list
// just when nobody is at work. A watcher that writes belongs to the leader: have it
// wait for the manager's Elected channel, or put what is to be done into the queue of
// a controller.
//
// What the informer logs goes to the manager's logger.
func Runnable(m interface{ Run(context.Context) error }) manager.Runnable {
	return runnable{m}
}

type runnable struct {
	member interface{ Run(context.Context) error }
}

// Start blocks until ctx ends or the informer fails.
func (r runnable) Start(ctx context.Context) error {
	if isNil(r.member) {
		return errors.New("the informer given to Runnable is nil")
	}
	return r.member.Run(klog.NewContext(ctx, log.FromContext(ctx)))
}

// NeedLeaderElection says that being the leader makes no difference.
func (runnable) NeedLeaderElection() bool { return false }
