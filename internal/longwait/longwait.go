// Package longwait has a long wait say for what it waits.
package longwait

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

// Patience is how long a wait lasts before Announce logs it.
const Patience = 30 * time.Second

// Announce has a wait logged with the logger of ctx if it lasts longer than Patience: once,
// with the values that missing returns, and once more when the caller calls over, which it must
// do when the wait ends. missing is called on a goroutine of its own, which over waits for.
func Announce(ctx context.Context, missing func() []any) (over func()) {
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		timer := time.NewTimer(Patience)
		defer timer.Stop()
		select {
		case <-done:
			return
		case <-timer.C:
		}
		begun := time.Now().Add(-Patience)
		klog.FromContext(ctx).Info("Still waiting", missing()...)
		<-done
		klog.FromContext(ctx).Info("The wait is over", "waited", time.Since(begun).Round(time.Second))
	}()
	return func() {
		close(done)
		<-ended
	}
}
