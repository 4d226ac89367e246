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

// QueueKind is the kind of client-go queue between the reflector and the store.
type QueueKind int

const (
	// QueueAuto chooses RealFIFO for a store that is a Durable, and DeltaFIFO for any
	// other store. It is the zero value.
	QueueAuto QueueKind = iota
	// QueueDeltaFIFO is client-go's DeltaFIFO. While the store is behind by up to ten changes, those
	// of one object are taken together, ahead of earlier changes of other objects. Further changes
	// keep their order.
	QueueDeltaFIFO
	// QueueRealFIFO is client-go's RealFIFO. Live changes reach the store in the order of their
	// resourceVersions.
	QueueRealFIFO
)

// IntakeMode chooses when the objects of a list are taken in.
type IntakeMode int

const (
	// IntakeAuto is IntakeEarly if Store, Transform, Omit or Share is set, and otherwise IntakeWhole,
	// because all objects of a list stay in memory anyway. It is the zero value. A Transform that a factory
	// or a manager sets later counts, because the informer chooses when it starts.
	IntakeAuto IntakeMode = iota
	// IntakeEarly takes in each page of a list, and each object of a stream of the first state, when
	// it arrives. Lists are asked for in pages, see Options.PageSize. The source waits while the store is
	// behind. So only a page and some 2,000 objects of a list are in memory at once, for each
	// namespace, and 16 bytes of each key if watchers may know objects already. If the pages of two
	// lists in a row are gone before they are asked for, the next list is taken in as with
	// IntakeWhole. Watchers get objects before the list is complete. If the list fails in the
	// middle, these are stored and delivered already, as they were at that time. Nothing else
	// follows from such a list: no delete, no Synced and no bookmark. The next list delivers them
	// as updates if they have changed by then, or if they have no UID or no resourceVersion, so
	// that nothing shows that they have not.
	IntakeEarly
	// IntakeWhole takes in a list when all of it has arrived, as client-go does. Memory holds the
	// whole list then, beside the store.
	IntakeWhole
)

// WatchListMode chooses whether an informer gets the first state of a resource by a stream
// (WatchList, the default of client-go since 0.35) or by a list.
type WatchListMode int

const (
	// WatchListAuto is WatchListOff for a Store of the program's own with IntakeEarly, and
	// WatchListOn otherwise. While the store is behind, a stream has to wait, and an API server may
	// cut it then; a list in pages continues. It is the zero value.
	WatchListAuto WatchListMode = iota
	// WatchListOff always lists.
	WatchListOff
	// WatchListOn streams where the source can. It lists if the server refuses to stream, which is
	// not reported if the list works. Some servers, proxies and fakes never end the stream. The
	// informer changes to LIST for good when the stream has brought no further object for 10 s. An
	// object with a higher version than all before it may have been created meanwhile. Such objects
	// delay the change by 40 s at most. The time that a Transform or the store takes does not count.
	WatchListOn
)

// DecodeMode chooses what decodes the objects of an answer.
type DecodeMode int

const (
	// DecodeAuto decodes each object as it arrives, if the configuration of the client has [Transport] and the
	// type of the client allows it. It is the zero value.
	DecodeAuto DecodeMode = iota
	// DecodeByClient leaves it to client-go.
	DecodeByClient
)

// Indexers are index functions by name. Each returns the values under which ByIndex finds obj. client-go
// 0.37 has a like type, but 0.36, with which this library also works, has none.
type Indexers[T any] map[string]func(obj T) ([]string, error)

