package informer

import (
	"context"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// handler is client-go's ResourceEventHandler as a watcher of one registration. It is
// told in client-go's terms, also of what no other watcher hears of: objects that a
// relist found unchanged, and what a deleted object was in the end.
type handler[T Object] struct {
	cache.ResourceEventHandler
	logger klog.Logger
	checks resyncChecks
	final  T // of the delete that comes next
}

// Add, Update and Delete make a handler a ResourceWatcher.
func (h *handler[T]) Add(_ context.Context, e Event[T]) error    { h.tell(&e); return nil }
func (h *handler[T]) Update(_ context.Context, e Event[T]) error { h.tell(&e); return nil }
func (h *handler[T]) Delete(_ context.Context, e Event[T]) error { h.tell(&e); return nil }

// tell calls the handler. A panic is treated as client-go does: utilruntime's
// PanicHandlers hear of it, and it ends the process unless utilruntime.ReallyCrash is
// false. Then the event counts as handled.
func (h *handler[T]) tell(e *Event[T]) {
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
		h.OnDelete(cache.DeletedFinalStateUnknown{Key: objectKey(obj), Obj: obj})
	} else {
		h.OnDelete(obj)
	}
}

// note takes in a record that is no event for other watchers.
func (h *handler[T]) note(r *record[T]) {
	switch {
	case r.kind == recordFinal:
		h.final = r.event.New
	case r.kind == recordEvent && h.checks.due(r.since):
		h.tell(&r.event)
	}
}

// resyncChecks say which handlers client-go tells of objects that a relist has found
// unchanged: until the first of its regular checks whether anybody is due for a resync,
// all; then those who were due at the last check. Times are by the processor's
// stopwatch.
type resyncChecks struct {
	every  time.Duration // 0: there are none
	begun  time.Duration
	added  time.Duration // the handler
	period time.Duration // its resync period; 0 for none
}

// of returns the checks for a handler that was added at a time and asks for a period,
// which is rounded up to whole checks.
func (c resyncChecks) of(added, asked time.Duration) resyncChecks {
	c.added, c.period = added, 0
	if c.every > 0 && asked > 0 {
		c.period = c.every * c.up(max(asked, c.every))
	}
	return c
}

// up returns how many checks it takes for d to pass.
func (c resyncChecks) up(d time.Duration) time.Duration { return (d + c.every - 1) / c.every }

// due reports whether a handler is told of what was found unchanged at a time.
func (c resyncChecks) due(at time.Duration) bool {
	if c.every == 0 {
		return true
	}
	last := (at - c.begun) / c.every
	switch {
	case last <= (c.added-c.begun)/c.every:
		return true // no check since it was added
	case c.period == 0:
		return false
	}
	first := c.up(c.added + c.period - c.begun)
	return last >= first && (last-first)%c.up(c.period) == 0
}
