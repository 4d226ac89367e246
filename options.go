package informer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/object"
)

// QueueKind names the queue between the reflector and the store.
type QueueKind int

const (
	// QueueAuto chooses RealFIFO for a store that is a Durable, and DeltaFIFO for all
	// others. It is the zero value.
	QueueAuto QueueKind = iota
	// DeltaFIFO is client-go's DeltaFIFO: while the store is behind, the waiting
	// changes of one object are taken together, past those of other objects.
	DeltaFIFO
	// RealFIFO is client-go's RealFIFO: live changes reach the store in the order
	// of their resourceVersions.
	RealFIFO
)

// WatchListMode says whether the first state of a resource is streamed
// (WatchList, the default of client-go since 0.35) or listed.
type WatchListMode int

const (
	// WatchListAuto streams where the source can. It lists where the server
	// answers that it cannot stream, and falls back to LIST, for good, after a
	// stream has brought neither an object nor its end for 10 s, as it is with
	// some servers, proxies and fakes. It is the zero value.
	WatchListAuto WatchListMode = iota
	// WatchListOff always lists.
	WatchListOff
)

// Options configures a [CustomCacheInformer]. The zero value is ready to use.
type Options[T Object] struct {
	// Name stands in logs and errors. Defaults to the name of T, such as "Pod".
	Name string

	// Store is where the objects are kept. It must be safe for concurrent use,
	// key objects as cache.MetaNamespaceKeyFunc does, return objects of type T,
	// and be written by this informer alone while it runs. The informer calls
	// GetByKey, List, Add for a key that is not there, Update and Delete for one
	// that is, and Bookmark; if a write fails, which may have taken effect all
	// the same, it looks with GetByKey before it tries again. An object that was
	// deleted and created again while the watch was cut is an Update. Delete gets the
	// object's final state, with the version of the delete, if the watch has sent it,
	// else what GetByKey returned.
	//
	// An error of GetByKey or of a write that wraps ErrPermanent refuses the change:
	// the store has not taken it. It is not tried again, but reported as a *StoreError with GaveUp and counted in
	// Health. Watchers are not told of it, and the old state must still be there. A
	// refused delete is tried again at the next relist. That the store finds what was
	// added under the informer's key is checked once, and reported if not so.
	//
	// What it holds when Run is called is told to the watchers as their initial
	// state, and what of it no longer exists is deleted. Old in an event is what
	// GetByKey returned: if that is not the very object that was stored, Old
	// equals the New of the event before without being identical to it.
	//
	// A store that is a [Scanner] is read in pages, with retry, in the place of List. One
	// that is a [Durable] is changed by Apply alone, and a restart over it neither lists
	// nor misses deletes. docs/stores.md compares them, says how to need less memory, and
	// package storetest checks a store. Defaults to client-go's indexer, in memory.
	Store cache.Store

	// Indexers are served by ByIndex, by the Store's own indexes if it is a
	// cache.Indexer, else by indexes in memory that hold only keys. The name
	// cache.NamespaceIndex is taken. An object for which one returns an error is
	// stored but not found by that index, and reported as an *ObjectError. They
	// are called while the store is locked and must not call the informer.
	// Defaults to none.
	Indexers cache.TypedIndexers[T]

	// Queue chooses client-go's queue in front of the store. Defaults to DeltaFIFO, and
	// to RealFIFO for a Durable, for which DeltaFIFO is an error.
	Queue QueueKind

	// Transform is called once for every object before anybody else sees it, and
	// may change it in place. It must keep namespace and name, and should keep
	// UID and resourceVersion, by which a relist tells what is new, what was
	// created again and what is unchanged. If it fails, the
	// object's previous state stays (a new object stays absent), the failure is
	// reported as an *ObjectError, and the object's next event or relist tries
	// again; deletes are never stopped by it. It is called after a first list
	// has wholly arrived, so that memory peaks at the full objects. It is called
	// from one goroutine. See [StripManagedFields]. Defaults to none.
	Transform func(T) (T, error)

	// WatchList says whether the first state may be streamed. Defaults to
	// WatchListAuto.
	WatchList WatchListMode

	// PageSize asks for LIST in pages of that many objects. Such lists ask for the
	// newest state, past the API server's cache, which etcd has to serve; it does not
	// apply where WatchList is used. 0, the default, leaves it to client-go.
	PageSize int64

	// Backoff paces lists and watches that fail. It starts over after two
	// minutes without a failure. Defaults to client-go's: from 0.8 s, doubling
	// up to 30 s, with up to as much again at random.
	Backoff *wait.Backoff

	// DrainTimeout is how long the watchers may go on, once Run's ctx has ended
	// and nothing new can happen, until they were told everything that waits for
	// them. The ctx of their calls stays alive until then. An event that waits for
	// its retry is tried at once, and again for as long as WatcherOptions.Retry and
	// this time allow. What is left then is dropped, counted and logged. Changes that
	// are not in the store yet when ctx ends do not count: nobody was to be told of
	// them. 0, the default, does not wait.
	DrainTimeout time.Duration

	// ErrorHandler is told of everything that went wrong, as a *WatchError,
	// *StoreError, *EventError or *ObjectError. It is called from several
	// goroutines at once, with none of the informer's locks held, and holds up
	// the part that failed until it returns. The ctx carries Run's logger.
	// Defaults to LogError.
	ErrorHandler func(ctx context.Context, err error)

	// Observer is told what happens, for metrics and traces; see there. It is
	// copied. Defaults to none, which costs nothing.
	Observer *Observer
}

