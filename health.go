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

// deadStore is how long an operation on the store may take before Health.Live returns an error.
const deadStore = 5 * time.Minute

// MemberHealth is the state of a [Member] at one moment. For an informer it is a [Health]. Package
// debug and metrics/prometheus look at its type to find its fields.
type MemberHealth interface {
	// HasRun reports whether the member has been run, or can no longer be run.
	HasRun() bool
	// Ready returns nil if the program can rely on the member now, and otherwise an error that names
	// the member and the reason.
	Ready() error
	// Live returns an error that names the member and the reason if only a restart of the process would
	// help, and otherwise nil.
	Live() error
}

// Health is the state of an informer at one moment. [CustomCacheInformer.Health] returns it. It
// implements [MemberHealth].
type Health struct {
	// Name is Options.Name.
	Name string `json:"name"`
	// Started is true once Run has been called and the watchers' goroutines run.
	Started bool `json:"started"`
	// Stopped is true once Run's ctx is done, or Run ended because of an error.
	Stopped bool `json:"stopped"`
	// Synced is true once the channel of [CustomCacheInformer.Synced] is closed.
	Synced bool `json:"synced"`
	// Watching is true while a watch is open.
	Watching bool `json:"watching"`
	// LastList is the time at which the last list, or the last stream of the first state, was complete.
	// It is zero before the first.
	LastList time.Time `json:"lastList,omitzero"`
	// LastContact is the time at which the source last sent anything other than an error. A quiet watch
	// brings a bookmark about once a minute. LastContact is zero if nothing arrived yet. It does not change
	// while the API server answers each request with an error, which SourceError shows.
	LastContact time.Time `json:"lastContact,omitzero"`
	// ResourceVersion is the version up to which the store has every change. It is "" until the first list
	// is in the store or, over a Durable, the watch continues. It is always "" for an informer of
	// [NewOverClusters]: see Clusters for the version of each cluster.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// LastProgress is the time at which ResourceVersion was last confirmed: a change, a list or a
	// bookmark was applied. A quiet watch confirms it about once a minute. With client-go's fakes,
	// whose objects have no versions, only a list does. LastProgress is zero before the first time.
	LastProgress time.Time `json:"lastProgress,omitzero"`
	// Store is what the String method of Options.Store or Options.Durable returns, or its type if it
	// has no such method. For an informer of [NewSink] it is the type of the Sink. Otherwise it is "in
	// memory" if both options are nil.
	Store string `json:"-"`
	// Objects is the number of objects in the store: those that the informer found there at the start, and
	// those that it has stored. It is -1, for unknown, over a [DurableIndexer] that was not empty at the
	// start: the informer does not read all objects of such a store.
	Objects int `json:"objects"`
	// Queued is the number of changes and bookmarks that have arrived but are not applied to the store
	// yet.
	Queued int `json:"queued"`
	// Namespaces has an element for each namespace of an informer of [NewInNamespaces], in the order in which
	// they were given. Then Watching is true if every namespace is watched, and LastList, LastContact and
	// ResourceVersion are the oldest of all. SourceError belongs to the namespace that has failed most often
	// in a row. If the set is empty, Namespaces is empty, and Watching is true. For other informers
	// Namespaces is nil.
	Namespaces []SourceHealth `json:"namespaces,omitzero"`
	// Clusters has an element for each cluster of an informer of [NewOverClusters], in the order in which they were
	// engaged. A cluster that only Options.Durable knows is among them: its SourceError is not nil until
	// [Clusters.Engage] gives it a source. The fields that Health and SourceHealth share show the worst cluster, as
	// with Namespaces, except ResourceVersion. For other informers Clusters is nil.
	Clusters []SourceHealth `json:"clusters,omitzero"`
	// SourceError is a *WatchError with the reason why lists or watches fail now. If none fails, it may be
	// a warning: a request has had no answer for 30 s, a stream of the first state has not ended after
	// 10 s, or a list has had no resourceVersion. Otherwise it is nil.
	SourceError error `json:"-"`
	// SourceFailures is how many lists or watches in a row have failed. It is 0 if they work.
	SourceFailures int `json:"sourceFailures,omitempty"`
	// SourceFailingSince is the time of the first of these failures. It is zero if lists and watches
	// work.
	SourceFailingSince time.Time `json:"sourceFailingSince,omitzero"`
	// SourceNextTry is the time at which the next attempt begins. It is zero if lists and watches work,
	// or if an attempt is under way.
	SourceNextTry time.Time `json:"sourceNextTry,omitzero"`
	// SourceWaiting is how long the current request has waited for its complete answer, or 0 if that is
	// less than 30 s. An open watch does not count. With several sources, it is the longest of all.
	SourceWaiting time.Duration `json:"-"`
	// WaitsForTurn is true while the list waits for other lists to end, see [ListLimit]. With several sources,
	// it is true if at least one of them waits.
	WaitsForTurn bool `json:"waitsForTurn,omitempty"`
	// StoreError is a *StoreError about the operation on the store that fails now, has not returned for
	// more than 10 s, or has ended Run. Otherwise it is nil. Reads of the program do not count, nor do
	// reads for the initial state of a watcher or for a resync.
	StoreError error `json:"-"`
	// StoreBusy is how long the current operation on the store has been under way, or 0 if there is
	// none. The same reads as for StoreError do not count.
	StoreBusy time.Duration `json:"-"`
	// Refused is the number of changes that the store has refused, see ErrPermanent.
	Refused int `json:"refused,omitempty"`
	// Foreign is the number of objects and events that the informer has dropped because they do not
	// belong to this replica. It is 0 unless the source comes from shards.Set.Source.
	Foreign int `json:"foreign,omitempty"`
	// Decoding shows how the objects of the source are decoded.
	Decoding DecodingHealth `json:"decoding,omitzero"`
	// Memory shows how much memory the objects take. It is zero over a Durable and for a [Sink].
	Memory MemoryHealth `json:"memory,omitzero"`
	// Undecodable is the number of objects that cannot be decoded now, see [Transport]. The store keeps
	// the last state of each. UndecodableKeys has the first ten of their keys, sorted.
	Undecodable     int      `json:"undecodable,omitempty"`
	UndecodableKeys []string `json:"undecodableKeys,omitempty"`
	// Tombstones is the number of deleted objects that a Durable still keeps, because a watcher may not
	// have handled their delete.
	Tombstones int `json:"tombstones,omitempty"`
	// Watchers describes the registered watchers. After the stop, it describes those that were registered when
	// the informer stopped. They are sorted by name, and watchers of the same name by the order in which they
	// were added.
	Watchers []WatcherHealth `json:"watchers"`
}

