package informer

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/index"
	"github.com/customcacheinformer/informer/internal/object"
)

// Durable is a store that outlives the process, for Options.Durable. An informer over it starts from
// the state of the store. It does not list the objects that the store has already, and it misses no
// delete, neither across a restart nor across a crash.
//
// The informer gives each object its key. The store keeps the object under that key and does not
// make keys of its own: two keys may have objects with the same namespace and name.
//
// Besides the objects that Get and Scan return, such a store keeps a bookmark and tombstones.
// The bookmark is a resourceVersion, or "". If it is not "", the objects are exactly the state of
// the source at that version. For an informer over several namespaces, it is a JSON object with the
// resourceVersion of each, and over clusters also with their UIDs. The store need not understand it. A tombstone is a deleted object whose
// delete some watcher may not have been given. Several tombstones may have the same key, with
// different UIDs, or the same UID, with different keys.
//
// While an informer runs, the store is its own: two informers would delete each other's objects.
// So Run returns an error if another informer of the process runs over the same value. The
// informer changes the store by Apply and Forget alone, from one goroutine. All methods may be
// called while others are under way. A Scan may see a part of an Apply. After an error, the call may
// or may not have taken effect: the informer makes the same call again until it succeeds. A method whose ctx
// ends returns the error of the ctx, or its whole result, never a shorter one.
//
// The informer does not close the store. Close it when Run has returned.
//
// A crash may lose the last calls. Then objects, bookmark and tombstones must all be those of
// one moment, after some earlier call. This has a limit: an object that only the lost calls
// had stored, and that was deleted before the next start, gets no delete event if that start
// has to list. If the next start watches from the older bookmark, watchers get its add and
// its delete.
//
// A Durable may also be a [DurableIndexer]. One that accepts objects of one type only may have a
// method ObjectType() reflect.Type, which returns that type and does not block: [New] then refuses
// the store for an informer of another type. Package storetest checks all of this, except the effect
// of killing the process in the middle of a call.
type Durable interface {
	// Get returns the object under a key, or nil and false if there is none. It is called from any
	// goroutine.
	Get(ctx context.Context, key string) (obj AnyObject, exists bool, err error)

	// Scan returns up to limit objects with their keys, in the order of their keys (as strings are
	// compared): those with the lowest keys that come after the key after. With after "" it begins
	// at the first object. An empty result means that no objects are left. limit is at least 1.
	//
	// Each call sees some state of the time of the call, perhaps a later one than the call
	// before. Scan is called from any goroutine. Between calls it should hold nothing that a
	// write would wait for.
	Scan(ctx context.Context, after string, limit int) ([]Entry, error)

	// Resume returns the bookmark, or "" if there is none.
	Resume(ctx context.Context) (bookmark string, err error)

	// Apply makes the changes, in their order, and sets the bookmark, in one atomic step: at
	// whatever moment the process ends, afterwards all of it has happened or nothing. There may
	// be no changes, or several of one key. Objects must not be changed.
	//
	// An error that wraps ErrPermanent means that nothing has happened, neither now nor in an
	// earlier attempt at the same call, and that another attempt cannot help. The informer then
	// applies the changes in halves, and halves of these, to find the one that the store refuses.
	Apply(ctx context.Context, changes []Change, bookmark string) error

	// Tombstones returns all tombstones with their keys, in any order.
	Tombstones(ctx context.Context) ([]Entry, error)

	// Forget removes tombstones, by key and UID, in one step or in several. Tombstones that do
	// not exist are not an error.
	Forget(ctx context.Context, tombstones map[string][]types.UID) error
}

// Entry is an object with the key under which a [Durable] keeps it.
type Entry struct {
	Key    string
	Object AnyObject
}

