package informer

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Observer is a set of functions that an informer calls as it works, for metrics, traces and
// tests. A nil function is not called and costs nothing. The others are called from the
// informer's own goroutines, several at a time, while none of its locks is held. The informer
// waits until they return, so they must not block, and must not wait for the informer. The zero
// value is ready to use. [Tee] joins several observers.
//
// To count waiting events or changes, call Health from time to time instead.
type Observer struct {
	// List is called when a LIST request was answered or has failed, once for each page of a
	// list.
	List func(ListInfo)
	// Watch is called when a watch has ended, or could not be opened.
	Watch func(WatchInfo)
	// Store is called after each attempt to get, add, update or delete an object. It is also
	// called after each call that the apply loop makes of a method of a Durable.
	Store func(StoreInfo)
	// Apply is called for each event when its change is in the store and the event is about to
	// be delivered to every watcher.
	Apply func(ApplyInfo)
	// Handled is called after each call of a watcher, except if the call returned the error of
	// its ctx after this ctx had ended: such an event counts as not delivered.
	Handled func(HandledInfo)
	// Merged is called when waiting events of a watcher were merged or have become void, with how many will not
	// be delivered. WatcherStats.Merged counts the same events.
	Merged func(BacklogInfo)
	// Lagging is called when a watcher has fallen behind by more than
	// WatcherOptions.MaxBacklog, so that events were merged, and again when the watcher has
	// caught up, with how many events wait. It is not called with Workers or Retry, where events are
	// always merged.
	Lagging func(BacklogInfo)
	// Undelivered is called when the informer has stopped, for each watcher that did not get
	// all events, with how many it did not get.
	Undelivered func(BacklogInfo)
}

// ListInfo describes a LIST request that has ended. A request for one object (limit=1) counts, too:
// after a failure and at a start over a Durable, it asks how far the server is.
type ListInfo struct {
	Informer  string        // Options.Name
	Namespace string        // as in WatchError
	Cluster   string        // as in WatchError
	Objects   int           // objects in the answer
	Took      time.Duration // from the request until the answer was decoded
	Err       error
}

// WatchInfo describes a watch that has ended.
type WatchInfo struct {
	Informer  string        // Options.Name
	Namespace string        // as in WatchError
	Cluster   string        // as in WatchError
	Streaming bool          // the watch was asked to begin with the first state
	Events    int           // delivered events, bookmarks and an error included
	Took      time.Duration // from the request to the end
	Err       error         // why the watch could not be opened, or why it ended
}

// StoreInfo describes one attempt at an operation on the store. If a Durable refuses an Apply
// of several changes, the StoreInfo of that call has no Err. The changes are then applied in
// smaller calls, and those that are refused by themselves are reported. The informer's own store
// makes one "apply" of each batch of changes, which cannot fail, and its reads are not reported.
type StoreInfo struct {
	Informer string // Options.Name
	Op       string // as in StoreError
	Key      string // as in StoreError
	Took     time.Duration
	Err      error
	Failures int // failures in a row, this one included; 0 if Err is nil
}

// ApplyInfo describes one event that is about to be delivered.
type ApplyInfo struct {
	Informer string // Options.Name
	Key      string // the key in the store
	Type     EventType
	Origin   Origin
	// Lag is the time from the arrival of the change until it was stored. It is 0 for a
	// delete that a relist has found.
	Lag time.Duration
}

// HandledInfo describes one call of a watcher that has returned.
type HandledInfo struct {
	Informer string // Options.Name
	Watcher  string // WatcherOptions.Name
	Cluster  string // as in EventError
	Key      types.NamespacedName
	Type     EventType
	Origin   Origin
	Took     time.Duration
	Err      error
	Failures int  // failures of this event so far
	GaveUp   bool // the event will not be tried again
}

// BacklogInfo describes the events that wait for a watcher.
type BacklogInfo struct {
	Informer string // Options.Name
	Watcher  string // WatcherOptions.Name
	Events   int    // that were merged, that wait, or that were not delivered
	Lagging  bool   // the watcher has fallen behind; only for Observer.Lagging
}

// Tee returns an Observer that calls all of observers, in their order. Nil observers are left
// out. A function that none of them has costs nothing.
func Tee(observers ...*Observer) *Observer {
	return &Observer{
		List:        tee(observers, func(o *Observer) func(ListInfo) { return o.List }),
		Watch:       tee(observers, func(o *Observer) func(WatchInfo) { return o.Watch }),
		Store:       tee(observers, func(o *Observer) func(StoreInfo) { return o.Store }),
		Apply:       tee(observers, func(o *Observer) func(ApplyInfo) { return o.Apply }),
		Handled:     tee(observers, func(o *Observer) func(HandledInfo) { return o.Handled }),
		Merged:      tee(observers, func(o *Observer) func(BacklogInfo) { return o.Merged }),
		Lagging:     tee(observers, func(o *Observer) func(BacklogInfo) { return o.Lagging }),
		Undelivered: tee(observers, func(o *Observer) func(BacklogInfo) { return o.Undelivered }),
	}
}

func tee[I any](observers []*Observer, of func(*Observer) func(I)) func(I) {
	var all []func(I)
	for _, o := range observers {
		if o != nil && of(o) != nil {
			all = append(all, of(o))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return func(info I) {
		for _, f := range all {
			f(info)
		}
	}
}
