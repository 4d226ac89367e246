package informer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/customcacheinformer/informer/internal/size"
	"github.com/customcacheinformer/informer/share"
)

// deadStore is how long an operation on the store may take before Live reports that only a
// restart can help.
const deadStore = 5 * time.Minute

// MemberHealth is the state of a [Member] at one moment. That of an informer is a [Health]. Package
// debug and the metrics find out by its type which figures it has.
type MemberHealth interface {
	// HasRun reports whether Run was called, or can no longer be called.
	HasRun() bool
	// Ready returns nil if a program can rely on the member, and otherwise an error that names the
	// member and the reason.
	Ready() error
	// Live returns an error that names the member and the reason if only a restart of the process
	// would help, and otherwise nil.
	Live() error
}

// Health is the state of an informer at one moment, as [CustomCacheInformer.Health]
// returns it. It is a value, and the [MemberHealth] of an informer.
type Health struct {
	// Name is Options.Name.
	Name string `json:"name"`
	// Started is true once Run has been called and the watchers' goroutines are live.
	Started bool `json:"started"`
	// Stopped is true once the ctx of Run has ended, or Run ends because of its store.
	Stopped bool `json:"stopped"`
	// Synced is true once the first list is in the store.
	Synced bool `json:"synced"`
	// Watching is true while a watch is open.
	Watching bool `json:"watching"`
	// LastList is when the last list, or the last stream of the first state, was complete.
	// It is zero if there was none yet.
	LastList time.Time `json:"lastList,omitzero"`
	// LastContact is when the source last sent anything other than an error. A quiet watch
	// brings a bookmark about once a minute. It is zero if there was none yet. An API server that
	// answers each request with an error does not change it: then SourceError is its answer.
	LastContact time.Time `json:"lastContact,omitzero"`
	// ResourceVersion is the version up to which the store has every change.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// LastProgress is when ResourceVersion was last confirmed, by a change, a list or a
	// bookmark that was applied. A quiet watch does that about once a minute. With client-go's
	// fakes, whose objects have no versions, only a list does. It is zero if there was none yet.
	LastProgress time.Time `json:"lastProgress,omitzero"`
	// Store is the String of Options.Store or Options.Durable if it has that method, or its type. It is
	// "in memory" if both are nil.
	Store string `json:"-"`
	// Objects is the number of objects in the store, as far as the informer has found them
	// there at the start or stored them. It is -1 over a Durable that has indexes of its
	// own and was not empty, because the informer does not read such a store through.
	Objects int `json:"objects"`
	// Queued is the number of changes and bookmarks that have arrived and are not in the
	// store yet.
	Queued int `json:"queued"`
	// Namespaces has the namespaces of an informer that NewInNamespaces has made, in the order
	// in which they were given. Then Watching is true if each is watched, LastList, LastContact
	// and ResourceVersion are the oldest of all, and SourceError is of the namespace that has
	// failed most often in a row. If the set is empty, it is empty, and Watching is true. For other informers
	// it is nil.
	Namespaces []SourceHealth `json:"namespaces,omitzero"`
	// Clusters has the clusters of an informer that NewOverClusters has made, in the order in which they were engaged. The
	// other fields show the worst of them, as for namespaces. For other informers it is nil.
	Clusters []SourceHealth `json:"clusters,omitzero"`
	// SourceError is the error with which lists or watches fail now. If none fails, it may be a warning:
	// a request without an answer for 30 s, a first state that has not ended after 10 s, or a list
	// without a resourceVersion. Otherwise it is nil.
	SourceError error `json:"-"`
	// SourceFailures is how often in a row lists or watches have failed, 0 if they work.
	SourceFailures int `json:"sourceFailures,omitempty"`
	// SourceFailingSince is when the first of these failures came. It is zero if lists and watches work.
	SourceFailingSince time.Time `json:"sourceFailingSince,omitzero"`
	// SourceNextTry is when the pause before the next attempt ends. It is zero if there is no pause:
	// lists and watches work, or an attempt is under way.
	SourceNextTry time.Time `json:"sourceNextTry,omitzero"`
	// SourceWaiting is how long the present request has waited for its complete answer, 0 below 30 s.
	// An open watch waits for none. Over several namespaces, it is the longest.
	SourceWaiting time.Duration `json:"-"`
	// WaitsForTurn is true while the list does not begin before others have ended, see [ListLimit]. Over several
	// namespaces, it is true if it is true for one.
	WaitsForTurn bool `json:"waitsForTurn,omitempty"`
	// StoreError is the operation on the store that fails now, or that has not returned for
	// more than 10 s, or with which Run has ended. Otherwise it is nil.
	StoreError error `json:"-"`
	// StoreBusy is how long the present operation on the store has been under way, 0 if
	// there is none.
	StoreBusy time.Duration `json:"-"`
	// Refused is how many changes the store has refused, see ErrPermanent.
	Refused int `json:"refused,omitempty"`
	// Foreign is how many objects and events a source of shards.Set.Source has delivered that are not in its
	// part. The informer has dropped them.
	Foreign int `json:"foreign,omitempty"`
	// Decoding is how the objects of the source are decoded.
	Decoding DecodingHealth `json:"decoding,omitzero"`
	// Memory is how much memory the objects take. It is zero over a Durable and for a [Sink].
	Memory MemoryHealth `json:"memory,omitzero"`
	// Undecodable is how many objects cannot be decoded now, see [Transport]. Each keeps its last state
	// until its next version. UndecodableKeys has the first ten of their keys, sorted.
	Undecodable     int      `json:"undecodable,omitempty"`
	UndecodableKeys []string `json:"undecodableKeys,omitempty"`
	// Tombstones is how many deleted objects a Durable keeps because a watcher has not
	// handled their delete.
	Tombstones int `json:"tombstones,omitempty"`
	// Watchers has the registered watchers, or after the stop those that were registered
	// then. They are sorted by name, and by the order in which they were added.
	Watchers []WatcherHealth `json:"watchers"`
}

