// Package longwait logs what a long wait is waiting for.
package longwait

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

// Patience is how long a wait lasts before Announce logs it.
const Patience = 30 * time.Second

// Announce makes a wait log two lines with the logger of ctx: one when it has lasted for
// Patience, and one when it ends. The caller must call over once, when the wait ends, with the
// error of the wait or nil. If the wait ends before Patience, nothing is logged, and the only
// cost is a timer.
//
// missing returns the keys and values of the first line. The first pair names the waiter, and is in
// both lines. If missing returns nothing, the wait is about to end, and nothing is logged.
// missing is called on another goroutine. over blocks until missing has returned.
//
// With a ctx made by Quiet, nothing is logged.
func Announce(ctx context.Context, missing func() []any) (over func(error)) {
	if ctx.Value(quiet{}) != nil {
		return func(error) {}
	}
	var (
		begun  = time.Now()
		who    []any
		logged = make(chan struct{})
	)
	timer := time.AfterFunc(Patience, func() {
		defer close(logged)
		if values := missing(); len(values) > 0 {
			who = values[:2:2]
			klog.FromContext(ctx).Info("Still waiting", values...)
		}
	})
	return func(err error) {
		if timer.Stop() {
			return
		}
		if <-logged; who == nil {
			return
		}
		who = append(who, "waited", time.Since(begun).Round(time.Second))
		if err != nil {
			who = append(who, "err", err)
		}
		klog.FromContext(ctx).Info("The wait is over", who...)
	}
}

type quiet struct{}

// Quiet returns a ctx with which Announce logs nothing. A wait that consists of several waits
// passes it to them, so that only the outer wait is logged.
func Quiet(ctx context.Context) context.Context { return context.WithValue(ctx, quiet{}, true) }