// WatcherOptions configures one registration of a watcher. The zero value is
// ready to use.
type WatcherOptions struct {
	// Name stands in logs, errors and figures, where watchers of one name cannot be
	// told apart. Defaults to the type of the watcher and a number, such as
	// "WatcherFunc-1".
	Name string

	// MaxBacklog bounds how many events wait for the watcher. When there are
	// more, those of each object are merged, at the place of the first of them,
	// so that at most two remain per object: an add or update and an update are
	// one, with the Old of the first and the New of the last; an add and a delete
	// are nothing; an update and a delete are a delete, with the Old of the
	// update; a delete and an add, of an object that was created again, stay two.
	// A watcher that only looks at the state of objects will not notice.
	//
	// So what waits is at most MaxBacklog events plus two per object, besides the
	// rest of a state that the watcher is being told, because it has joined or a
	// resync is due, and what it was handed: 256 events, or MaxBacklog if less. 0 is
	// DefaultMaxBacklog; negative keeps every event, however much memory that takes.
	MaxBacklog int

	// Workers is how many objects the watcher may be called for at once. It is
	// never called twice at a time for one object, and sees each object's events
	// in order; but what waits is always merged by object, as above, also with a
	// negative MaxBacklog. As many goroutines call it, and OnSynced comes when each
	// object of the initial state was attempted once, and may overlap later events.
	// 0 or 1, the default, is one call at a time.
	Workers int

	// Retry says what happens to an event for which the watcher has returned an
	// error: whether it comes again, and after what time. failures is how often
	// it has failed, from 1. Other objects do not wait for it; newer events of the
	// same object are merged with it as above, and what comes of that is delivered
	// when the wait is over, its failures counted anew. An add that has failed
	// counts as seen: its delete comes. An error that wraps ErrPermanent is not
	// retried; a wait that is not positive is none. OnSynced does not wait for
	// retries. See [Backoff]. Retry is called
	// from the watcher's goroutines. With it, events are merged as with Workers.
	// Nil, the default, is never.
	Retry func(failures int, err error) (wait time.Duration, again bool)

	// RecoverPanics makes a panic of the watcher an error, a *PanicError in an
	// *EventError, which is retried like others. What the watcher has left
	// half done, such as a locked mutex, stays so. By default a panic ends the
	// process, with the stack of the watcher.
	RecoverPanics bool

	// ResyncPeriod is how often the watcher gets an update with OriginResync for
	// every object in the store. It is counted from its Synced, and put off
	// while the watcher has events to handle, such as one that waits for its retry. No other watcher sees it, and the
	// API server is not asked. 0, the default, is never.
	ResyncPeriod time.Duration

	// OnSynced is called once, in the watcher's goroutine, right after the last
	// call for the initial state and, without Workers and Retry, before any later
	// event. It never comes before the informer has synced, so that a reader which
	// lacks an object then says that there is none; but for one that a store has
	// refused or a Transform has failed for, which ErrorHandler was told of. Nobody
	// calls it again: what may fail in it is to be tried again in it, until its ctx
	// ends. Synced closes when it has returned. Defaults to none.
	OnSynced func(ctx context.Context)
}

// DefaultMaxBacklog is the MaxBacklog of a watcher that does not set it.
const DefaultMaxBacklog = 10_000

