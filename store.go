package informer

import (
	"context"
	"reflect"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Scanner is an optional interface of a store that can be read in parts and can report that
// reading failed, which List cannot. An informer looks for it in Options.Store, and then never
// calls List or ListKeys. It reads a state page by page, however large it is. A reading that
// fails is tried again, and is not taken for an empty store.
type Scanner interface {
	// Scan returns up to limit objects, in the order of their keys (as strings are compared):
	// those with the lowest keys that come after the key after. With after "" it begins at the
	// first object. An empty result means that no objects are left. limit is at least 1.
	//
	// Each call sees some state of the time of the call, perhaps a later one than the call
	// before. Scan is called from any goroutine. Between calls it should hold nothing that a
	// write would wait for.
	Scan(ctx context.Context, after string, limit int) ([]any, error)
}

// Typed is an optional interface of a store that accepts objects of one type only. [New] looks for
// it in Options.Store. It refuses a store of another type than the informer's, which would refuse
// every object.
type Typed interface {
	// ObjectType returns the type of the objects, such as that of a *corev1.Pod. It does not block.
	ObjectType() reflect.Type
}

// Durable is an optional interface of a store that outlives the process. An informer whose
// Options.Store is a Durable starts from the state of the store. It does not list the objects
// that the store has already, and it misses no delete, neither across a restart nor across a
// crash. All types in the interface belong to the standard library and to Kubernetes, so a
// store need not import this package, except for ErrPermanent if it refuses changes.
//
// Besides the objects that GetByKey and Scan return, such a store keeps a bookmark and tombstones.
// The bookmark is a resourceVersion, or "". If it is not "", the objects are exactly the state of
// the source at that version. For an informer over several namespaces, it is a JSON object with the
// resourceVersion of each. The store need not understand it. A tombstone is a deleted object whose
// delete some watcher may not have been given. Several tombstones may have the same key, with
// different UIDs.
//
// While an informer runs, the store is its own: two informers would delete each other's objects.
// So Run returns an error if another informer of the process runs over the same value. The
// informer changes the store by Apply and Forget alone, from one goroutine.
// Add, Update, Delete and Replace are for other callers, before the informer runs. These
// methods remove the bookmark, because the objects are then no longer the state of the source,
// and they leave no tombstones. All methods may be called while others are under way. A Scan
// may see a part of an Apply. After an error, the call may or may not have taken effect: the
// informer makes the same call again until it succeeds.
//
// A crash may lose the last calls. Then objects, bookmark and tombstones must all be those of
// one moment, after some earlier call. This has a limit: an object that only the lost calls
// had stored, and that was deleted before the next start, gets no delete event if that start
// has to list. If the next start watches from the older bookmark, watchers get its add and
// its delete.
//
// Package storetest checks all of this, except the effect of killing the process in the middle
// of a call.
type Durable interface {
	cache.Store
	Scanner

	// Resume returns the bookmark, or "" if there is none.
	Resume(ctx context.Context) (resourceVersion string, err error)

	// Apply makes the changes, in their order, and sets the bookmark, in one atomic step: at
	// whatever moment the process ends, afterwards all of it has happened or nothing. There may
	// be no changes, or several of one object. Objects must not be changed.
	//
	// An Add or an Update stores the object, whether or not its key is in the store. A Delete
	// removes the object with the key of the given object, if there is one. In any case it
	// keeps the given object as a tombstone, by key and UID, and replaces a tombstone with the
	// same key and UID. The given object is the one that GetByKey would return at that moment,
	// also if the watch has sent a later state of it.
	//
	// An error that wraps ErrPermanent says that nothing has happened, neither now nor in an
	// earlier attempt at the same call, and that another attempt cannot help. The informer then
	// applies the changes in halves, and halves of these, to find the one that the store refuses.
	Apply(ctx context.Context, changes []cache.Transaction, bookmark string) error

	// Tombstones returns all tombstones, in any order.
	Tombstones(ctx context.Context) ([]any, error)

	// Forget removes tombstones, by key and UID, in one step or in several. Tombstones that do
	// not exist are not an error.
	Forget(ctx context.Context, tombstones map[string][]types.UID) error
}
