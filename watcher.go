package informer

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/customcacheinformer/informer/internal/object"
)

// AnyObject is any API object. Use it as the T of an informer if the type of the objects is known only at
// run time.
type AnyObject interface {
	metav1.Object
	runtime.Object
}

// Object is the type constraint for an informer's objects: a pointer to an API type, such as
// *corev1.Pod, *unstructured.Unstructured or *metav1.PartialObjectMetadata, or [AnyObject].
type Object interface {
	comparable
	AnyObject
}

// EventType is the kind of change that an [Event] reports.
type EventType uint8

// These are the three kinds of change.
const (
	EventAdded   EventType = iota + 1 // the watcher did not know the object
	EventUpdated                      // the object has changed, or is replayed for a resync
	EventDeleted                      // the object is gone, or the informer no longer selects it or reads its namespace or cluster
)

// String returns "added", "updated" or "deleted", and for any other value its number, as in
// "EventType(9)".
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

// Origin is how the informer learned of a change.
type Origin uint8

const (
	// OriginWatch is a change that the watch delivered. It is the zero value.
	OriginWatch Origin = iota
	// OriginInitial marks the state that a watcher starts from: the objects that were in the store when
	// the watcher was added, and every change, of any type, before the first list is complete. That
	// includes the first list of a namespace or a cluster that is added later, and the deletes that a
	// [Durable] has kept as tombstones.
	OriginInitial
	// OriginRelist is a difference that a later list has shown, for example after the watch was cut for
	// too long. The changes in between are not known.
	OriginRelist
	// OriginResync marks the replay of the state for WatcherOptions.ResyncPeriod. It is not a change.
	OriginResync
	// OriginLeft marks the deletes of a namespace or a cluster that the informer no longer reads, see
	// [CustomCacheInformer.SetNamespaces] and [Clusters.Disengage]. The objects may still exist.
	OriginLeft
)

// String returns "watch", "initial", "relist", "resync" or "left", and for any other value its number,
// as in "Origin(9)".
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
	case OriginLeft:
		return "left"
	}
	return fmt.Sprintf("Origin(%d)", uint8(o))
}

// Event is one change of one object. It may be copied. Its objects are shared with the store and with
// all other watchers and must not be changed.
type Event[T Object] struct {
	// Old is the object as this watcher knew it. Over the informer's own store, it is the New of the
	// watcher's last event for this object. Another store may return an equal copy of that, or only a
	// part of it, as a store of store.NewProjection does. Old is the zero T in an added event, and never
	// the zero T in an updated or a deleted event. In a resync it is the same object as New. If T is
	// AnyObject and only the key of a deleted object is known, Old is a *metav1.PartialObjectMetadata.
	Old T
	// New is the object after the change. It is the zero T in a deleted event.
	New T
	// From is the cluster of the object, for an informer of [NewOverClusters], and otherwise nil. See
	// [Event.Cluster].
	From *Cluster
	// Type is the kind of change. It determines whether Old, New or both are set.
	Type EventType
	// Origin is how the informer learned of the change.
	Origin Origin
	// FinalStateUnknown marks a delete that the watch did not show: a later list found it, the object was
	// already created again, a [Durable] kept the delete as a tombstone, or the Origin is OriginLeft. Old is
	// then the last state that the store had. If the store has lost the object, Old has only the namespace,
	// the name and, if known, the UID.
	FinalStateUnknown bool
	// Merged marks an event that stands for several events that waited together, see MaxBacklog, Workers
	// and Retry of [WatcherOptions]. The object had other states between Old and New, and this watcher
	// does not get them. Old and New may then be equal.
	Merged bool
}

// Object returns New, or Old for a deleted event. For an event that an informer delivers, it never
// returns nil.
func (e Event[T]) Object() T {
	if e.Type == EventDeleted {
		return e.Old
	}
	return e.New
}

