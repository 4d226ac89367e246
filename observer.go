package informer

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Observer is told what an informer does, as it happens: for metrics, traces and
// tests. Functions that are nil are not called, and cost nothing. Others are
// called from the informer's own goroutines, several at a time, with none of its
// locks held; what they take, the informer takes longer. They must not block, and
// must not wait for the informer. Its zero value is ready to use. [Tee] joins
// several.
//
// To count what waits, ask Health from time to time instead.
type Observer struct {
	// List is called when a LIST request was answered or has failed, for each
	// page of a list.
	List func(ListInfo)
	// Watch is called when a watch has ended, or could not be opened.
	Watch func(WatchInfo)
	// Store is called after each attempt to get, add, update or delete something, and
	// after each call of a Scanner's or a Durable's own methods by the apply loop.
	Store func(StoreInfo)
	// Apply is called for each event when it is in the store and every watcher
	// will be told of it.
	Apply func(ApplyInfo)
	// Handled is called after each call of a watcher, unless it returned the error
	// of its ctx, which had ended: then the event counts as not delivered.
	Handled func(HandledInfo)
	// Merged is called when events that waited for a watcher were merged, as
	// WatcherStats.Merged counts them.
	Merged func(MergedInfo)
	// Lagging is called when a watcher has fallen behind by more than
	// WatcherOptions.MaxBacklog, so that events were merged, and again when it has
	// caught up. With Workers or Retry, events are always merged, and it is not
	// called.
	Lagging func(LaggingInfo)
	// Undelivered is called when the informer has stopped, for each watcher that
	// was not told everything.
	Undelivered func(UndeliveredInfo)
}

// ListInfo says how a LIST request went.
type ListInfo struct {
	Informer string        // Options.Name
	Objects  int           // in the answer
	Took     time.Duration // until the answer was decoded
	Err      error
}

// WatchInfo says how a watch went.
type WatchInfo struct {
	Informer  string        // Options.Name
	Streaming bool          // it was to begin with the first state
	Events    int           // that it delivered, bookmarks and an error included
	Took      time.Duration // from the request to the end
	Err       error         // that it could not be opened with, or ended with
}

// StoreInfo says how one attempt at an operation on the store went. An Apply of several
// changes that a Durable refuses has no Err: each of them is then applied by itself, and what
// is refused of those is told.
type StoreInfo struct {
	Informer string // Options.Name
	Op       string // as in StoreError
	Key      string // as in StoreError
	Took     time.Duration
	Err      error
	Failures int // in a row, this one included; 0 if there is no Err
}

// ApplyInfo is about one event that is being told.
type ApplyInfo struct {
	Informer string // Options.Name
	Key      string // as the store has it
	Type     EventType
	Origin   Origin
	// Lag is the time from the arrival of the change to its being stored. It is
	// 0 for a delete that a relist has found.
	Lag time.Duration
}

// HandledInfo says how one call of a watcher went.
type HandledInfo struct {
	Informer string // Options.Name
	Watcher  string // WatcherOptions.Name
	Key      types.NamespacedName
	Type     EventType
	Origin   Origin
	Took     time.Duration
	Err      error
	Failures int  // of this event so far
	GaveUp   bool // there will be no other attempt
}

// MergedInfo says how many events were merged into others.
type MergedInfo struct {
	Informer string // Options.Name
	Watcher  string // WatcherOptions.Name
	Events   int    // that are not told any more
}

// LaggingInfo says that a watcher has fallen behind, or has caught up.
type LaggingInfo struct {
	Informer string // Options.Name
	Watcher  string // WatcherOptions.Name
	Lagging  bool
	Pending  int // events that wait for it
}

// UndeliveredInfo says how many events a watcher was not told.
type UndeliveredInfo struct {
	Informer string // Options.Name
	Watcher  string // WatcherOptions.Name
	Events   int
}

// Tee returns an Observer that tells all of observers, in their order. Nil ones
// are passed over. What none of them wants to know costs nothing.
func Tee(observers ...*Observer) *Observer {
	return &Observer{
		List:        tee(observers, func(o *Observer) func(ListInfo) { return o.List }),
		Watch:       tee(observers, func(o *Observer) func(WatchInfo) { return o.Watch }),
		Store:       tee(observers, func(o *Observer) func(StoreInfo) { return o.Store }),
		Apply:       tee(observers, func(o *Observer) func(ApplyInfo) { return o.Apply }),
		Handled:     tee(observers, func(o *Observer) func(HandledInfo) { return o.Handled }),
		Merged:      tee(observers, func(o *Observer) func(MergedInfo) { return o.Merged }),
		Lagging:     tee(observers, func(o *Observer) func(LaggingInfo) { return o.Lagging }),
		Undelivered: tee(observers, func(o *Observer) func(UndeliveredInfo) { return o.Undelivered }),
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
