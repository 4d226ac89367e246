package informer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/field"
	"github.com/customcacheinformer/informer/internal/index"
	"github.com/customcacheinformer/informer/internal/object"
	"github.com/customcacheinformer/informer/internal/turns"
	"github.com/customcacheinformer/informer/share"
)

// QueueKind chooses which of client-go's queues is between the reflector and the store.
type QueueKind int

const (
	// QueueAuto is the zero value. It means QueueRealFIFO if Options.Durable is set or [ClientGo] makes the
	// informer, and otherwise QueueDeltaFIFO.
	QueueAuto QueueKind = iota
	// QueueDeltaFIFO is client-go's DeltaFIFO. While up to ten changes wait for the store, the queue
	// hands out the changes of one object together, ahead of earlier changes of other objects. If more
	// changes wait, those after the first ten keep their order.
	QueueDeltaFIFO
	// QueueRealFIFO is client-go's RealFIFO. The changes that a watch delivers reach the store in the
	// order of their resourceVersions.
	QueueRealFIFO
)

// IntakeMode chooses when the informer takes in the objects of a list: as they arrive, or all at the
// end.
type IntakeMode int

const (
	// IntakeAuto is the zero value. It means IntakeEarly if Store, Durable, Transform, Omit or Share is set.
	// Otherwise it means IntakeWhole, because all objects of a list then stay in memory anyway. The
	// informer chooses when it starts, so a Transform that a factory or a manager has set by then counts
	// too.
	IntakeAuto IntakeMode = iota
	// IntakeEarly takes in each page of a list, and each object of a stream of the first state, when it
	// arrives. The informer lists in pages, see Options.PageSize. The source waits while the store is
	// behind. So only one page of each source and about 2,000 objects of lists wait in memory, or about
	// 32,000 objects if it is the first list and the informer has its own store. Except for a first list
	// into an empty store, a list also needs 16 bytes for each key. If a page has expired at the server in
	// two lists in a row, the next list is taken in as with IntakeWhole. Watchers get objects before the
	// list is complete. If the list fails in the middle, the store and the watchers keep the objects that
	// have arrived. Nothing else follows from such a list: no delete, no Synced and no bookmark. The next
	// list delivers these objects as updates if they have changed, or if they have no UID or no
	// resourceVersion to compare.
	IntakeEarly
	// IntakeWhole takes in a list when all of it has arrived, as client-go does. The whole list is then
	// in memory, in addition to the store.
	IntakeWhole
)

// WatchListMode chooses whether an informer gets the first state of a resource as a stream (WatchList,
// the default of client-go since 0.35) or by a list.
type WatchListMode int

const (
	// WatchListAuto is the zero value. It means WatchListOff if Options.Store or Options.Durable is set and
	// lists are taken in early (see [IntakeMode]), and otherwise WatchListOn. While such a store is
	// behind, a stream has to wait, and the API server may cut it; a list in pages continues.
	WatchListAuto WatchListMode = iota
	// WatchListOff always lists.
	WatchListOff
	// WatchListOn streams if the source can. If the server refuses to stream, the informer lists, and
	// reports nothing if the list works. Some servers, proxies and fakes never end the stream: if no
	// further object arrives for 10 s, the informer lists from then on. Objects that are created
	// meanwhile could prolong this wait. So the informer also lists if, for 40 s, each new object has a
	// higher version than all before it. Time spent in Transform or in the store does not count.
	WatchListOn
)

// DecodeMode chooses whether the informer or client-go decodes the objects in the server's answers.
type DecodeMode int

const (
	// DecodeAuto is the zero value. The informer decodes each object as it arrives if the configuration of the
	// client has [Transport] and the type of the client allows this. Otherwise client-go decodes the objects.
	DecodeAuto DecodeMode = iota
	// DecodeByClient leaves all decoding to client-go.
	DecodeByClient
)

// Indexers are index functions by name. Each function returns the values under which [Reader.ByIndex] finds obj.
// client-go 0.37 has a similar type. This library has its own because it also supports client-go 0.36.
type Indexers[T any] map[string]func(obj T) ([]string, error)

