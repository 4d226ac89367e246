package informer

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/index"
	"github.com/customcacheinformer/informer/internal/object"
)

// Durable is a store that outlives the process, for Options.Durable. An informer over it starts from
// the state of the store. If the server still has the changes since then, the informer continues the
// watch instead of listing. Watchers miss no delete, even across a restart. The same holds for a crash,
// unless the store loses its last calls, see below.
//
// The informer chooses the key of each object. The store must keep the object under that key, and must
// not compute keys itself: objects under two keys may have the same namespace and name.
//
// Besides the objects that Get and Scan return, such a store keeps a bookmark and tombstones. The bookmark is a text that the store need
// not understand: a resourceVersion at which the objects are exactly the state of the source, or "" if there is no such version. For an
// informer over several namespaces, it is a JSON object with the resourceVersion of each. For one over clusters, it also has the UID of
// each. A tombstone is a deleted object whose delete some watcher may not have handled. Several tombstones may have the same key and
// different UIDs, or the same UID and different keys.
//
// While an informer runs, nothing else may change the store: two informers would delete each other's
// objects. So Run returns an error if another informer of the process runs over the same value. The informer
// changes the store only by Apply and Forget, from one goroutine at a time. All methods may be called while
// others are under way. A Scan may see a part of an Apply. A call that returns an error may have taken
// effect or not: the informer makes the same call again until it succeeds, or until Get or Apply returns an
// error that wraps [ErrPermanent]. It does not repeat a read that a method of [Reader] makes: that method
// returns the error. If its ctx ends, a method must return the error of the ctx or its whole result, never a
// part of the result.
//
// The informer does not close the store. Close it when Run has returned.
//
// A crash may lose the last calls. Then objects, bookmark and tombstones must all be as they were after
// one earlier call. In this case a delete may be missed: suppose that only the lost calls had stored an
// object, and that the object was deleted before the next start. If the next start has to list, watchers
// get no delete of it. If it continues the watch from the older bookmark, they get the add and the delete.
//
// A Durable may also be a [DurableIndexer]. A store for objects of only one type may have a method
// ObjectType() reflect.Type, which returns that type and must not block: [New] then returns an error
// for an informer of another type. Package storetest checks all of this, except what happens if the
// process is killed during a call.
type Durable interface {
	// Get returns the object under a key, or nil and false if there is none. It may be called from any
	// goroutine.
	Get(ctx context.Context, key string) (obj AnyObject, exists bool, err error)

	// Scan returns up to limit objects with their keys: those with the lowest keys that are greater
	// than after, sorted by key as Go compares strings. If after is "", it begins at the first object.
	// An empty result means that no objects are left. limit is at least 1.
	//
	// Each call may see a later state than the call before. Scan may be called from any goroutine.
	// Between calls it should hold no lock or transaction for which a write would have to wait.
	Scan(ctx context.Context, after string, limit int) ([]Entry, error)

	// Resume returns the bookmark, or "" if there is none.
	Resume(ctx context.Context) (bookmark string, err error)

	// Apply makes the changes, in their order, and sets the bookmark, in one atomic step: whenever the
	// process ends, either all of this has happened or nothing. There may be no changes, or several for
	// one key. Apply must not change the objects.
	//
	// An error that wraps ErrPermanent means that neither this call nor an earlier attempt at it has
	// changed anything, and that another attempt cannot help. The informer then applies each half of
	// the changes by itself, and so on, to find the change that the store refuses.
	Apply(ctx context.Context, changes []Change, bookmark string) error

	// Tombstones returns all tombstones with their keys, in any order.
	Tombstones(ctx context.Context) ([]Entry, error)

	// Forget removes the tombstones with these keys and UIDs, in one step or in several. It ignores
	// tombstones that do not exist.
	Forget(ctx context.Context, tombstones map[string][]types.UID) error
}

// Entry is an object and the key under which a [Durable] keeps it.
type Entry struct {
	Key    string
	Object AnyObject
}

// Change is one change to the objects of a [Durable], see [Durable.Apply].
type Change struct {
	// Entry is the object to store, and its key. If the store has an object under this key, the new one
	// replaces it.
	Entry
	// Delete means that the store must remove the object under Key, if any, instead of storing Object.
	// Even if there was none, the store must keep Object as a tombstone, by key and UID, unless
	// NoTombstone is set. The new tombstone replaces one with the same key and UID. Object is the object
	// that Get would return at that moment, even if the watch has sent a later state.
	Delete bool
	// NoTombstone means that the store must keep no tombstone for this Delete, because watchers get no delete of this
	// object. An earlier tombstone with the same key and UID stays.
	NoTombstone bool
}

// DurableIndexer is an optional interface for a [Durable] that keeps indexes itself. An informer over it
// need not read all objects at the start to index them in memory.
type DurableIndexer interface {
	Durable

	// GetIndexers returns the index functions that the store has, by name.
	GetIndexers() cache.Indexers

	// AddIndexers adds indexes, and blocks until all stored objects are in them. If a name is taken,
	// AddIndexers must return an error and add no index. [New] calls it with the indexes of the options and an index by
	// namespace, unless the store has that one already. The functions that New passes return no error.
	AddIndexers(indexers cache.Indexers) error

	// ByIndex returns the objects for which the index function called name returned value, with their
	// keys, in any order. It returns an error if there is no such index. It may be called from any
	// goroutine.
	ByIndex(ctx context.Context, name, value string) ([]Entry, error)
}

// keyed adapts a Durable to what packages index and tombstone read.
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

// indexed adapts a DurableIndexer to what package index reads.
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

// scanOf returns an index.Scan that reads durable, or store if durable is nil.
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

// Sink receives the objects of a resource. It is for a program that turns the objects into something else, such as metrics,
// an index or the rows of a database, and does not need the objects themselves. [NewSink] returns an informer that
// calls a Sink.
//
// The informer makes one call at a time, from one goroutine. The calls for one object come in the order of its changes. If a
// call returns an error, the informer repeats it with growing pauses, and all later objects wait. This ends when a call returns
// nil or an error that wraps [ErrPermanent], or when the informer stops. A call that returned an error may have taken effect, so
// a Sink must accept the same call again.
//
// For an informer, an object is also gone when a selector no longer matches it. With a source of shards.Set.Source, Remove is
// also called for each object whose namespace moves to another replica.
//
// When the informer lists again after a failure of the watch, it puts only what has changed, and removes what is gone. If Put
// returns ErrPermanent, the informer calls it again at the next change of the object or after the next list. If Remove returns
// ErrPermanent, the informer calls it again after the next list. Health.Refused counts both.
type Sink[T Object] interface {
	// Put is called for an object that is new or has changed. key is the namespace and name of the object, such as
	// "default/shop", or only the name if the object has no namespace. Put may keep the object, but must not change it.
	// ctx ends when the informer stops.
	Put(ctx context.Context, key string, obj T) error
	// Remove is called for an object that is gone. uid is the UID of that object. If another object was created under the same
	// key in the meantime, Remove is called first, and then Put for the new object.
	Remove(ctx context.Context, key string, uid types.UID) error
}
