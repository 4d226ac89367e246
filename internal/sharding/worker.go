package sharding

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// Buckets is a set of the numbers of buckets.
type Buckets = sets.Set[int]

// Versions has a version for each source, such as a resourceVersion for the number of an informer.
// They are in a Lease, so both should be short.
type Versions map[string]string

// Range is the set of the deletes of a source whose versions come after After, up to and including To.
type Range struct {
	After string `json:"after"`
	To    string `json:"to"`
}

// Worker is a controller as its set sees it. Before each call for a key, a worker asks the set with
// [Set.Enter].
//
// Every replica whose caches have all objects gets every delete. Nothing is left to read of a deleted
// object, so a worker keeps the keys of deletes, also of buckets that other replicas have, until it has
// handled them, or until the set calls Forget or ForgetKeys.
//
// The set calls the methods from its own goroutines, several at once, and holds no lock then. Methods
// with a ctx may block until it ends; the others do not block.
type Worker interface {
	// Keys describes the worker's keys, such as "string". Two workers of one name with keys of other kinds
	// are not the same. [Set.Join] calls it.
	Keys() string
	// WaitForSync blocks until the worker could begin. The replica joins the set when all of its
	// workers can.
	WaitForSync(ctx context.Context) error
	// Stopped returns a channel that is closed when the worker stops. Then the replica leaves the
	// set.
	Stopped() <-chan struct{}
	// CatchUp blocks until the worker's caches are at least as new as those of the replica that had
	// a bucket before, whose Seen returned seen.
	CatchUp(ctx context.Context, seen Versions) error
	// Missing asks the sources of the worker's caches how far they are. It returns their versions, of
	// each source that does not have its version of seen. A source that does not answer counts as one
	// that has it.
	Missing(ctx context.Context, seen Versions) Versions
	// Fresh blocks until the sources of the worker's caches have been connected without a break for
	// at least d. The set calls it when the last holder has died, because it is not known what it had
	// seen last.
	Fresh(ctx context.Context, d time.Duration) error
	// Connected reports whether the sources of the worker's caches are connected now.
	Connected() bool
	// Queue queues all keys of buckets that this replica has got, and those of deletes that are
	// not handled. Events may have queued some already.
	Queue(ctx context.Context, buckets Buckets) error
	// Seen returns the versions of everything that calls may have read. The set calls it before it
	// releases a bucket, when all calls for its keys have returned.
	Seen() Versions
	// Known returns the versions up to which the caches have every change. The worker got
	// each later delete.
	Known() Versions
	// Handled returns which deletes with keys in buckets are handled, by source.
	Handled(ctx context.Context, buckets Buckets) map[string]Range
	// Deletes returns the keys in a bucket of deletes that are not handled.
	Deletes(bucket int) []string
	// Handle queues the keys of deletes that another replica has not handled.
	Handle(keys []string)
	// Forget notes that another replica, which has the buckets, has handled these deletes. It
	// returns the keys in the buckets of deletes that are not handled and that this replica
	// does not know of, because it began too late: the set tells it.
	Forget(buckets Buckets, handled map[string]Range) (unknown []string)
	// ForgetKeys notes that another replica takes care of all deletes of these keys.
	ForgetKeys(keys []string)
}