// Options configures a [CustomCacheInformer]. The zero value is ready to use.
type Options[T Object] struct {
	// Name appears in logs, errors and metrics. Defaults to the name of T, such as "Pod". The members
	// of a [Group] need different names.
	Name string

	// Store keeps the objects. By default the informer has a store of its own in memory. Its readers never
	// delay its writer, and it has snapshots: see [CustomCacheInformer.Snapshot].
	//
	// A store of yours must be safe for concurrent use, use the keys of cache.MetaNamespaceKeyFunc, and
	// return objects of type T. Only this informer may write to it while it runs. The informer calls
	// GetByKey, List and Bookmark. It calls Add only for keys that are not in the store, and Update and
	// Delete only for keys that are. A write that fails may have taken effect anyway, so the informer
	// calls GetByKey before it tries again. It calls Update for an object that was deleted and created
	// again while the watch was cut. It calls Delete with the object's final state if the watch has sent
	// it. That state has the version of the delete. Otherwise Delete gets the object that GetByKey
	// returned.
	//
	// The store refuses a change if GetByKey or the write returns an error that wraps ErrPermanent. The
	// store must then still have the old state. The informer does not try the change again. It reports
	// a *StoreError with GaveUp, and counts the change in Health. No watcher gets the event. A refused
	// delete is tried again when the informer lists again.
	//
	// Run ends with an error if GetByKey does not find the first object that the store was given: deletes
	// would be lost. For a type that keeps something else, such as metrics of the objects, use a [Sink].
	//
	// The watchers get the objects that are in the store when Run is called as their initial state.
	// After its first list, the informer deletes those that no longer exist. Old in an event is the
	// object that GetByKey returned. If GetByKey returns a copy of the stored object, Old equals the New
	// of the event before but is not identical to it.
	//
	// docs/stores.md compares the stores and shows how to use less memory. Package storetest checks
	// a store. Store and Durable cannot both be set.
	Store cache.Store

	// Durable keeps the objects instead of Store, and outlives the process. After a restart, the informer
	// continues without a list if it can, and misses no deletes. See [Durable] for its rules. Three rules
	// of Store apply too: for refused changes, for objects that are in the store when Run is called, and
	// for a first object that is not found. The informer reads a Durable in pages, with retries. Defaults
	// to none.
	Durable Durable

	// Indexers are the index functions for ByIndex, by name. A Store that is a cache.Indexer, and a Durable
	// that is a [DurableIndexer], keep these indexes themselves. For any other Store or Durable the informer
	// keeps them in memory, with keys only. New returns an error for a nil function and for the name
	// cache.NamespaceIndex, which is taken. If a function returns an error for an object, the object is
	// stored, but that index does not find it. An *ObjectError is reported once, and again only if the
	// functions have worked for the object in between. The informer's own store treats a panic as an error,
	// and repeats failed calls after 1 s, 2 s, and so on up to 1 min, until they succeed. Otherwise it calls
	// the functions for an object only when the object is written. The functions are called while the store
	// is locked and must not call the informer. Defaults to none.
	Indexers Indexers[T]

	// Fields are further indexes for ByIndex, by name. Each is given by the path of a field, such as "spec.nodeName", and
	// finds objects by the values of that field. See indexes.ByField for paths and values. New returns an error if T has
	// no field with that path, or if Indexers has the same name. The rules of Indexers apply to Fields. Defaults to none.
	Fields map[string]string

	// Queue chooses client-go's queue in front of the store. Defaults to QueueAuto. A Durable needs
	// QueueRealFIFO: New returns an error for QueueDeltaFIFO.
	Queue QueueKind

	// Transform is called for every object that the source delivers, before the store and the watchers
	// get it. It may change the object in place. It must not return nil, or change namespace or name: both
	// count as errors. It should keep UID and resourceVersion: a later list uses them to find out which
	// objects are new, created again, or unchanged. After an error, the store keeps the object's previous
	// state, if any. An *ObjectError is reported once, and again only if Transform has worked for the object in between. Transform
	// is called again at the object's next event and at the next list. An error never stops a delete, also that of an earlier
	// object of the same name. One goroutine at a time calls Transform, or one for each namespace or cluster if there are several.
	// While it runs, the source waits. See [StripManagedFields]. Defaults to none.
	Transform func(T) (T, error)

	// Omit lists the paths of fields that the informer removes from every object, such as "metadata.managedFields" or
	// "status.conditions". If the configuration of the client has [Transport], these fields are never decoded. Otherwise they are
	// removed in place, before Transform. Each step of a path is the name of a field in JSON. In unstructured objects it may also
	// be a key of a map, such as metadata.annotations['example.com/a']. A path cannot lead through a list. New returns an error
	// for a path that T does not have, and for apiVersion, kind, and the metadata by which the informer knows an object. An
	// object that is already in a Durable keeps these fields until it changes. Defaults to none.
	Omit []string

	// Share lets equal parts of objects share memory, in this informer and in all others with the same
	// table. It changes each new or updated object in place, after Transform and before the store and
	// the watchers get it. So no other code may keep an object that the source has returned. API
	// clients, the fake clientsets of client-go, and the source of package informertest keep none. The
	// FakeControllerSource of client-go's package cache/testing keeps them, so using it with a table is
	// a data race. With IntakeAuto, lists are taken in early. Package share describes in which programs
	// sharing is safe, and docs/stores.md how much it saves. A store that keeps its objects in encoded
	// form, as store/disk does, needs no table: only waiting events would get smaller. Defaults to
	// none.
	Share *share.Table

	// TweakListOptions changes the options of every list and watch, for example the selectors. If a
	// selector no longer matches an object, watchers get a delete. Several goroutines may call
	// TweakListOptions at once. Defaults to none.
	TweakListOptions func(*metav1.ListOptions)

	// WatchList chooses whether the first state may be streamed. Defaults to WatchListAuto.
	WatchList WatchListMode

	// PageSize is the number of objects in each page of a LIST. A list in pages asks for the newest
	// state, which API servers before 1.34 read from etcd and not from their cache. PageSize has no
	// effect on a stream (see WatchList). 0, the default, means 500 if lists are taken in early, because
	// memory must hold a whole page, and otherwise leaves the page size to client-go. A negative value
	// always leaves it to client-go: the API server then answers from its cache, usually in one page.
	// Each page is a request. At client-go's default limit of 5 requests a second, 50,000 objects take
	// 18 s; QPS -1 in the rest.Config turns that limit off.
	PageSize int64

	// Intake chooses when the informer takes in the objects of a list. Defaults to IntakeAuto.
	Intake IntakeMode

	// Decode chooses whether objects are decoded as they arrive or by client-go. Defaults to
	// DecodeAuto.
	Decode DecodeMode

	// Lists limits how many lists are under way at the same time, in this informer and in all others with the
	// same ListLimit. Defaults to the limit of the [Group] or the [ClientGo] to which the informer belongs. An
	// informer that belongs to neither has no limit by default.
	Lists *ListLimit

	// Backoff sets the pauses between lists and watches that fail. After two minutes in which list and watch have
	// worked, the pauses begin with Duration again. The Backoff is copied. New returns an error unless Duration is
	// more than 0, Factor and Jitter are at most 100, and no field is negative. The pauses grow only as often as
	// Steps allows, so with 0 Steps they do not grow. A Cap of 0, and a Duration or Cap of more than a year, count as
	// a year. Nil, the default, means client-go's pauses: from 0.8 s, doubling up to 30 s, plus a random part of up
	// to the same length.
	Backoff *wait.Backoff

	// DrainTimeout is how long the watchers may continue to handle their waiting events after Run's ctx
	// is done. No new events come then. The ctx of the watchers' calls stays alive until all events are
	// handled or the time is over. An event that waits for its retry is tried at once, and again for as
	// long as WatcherOptions.Retry and this time allow. The events that are left are dropped, counted and
	// logged. A change that is not in the store when ctx ends causes no event. 0, the default, does not
	// wait, and a negative value is an error. If ctx ends with a cause that wraps [ErrLeaseLost],
	// DrainTimeout has no effect.
	DrainTimeout time.Duration

	// ErrorHandler is called when something begins to fail, with a *WatchError, *StoreError,
	// *EventError or *ObjectError. See these types for when it is called again. Several goroutines may
	// call it at once, without any of the informer's locks. The part of the informer that failed waits
	// until ErrorHandler returns. The ctx carries Run's logger. Defaults to the ErrorHandler of the
	// [Group] to which the informer belongs, also through a [ClientGo], and otherwise to [Report].
	ErrorHandler func(ctx context.Context, err error)

	// Observer has functions that the informer calls as it works, for metrics and traces. It is copied.
	// Defaults to the Observer of the [Group], as with ErrorHandler, or to none, which costs nothing.
	Observer *Observer
}

