package informer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/internal/object"
	"github.com/customcacheinformer/informer/internal/stopwatch"
	"github.com/customcacheinformer/informer/internal/version"
)

// counts holds the figures of a listener. All except untold only grow.
type counts struct {
	read      atomic.Int64 // events of the log before the cursor
	taken     atomic.Int64 // events taken from the log or from a state
	untold    atomic.Int64 // objects of a state that were not taken yet
	merged    atomic.Int64
	delivered atomic.Int64
	failed    atomic.Int64
	retried   atomic.Int64
}

func (c *counts) done() int64 { return c.delivered.Load() + c.failed.Load() }

// countStep is how many events at the beginning of a segment are counted one by one. After these,
// countStep events are counted at a time, because counting each event would double its cost. So the key
// for which a hung watcher was called is known exactly only for the first events of a segment.
const countStep = 16

type hand[T Object] struct {
	mu      sync.Mutex // protects the rest
	segment segment[T]
	before  int64 // counts.done when the segment was taken
}

func (h *hand[T]) take(s segment[T], done int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.segment, h.before = s, done
}

// skip notes that the next event will not be delivered.
func (h *hand[T]) skip() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.before--
}

func (h *hand[T]) empty() { h.take(segment[T]{}, 0) }

// since returns when the first event of the segment was appended to the log, or 0 if there is no segment.
func (h *hand[T]) since() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.segment.Records) == 0 {
		return 0
	}
	return h.segment.Records[0].since
}

// calling returns the key of the event for which the watcher is being called: the one after the first
// done events. After countStep events it returns a text that names a range.
func (h *hand[T]) calling(done int64) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	done -= h.before
	for i := range h.segment.Records {
		r := &h.segment.Records[i]
		switch {
		case !r.isEvent():
		case done > 0:
			done--
		case i < countStep:
			return []string{r.event.where()}
		default:
			others := min(countEvents(h.segment.Records[i:]), countStep) - 1
			return []string{fmt.Sprintf("%s or one of the %d after it", r.event.where(), others)}
		}
	}
	return nil
}

type attempt[T Object] struct {
	event    Event[T]
	took     time.Duration
	err      error
	failures int  // of the event, including this one if it failed
	gaveUp   bool // if it failed, there will be no further attempt
	stopped  bool // there will be no further attempt because the informer stops
}

// recoverTo must be deferred. It recovers a panic and sets *err to a *PanicError.
func recoverTo(err *error) {
	if v := recover(); v != nil {
		*err = &PanicError{Value: v, Stack: debug.Stack()}
	}
}

// interrupted reports whether err is the error of ctx, after ctx is done.
func interrupted(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err())
}

// follower holds the state that a listener needs if its watcher is a version.Follower.
type follower[T Object] struct {
	watcher version.Follower
	version string // the version of the state that the watcher begins with; protected by processor.mu until the processor is filled
	final   T      // the final state of the object whose delete comes next
}

// withFinal returns a function that calls next with the final state of the deleted object as Old. If
// there is none for a delete of the watch, it first reports to the watcher that the version is unknown. That
// is so if the watch sent no usable final state, or if the delete was decided before the first follower
// joined.
func (f *follower[T]) withFinal(next func(context.Context, Event[T]) error) func(context.Context, Event[T]) error {
	return func(ctx context.Context, e Event[T]) error {
		var none T
		switch {
		case f.final != none:
			e.Old, f.final = f.final, none
		case e.Origin == OriginWatch:
			f.watcher.OnVersion(ctx, "")
		}
		if next == nil {
			return nil
		}
		return next(ctx, e)
	}
}

// handler is a watcher that calls a client-go ResourceEventHandler. It gets more than other watchers: the
// objects that a relist found unchanged, as updates whose old and new object are the same, and the final
// state of a deleted object.
type handler[T Object] struct {
	cache.ResourceEventHandler
	logger klog.Logger
	final  T // the final state of the object whose delete comes next
}

// Add calls the handler and returns nil. Add, Update and Delete make a handler a ResourceWatcher.
func (h *handler[T]) Add(_ context.Context, e Event[T]) error    { h.call(&e); return nil }
func (h *handler[T]) Update(_ context.Context, e Event[T]) error { h.call(&e); return nil }
func (h *handler[T]) Delete(_ context.Context, e Event[T]) error { h.call(&e); return nil }

// call calls the handler for an event. It treats a panic as client-go does: it calls utilruntime's
// PanicHandlers, and the process ends unless utilruntime.ReallyCrash is false. If the process continues,
// the event counts as handled.
func (h *handler[T]) call(e *Event[T]) {
	defer utilruntime.HandleCrashWithLogger(h.logger)
	switch e.Type {
	case EventAdded:
		h.OnAdd(e.New, e.Origin == OriginInitial)
	case EventUpdated:
		h.OnUpdate(e.Old, e.New)
	case EventDeleted:
		h.delete(e)
	}
}

