package informer

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer/internal/object"
)

// AnyObject is what every API object is. It may itself be the T of an informer
// where the type of the objects is only known at run time.
type AnyObject interface {
	metav1.Object
	runtime.Object
}

// Object is the constraint on the type of an informer's objects: a pointer to
// an API type, such as *corev1.Pod, *unstructured.Unstructured or
// *metav1.PartialObjectMetadata.
type Object interface {
	comparable
	AnyObject
}

// EventType says what happened to an object.
type EventType uint8

// The three things that can happen to an object.
const (
	EventAdded EventType = iota + 1
	EventUpdated
	EventDeleted
)

// String returns "added", "updated" or "deleted".
func (t EventType) String() string {
	switch t {
	case EventAdded:
		return "added"
	case EventUpdated:
		return "updated"
	case EventDeleted:
		return "deleted"
	}
	return fmt.Sprintf("EventType(%d)", uint8(t))
}

// Origin says how the informer came to know of an event.
type Origin uint8

const (
	// OriginWatch is a change that the watch delivered. It is the zero value.
	OriginWatch Origin = iota
	// OriginInitial is the state that a watcher starts from: what was there when
	// it was added, and whatever happens, of any type, before the informer has
	// synced.
	OriginInitial
	// OriginRelist is a difference found by listing again, after the watch had
	// been cut for too long. What happened in between is not known.
	OriginRelist
	// OriginResync is no change at all, but the replay that
	// WatcherOptions.ResyncPeriod asks for.
	OriginResync
)

// String returns "watch", "initial", "relist" or "resync".
func (o Origin) String() string {
	switch o {
	case OriginWatch:
		return "watch"
	case OriginInitial:
		return "initial"
	case OriginRelist:
		return "relist"
	case OriginResync:
		return "resync"
	}
	return fmt.Sprintf("Origin(%d)", uint8(o))
}

// Event is one change of one object. It is a value: copy it freely. The objects
// in it are shared with the store and with all other watchers and must not be
// changed.
type Event[T Object] struct {
	// Old is the object as the watcher knew it: the New of the event before that
	// it was told.
	// It is the zero T for an added object, and never that for a deleted one.
	// In a resync it is the same object as New. Where T is AnyObject and nothing but
	// the key of a deleted object is known, it is a *metav1.PartialObjectMetadata.
	Old T
	// New is the object as it is now. It is the zero T for a deleted object.
	New T
	// Type says which of the two are set.
	Type EventType
	// Origin says how the informer came to know.
	Origin Origin
	// FinalStateUnknown marks a delete that was not seen happening, but found
	// by a relist. Old is then what was last known; if the store has lost even
	// that, Old carries the namespace, the name and, if known, the UID.
	FinalStateUnknown bool
	// Merged marks an event that stands for several, which waited together (see
	// WatcherOptions.MaxBacklog): the object had other states in between, that nobody
	// tells this watcher of. Old and New may be alike then, although the reader has
	// shown something else meanwhile.
	Merged bool
}

// Object returns New, or Old of a deleted object. It is never nil in an event
// that an informer delivers.
func (e Event[T]) Object() T {
	if e.Type == EventDeleted {
		return e.Old
	}
	return e.New
}