// Key returns the namespace and the name of the event's object. For a cluster-scoped object, the
// namespace is "".
func (e Event[T]) Key() types.NamespacedName {
	obj := e.Object()
	return types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// Cluster returns the name of the object's cluster, for an informer of [NewOverClusters], and otherwise "".
func (e Event[T]) Cluster() string { return e.From.name() }

// onlyKey reports whether e is a delete of an object of which only the key is known.
func (e Event[T]) onlyKey() bool {
	return e.Type == EventDeleted && e.FinalStateUnknown && e.Old.GetResourceVersion() == ""
}

// where returns the key with the name of the cluster, for errors and Health.
func (e Event[T]) where() string { return e.From.prefix() + e.Key().String() }

// Cluster names a cluster from which an event comes.
type Cluster struct {
	Name string // the name given to [Clusters.Engage]
}

// name returns the name of c, or "" if c is nil.
func (c *Cluster) name() string {
	if c == nil {
		return ""
	}
	return c.Name
}

// prefix returns the prefix of the keys of the cluster's objects, or "" if c is nil.
func (c *Cluster) prefix() string {
	if c == nil {
		return ""
	}
	return c.Name + object.ClusterMark
}

// Leave chooses what watchers get for the objects of a cluster that the informer no longer reads, see
// [Clusters.Disengage].
type Leave uint8

const (
	// LeaveDeleted delivers a delete of each object, with OriginLeft and FinalStateUnknown.
	LeaveDeleted Leave = iota + 1
	// LeaveSilently delivers nothing. It is for a cluster that is out of reach but still has its objects. Events of these objects
	// that wait for a watcher, or for a retry, are dropped. Events of objects that were deleted before still come.
	LeaveSilently
)

func (l Leave) check() error {
	if l != LeaveDeleted && l != LeaveSilently {
		return fmt.Errorf("leave is %d, neither LeaveDeleted nor LeaveSilently", l)
	}
	return nil
}

// ResourceWatcher gets the events of an informer. It is the counterpart of client-go's
// ResourceEventHandler.
//
// One goroutine at a time calls the watcher of a registration, unless WatcherOptions.Workers is set.
// The watcher gets the events of each object in the order in which the store took the changes. A
// watcher value that is registered more than once is called from several goroutines.
//
// A call may block: only this watcher waits for it. The ctx of a call ends when the registration is
// removed or the informer stops, see Options.DrainTimeout. The ctx carries the logger of Run's ctx.
//
// An error that a call returns goes to Options.ErrorHandler as an [*EventError]. But if the ctx is done
// and a call returns the error of the ctx, the event counts as not delivered. If WatcherOptions.Retry
// decides so, a failed event comes again, and of its errors only the first is reported, and the last if
// the event is given up. Otherwise it counts as handled. A panic ends the process, unless
// WatcherOptions.RecoverPanics is set. A call must not end its goroutine, as runtime.Goexit and a test's
// FailNow do: no goroutine would be left to call the watcher.
type ResourceWatcher[T Object] interface {
	// Add is called for an event of type EventAdded.
	Add(ctx context.Context, e Event[T]) error
	// Update is called for an event of type EventUpdated. The events of a resync have this type too.
	Update(ctx context.Context, e Event[T]) error
	// Delete is called for an event of type EventDeleted.
	Delete(ctx context.Context, e Event[T]) error
}

// Registration stands for one watcher that was added to an informer. AddWatcher returns it. Its methods
// may be called from any goroutine. Only CatchUp blocks. The other methods may also be called in the
// watcher's own callback. A Registration must not be copied.
type Registration struct {
	synced, stopped <-chan struct{}
	listener        interface { // whatever its type of object is
		remove()
		stats() WatcherStats
		catchUp(ctx context.Context) error
	}
}

// Synced returns a channel that is closed once the watcher has been called for every object of its
// initial state and WatcherOptions.OnSynced has returned. Calls that have failed count too. The channel is
// never closed if the watcher is removed or the informer stops first: so wait for Stopped as well.
func (r *Registration) Synced() <-chan struct{} { return r.synced }

// Remove ends the registration. It does not block. The ctx of a call that is under way is canceled,
// and Stopped is closed when that call has returned. No further call follows, and the waiting events
// are dropped. Remove does nothing if it was called before or the informer has stopped.
func (r *Registration) Remove() { r.listener.remove() }

// Stopped returns a channel that is closed when the watcher's last call has returned, after Remove or
// after the informer was stopped. Do not wait for it in the watcher's own callback.
func (r *Registration) Stopped() <-chan struct{} { return r.stopped }

// Stats returns figures of the watcher, such as how many events it has handled and how many wait. Stats
// does not block, even while a call of the watcher or of the store hangs.
func (r *Registration) Stats() WatcherStats { return r.listener.stats() }

// CatchUp blocks until the watcher has handled its initial state and the events of all changes that the
// store has at the time of the call. An event is handled when the watcher's call for it has returned
// and no retry follows, even if the call failed. An event that was merged is handled when the merged
// event is handled. CatchUp does not wait for later changes or for resyncs.
//
// CatchUp returns nil if everything is handled already, even if ctx is done. If ctx ends first, it
// returns an error that wraps ctx.Err(). If the registration is removed or the informer stops first, it
// returns an error that wraps [ErrStopped]. While the watcher handles its waiting events after the
// stop, see Options.DrainTimeout, CatchUp keeps waiting.
//
// CatchUp may be called before Run: it then waits until the informer runs and the initial state is
// handled. It must not be called in the watcher's own callback. There it returns an error at once if it
// is given the callback's ctx, and otherwise may block forever.
func (r *Registration) CatchUp(ctx context.Context) error { return r.listener.catchUp(ctx) }

// WatcherFuncs is a [ResourceWatcher] made of up to three functions, one for each type of event. Events
// whose function is nil are ignored and count as handled. The zero value ignores all events.
type WatcherFuncs[T Object] struct {
	AddFunc, UpdateFunc, DeleteFunc func(context.Context, Event[T]) error
}

// Add calls AddFunc and returns its error. Without AddFunc it returns nil.
func (f WatcherFuncs[T]) Add(ctx context.Context, e Event[T]) error {
	if f.AddFunc == nil {
		return nil
	}
	return f.AddFunc(ctx, e)
}

// Update calls UpdateFunc and returns its error. Without UpdateFunc it returns nil.
func (f WatcherFuncs[T]) Update(ctx context.Context, e Event[T]) error {
	if f.UpdateFunc == nil {
		return nil
	}
	return f.UpdateFunc(ctx, e)
}

// Delete calls DeleteFunc and returns its error. Without DeleteFunc it returns nil.
func (f WatcherFuncs[T]) Delete(ctx context.Context, e Event[T]) error {
	if f.DeleteFunc == nil {
		return nil
	}
	return f.DeleteFunc(ctx, e)
}

// WatcherFunc is a [ResourceWatcher] made of one function for all three types of event.
type WatcherFunc[T Object] func(context.Context, Event[T]) error

// Add calls f and returns its error.
func (f WatcherFunc[T]) Add(ctx context.Context, e Event[T]) error { return f(ctx, e) }

// Update calls f and returns its error.
func (f WatcherFunc[T]) Update(ctx context.Context, e Event[T]) error { return f(ctx, e) }

// Delete calls f and returns its error.
func (f WatcherFunc[T]) Delete(ctx context.Context, e Event[T]) error { return f(ctx, e) }

// Select returns a watcher that passes on to w only the events of objects for which selected returns
// true. If selected returns true only for New of an update, w gets an add. If it returns true only for
// Old, w gets a delete with that Old. If only the key of a deleted object is known, w always gets the
// delete, because there is no object to pass to selected. So w may get a delete without an add before.
//
// selected is called from the watcher's goroutines, a few times per event, and its result must depend
// only on the object. With WatcherOptions.Workers, several goroutines may call it at once. With
// WatcherOptions.Retry, selected may return false for an object after its add has failed. Then w gets a
// delete instead of another attempt. For this, pass the result of Select itself to AddWatcher, not a
// watcher that wraps the result.
//
// A delete that Select makes of an update has no tombstone in a Durable, so it does not come again
// after a restart. Events that are not passed on count as delivered, and Observer.Handled is called for
// them. AddWatcher returns an error if w or selected is nil.
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
	if !e.onlyKey() && !s.selected(e.Old) {
		return nil
	}
	return s.ResourceWatcher.Delete(ctx, e)
}