// Options configures a [CustomCacheInformer]. The zero value is ready to use.
type Options[T Object] struct {
	// Name appears in logs and errors. Defaults to the name of T, such as "Pod". The members of a
	// [Group] need different names.
	Name string

	// Store keeps the objects. By default the informer has a store of its own, in memory, whose readers never
	// delay its writer, and which has snapshots: see [CustomCacheInformer.Snapshot].
	//
	// A store of yours must be safe for concurrent use, use the keys of cache.MetaNamespaceKeyFunc, and
	// return objects of type T. Only this informer may write to it while it runs. The
	// informer calls GetByKey, List and Bookmark, Add only for keys that are not in the store, and
	// Update and Delete only for keys that are. A write that fails may have taken effect
	// anyway, so the informer calls GetByKey before it tries again. An object that was
	// deleted and created again while the watch was cut is an Update. Delete gets the
	// object's final state, with the version of the delete, if the watch has sent it, and
	// otherwise the object that GetByKey returned.
	//
	// An error of GetByKey or of a write that wraps ErrPermanent refuses the change: it
	// means that the store has not taken the change. The informer does not try the change
	// again. It reports a *StoreError with GaveUp, and counts the change in Health. No
	// watcher gets the event, and the old state must still be in the store. A refused
	// delete is tried again at the next relist.
	//
	// Run ends with an error if GetByKey does not find the first object: deletes would be lost.
	// So a type that keeps something else, such as metrics of the objects, is no store but a [Sink].
	//
	// The objects in the store when Run is called are delivered to the watchers as their
	// initial state. Those that no longer exist are then deleted. Old in an event is the
	// object that GetByKey returned. If this is not the very object that was stored, Old
	// equals the New of the event before but is not identical to it.
	//
	// docs/stores.md compares the stores and shows how to use less memory. Package storetest checks
	// a store. Store and Durable cannot both be set.
	Store cache.Store

	// Durable keeps the objects, in the place of Store, and outlives the process: a restart over it
	// neither lists nor misses deletes. See [Durable] for what the informer asks of it. The rules of
	// Store for refused changes, for objects in the store when Run is called, and for the first object
	// that is not found apply to it, too. It is read in pages, with retries. Defaults to none.
	Durable Durable

	// Indexers are the index functions for ByIndex, by name. A Store that is a cache.Indexer, and a
	// Durable that is a [DurableIndexer], keep these indexes themselves. For any other store they are kept in
	// memory and hold only keys. The name cache.NamespaceIndex is taken. If a function
	// returns an error for an object, the object is stored, that index does not find it,
	// and an *ObjectError is reported, once until the functions work for the object. The informer's own
	// store takes a panic as an error, and asks the functions again after 1 s, 2 s, and so on up to 1 min,
	// until they work. It remembers the values of each object until the next write of it. The
	// functions are called while the store is locked and must not call the informer. Defaults to none.
	Indexers Indexers[T]

	// Fields are further indexes for ByIndex: by name, the path of the field that each index has the values of, such
	// as "spec.nodeName". They are made by indexes.ByField, whose documentation describes paths and values. A path that
	// T cannot have is an error of New. A name may not be in Indexers too. The rules of Indexers apply to Fields.
	// Defaults to none.
	Fields map[string]string

	// Queue chooses client-go's queue in front of the store. Defaults to DeltaFIFO, and to
	// RealFIFO for a Durable. DeltaFIFO for a Durable is an error.
	Queue QueueKind

	// Transform is called once for every object, before the store and the watchers see it.
	// It may change the object in place. It must keep namespace and name. It should keep
	// UID and resourceVersion: a relist uses them to find which objects are new, created
	// again, or unchanged. If Transform returns an error, the object's previous state stays
	// (a new object stays absent), and an *ObjectError is reported, once until Transform works
	// for the object. The object's next event or relist calls it again. An error never stops a
	// delete. Transform is called by one goroutine at a time, and by one for each namespace if
	// there are several. While it runs, the source waits. See [StripManagedFields]. Defaults to
	// none.
	Transform func(T) (T, error)

	// Omit are the paths of fields that no object keeps, such as "metadata.managedFields" or "status.conditions". If the
	// configuration of the client has [Transport], they are cut out of the answers and never decoded. Otherwise they are removed
	// before Transform, in place. Each step of a path is the name of a field in JSON. In unstructured objects it may also be a key of
	// a map, such as metadata.annotations['example.com/a']. No step leads through a list. A path that T does not have is an error of New. apiVersion, kind,
	// and the metadata by which the informer knows an object cannot be omitted. A Durable keeps the fields of objects that it has
	// already until they change. Defaults to none.
	Omit []string

	// Share makes equal parts of the informer's objects, and of those of other informers with the
	// same table, one piece of memory. A new or updated object goes through it before the store and
	// the watchers see it, after Transform. It is changed in place, so no other code may keep an object
	// that the source has returned. API clients, the fake clientsets of client-go, and the source of
	// package informertest keep none. The FakeControllerSource of client-go's package
	// cache/testing keeps them, so using it with a table is a data race. With
	// IntakeAuto, lists are taken in early. Package share describes for which programs this is
	// safe, and docs/stores.md what it saves. A store that keeps its objects in encoded form, as
	// store/disk does, needs no table: only waiting events would get smaller. Defaults to none.
	Share *share.Table

	// TweakListOptions changes the options of every request, for example its selectors. An object that
	// a selector no longer matches is a delete for the informer. TweakListOptions is called from the
	// informer's goroutines. Defaults to none.
	TweakListOptions func(*metav1.ListOptions)

	// WatchList chooses whether the first state may be streamed. Defaults to WatchListAuto.
	WatchList WatchListMode

	// PageSize asks for LIST in pages of this many objects. Such lists ask for the newest
	// state, which API servers before 1.34 read from etcd and not from their cache. PageSize has no
	// effect on a stream (see WatchList). Defaults to 500 with IntakeEarly, because a list that comes as
	// one page is in memory as a whole. With IntakeWhole, 0, the default, leaves the page size to
	// client-go. So does a negative value, with either: the API server then answers from its cache,
	// mostly in one page. Each page is a request. At client-go's default limit of 5 requests a second,
	// 50,000 objects take 18 s; QPS -1 in the rest.Config turns that limit off.
	PageSize int64

	// Intake chooses when the objects of a list are taken in. Defaults to IntakeAuto.
	Intake IntakeMode

	// Decode chooses what decodes the objects of an answer. Defaults to DecodeAuto.
	Decode DecodeMode

	// Lists limits how many lists are under way at the same time, also in other informers with the same
	// limit. Defaults to that of the [Group] or the [ClientGo] to which the informer belongs, and to none without
	// one. It is copied.
	Lists *ListLimit

	// Backoff sets the pauses between lists and watches that fail. It starts from the
	// beginning after two minutes in which list and watch have worked. It is copied. Its Factor and Jitter may
	// be at most 100, and a Duration or Cap of more than a year counts as a year. Defaults to
	// client-go's: from 0.8 s, doubling up to 30 s, plus a random part of up to the same
	// length.
	Backoff *wait.Backoff

	// DrainTimeout is how long the watchers may continue with their waiting events after
	// Run's ctx has ended. Nothing new can happen then. The ctx of their calls stays alive
	// until all events are handled or the time is over. An event that waits for its retry
	// is tried at once, and again for as long as WatcherOptions.Retry and this time allow.
	// The events that are left are dropped, counted and logged. Changes that are not in
	// the store yet when ctx ends do not count: no watcher was due to get them. 0, the
	// default, does not wait. It does not count if ctx ends with the cause [ErrLeaseLost].
	DrainTimeout time.Duration

	// ErrorHandler is called when something begins to fail, with a *WatchError, *StoreError,
	// *EventError or *ObjectError. Their documentation describes when it is called again. It is called
	// from several goroutines at once, while none of the informer's locks is held. The part that
	// failed waits until it returns. The ctx carries Run's logger. Defaults to Report.
	ErrorHandler func(ctx context.Context, err error)

	// Observer gets a call for everything that happens, for metrics and traces, see
	// [Observer]. It is copied. Defaults to none, which costs nothing.
	Observer *Observer
}