// SourceHealth is the state of one namespace or one cluster, for an informer of [NewInNamespaces] or
// [NewOverClusters]. Its fields have the same meaning as in [Health].
type SourceHealth struct {
	Namespace       string        `json:"namespace,omitempty"`
	Cluster         string        `json:"cluster,omitempty"`
	Synced          bool          `json:"synced"` // the first list is in the store or, over a Durable, the watch continues
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

// DecodingHealth shows how the objects of a source are decoded, see [Transport]. It is zero if client-go
// always decodes them, because of the type of the client or Options.Decode.
type DecodingHealth struct {
	// Objects is the number of objects that were decoded as they arrived.
	Objects int `json:"objects"`
	// Left is the number of answers that were left to client-go, and LeftBecause the reason for the
	// last one. With several sources, it is the reason of one of them.
	Left        int    `json:"left,omitempty"`
	LeftBecause string `json:"leftBecause,omitempty"`
}

// String returns a short text for a log, such as "as objects arrive" or "by client-go".
func (d DecodingHealth) String() string {
	switch {
	case d.LeftBecause != "":
		return "by client-go: " + d.LeftBecause
	case d.Objects > 0:
		return "as objects arrive"
	}
	return "by client-go"
}

// MemoryHealth shows how much memory the objects of an informer take, in bytes. The figures are estimates from a sample:
// of the first list, and later of at most 200 changes a minute.
type MemoryHealth struct {
	// Objects is the memory that the objects in the store take, including what the informer's own store
	// needs for each. If several objects share a part because of Options.Share, the part counts once, for
	// the informer that stored it first.
	Objects int64 `json:"objects"`
	// Saved is how much more memory the objects would take without Options.Share. The memory of the table itself is
	// not subtracted, see TableBytes of [share.Stats].
	Saved int64 `json:"saved,omitempty"`
	// ListPeak is the most memory that objects of a list have taken while they were not in the store
	// yet.
	ListPeak int64 `json:"listPeak,omitempty"`
}

// String returns the three numbers in a short text for a log.
func (m MemoryHealth) String() string {
	return fmt.Sprintf("%d bytes, %d saved, peak of lists %d", m.Objects, m.Saved, m.ListPeak)
}

// perObject is about how many bytes the informer's own store needs for an object in addition to the object
// itself.
const perObject = 150

// weighing shares objects, and weighs a sample of them.
type weighing struct {
	table  *share.Table // Options.Share, nil if there is none
	stored func() int   // the number of objects in the store
	holds  bool         // the store is in memory
	beside int64        // the memory that the store takes for an object in addition to the object itself
	sample size.Estimate
}

// memory returns how much memory the objects take. listed is the largest number of listed objects that were in
// memory and not stored.
func (w *weighing) memory(listed int) MemoryHealth {
	stored := int64(w.stored())
	bytes, added := w.sample.Mean()
	return MemoryHealth{
		Objects:  int64(float64(stored)*added) + stored*w.beside,
		Saved:    int64(float64(stored) * (bytes - added)),
		ListPeak: int64(float64(listed) * bytes),
	}
}

// share passes an object that is about to be stored through the table, and weighs it if it belongs to the sample. before is the
// stored object, if exists is true.
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

// MarshalJSON encodes n with names in camel case, SourceError as text, and SourceWaiting in seconds as
// "sourceWaitingSeconds".
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

// addSource adds the state of one source to h. If there are several sources, the fields that Health and
// SourceHealth have in common show the worst of them. The worst SourceError is the one with the most failures in a row.
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

// WatcherStats holds the figures of one registration of a watcher. Every event for the watcher is counted
// in exactly one of Pending, Delivered, Failed and Merged.
type WatcherStats struct {
	// Name is WatcherOptions.Name.
	Name string `json:"name"`
	// Synced is true once the channel of [Registration.Synced] is closed.
	Synced bool `json:"synced"`
	// Pending is the number of events that wait for the watcher now, including the event of a call that is under
	// way. After the watcher's last call, it is the number of events that were never delivered. It may be inexact
	// in two cases. While the watcher gets its initial state or a resync, it may be too high, or too low by the
	// objects that were not read from a Durable yet. In a burst it may be too high by 15, because events are then
	// counted in steps of 16.
	Pending int `json:"pending"`
	// Delivered is the number of events that the watcher has handled without an error.
	Delivered int `json:"delivered"`
	// Failed is the number of events that were given up after an error.
	Failed int `json:"failed"`
	// Retried is the number of calls that were another attempt after a failure.
	Retried int `json:"retried"`
	// Merged is the number of events that were merged into others or canceled each other out, because
	// more than WatcherOptions.MaxBacklog waited, or because of Workers or Retry. It includes waiting
	// events that were dropped because their object now belongs to another replica (see package
	// shards), or to a cluster that was removed with [LeaveSilently].
	Merged int `json:"merged"`
	// Lagging is true while the watcher is behind: more than WatcherOptions.MaxBacklog events have waited
	// and were merged, and the watcher has not caught up yet. See Observer.Lagging. It is always false for a
	// watcher with Workers or Retry, whose waiting events are always merged.
	Lagging bool `json:"lagging"`
	// OldestWaiting is how long the oldest event that is not handled has waited. It is 0 if there is none,
	// and after the watcher's last call, see [Registration.Stopped]. It may be too low while the watcher
	// waits for a read of the store. It may be too high for a watcher with neither Workers nor Retry: such a
	// watcher takes up to 256 events at once, and the first of these counts until all are handled.
	OldestWaiting time.Duration `json:"-"`
}

// MarshalJSON encodes s with names in camel case, and OldestWaiting in seconds as
// "oldestWaitingSeconds".
func (s WatcherStats) MarshalJSON() ([]byte, error) {
	type fields WatcherStats // has the tags, but not this method
	return json.Marshal(struct {
		fields
		OldestWaitingSeconds float64 `json:"oldestWaitingSeconds"`
	}{fields(s), s.OldestWaiting.Seconds()})
}

// WatcherHealth is the state of a watcher: its figures and its calls that are under way. Its JSON has
// only the figures.
type WatcherHealth struct {
	WatcherStats
	// Calls has the keys for which the watcher is being called now, and "OnSynced" while that runs. In
	// a burst of events it has a text such as "default/a or one of the 3 after it".
	Calls []string
	// Retries has up to ten keys of objects whose events wait for another attempt, the oldest first.
	Retries []string
	// Hung is true while a call for an event has lasted for 10 s or more. A call of OnSynced does not
	// count. Hung is always false for a watcher with neither Workers nor Retry.
	Hung bool
	// Retrying is true while the oldest event waits for another attempt.
	Retrying bool
}

// retriesShown is the largest number of keys in WatcherHealth.Retries.
const retriesShown = 10

// Ready returns nil if the informer has synced, has not stopped, and has a store that works now.
// Otherwise it returns an error that names the informer and the reason. A store may fail for a moment,
// so a probe should fail more than once before it counts. An informer stays ready if the store has
// refused single changes (see Refused), if the API server cannot be reached after the sync, or if a
// watcher is slow. It is not ready after Run's ctx is done, even while watchers use Options.DrainTimeout.
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

// name returns the name of the namespace or of the cluster.
func (n SourceHealth) name() string { return cmp.Or(n.Namespace, n.Cluster) }

// turn returns a text about the namespaces and clusters that wait for their turn to list. It returns ""
// if nothing waits.
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

// HasRun reports whether the informer has been run: whether Started or Stopped is true.
func (h Health) HasRun() bool { return h.Started || h.Stopped }

// Live returns an error if an operation on the store has not returned for five minutes. Then a restart of
// the process may help. Otherwise Live returns nil, because a restart would not help: for example if the
// API server is down, the store returns errors, or a watcher blocks.
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

// MarshalJSON encodes h with names in camel case, errors as text and durations in seconds, such as
// "storeBusySeconds". It omits Objects if it is -1. It also omits all other fields that are zero, except
// Name, Started, Stopped, Synced, Watching, Queued and Watchers. It always omits Store and, for each
// watcher, everything except WatcherStats. Package debug shows what is omitted.
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

// ProbeHandler returns an HTTP handler for the probes of a kubelet. For each request, the handler calls
// check in the goroutine of the request. It answers 200 if check returns nil, and otherwise 503 with
// the text of the error:
//
//	http.Handle("/readyz", informer.ProbeHandler(func() error { return inf.Health().Ready() }))
//
// Do not pass inf.Health().Ready itself: it would always check the Health of the moment at which it was
// passed. If check is nil, the handler always answers 503.
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
