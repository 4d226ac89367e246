package informer

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Scanner is what a store implements beside cache.Store if it can be read in parts
// and can say that it cannot be read, which List cannot. An informer looks for it in
// Options.Store, and then never calls List or ListKeys: a state is told to a watcher
// page by page, however large it is, and a reading that fails is tried again rather
// than taken for an empty store.
type Scanner interface {
	// Scan returns up to limit objects, those with the lowest keys that come after
	// the key after, in the order of their keys (as strings are compared). With
	// after "" it begins at the first; an empty result says that there are no more.
	// limit is at least 1. Each call sees some state of the time of the call, and may
	// see a later one than the call before. It is called from any goroutine, and
	// should hold nothing between calls that a write would wait for.
	Scan(ctx context.Context, after string, limit int) ([]any, error)
}

// Durable is what a store implements that outlives the process. An informer whose
// Options.Store is one begins where the store stands: it does not list what it has
// already, and misses no delete, neither across a restart nor across a crash. All
// types in it are of the standard library and of Kubernetes, so that a store need not
// import this package, but for ErrPermanent, if it refuses anything.
//
// Beside what GetByKey and Scan return, such a store keeps a bookmark and tombstones.
// The bookmark is a resourceVersion, or "": when it is not "", the objects are exactly
// the state of the source at that version. A tombstone is an object that was deleted
// and that some watcher may not have been told of; there may be several of one key,
// with different UIDs.
//
// While an informer runs, it changes the store by Apply and Forget alone, from one
// goroutine. Add, Update, Delete and Replace are for others, before it runs; they remove
// the bookmark, because the objects are no longer what the source has, and leave no
// tombstones. All methods may be called while others are under way; a Scan may see a
// part of an Apply. An error means that the call may have taken effect or not: the
// informer makes the same call again until it succeeds.
//
// A crash may take the last calls along, if what is left is all that there was after an
// earlier one: objects, bookmark and tombstones. Then an object that only the lost calls
// had, and that was deleted meanwhile, is not told as deleted if the next start has to
// list; watched from the older bookmark it is told as added and deleted.
//
// Package storetest checks all of this, but for what becomes of a call in the middle of
// which the process is killed.
type Durable interface {
	cache.Store
	Scanner

	// Resume returns the bookmark, "" for none.
	Resume(ctx context.Context) (resourceVersion string, err error)

	// Apply makes changes, in their order, and sets the bookmark, all of it in one
	// step: whenever the process ends, after it all of that has happened or nothing.
	// There may be no changes, or several of one object. An Add or an Update stores
	// the object whether or not its key is there. A Delete removes what has the key of
	// its object, and keeps the object that it was given as a tombstone, by key and UID,
	// in the place of one with both the same; if nothing has the key, it keeps the
	// tombstone all the same. That object is what GetByKey would return at that moment,
	// also if the watch has sent a later state of it. Objects must not be changed.
	//
	// An error that wraps ErrPermanent says that nothing has happened, neither now nor
	// in an earlier attempt at the same, and that trying again cannot help. The informer
	// then applies the changes one by one, to find the one that the store refuses.
	Apply(ctx context.Context, changes []cache.Transaction, bookmark string) error

	// Tombstones returns all tombstones, in any order.
	Tombstones(ctx context.Context) ([]any, error)

	// Forget removes tombstones, by key and UID, in one step or in several. Those
	// that are not there do not matter.
	Forget(ctx context.Context, tombstones map[string][]types.UID) error
}