// WatcherOptions configures one registration of a watcher. The zero value is
// ready to use.
type WatcherOptions struct {
	// Name appears in logs, errors, metrics and Health. It should be different for each watcher of an
	// informer. Defaults to the type of the watcher and a number, such as "WatcherFunc-1".
	Name string

	// MaxBacklog is how many events may wait for the watcher before they are merged. The added
	// events of the informer's first list do not count. Merging combines the waiting events of each
	// object, at the place of the first of them, so that at most two per object remain:
	//
	//   - an add or update and an update become one event, with the Old of the first and
	//     the New of the last,
	//   - an add and a delete become nothing,
	//   - an update and a delete become a delete, with the Old of the update,
	//   - a delete and an add, if an object was created again, stay two events.
	//
	// A watcher that only looks at the state of objects does not notice this. With Workers or Retry over a
	// [Durable], an add of the first state and its delete both stay, and so do deletes from before the start.
	// Otherwise at most MaxBacklog events plus two per object wait. This does not include the objects of a state
	// that the watcher still has to get, after it joined or for a resync. It also does not include the events
	// that the watcher has taken: up to 256, or MaxBacklog if that is less. 0, the default, means 10,000. A
	// negative value keeps every event, however much memory that takes.
	MaxBacklog int

	// Workers is how many goroutines call the watcher at the same time, each for a different object. 0, the
	// default, and 1 mean one call at a time. AddWatcher returns an error if Workers is negative or more than
	// 65,536. With 2 or more, the watcher still gets each object's events one at a time and in order. But
	// waiting events are always merged by object, as with MaxBacklog, even if MaxBacklog is negative. OnSynced
	// is called when the watcher has been called once for each object of the initial state, and may overlap
	// with later events.
	Workers int

	// Retry decides whether and when an event comes again after the watcher has returned an error for it.
	// [Backoff] returns a policy that suits most programs.
	//
	// Other objects do not wait for the retry. Newer events of the same object are merged with the
	// failed event, as with MaxBacklog. The merged event comes when the wait is over, and its failures
	// are counted from 0. If an add has failed, the watcher still gets the delete of the object. An
	// error that wraps ErrPermanent is not retried. OnSynced does not wait for retries. With Retry,
	// waiting events are always merged, as with Workers. Nil, the default, never retries.
	Retry RetryPolicy

	// RecoverPanics turns a panic of the watcher into a *PanicError, which is reported and retried like an
	// error that the watcher returns. A panic of OnSynced is only reported. Anything that was left half done,
	// such as a locked mutex, stays as it is. By default a panic ends the process, with the watcher's stack.
	RecoverPanics bool

	// ResyncPeriod is how often the watcher gets an update with OriginResync for every object in the
	// store. The first period begins when the watcher has synced. A resync waits while the watcher has
	// events to handle, including one that waits for its retry. No other watcher gets these events, and
	// the API server gets no request. 0, the default, means never. A negative value is an error.
	ResyncPeriod time.Duration

	// OnSynced is called once, in one of the watcher's goroutines, right after the last call for the
	// initial state. Without Workers and Retry it is called before any later event.
	//
	// OnSynced is never called before the informer has synced. So an object that a [Reader] does not
	// find in OnSynced does not exist, or is hidden by a selector, with these exceptions: the store
	// refused the object, or it could not be used, which was reported to ErrorHandler, or the first list
	// of its cluster is not complete, see [Clusters.SyncedIn]. OnSynced is called once, and must itself
	// retry what fails, until ctx ends. Registration.Synced closes after it. Defaults to none.
	OnSynced func(ctx context.Context)
}