// after returns the event to deliver instead of e, after a failed attempt that gave tried to the
// watcher. It returns a delete if s selects tried but not the object of e, because no other event would
// report that the object has left the selection. Otherwise it returns e.
func (s selection[T]) after(tried T, e Event[T]) Event[T] {
	if s.passes(tried) && (e.onlyKey() || !s.passes(e.Object())) {
		return Event[T]{Old: tried, From: e.From, Type: EventDeleted, Origin: e.Origin, FinalStateUnknown: e.FinalStateUnknown, Merged: e.Merged}
	}
	return e
}

func (s selection[T]) passes(obj T) bool {
	inner, nested := s.ResourceWatcher.(selection[T])
	return s.selected(obj) && (!nested || inner.passes(obj))
}

// wrapper is a watcher that passes on some events, unchanged, to the one that Unwrap returns. The watchers
// of a kinds.Lease are wrappers.
type wrapper[T Object] interface {
	Unwrap() ResourceWatcher[T]
}

// unwrap returns the watcher inside of wrappers.
func unwrap[T Object](w ResourceWatcher[T]) ResourceWatcher[T] {
	for outer, ok := w.(wrapper[T]); ok; outer, ok = w.(wrapper[T]) {
		w = outer.Unwrap()
	}
	return w
}

// methods holds the functions of a watcher, indexed by EventType. An event whose function is nil is
// ignored.
type methods[T Object] [EventDeleted + 1]func(context.Context, Event[T]) error

