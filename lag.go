package informer

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/internal/stopwatch"
)

// lag tracks whether a watcher is so far behind that events were merged. The informer
// logs a lag only once it has lasted for stopwatch.HungCall: a watcher with a small MaxBacklog may
// fall behind and catch up many times a second.
type lag struct {
	behind atomic.Bool

	// Only pop uses the rest.
	lasting *time.Timer // nil unless behind
	logged  bool
}

// begin notes that events were merged. It reports whether the watcher was not behind before.
func (g *lag) begin() bool {
	if g.lasting != nil {
		return false
	}
	g.lasting = time.NewTimer(stopwatch.HungCall)
	g.behind.Store(true)
	return true
}

// late returns a channel that fires when the lag must be logged.
func (g *lag) late() <-chan time.Time {
	if g.lasting == nil {
		return nil
	}
	return g.lasting.C
}

func (g *lag) log(ctx context.Context, pending int) {
	g.logged = true
	klog.FromContext(ctx).Info("A watcher is behind: events that wait for it are merged by object", "pending", pending)
}

// end notes that the backlog is empty. It reports whether the watcher was behind.
func (g *lag) end(ctx context.Context) bool {
	if g.lasting == nil {
		return false
	}
	g.stop()
	g.lasting = nil
	g.behind.Store(false)
	if g.logged {
		klog.FromContext(ctx).Info("The watcher has caught up")
	}
	g.logged = false
	return true
}

func (g *lag) stop() {
	if g.lasting != nil {
		g.lasting.Stop()
	}
}
