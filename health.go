package informer

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/customcacheinformer/informer/internal/channel"
)

// deadStore is how long an operation on the store may take before Live says
// that only a restart can help.
const deadStore = 5 * time.Minute

// Health is how an informer is doing at one moment, as [CustomCacheInformer.Health]
// returns it. It is a value; its zero value is that of no informer.
type Health struct {
	// Name is Options.Name.
	Name string `json:"name"`
	// Started says whether Run has been called and the watchers' goroutines are
	// live, Stopped whether its ctx has ended.
	Started bool `json:"started"`
	Stopped bool `json:"stopped"`
	// Synced says whether the first list is in the store.
	Synced bool `json:"synced"`
	// Watching says whether a watch is open.
	Watching bool `json:"watching"`
	// LastList is when the last list, or stream of the first state, was complete,
	// LastContact when the source last answered, other than with an error, or sent
	// anything. A quiet watch brings a bookmark about once a minute. Zero is never.
	LastList    time.Time `json:"lastList,omitzero"`
	LastContact time.Time `json:"lastContact,omitzero"`
	// ResourceVersion is the version up to which everything is in the store,
	// LastProgress when that was last found, by a change, a list or a bookmark that was
	// applied, as they come about once a minute. Zero is never.
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	LastProgress    time.Time `json:"lastProgress,omitzero"`
	// Store is the type of Options.Store, "in memory" if there is none.
	Store string `json:"-"`
	// Objects is how many objects the store has, as far as the informer has put them
	// there and found them at the start. It is -1 over a Durable that has indexes of
	// its own and was not empty: it is not read through.
	Objects int `json:"objects"`
	// Queued is how many changes, and bookmarks, have arrived and are not in the store yet.
	Queued int `json:"queued"`
	// SourceError is what listing or watching fails with now, SourceFailures how
	// often in a row it has. Nil and 0 once it works again.
	SourceError    error `json:"-"`
	SourceFailures int   `json:"sourceFailures,omitempty"`
	// StoreError is the operation on the store that fails now, or that has not
	// returned for more than 10 s, else nil.
	StoreError error `json:"-"`
	// StoreBusy is for how long the operation on the store that is under way
	// has taken, 0 if there is none.
	StoreBusy time.Duration `json:"-"`
	// Refused is how many changes the store has refused, see ErrPermanent.
	Refused int `json:"refused,omitempty"`
	// Tombstones is how many deleted objects a Durable store keeps because some watcher
	// has not handled their end.
	Tombstones int `json:"tombstones,omitempty"`
	// Watchers are figures about the watchers that are registered, or were when the
	// informer stopped, sorted by name, and those of one name in the order in which they
	// were added.
	Watchers []WatcherHealth `json:"watchers"`
}

// Health returns how the informer is doing. It does not block, also while the
// store, the source or a watcher hangs, and may be called at any time.
func (i *CustomCacheInformer[T]) Health() Health {
	s := i.source.Status()
	failing := i.applier.access.trouble() // before StoreBusy, which then is of no operation that has returned
	h := Health{
		Name:            i.opts.Name,
		Started:         i.running.Load() && channel.Closed(i.processor.startedCh),
		Stopped:         channel.Closed(i.stopped),
		Synced:          i.HasSynced(),
		Watching:        s.Watching,
		LastList:        s.LastList,
		LastContact:     s.LastContact,
		ResourceVersion: i.ResourceVersion(),
		LastProgress:    i.inlet.progress.Time(i.clock),
		Objects:         int(i.applier.access.objects.Load()),
		Queued:          i.inlet.queuedUp(),
		SourceError:     watchError(i.opts.Name, s.Failure),
		SourceFailures:  s.Failures,
		StoreBusy:       i.applier.access.call.Lasts(),
		Refused:         int(i.applier.access.refused.Load()),
		Tombstones:      i.processor.tombstones.Count(),
		Watchers:        []WatcherHealth{},
	}
	if h.Store = "in memory"; i.opts.Store != nil {
		h.Store = fmt.Sprintf("%T", i.store)
	}
	if failing != nil {
		h.StoreError = failing
	}
	for _, l := range i.processor.shown() {
		h.Watchers = append(h.Watchers, l.health())
	}
	return h
}

// Ready returns nil if what the informer knows can be relied on: it has synced,
// is not stopped, and its store takes writes at this moment: a probe should fail more
// than once before it counts. Single changes that the store has refused do not count; see
// Refused. An API server that cannot be
// reached afterwards, or a slow watcher, does not count.
func (h Health) Ready() error {
	var err error
	switch {
	case h.Stopped:
		err = ErrStopped
	case h.StoreError != nil:
		err = h.StoreError
	case !h.Started:
		err = errors.New("has not started")
	case !h.Synced && h.SourceError != nil:
		err = fmt.Errorf("has not synced: %w", h.SourceError)
	case !h.Synced:
		err = errors.New("has not synced")
	default:
		return nil
	}
	return fmt.Errorf("informer %s: %w", h.Name, err)
}

// Live returns an error only if a restart of the process would help: an operation
// on the store has not returned for five minutes. An API server that is down, a
// store that returns errors and a watcher that blocks are not cured that way.
func (h Health) Live() error {
	if h.StoreBusy < deadStore {
		return nil
	}
	dead := fmt.Errorf("informer %s: the store has not answered for %v", h.Name, h.StoreBusy.Truncate(time.Second))
	if h.StoreError == nil {
		return dead
	}
	return fmt.Errorf("%w: %w", dead, h.StoreError)
}

// MarshalJSON encodes h with names in camel case, errors as text and durations in
// seconds, such as "storeBusySeconds". It omits times that are zero, a number of objects
// that is not known, and the errors and counts of faults if there are none. It omits Store,
// and of each watcher everything except its WatcherStats; package debug shows these, too.
func (h Health) MarshalJSON() ([]byte, error) {
	type fields Health // has the tags, but not this method
	encoded := struct {
		fields
		Objects          *int            `json:"objects,omitempty"`
		SourceError      string          `json:"sourceError,omitempty"`
		StoreError       string          `json:"storeError,omitempty"`
		StoreBusySeconds float64         `json:"storeBusySeconds,omitempty"`
		Watchers         []WatcherHealth `json:"watchers"`
	}{fields: fields(h), StoreBusySeconds: h.StoreBusy.Seconds(), Watchers: append([]WatcherHealth{}, h.Watchers...)}
	if h.Objects >= 0 {
		encoded.Objects = &h.Objects
	}
	if h.SourceError != nil {
		encoded.SourceError = h.SourceError.Error()
	}
	if h.StoreError != nil {
		encoded.StoreError = h.StoreError.Error()
	}
	return json.Marshal(encoded)
}

// ProbeHandler returns a handler that answers 200 while check returns nil and 503
// with the text of its error otherwise, as a probe of a kubelet wants it. check is
// called for each request, from any goroutine:
//
//	http.Handle("/readyz", informer.ProbeHandler(func() error { return inf.Health().Ready() }))
//
// inf.Health().Ready, without the function around it, would answer for the moment at
// which it was passed. A nil check is answered with 503.
func ProbeHandler(check func() error) http.Handler {
	if check == nil {
		check = func() error { return errors.New("informer: ProbeHandler was given no check") }
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n"))
	})
}