// Key returns the namespace and the name of the event's object. The namespace
// of a cluster-scoped object is empty.
func (e Event[T]) Key() types.NamespacedName {
	obj := e.Object()
	return types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// ResourceWatcher is told what happens to the objects of an informer; it is what
// client-go calls a ResourceEventHandler.
//
// One registration of a watcher is called by one goroutine at a time, unless it has
// WatcherOptions.Workers, with the events of each object in the order in which the
// store took them. A watcher value that is registered more than once is called by
// several goroutines.
//
// The ctx of a call ends when the registration is removed or the informer has
// stopped. It carries the logger of Run's ctx. A call may block: nobody but this
// watcher waits for it. An error that it returns goes to Options.ErrorHandler as
// an [*EventError], unless it is that of this ctx, which has ended. The event comes again
// if WatcherOptions.Retry says so, else it counts as handled. A panic ends the
// process, because what it left behind is not known, unless
// WatcherOptions.RecoverPanics is set. A call must not end its goroutine, as
// runtime.Goexit and a test's FailNow do: nobody would be left to call the watcher.
type ResourceWatcher[T Object] interface {
	Add(ctx context.Context, e Event[T]) error
	Update(ctx context.Context, e Event[T]) error
	Delete(ctx context.Context, e Event[T]) error
}

// Registration is one watcher's place at an informer. Its methods may be called
// from any goroutine, the watcher's own callback included. It must not be copied.
type Registration struct {
	synced, stopped <-chan struct{}
	remove          func()
	stats           func() WatcherStats
}

// Synced returns a channel that is closed once the watcher has been called for
// everything of its initial state, whether or not those calls failed, and
// OnSynced has returned. It never closes if the watcher is removed or the
// informer stopped before: wait for Stopped beside it.
func (r *Registration) Synced() <-chan struct{} { return r.synced }

// Remove ends the registration. It does not block: a call that is under way goes
// on with its ctx cancelled, and Stopped says when it has returned; there is no
// call after that, and what waits is dropped. Removing twice, or after the
// informer has stopped, does nothing.
func (r *Registration) Remove() { r.remove() }

// Stopped returns a channel that is closed when the watcher's last call has
// returned, after Remove or when the informer has stopped. Do not wait for it in
// the watcher's own callback.
func (r *Registration) Stopped() <-chan struct{} { return r.stopped }

// Stats returns figures about the watcher. It does not block, also while the
// watcher or the store does.
func (r *Registration) Stats() WatcherStats { return r.stats() }

// WatcherFuncs makes a [ResourceWatcher] of up to three functions. What a nil
// function would have been told is ignored. The zero value ignores everything.
type WatcherFuncs[T Object] struct {
	AddFunc, UpdateFunc, DeleteFunc func(context.Context, Event[T]) error
}

// Add calls AddFunc, if there is one.
func (f WatcherFuncs[T]) Add(ctx context.Context, e Event[T]) error {
	if f.AddFunc == nil {
		return nil
	}
	return f.AddFunc(ctx, e)
}

// Update calls UpdateFunc, if there is one.
func (f WatcherFuncs[T]) Update(ctx context.Context, e Event[T]) error {
	if f.UpdateFunc == nil {
		return nil
	}
	return f.UpdateFunc(ctx, e)
}

// Delete calls DeleteFunc, if there is one.
func (f WatcherFuncs[T]) Delete(ctx context.Context, e Event[T]) error {
	if f.DeleteFunc == nil {
		return nil
	}
	return f.DeleteFunc(ctx, e)
}

// WatcherFunc makes a [ResourceWatcher] of one function for all three types of
// event.
type WatcherFunc[T Object] func(context.Context, Event[T]) error

// Add calls f.
func (f WatcherFunc[T]) Add(ctx context.Context, e Event[T]) error { return f(ctx, e) }

// Update calls f.
func (f WatcherFunc[T]) Update(ctx context.Context, e Event[T]) error { return f(ctx, e) }

// Delete calls f.
func (f WatcherFunc[T]) Delete(ctx context.Context, e Event[T]) error { return f(ctx, e) }

// Select returns a watcher that sees only the objects for which selected returns
// true. An object that an update brings into the selection is added, one that it
// takes out is deleted, with the event's Old. A delete of which nothing but the
// key is known always passes, because there is nothing to select by: such a
// watcher may be told of the end of an object it never saw.
//
// selected is called from the watcher's goroutines, a few times per event, and
// must depend on nothing but the object. With WatcherOptions.Retry, an object whose
// add has failed and that leaves the selection before the next attempt is deleted.
// For that, AddWatcher must be given what Select returns, not a watcher around it.
// Events that are not selected count as delivered in figures. Adding the watcher to an informer fails
// if w or selected is nil.
func Select[T Object](w ResourceWatcher[T], selected func(T) bool) ResourceWatcher[T] {
	return selection[T]{w, selected}
}

type selection[T Object] struct {
	ResourceWatcher[T]
	selected func(T) bool
}

func (s selection[T]) Add(ctx context.Context, e Event[T]) error {
	if !s.selected(e.New) {
		return nil
	}
	return s.ResourceWatcher.Add(ctx, e)
}

func (s selection[T]) Update(ctx context.Context, e Event[T]) error {
	var none T
	before, now := s.selected(e.Old), s.selected(e.New)
	switch {
	case before && now:
		return s.ResourceWatcher.Update(ctx, e)
	case now:
		e.Type, e.Old = EventAdded, none
		return s.ResourceWatcher.Add(ctx, e)
	case before:
		e.Type, e.New = EventDeleted, none
		return s.ResourceWatcher.Delete(ctx, e)
	}
	return nil
}

func (s selection[T]) Delete(ctx context.Context, e Event[T]) error {
	onlyKey := e.FinalStateUnknown && e.Old.GetResourceVersion() == ""
	if !onlyKey && !s.selected(e.Old) {
		return nil
	}
	return s.ResourceWatcher.Delete(ctx, e)
}

// after returns what to tell instead of e after a failed attempt in which the
// watcher was told of tried: the end of it, if nobody else would say so.
func (s selection[T]) after(tried T, e Event[T]) Event[T] {
	if s.passes(tried) && !s.passes(e.Object()) {
		return Event[T]{Old: tried, Type: EventDeleted, Origin: e.Origin, FinalStateUnknown: e.FinalStateUnknown}
	}
	return e
}

// passes reports whether s, and every selection inside it, selects obj.
func (s selection[T]) passes(obj T) bool {
	inner, nested := s.ResourceWatcher.(selection[T])
	return s.selected(obj) && (!nested || inner.passes(obj))
}

// methods are what a watcher is called by, by EventType; nil for nothing.
type methods[T Object] [EventDeleted + 1]func(context.Context, Event[T]) error

// methodsOf returns the methods of w. Those of a WatcherFuncs are its functions: to
// go through it copies the event three times, which costs 10 ns, more than all the
// rest of an event's way to a watcher.
func methodsOf[T Object](w ResourceWatcher[T]) methods[T] {
	switch w := w.(type) {
	case WatcherFuncs[T]:
		return methods[T]{EventAdded: w.AddFunc, EventUpdated: w.UpdateFunc, EventDeleted: w.DeleteFunc}
	case WatcherFunc[T]:
		return methods[T]{EventAdded: w, EventUpdated: w, EventDeleted: w}
	}
	return methods[T]{EventAdded: w.Add, EventUpdated: w.Update, EventDeleted: w.Delete}
}

// tell calls the one for e. It is inlined.
func (m *methods[T]) tell(ctx context.Context, e *Event[T]) error {
	if f := m[e.Type]; f != nil {
		return f(ctx, *e)
	}
	return nil
}

// checkWatcher returns an error if w, or a watcher that it wraps, cannot be called.
func checkWatcher[T Object](w ResourceWatcher[T]) error {
	if object.IsNil(w) {
		return fmt.Errorf("watcher is nil")
	}
	if s, ok := w.(selection[T]); ok {
		if s.selected == nil {
			return fmt.Errorf("watcher: the function given to Select is nil")
		}
		return checkWatcher(s.ResourceWatcher)
	}
	return nil
}
