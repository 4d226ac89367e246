package informer

import (
	"context"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/internal/object"
)

// handler is one registration of a client-go ResourceEventHandler as a watcher. It hears more
// than other watchers do: the objects that a relist found unchanged, as updates whose old and
// new object are the same, and the final state of a deleted object.
type handler[T Object] struct {
	cache.ResourceEventHandler
	logger klog.Logger
	final  T // the final state of the object whose delete comes next
}

// Add, Update and Delete make a handler a ResourceWatcher.
func (h *handler[T]) Add(_ context.Context, e Event[T]) error    { h.tell(&e); return nil }
func (h *handler[T]) Update(_ context.Context, e Event[T]) error { h.tell(&e); return nil }
func (h *handler[T]) Delete(_ context.Context, e Event[T]) error { h.tell(&e); return nil }

// tell calls the handler. It treats a panic as client-go does: utilruntime's PanicHandlers are
// called, and the process ends unless utilruntime.ReallyCrash is false. In that case the event
// counts as handled.
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

// note takes a record that is no event for other watchers.
func (h *handler[T]) note(r *record[T]) {
	switch r.kind {
	case recordFinal:
		h.final = r.event.New
	case recordEvent:
		h.tell(&r.event)
	}
}