// ListLimit limits how many lists are under way at the same time. [NewListLimit] makes one. Without a limit, informers
// that start together list together. A program then needs the most memory at its start, and an API server has the highest
// load after an outage.
//
// A list waits for its turn before its request, first come, first served. So does a stream of the first state. An informer over
// several namespaces or clusters needs a turn for each of them. A turn lasts until the list is taken in or has failed. A pause
// before the next attempt needs no turn. A turn also ends after 5 s in which nothing has arrived and no object was taken in.
// The list then continues without a turn. So a list that hangs delays the others for only 5 s. The same is true of a list whose
// Transform waits for another informer. If client-go reads the body of an answer by itself, see [Transport], the turn ends a
// minute after the beginning of the answer instead.
//
// Three things need no turn: a watch, a start from a [Durable] without a list, and client-go's fake
// clients.
//
// Options.Lists, Group.Lists and ClientGo.Lists take a ListLimit. Any number of these may share one limit,
// and it may be used from any goroutine. Health and the error of WaitForSync show which lists wait. The
// zero value sets no limit.
type ListLimit struct{ turns *turns.Limit } // nil for no limit

// NewListLimit returns a limit of n lists at a time. If n is 0 or less, there is no limit.
func NewListLimit(n int) *ListLimit { return &ListLimit{turns.New(n)} }