// WatcherOptions configures one registration of a watcher. The zero value is
// ready to use.
type WatcherOptions struct {
	// Name appears in logs, errors and figures. There, watchers of the same name cannot be
	// distinguished. Defaults to the type of the watcher and a number, such as
	// "WatcherFunc-1".
	Name string

	// MaxBacklog is how many events may wait for the watcher before they are merged. Then
	// the events of each object are merged, at the place of the first of them, so that at
	// most two remain per object:
	//
	//   - an add or update and an update become one event, with the Old of the first and
	//     the New of the last,
	//   - an add and a delete become nothing,
	//   - an update and a delete become a delete, with the Old of the update,
	//   - a delete and an add, of an object that was created again, stay two events.
	//
	// A watcher that only looks at the state of objects will not notice.
	//
	// So at most MaxBacklog events plus two per object wait. Not counted are the rest of a
	// state that the watcher is being given, because it has joined or a resync is due, and
	// the events that it has taken: 256, or MaxBacklog if that is less. 0 is
	// 10,000. A negative value keeps every event, however much memory that takes.
	MaxBacklog int

	// Workers is the largest number of calls of the watcher at once, each for another object.
	// The watcher gets each object's events one at a time and in order.
	// But waiting events are always merged by object, as above, also with a negative
	// MaxBacklog. The watcher is called from this many goroutines. OnSynced comes when each
	// object of the initial state has been attempted once, and may overlap later events.
	// 0 or 1, the default, is one call at a time. At most 65,536.
	Workers int

	// Retry decides about an event for which the watcher has returned an error. [Backoff] returns a
	// Retry for most programs.
	//
	// Other objects do not wait for the retry. Newer events of the same object are merged
	// with the failed event as above. The merged event comes when the wait is over, and its
	// failures are counted from the beginning. An add that has failed counts as seen: the
	// watcher gets its delete. An error that wraps ErrPermanent is not retried. OnSynced does not
	// wait for retries. With Retry, waiting events are always merged, as with Workers. Nil, the
	// default, never retries.
	Retry RetryPolicy

	// RecoverPanics turns a panic of the watcher into an error, a *PanicError in an
	// *EventError, which is retried like other errors. Anything that the watcher has left
	// half done, such as a locked mutex, stays so. By default a panic ends the process,
	// with the stack of the watcher.
	RecoverPanics bool

	// ResyncPeriod is how often the watcher gets an update with OriginResync for every
	// object in the store. It is counted from the watcher's Synced. A resync is put off
	// while the watcher has events to handle, such as one that waits for its retry. No
	// other watcher gets these events, and no request is made to the API server. 0, the
	// default, is never.
	ResyncPeriod time.Duration

	// OnSynced is called once, in the watcher's goroutine, right after the last call for
	// the initial state. Without Workers and Retry it comes before any later event.
	//
	// It never comes before the informer has synced. An object that a reader then lacks does not
	// exist, or the informer does not select it. The exceptions were reported to ErrorHandler: the
	// store refused the object, or a Transform failed for it. OnSynced is not
	// called a second time: an action in it that may fail must be retried inside it, until its ctx
	// ends. Synced closes when OnSynced has returned. Defaults to none.
	OnSynced func(ctx context.Context)
}

