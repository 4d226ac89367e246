// Package longwait has a long wait say for what it waits.
package longwait

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

// Patience is how long a wait lasts before Announce logs it.
const Patience = 30 * time.Second

// Announce has a wait logged with the logger of ctx: once when it has lasted for Patience, and
// once more when it ends. The caller calls over when the wait ends, and only then, with the error
// of the wait or nil. A wait that ends earlier logs nothing, and only costs a timer.
//
// missing returns the keys and values of the first line. The first pair says who waits, and is in
// both lines. If missing returns nothing, the wait is about to end, and nothing is logged. missing
// is called on a goroutine of its own. over waits until missing has returned.
//
// With a ctx made by Quiet, nothing is logged.
func Announce(ctx context.Context, missing func() []any) (over func(error)) {
	if ctx.Value(quiet{}) != nil {
		return func(error) {}
	}
	var (
		begun = time.Now()
		who   []any
		said  = make(chan struct{})
	)
	timer := time.AfterFunc(Patience, func() {
		defer close(said)
		if values := missing(); len(values) > 0 {
			who = values[:2:2]
			klog.FromContext(ctx).Info("Still waiting", values...)
		}
	})
	return func(err error) {
		if timer.Stop() {
			return
		}
		if <-said; who == nil {
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

// Quiet returns a ctx with which Announce logs nothing. It is for the waits of which a longer one
// consists: the caller of that one gets one line, not one for each.
func Quiet(ctx context.Context) context.Context { return context.WithValue(ctx, quiet{}, true) }