// SourceHealth is the state of one namespace of an informer of [NewInNamespaces], or of one cluster of an informer of
// [NewOverClusters]. Its fields mean the same as those of Health.
type SourceHealth struct {
	Namespace       string        `json:"namespace,omitempty"`
	Cluster         string        `json:"cluster,omitempty"`
	Synced          bool          `json:"synced"` // the first list is in the store
	Watching        bool          `json:"watching"`
	LastList        time.Time     `json:"lastList,omitzero"`
	LastContact     time.Time     `json:"lastContact,omitzero"`
	ResourceVersion string        `json:"resourceVersion,omitempty"`
	SourceError     error         `json:"-"`
	SourceFailures  int           `json:"sourceFailures,omitempty"`
	SourceWaiting   time.Duration `json:"-"`
	WaitsForTurn    bool          `json:"waitsForTurn,omitempty"`

	SourceFailingSince time.Time `json:"sourceFailingSince,omitzero"`
	SourceNextTry      time.Time `json:"sourceNextTry,omitzero"`

	Decoding DecodingHealth `json:"decoding,omitzero"`
}

// DecodingHealth shows how the objects of a source are decoded, see [Transport]. It is zero for a source
// whose answers are always left to client-go, because of the type of the client or Options.Decode.
type DecodingHealth struct {
	// Objects is how many objects were decoded as they arrived.
	Objects int `json:"objects"`
	// Left is how many answers were left to client-go, and LeftBecause why the last of these was.
	Left        int    `json:"left,omitempty"`
	LeftBecause string `json:"leftBecause,omitempty"`
}

// String describes it in a few words, for a log.
func (d DecodingHealth) String() string {
	switch {
	case d.LeftBecause != "":
		return "by client-go: " + d.LeftBecause
	case d.Objects > 0:
		return "as objects arrive"
	}
	return "by client-go"
}

// MemoryHealth is how much memory the objects of an informer take, in bytes. The figures are estimates from a sample: of the
// first list, and later of at most 200 changes a minute.
type MemoryHealth struct {
	// Objects is the memory of the objects in the store, with what the informer's own store needs for each.
	// Parts that several objects of Options.Share have count once, for the informer that stored them first.
	Objects int64 `json:"objects"`
	// Saved is how much more the objects would take without Options.Share. The memory of the table is not taken off,
	// see TableBytes of [share.Stats].
	Saved int64 `json:"saved,omitempty"`
	// ListPeak is how much the objects of a list have taken before they were in the store, at the most.
	ListPeak int64 `json:"listPeak,omitempty"`
}

// String describes it in a few words, for a log.
func (m MemoryHealth) String() string {
	return fmt.Sprintf("%d bytes, %d saved, peak of lists %d", m.Objects, m.Saved, m.ListPeak)
}

// perObject is about how much memory the informer's own store takes for an object beside the object itself.
const perObject = 150

// weighing shares objects, and weighs a sample of them.
type weighing struct {
	table  *share.Table // Options.Share, nil if there is none
	stored func() int   // the number of objects in the store
	holds  bool         // the store is in memory
	beside int64        // the memory that the store takes for an object beside the object itself
	sample size.Estimate
}