// Change is a change of a [Durable].
type Change struct {
	// Entry is an object to be stored under its key, whether or not the store has that key.
	Entry
	// Delete removes the object under the key instead, if there is one. In any case it keeps Object
	// as a tombstone, by key and UID, and replaces a tombstone with the same key and UID. Object is
	// the one that Get would return at that moment, also if the watch has sent a later state of it.
	Delete bool
	// NoTombstone has Delete keep no tombstone: the object leaves without a delete for watchers. A tombstone that the store
	// has stays.
	NoTombstone bool
}

// DurableIndexer is an optional interface of a [Durable] that keeps indexes itself. At the start the
// informer then need not read all objects to index them in memory.
type DurableIndexer interface {
	Durable

	// GetIndexers returns the indexes that the store has, by name.
	GetIndexers() cache.Indexers

	// AddIndexers adds indexes, and blocks until they have all stored objects. It returns an error,
	// and adds none, if a name is taken. [New] calls it with the indexes of the options and an index by
	// namespace, unless the store has that one already. The functions return no error.
	AddIndexers(indexers cache.Indexers) error

	// ByIndex returns the objects for which the index function of that name returned value, with
	// their keys, in any order. It returns an error if there is no such index. It is called from any
	// goroutine.
	ByIndex(ctx context.Context, name, value string) ([]Entry, error)
}

// keyed is a Durable as package index and package tombstone read it.
type keyed struct{ Durable }

func (k keyed) Get(ctx context.Context, key string) (obj any, exists bool, err error) {
	return k.Durable.Get(ctx, key)
}

func (k keyed) Scan(ctx context.Context, after string, limit int) (object.Entries, error) {
	entries, err := k.Durable.Scan(ctx, after, limit)
	return entriesOf(entries), err
}

func (k keyed) Tombstones(ctx context.Context) (object.Entries, error) {
	entries, err := k.Durable.Tombstones(ctx)
	return entriesOf(entries), err
}

// indexed is a DurableIndexer as package index reads it.
type indexed struct {
	keyed
	store DurableIndexer
}

func (x indexed) GetIndexers() cache.Indexers               { return x.store.GetIndexers() }
func (x indexed) AddIndexers(indexers cache.Indexers) error { return x.store.AddIndexers(indexers) }

func (x indexed) ByIndex(ctx context.Context, name, value string) (object.Entries, error) {
	entries, err := x.store.ByIndex(ctx, name, value)
	return entriesOf(entries), err
}

// scanOf returns how the informer reads its store.
func scanOf(store cache.Store, durable Durable) index.Scan {
	if durable == nil {
		return index.NewScan(store)
	}
	if x, ok := durable.(DurableIndexer); ok {
		return index.ScanKeyed(indexed{keyed{durable}, x})
	}
	return index.ScanKeyed(keyed{durable})
}

func entriesOf(entries []Entry) (es object.Entries) {
	for _, e := range entries {
		es.Append(e.Key, e.Object)
	}
	return es
}

// Sink takes the objects of a resource. It is for a program that turns them into something else, such as metrics, an
// index or the rows of a database, and does not need the objects themselves. [NewSink] fills one.
//
// The informer makes one call at a time, from one goroutine, and the calls for an object are in the order of its changes.
// A call that returns an error is repeated, with growing pauses, until it returns nil, its error wraps [ErrPermanent],
// or the informer stops. Meanwhile the objects behind it wait. An error does not show whether the call took effect. So a call may
// come again after it has worked.
//
// A list that follows a failure of the watch empties nothing: the informer puts what has changed, and removes what is gone.
// If Put refuses a state with ErrPermanent, the last one that was put stays until the next. If Remove refuses, it is called again
// after the next list. The informer counts both in Health.
type Sink[T Object] interface {
	// Put takes an object that is new or has changed. key is its namespace and name, such as "default/shop". Put may keep
	// the object, and must not change it. ctx ends when the informer stops.
	Put(ctx context.Context, key string, obj T) error
	// Remove takes the key and the UID of an object that is gone. If another object was created under the key meanwhile, Remove
	// comes before its Put.
	Remove(ctx context.Context, key string, uid types.UID) error
}