// methodsOf returns the methods of w. For a WatcherFuncs or a WatcherFunc it returns the functions
// themselves, because a call through their methods copies the event three times. This costs 10 ns, more
// than the rest of an event's way to a watcher.
func methodsOf[T Object](w ResourceWatcher[T]) methods[T] {
	switch w := w.(type) {
	case WatcherFuncs[T]:
		return methods[T]{EventAdded: w.AddFunc, EventUpdated: w.UpdateFunc, EventDeleted: w.DeleteFunc}
	case WatcherFunc[T]:
		return methods[T]{EventAdded: w, EventUpdated: w, EventDeleted: w}
	}
	return methods[T]{EventAdded: w.Add, EventUpdated: w.Update, EventDeleted: w.Delete}
}

// call calls the function for e and returns its error. It is small enough to be inlined.
func (m *methods[T]) call(ctx context.Context, e *Event[T]) error {
	if f := m[e.Type]; f != nil {
		return f(ctx, *e)
	}
	return nil
}

// checkWatcher returns an error if w or a watcher inside it is nil, or if the function given to Select
// is nil.
func checkWatcher[T Object](w ResourceWatcher[T]) error {
	if object.IsNil(w) {
		return fmt.Errorf("the watcher is nil")
	}
	switch w := w.(type) {
	case wrapper[T]:
		return checkWatcher(w.Unwrap())
	case selection[T]:
		if w.selected == nil {
			return fmt.Errorf("the function given to Select is nil")
		}
		return checkWatcher(w.ResourceWatcher)
	}
	return nil
}

// maxWait is longer than any program runs, and short enough to be added to a time.
const maxWait = 100 * 365 * 24 * time.Hour

// RetryPolicy decides whether an event that has failed comes again, and after how long. failures is how
// often the event has failed so far, at least 1, and err is the last error. If again is false, the
// event is given up. A wait of 0 or less means no wait. The watcher's goroutines call a RetryPolicy. With
// WatcherOptions.Workers, several of them may call it at once.
type RetryPolicy func(failures int, err error) (wait time.Duration, again bool)

// Backoff returns a RetryPolicy that waits for base after the first failure and twice as long after
// each further one, up to limit. To each wait it adds up to a tenth at random, so that events that
// failed together do not come back together. It gives up after attempts calls of the watcher, including
// the first. If attempts is 0, it never gives up. The RetryPolicy may be used for several watchers.
//
// Backoff panics if base is not positive, limit is less than base, or attempts is negative.
func Backoff(base, limit time.Duration, attempts int) RetryPolicy {
	if base <= 0 || limit < base || attempts < 0 {
		panic(fmt.Sprintf("informer: Backoff(%v, %v, %d): base must be positive, limit at least base, attempts not negative", base, limit, attempts))
	}
	return func(failures int, _ error) (time.Duration, bool) {
		if attempts > 0 && failures >= attempts {
			return 0, false
		}
		pause := limit
		if doublings := max(failures, 1) - 1; doublings < 62 && base <= limit>>doublings {
			pause = base << doublings
		}
		return wait.Jitter(min(pause, maxWait), 0.1), true // Jitter must not overflow
	}
}
