package informer

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Observer is a set of functions that an informer calls as it works, for metrics, traces and tests. A
// nil function is not called and costs nothing. The others are called from the informer's own
// goroutines, several at a time, without any of its locks. The informer waits until they return, so
// they must not block, and must not wait for the informer. The zero value is ready to use. [Tee]
// combines several observers.
//
// To measure how many events or changes wait, call Health from time to time instead.
type Observer struct {
	// List is called when a LIST request was answered or has failed. Each page of a list is a request.
	List func(ListInfo)
	// Watch is called when a watch has ended or could not be opened.
	Watch func(WatchInfo)
	// Store is called after each attempt of the informer to get, add, update or delete an object, or to put or remove an object
	// of a [Sink]. Over a Durable it is called after each attempt at any of the Durable's methods, except reads for readers and
	// watchers. For the informer's own store it is called once for each batch of changes.
	Store func(StoreInfo)
	// Apply is called for each event when its change is in the store. The watchers get the event at
	// about the same time.
	Apply func(ApplyInfo)
	// Handled is called after each call of a watcher, except if the call returned the error of its ctx
	// after that ctx had ended. Such an event counts as not delivered.
	Handled func(HandledInfo)
	// Merged is called when waiting events of a watcher were merged, or dropped for a reason that
	// WatcherStats.Merged names, which a Remove or a stop is not. BacklogInfo.Events is the number of
	// events that are not delivered because of that. WatcherStats.Merged counts the same events.
	Merged func(BacklogInfo)
	// Lagging is called when more than WatcherOptions.MaxBacklog events have waited for a watcher and
	// were merged, and again when the watcher has caught up. BacklogInfo.Events is the number of events
	// that wait now. Lagging is not called with Workers or Retry, where waiting events are always merged.
	Lagging func(BacklogInfo)
	// Undelivered is called when the informer has stopped, for each watcher that did not get all
	// events. BacklogInfo.Events is the number of events that the watcher did not get.
	Undelivered func(BacklogInfo)
}

// ListInfo describes a LIST request that ended. After a failure, at a start over a Durable, or after a watch
// that took a second or more to open, the informer may also list one object (limit=1) to learn the version of
// the server. ListInfo describes these requests too.
type ListInfo struct {
	Informer  string        // Options.Name
	Namespace string        // as in WatchError
	Cluster   string        // as in WatchError
	Objects   int           // objects in the answer
	Took      time.Duration // from the request until the answer was decoded
	Err       error
}

// WatchInfo describes a watch that ended.
type WatchInfo struct {
	Informer  string        // Options.Name
	Namespace string        // as in WatchError
	Cluster   string        // as in WatchError
	Streaming bool          // the watch was asked to begin with the first state
	Events    int           // how many events the watch delivered, including bookmarks and an error
	Took      time.Duration // from the request to the end
	Err       error         // why the watch could not be opened, or why it broke off; nil if it ended normally
}

// StoreInfo describes one attempt at an operation on the store. If a Durable refuses an Apply of
// several changes, the StoreInfo of that call has no Err. The informer then applies the changes in
// smaller calls, and Err is set when a single change is refused. The informer's own store has one
// "apply" for each batch of changes, which cannot fail. Its reads are not reported.
type StoreInfo struct {
	Informer string // Options.Name
	Op       string // as in StoreError
	Key      string // as in StoreError
	Took     time.Duration
	Err      error
	Failures int // failures in a row, this one included; 0 if Err is nil
}

// ApplyInfo describes one event whose change is in the store.
type ApplyInfo struct {
	Informer string // Options.Name
	Key      string // the key in the store
	Type     EventType
	Origin   Origin
	// Lag is the time from the arrival of the change until it was applied to the store. It is 0 for a
	// delete that the source did not send, such as one that a relist has found.
	Lag time.Duration
}

// applied is a change of which Observer.Apply will be called, once the store has it.
type applied struct {
	info    ApplyInfo
	arrived time.Duration
	own     bool // the source did not send it
}

// stored returns the ApplyInfo of a change that the store has had since now.
func (a applied) stored(now time.Duration) ApplyInfo {
	if !a.own {
		a.info.Lag = now - a.arrived
	}
	return a.info
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
	GaveUp   bool // Err is not nil, and the event will not be tried again
}

// BacklogInfo describes how far a watcher is behind.
type BacklogInfo struct {
	Informer string // Options.Name
	Watcher  string // WatcherOptions.Name
	Events   int    // a number of events; Merged, Lagging and Undelivered of Observer define which
	Lagging  bool   // the watcher has fallen behind; only for Observer.Lagging, and false when it has caught up
}

// Tee returns an Observer whose functions call those of all observers, in their order. Nil observers
// are ignored. A function that none of them has is nil and costs nothing.
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