// memory returns how much memory the objects take. listed is how many of a list were in memory and not stored.
func (w *weighing) memory(listed int) MemoryHealth {
	stored := int64(w.stored())
	bytes, added := w.sample.Mean()
	return MemoryHealth{
		Objects:  int64(float64(stored)*added) + stored*w.beside,
		Saved:    int64(float64(stored) * (bytes - added)),
		ListPeak: int64(float64(listed) * bytes),
	}
}

// share shares an object that is about to be stored, and weighs it if it belongs to the sample. before is what the store has, if
// it exists.
func (w *weighing) share(before, obj any, exists, synced bool, now time.Duration) {
	weight, due := 0.0, false
	if w.holds {
		weight, due = w.sample.Due(synced, now)
	}
	bytes, added := 0, -1
	switch {
	case w.table == nil:
	case due && !exists:
		bytes, added = w.table.Measure(obj)
	default:
		w.table.ShareUpdate(before, obj)
	}
	if due && added < 0 {
		bytes = size.Of(obj)
	}
	if due {
		w.sample.Add(weight, w.stored(), bytes, added)
	}
}

// MarshalJSON encodes the figures with names in camel case, and the error as text.
func (n SourceHealth) MarshalJSON() ([]byte, error) {
	type fields SourceHealth // has the tags, but not this method
	encoded := struct {
		fields
		SourceError          string  `json:"sourceError,omitempty"`
		SourceWaitingSeconds float64 `json:"sourceWaitingSeconds,omitempty"`
	}{fields: fields(n), SourceWaitingSeconds: n.SourceWaiting.Seconds()}
	if n.SourceError != nil {
		encoded.SourceError = n.SourceError.Error()
	}
	return json.Marshal(encoded)
}

// addSource adds a source of the informer. If there are several, the fields of h that a SourceHealth
// has too show the worst of them.
func (h *Health) addSource(n SourceHealth, first bool) {
	switch {
	case n.Namespace != "":
		h.Namespaces = append(h.Namespaces, n)
	case n.Cluster != "":
		h.Clusters = append(h.Clusters, n)
	}
	h.Watching = n.Watching && (h.Watching || first)
	if first || n.LastList.Before(h.LastList) {
		h.LastList = n.LastList
	}
	if first || n.LastContact.Before(h.LastContact) {
		h.LastContact = n.LastContact
	}
	if n.SourceFailures > h.SourceFailures || h.SourceError == nil {
		h.SourceError, h.SourceFailures = n.SourceError, n.SourceFailures
		h.SourceFailingSince, h.SourceNextTry = n.SourceFailingSince, n.SourceNextTry
	}
	h.SourceWaiting = max(h.SourceWaiting, n.SourceWaiting)
	h.WaitsForTurn = h.WaitsForTurn || n.WaitsForTurn
	h.Decoding.Objects += n.Decoding.Objects
	h.Decoding.Left += n.Decoding.Left
	h.Decoding.LeftBecause = cmp.Or(h.Decoding.LeftBecause, n.Decoding.LeftBecause)
}

// WatcherStats has figures about one registration of a watcher. Every event for the watcher
// is in exactly one of Pending, Delivered, Failed and Merged. It is a value. Its zero value
// means nothing.
type WatcherStats struct {
	// Name is WatcherOptions.Name.
	Name string `json:"name"`
	// Synced is true once Registration.Synced is closed.
	Synced bool `json:"synced"`
	// Pending is how many events wait for the watcher now, including the event of a call
	// that is under way. After Stopped it is how many were never delivered. It is not exact
	// at two moments: while the watcher gets a state, it may be too high, or too low by the
	// objects that a Durable has not been asked for yet; and in a burst it may be too high
	// by 15, because events are then counted in steps of 16.
	Pending int `json:"pending"`
	// Delivered is how many events the watcher has handled without an error.
	Delivered int `json:"delivered"`
	// Failed is how many events were given up after an error.
	Failed int `json:"failed"`
	// Retried is how many calls repeated a call that had failed.
	Retried int `json:"retried"`
	// Merged is how many events were merged into others, or have undone each other, beyond
	// WatcherOptions.MaxBacklog or because of Workers or Retry. It includes the events whose objects have
	// left the part that a source of package shards delivers, while they waited.
	Merged int `json:"merged"`
	// Lagging is true while the watcher is behind by more than
	// WatcherOptions.MaxBacklog, so that events were merged, and has not caught up yet. See
	// Observer.Lagging.
	Lagging bool `json:"lagging"`
	// OldestWaiting is how long the oldest event that is not handled has been waiting. It is
	// 0 if there is none, and after Stopped.
	OldestWaiting time.Duration `json:"-"`
}