// withDefaults returns a copy of o in which every default is filled in.
func (o Options[T]) withDefaults() Options[T] {
	o.Name = cmp.Or(o.Name, object.TypeName(reflect.TypeFor[T]()))
	if o.durable() {
		o.Queue = RealFIFO
	}
	o.Queue = cmp.Or(o.Queue, DeltaFIFO)
	if o.Backoff == nil {
		o.Backoff = &wait.Backoff{Duration: 800 * time.Millisecond, Cap: 30 * time.Second, Steps: 38, Factor: 2, Jitter: 1}
	} else {
		backoff := *o.Backoff
		o.Backoff = &backoff
	}
	if o.ErrorHandler == nil {
		o.ErrorHandler = LogError
	}
	observer := Observer{}
	if o.Observer != nil {
		observer = *o.Observer
	}
	o.Observer = &observer
	return o
}

func (o Options[T]) durable() bool {
	_, ok := o.Store.(Durable)
	return ok
}

// halfDurable reports whether the store was meant to be a Durable, and is none.
func (o Options[T]) halfDurable() bool {
	_, applies := o.Store.(interface {
		Apply(context.Context, []cache.Transaction, string) error
	})
	return applies && !o.durable()
}

func (o Options[T]) check() error {
	switch {
	case o.Store != nil && object.IsNil(o.Store):
		return errors.New("Options.Store is a nil " + reflect.TypeOf(o.Store).String())
	case o.halfDurable():
		return fmt.Errorf("Options.Store is a %T, which has the method Apply of a Durable and not all others: see storetest.Run", o.Store)
	case o.Queue < QueueAuto || o.Queue > RealFIFO:
		return fmt.Errorf("Options.Queue is %d, which is no QueueKind", o.Queue)
	case o.Queue == DeltaFIFO && o.durable():
		return fmt.Errorf("Options.Queue is DeltaFIFO, which cannot say what the Options.Store is exactly: a %T is a Durable, which needs RealFIFO", o.Store)
	case o.WatchList < WatchListAuto || o.WatchList > WatchListOff:
		return fmt.Errorf("Options.WatchList is %d, which is no WatchListMode", o.WatchList)
	case o.PageSize < 0:
		return fmt.Errorf("Options.PageSize is %d, less than 0", o.PageSize)
	case o.DrainTimeout < 0:
		return fmt.Errorf("Options.DrainTimeout is %v, less than 0", o.DrainTimeout)
	case o.Backoff != nil && o.Backoff.Duration <= 0:
		return fmt.Errorf("Options.Backoff.Duration is %v, not more than 0", o.Backoff.Duration)
	case o.Backoff != nil && (o.Backoff.Factor < 0 || o.Backoff.Jitter < 0 || o.Backoff.Steps < 0 || o.Backoff.Cap < 0):
		return fmt.Errorf("Options.Backoff has a field less than 0: %+v", *o.Backoff)
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

func (o WatcherOptions) check() error {
	switch {
	case o.ResyncPeriod < 0:
		return fmt.Errorf("WatcherOptions.ResyncPeriod is %v, less than 0", o.ResyncPeriod)
	case o.Workers < 0:
		return fmt.Errorf("WatcherOptions.Workers is %d, less than 0", o.Workers)
	}
	return nil
}

// Backoff returns a WatcherOptions.Retry that waits for base after the first
// failure and twice as long after each further one, but no longer than limit, with
// up to a tenth more at random so that what failed together does not come back
// together. It gives up after that many attempts in all; 0 is never.
//
// It panics if base is not positive, limit is less than base, or attempts is
// negative, because that is a mistake in the program.
func Backoff(base, limit time.Duration, attempts int) func(failures int, err error) (time.Duration, bool) {
	if base <= 0 || limit < base || attempts < 0 {
		panic(fmt.Sprintf("informer: Backoff(%v, %v, %d): base must be positive, limit at least base, attempts not negative", base, limit, attempts))
	}
	return func(failures int, _ error) (time.Duration, bool) {
		if attempts > 0 && failures >= attempts {
			return 0, false
		}
		pause := limit
		if doublings := failures - 1; doublings < 62 && base <= limit>>doublings {
			pause = base << doublings
		}
		return wait.Jitter(pause, 0.1), true
	}
}

// StripManagedFields is an Options.Transform that drops metadata.managedFields,
// which few programs read and which is often the largest part of an object.
func StripManagedFields[T Object](obj T) (T, error) {
	if obj.GetManagedFields() != nil {
		obj.SetManagedFields(nil)
	}
	return obj, nil
}