// maxWorkers is the largest allowed WatcherOptions.Workers. All of these goroutines start at once.
const maxWorkers = 1 << 16

// earlyPageSize is the default of PageSize if lists are taken in early. client-go has the same default.
const earlyPageSize = 500

// defaultMaxBacklog is the WatcherOptions.MaxBacklog of a watcher that does not set one.
const defaultMaxBacklog = 10_000

// withDefaults returns a copy of o in which every default is filled in.
func (o Options[T]) withDefaults() Options[T] {
	o.Name = cmp.Or(o.Name, object.TypeName(reflect.TypeFor[T]()))
	if o.durable() {
		o.Queue = QueueRealFIFO
	}
	o.Queue = cmp.Or(o.Queue, QueueDeltaFIFO)
	if o.store() != nil && o.early() {
		o.WatchList = cmp.Or(o.WatchList, WatchListOff)
	}
	if o.Backoff == nil {
		o.Backoff = &wait.Backoff{Duration: 800 * time.Millisecond, Cap: 30 * time.Second, Steps: 38, Factor: 2, Jitter: 1}
	} else {
		backoff := *o.Backoff
		backoff.Duration = min(backoff.Duration, maxPause)
		backoff.Cap = min(cmp.Or(backoff.Cap, maxPause), maxPause)
		o.Backoff = &backoff
	}
	if o.ErrorHandler == nil {
		o.ErrorHandler = Report
	}
	observer := Observer{}
	if o.Observer != nil {
		observer = *o.Observer
	}
	o.Observer = &observer
	lists := ListLimit{}
	if o.Lists != nil {
		lists = *o.Lists
	}
	o.Lists = &lists
	return o
}

// early reports whether lists are taken in early, see IntakeEarly. SetTransform of a
// cache.SharedIndexInformer may change the result until the informer runs.
func (o Options[T]) early() bool {
	if o.Intake == IntakeAuto {
		return o.store() != nil || o.Transform != nil || o.Share != nil || len(o.Omit) > 0
	}
	return o.Intake == IntakeEarly
}

func (o Options[T]) durable() bool { return o.Durable != nil }

// store returns Options.Durable or Options.Store, or nil if neither is set.
func (o Options[T]) store() any {
	switch {
	case o.durable():
		return o.Durable
	case o.Store != nil:
		return o.Store
	}
	return nil
}

// storedType returns the type of object that the Durable accepts. It returns nil if the Durable has not
// declared one, or if T is AnyObject.
func (o Options[T]) storedType() reflect.Type {
	if store, ok := o.Durable.(interface{ ObjectType() reflect.Type }); ok && reflect.TypeFor[T]() != reflect.TypeFor[AnyObject]() {
		return store.ObjectType()
	}
	return nil
}

