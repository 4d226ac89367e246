package informer

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
)

// lag follows whether a watcher is so far behind that events were merged. It is
// logged when it has lasted for a while: a watcher with a small MaxBacklog may fall
// behind and catch up many times a second.
type lag[T Object] struct {
	listener *informerProcessorListener[T]
	behind   atomic.Bool

	// Of pop.
	lasting *time.Timer // nil unless behind
	said    bool
}

// begin notes that events were merged.
func (g *lag[T]) begin() {
	if g.lasting != nil {
		return
	}
	g.lasting = time.NewTimer(hungCall)
	g.behind.Store(true)
	g.observe(true)
}

// late returns a channel that fires when it is time to say so.
func (g *lag[T]) late() <-chan time.Time {
	if g.lasting == nil {
		return nil
	}
	return g.lasting.C
}

func (g *lag[T]) say(ctx context.Context) {
	g.said = true
	klog.FromContext(ctx).Info("A watcher is behind: events that wait for it are merged by object", "pending", g.listener.stats().Pending)
}

// end notes that nothing waits any more.
func (g *lag[T]) end(ctx context.Context) {
	if g.lasting == nil {
		return
	}
	g.stop()
	g.lasting = nil
	g.behind.Store(false)
	if g.said {
		klog.FromContext(ctx).Info("The watcher has caught up")
	}
	g.said = false
	g.observe(false)
}

func (g *lag[T]) stop() {
	if g.lasting != nil {
		g.lasting.Stop()
	}
}

func (g *lag[T]) observe(lagging bool) {
	l := g.listener
	if f := l.processor.observer.Lagging; f != nil {
		f(LaggingInfo{Informer: l.processor.name, Watcher: l.opts.Name, Lagging: lagging, Pending: l.stats().Pending})
	}
}