// ListLimit limits how many lists are under way at the same time. Without a limit, informers that start together
// list together. That is the peak of the memory of a program at its start, and of the load of an API server after an
// outage.
//
// A list waits for its turn before its request, first come, first served. So does a stream of the first state. An
// informer of [NewInNamespaces] has a list for each namespace. A turn lasts until the list is taken in, or has failed:
// a pause before the next attempt needs none. It also ends after 5 s in which nothing has arrived and no object
// was taken in. Then the list continues without a turn. So lists that hang hold up the others for 5 s, for each n of them.
// The same is true if an informer waits inside its Transform for another one. If client-go alone reads the body of an
// answer, see [Transport], these are not 5 s but a minute from the beginning of the answer.
//
// A start from a [Durable] that needs no list, a watch, and client-go's fake clients need no turn.
//
// Options.Lists, Group.Lists and ClientGo.Lists take a ListLimit. Any number of them may share one, and any
// goroutine may use it. Health, and the error of WaitForSync, show who waits. The zero value sets no limit.
type ListLimit struct{ turns *turns.Limit } // nil for no limit

// NewListLimit returns a limit of n lists at a time. If n is 0 or less, there is no limit.
func NewListLimit(n int) *ListLimit { return &ListLimit{turns.New(n)} }

// maxWorkers is the largest WatcherOptions.Workers. All of these goroutines are started at once.
const maxWorkers = 1 << 16

// earlyPageSize is the PageSize with IntakeEarly. It is client-go's.
const earlyPageSize = 500

// defaultMaxBacklog is the WatcherOptions.MaxBacklog of a watcher that does not set one.
const defaultMaxBacklog = 10_000

// withDefaults returns a copy of o with every default filled in.
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

// early reports whether lists are taken in as they arrive. SetTransform of a cache.SharedIndexInformer may
// change that until the informer runs.
func (o Options[T]) early() bool {
	if o.Intake == IntakeAuto {
		return o.store() != nil || o.Transform != nil || o.Share != nil || len(o.Omit) > 0
	}
	return o.Intake == IntakeEarly
}

func (o Options[T]) durable() bool { return o.Durable != nil }

// store returns the store that the program has chosen, and nil if it has chosen none.
func (o Options[T]) store() any {
	switch {
	case o.durable():
		return o.Durable
	case o.Store != nil:
		return o.Store
	}
	return nil
}

// storedType returns the only type that the store accepts, and nil if it has not declared one or if the
// informer has objects of any type.
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

// client-go computes a pause without a look at overflows. A pause that overflows is negative, so
// that the source would be asked without any pause. None does within these limits.
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