func (o Options[T]) check() error {
	switch {
	case o.Store != nil && o.durable():
		return errors.New("Options.Store and Options.Durable are both set: an informer has one store")
	case o.Store != nil && object.IsNil(o.Store):
		return errors.New("Options.Store is a nil " + reflect.TypeOf(o.Store).String())
	case o.durable() && object.IsNil(o.Durable):
		return errors.New("Options.Durable is a nil " + reflect.TypeOf(o.Durable).String())
	case o.storedType() != nil && o.storedType() != reflect.TypeFor[T]():
		return fmt.Errorf("Options.Durable is a store of %v, but the objects of the informer are of type %v", o.storedType(), reflect.TypeFor[T]())
	case o.Queue < QueueAuto || o.Queue > QueueRealFIFO:
		return fmt.Errorf("Options.Queue is %d, which is not a QueueKind", o.Queue)
	case o.Queue == QueueDeltaFIFO && o.durable():
		return errors.New("Options.Queue is QueueDeltaFIFO, but Options.Durable is set, which needs QueueRealFIFO")
	case o.WatchList < WatchListAuto || o.WatchList > WatchListOn:
		return fmt.Errorf("Options.WatchList is %d, which is not a WatchListMode", o.WatchList)
	case o.Intake < IntakeAuto || o.Intake > IntakeWhole:
		return fmt.Errorf("Options.Intake is %d, which is not an IntakeMode", o.Intake)
	case o.Decode < DecodeAuto || o.Decode > DecodeByClient:
		return fmt.Errorf("Options.Decode is %d, which is not a DecodeMode", o.Decode)
	case o.DrainTimeout < 0:
		return fmt.Errorf("Options.DrainTimeout is %v, less than 0", o.DrainTimeout)
	}
	if o.Backoff != nil {
		if err := checkBackoff(*o.Backoff); err != nil {
			return err
		}
	}
	for name, f := range o.Indexers {
		if f == nil {
			return fmt.Errorf("Options.Indexers[%q] is nil", name)
		}
		if name == cache.NamespaceIndex {
			return fmt.Errorf("Options.Indexers[%q]: that name is taken by the informer's own index", name)
		}
	}
	return nil
}

// indexers checks the options, and returns the functions of Indexers and Fields for objects of type t.
func (o Options[T]) indexers(t reflect.Type) (cache.Indexers, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	all := index.Untyped(o.Indexers)
	for name, path := range o.Fields {
		if name == cache.NamespaceIndex || all[name] != nil {
			return nil, fmt.Errorf("Options.Fields[%q]: an index of that name exists already", name)
		}
		f, err := field.Values(t, path)
		if err != nil {
			return nil, fmt.Errorf("Options.Fields[%q]: %w", name, err)
		}
		all[name] = f
	}
	return all, nil
}

// client-go does not check whether a pause overflows. A pause that overflows is negative, so the source
// would get requests without any pause. Within these limits no pause overflows.
const (
	maxPause  = 365 * 24 * time.Hour
	maxGrowth = 100.0 // of Factor and Jitter
)

func checkBackoff(b wait.Backoff) error {
	within := func(f float64) bool { return f >= 0 && f <= maxGrowth } // NaN is not
	switch {
	case b.Duration <= 0:
		return fmt.Errorf("Options.Backoff.Duration is %v, not more than 0", b.Duration)
	case b.Cap < 0:
		return fmt.Errorf("Options.Backoff.Cap is %v, less than 0", b.Cap)
	case b.Steps < 0:
		return fmt.Errorf("Options.Backoff.Steps is %d, less than 0", b.Steps)
	case !within(b.Factor):
		return fmt.Errorf("Options.Backoff.Factor is %v, not from 0 to %v", b.Factor, maxGrowth)
	case !within(b.Jitter):
		return fmt.Errorf("Options.Backoff.Jitter is %v, not from 0 to %v", b.Jitter, maxGrowth)
	}
	return nil
}

func (o WatcherOptions) check() error {
	switch {
	case o.ResyncPeriod < 0:
		return fmt.Errorf("WatcherOptions.ResyncPeriod is %v, less than 0", o.ResyncPeriod)
	case o.Workers < 0:
		return fmt.Errorf("WatcherOptions.Workers is %d, less than 0", o.Workers)
	case o.Workers > maxWorkers:
		return fmt.Errorf("WatcherOptions.Workers is %d, more than %d", o.Workers, maxWorkers)
	}
	return nil
}