// MarshalJSON encodes the figures with names in camel case, and OldestWaiting in seconds as
// "oldestWaitingSeconds".
func (s WatcherStats) MarshalJSON() ([]byte, error) {
	type fields WatcherStats // has the tags, but not this method
	return json.Marshal(struct {
		fields
		OldestWaitingSeconds float64 `json:"oldestWaitingSeconds"`
	}{fields(s), s.OldestWaiting.Seconds()})
}

// WatcherHealth is the state of a watcher: its figures, and its calls that are under way.
// Its JSON has the figures alone.
type WatcherHealth struct {
	WatcherStats
	// Calls has the keys for which the watcher is being called now, and "OnSynced" while
	// that runs. In a burst of events it names a range of keys.
	Calls []string
	// Retries has the keys that wait for another attempt, at most ten.
	Retries []string
	// Hung is true while a call has lasted for more than 10 s. It is only known of a watcher
	// with Workers or Retry.
	Hung bool
	// Retrying is true while the oldest event waits for another attempt. It is only known of a
	// watcher with Workers or Retry.
	Retrying bool
}

// retriesShown is the largest number of keys in WatcherHealth.Retries.
const retriesShown = 10

// Ready returns nil if a program can rely on what the informer knows: the informer has
// synced, is not stopped, and its store takes writes at this moment. A store may fail for a
// moment, so a probe should fail more than once before it counts. The following do not
// count: single changes that the store has refused (see Refused), an API server that cannot
// be reached after the sync, and a slow watcher. An informer that stops is not ready, also
// while its watchers drain.
func (h Health) Ready() error {
	var err error
	switch {
	case h.Stopped && h.StoreError != nil:
		err = fmt.Errorf("%w: %w", ErrStopped, h.StoreError)
	case h.Stopped:
		err = ErrStopped
	case h.StoreError != nil:
		err = h.StoreError
	case !h.Started:
		err = errors.New("has not started")
	case !h.Synced && h.SourceError != nil:
		err = fmt.Errorf("has not synced: %w", h.SourceError)
	case !h.Synced:
		err = errors.New("has not synced" + h.turn())
	default:
		return nil
	}
	return fmt.Errorf("informer %s: %w", h.Name, err)
}

// name returns the name of the namespace or the cluster.
func (n SourceHealth) name() string { return cmp.Or(n.Namespace, n.Cluster) }

// turn names the namespaces and clusters that wait for their turn to list. It is "" if nothing waits.
func (h Health) turn() string {
	var names []string
	for _, n := range slices.Concat(h.Namespaces, h.Clusters) {
		if n.WaitsForTurn {
			names = append(names, " of "+n.name())
		}
	}
	if !h.WaitsForTurn {
		return ""
	}
	return " (waits for its turn to list" + strings.Join(names, ",") + ")"
}

// HasRun reports whether Started or Stopped is true.
func (h Health) HasRun() bool { return h.Started || h.Stopped }

// Live returns an error only if a restart of the process would help: an operation on the
// store has not returned for five minutes. A restart does not help against an API server
// that is down, a store that returns errors, or a watcher that blocks.
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
		Objects              *int            `json:"objects,omitempty"`
		SourceError          string          `json:"sourceError,omitempty"`
		SourceWaitingSeconds float64         `json:"sourceWaitingSeconds,omitempty"`
		StoreError           string          `json:"storeError,omitempty"`
		StoreBusySeconds     float64         `json:"storeBusySeconds,omitempty"`
		Watchers             []WatcherHealth `json:"watchers"`
	}{
		fields: fields(h), SourceWaitingSeconds: h.SourceWaiting.Seconds(), StoreBusySeconds: h.StoreBusy.Seconds(),
		Watchers: append([]WatcherHealth{}, h.Watchers...),
	}
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

// ProbeHandler returns a handler for the probes of a kubelet. It answers 200 if check returns
// nil, and otherwise 503 with the text of the error. It calls check for each request, from
// any goroutine, and blocks as long as check does:
//
//	http.Handle("/readyz", informer.ProbeHandler(func() error { return inf.Health().Ready() }))
//
// Without the function around it, inf.Health().Ready would answer for the moment at which
// it was passed. With a nil check, the handler answers 503.
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

func storeName(store any) string {
	if store == nil {
		return "in memory"
	}
	if named, ok := store.(fmt.Stringer); ok {
		return named.String()
	}
	return fmt.Sprintf("%T", store)
}
