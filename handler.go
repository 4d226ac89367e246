package informer

import (
	"context"
	"sync/atomic"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/internal/object"
)

// handler is client-go's ResourceEventHandler as a watcher of one registration. It is
// told in client-go's terms, also of what no other watcher hears of: objects that a
// relist found unchanged, and what a deleted object was in the end.
type handler[T Object] struct {
	cache.ResourceEventHandler
	logger klog.Logger
	final  T // of the delete that comes next

	// By client-go's rule, an object that a relist found unchanged is told to all until
	// the informer first looks whether somebody is due for a resync; then to those who
	// were due when it last looked. Times are by the processor's stopwatch.
	asked, added time.Duration
	period       time.Duration // 0 if it is never due
	next         time.Duration // when it will be; of the reflector's goroutine
	due          atomic.Bool
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
		h.OnDelete(cache.DeletedFinalStateUnknown{Key: object.Key(obj), Obj: obj})
	} else {
		h.OnDelete(obj)
	}
}

// note takes in a record that is no event for other watchers.
func (h *handler[T]) note(r *record[T]) {
	switch {
	case r.kind == recordFinal:
		h.final = r.event.New
	case r.kind == recordEvent && h.due.Load():
		h.tell(&r.event)
	}
}

// settle fixes the period of h's resyncs, for an informer that looks at every time
// whether somebody is to be resynced; 0 is never. It returns the period rounded up to
// whole looks. It must not be called once h is.
func (h *handler[T]) settle(every time.Duration) time.Duration {
	h.period = 0
	if every > 0 && h.asked > 0 {
		h.period = max(h.asked, every)
	}
	h.next = h.added + h.period
	if h.period == 0 {
		return 0
	}
	return (h.period + every - 1) / every * every
}

// look notes, when the informer looks, whether h is to be resynced.
func (h *handler[T]) look(now time.Duration) {
	due := h.period > 0 && now >= h.next
	h.due.Store(due)
	if due {
		h.next = now + h.period
	}
}