func (h *handler[T]) delete(e *Event[T]) {
	var none T
	obj := e.Old
	if h.final != none {
		obj, h.final = h.final, none
	}
	if e.FinalStateUnknown {
		key, _ := object.CacheKey(obj) // programs of client-go make keys of objects themselves
		h.OnDelete(cache.DeletedFinalStateUnknown{Key: key, Obj: obj})
	} else {
		h.OnDelete(obj)
	}
}

// note handles a record that is not an event for other watchers.
func (h *handler[T]) note(r *record[T]) {
	switch r.kind {
	case recordFinal:
		h.final = r.event.New
	case recordEvent:
		h.call(&r.event)
	}
}

// phase is a part of the life of a listener. Joining and live alternate, each time pop reads a state or a
// page of it. The other phases follow each other:
//
//	live          -> last                pop ends, because the source has stopped
//	joining       -> cut                 pop ends without the state, because the informer stops
//	joining, live -> removed -> over     the registration ends, and then pop
//	last, cut     -> over                the registration ends after pop
type phase int32

const (
	phaseOver    phase = iota - 2 // like removed, and pop has returned
	phaseRemoved                  // run takes no more events, and drops those that it has
	phaseJoining                  // run waits for the state that pop is reading
	phaseLive                     // run takes events
	phaseLast                     // pop has returned, and run takes the last events
	phaseCut                      // pop has returned, and run takes no more events
)

// looking is added to a phase of 0 or more while run must look for leaves before each event.
const looking = -8

// lifecycle holds the phase of a listener. The phase changes only under the listener's mu. It is also
// read without mu, because run looks at it before each event. Everything that keeps run from calling the
// watcher is below 0, so that one comparison is enough.
type lifecycle struct{ now atomic.Int32 }

func (c *lifecycle) phase() phase { return phaseOf(c.now.Load()) }

// interrupts reports whether the registration is over or run must look for leaves.
func (c *lifecycle) interrupts() bool { return c.now.Load() < 0 }

func (c *lifecycle) removed() bool { return c.phase() < 0 }

// look sets whether run must look for leaves before each event. The caller need not hold the listener's
// mu.
func (c *lifecycle) look(on bool) {
	for now := c.now.Load(); !c.now.CompareAndSwap(now, inPhase(phaseOf(now), on)); now = c.now.Load() {
	}
}

func (c *lifecycle) become(p phase) {
	for now := c.now.Load(); !c.now.CompareAndSwap(now, inPhase(p, now < int32(phaseOver))); now = c.now.Load() {
	}
}

func phaseOf(now int32) phase {
	if p := phase(now); p >= phaseOver {
		return p
	}
	return phase(now) - looking
}

func inPhase(p phase, look bool) int32 {
	if look && p >= 0 {
		p += looking
	}
	return int32(p)
}

// turn begins phase p, which is joining or live. It does nothing if the registration is over.
func (c *lifecycle) turn(p phase) {
	if !c.removed() {
		c.become(p)
	}
}

func (c *lifecycle) endPop() {
	switch c.phase() {
	case phaseJoining:
		c.become(phaseCut)
	case phaseLive:
		c.become(phaseLast)
	case phaseRemoved:
		c.become(phaseOver)
	}
}

// remove notes that the registration is over.
func (c *lifecycle) remove() {
	switch c.phase() {
	case phaseJoining, phaseLive:
		c.become(phaseRemoved)
	case phaseLast, phaseCut:
		c.become(phaseOver)
	}
}

// resyncTimer knows when the next resync of a listener is due. Only pop uses it, except the field period,
// which does not change.
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

// lag tracks whether a watcher is so far behind that events were merged. The informer logs a lag only if
// it has lasted for stopwatch.HungCall, because a watcher with a small MaxBacklog may fall behind and
// catch up many times a second.
type lag struct {
	behind atomic.Bool

	// Only pop uses the rest.
	lasting *time.Timer // nil unless behind
	logged  bool
}

// begin notes that events were merged. It returns false if the watcher was behind already.
func (g *lag) begin() bool {
	if g.lasting != nil {
		return false
	}
	g.lasting = time.NewTimer(stopwatch.HungCall)
	g.behind.Store(true)
	return true
}

// late returns a channel that receives when the lag must be logged, or nil if the watcher is not behind.
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

// end notes that the backlog is empty. It returns true if the watcher was behind.
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
