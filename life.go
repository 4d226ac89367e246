package informer

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/internal/stopwatch"
)

// phase is a part of the life of a listener. Joining and live alternate, as often as pop reads a
// state or a page of it. The other phases follow each other:
//
//	live          -> last                pop ends, because the source has stopped
//	joining       -> cut                 pop ends without the state, because the informer stops
//	joining, live -> removed -> over     the registration ends, and then pop
//	last, cut     -> over                the registration ends after pop
type phase int32

const (
	phaseOver    phase = iota - 2 // like removed, and pop has ended
	phaseRemoved                  // run takes no more events, and drops those that it has
	phaseJoining                  // run waits for the state that pop is reading
	phaseLive                     // run takes events
	phaseLast                     // pop has ended, and run takes the last events
	phaseCut                      // pop has ended, and run takes no more events
)

// lifecycle holds the phase of a listener. The phase changes only under the listener's mu. It is
// read without mu, too, because run looks at it before each event. That costs least if the phases
// without calls are below 0.
type lifecycle struct{ now atomic.Int32 }

func (c *lifecycle) phase() phase { return phase(c.now.Load()) }

func (c *lifecycle) removed() bool { return c.now.Load() < 0 }

// turn begins p, which is joining or live, unless the registration has ended.
func (c *lifecycle) turn(p phase) {
	if !c.removed() {
		c.now.Store(int32(p))
	}
}

func (c *lifecycle) endPop() {
	switch c.phase() {
	case phaseJoining:
		c.now.Store(int32(phaseCut))
	case phaseLive:
		c.now.Store(int32(phaseLast))
	case phaseRemoved:
		c.now.Store(int32(phaseOver))
	}
}

// remove notes that the registration has ended.
func (c *lifecycle) remove() {
	switch c.phase() {
	case phaseJoining, phaseLive:
		c.now.Store(int32(phaseRemoved))
	case phaseLast, phaseCut:
		c.now.Store(int32(phaseOver))
	}
}

// resyncTimer says when the next resync of a listener is due. Only pop uses it, except
// period, which does not change.
type resyncTimer struct {
	period time.Duration   // 0 for no resyncs
	synced <-chan struct{} // starts the first period; nil afterwards
	timer  *time.Timer
	due    bool
}

// restart begins the next period.
func (r *resyncTimer) restart() {
	r.synced, r.due = nil, false
	if r.period > 0 {
		r.stop()
		r.timer = time.NewTimer(r.period)
	}
}

func (r *resyncTimer) ring() <-chan time.Time {
	if r.timer == nil {
		return nil
	}
	return r.timer.C
}

func (r *resyncTimer) stop() {
	if r.timer != nil {
		r.timer.Stop()
	}
}

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
