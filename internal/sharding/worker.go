package sharding

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// Buckets is a set of the numbers of buckets.
type Buckets = sets.Set[int]

// Versions holds a version for each source, such as a resourceVersion by the number of an informer.
// Versions are stored in a Lease, so the names of sources should be short.
type Versions map[string]string

// Range is a range of versions of a source: those after After, up to and including To.
type Range struct {
	After string `json:"after"`
	To    string `json:"to"`
}

// Worker is a controller as its set sees it. A worker must call [Set.Enter] before each call for a
// key.
//
// Every replica whose caches have all objects gets every delete. A deleted object cannot be read any
// more. So a worker keeps the keys of deletes, including those in buckets of other replicas, until it
// has handled them or the set calls Forget or ForgetKeys.
//
// The set calls the methods from its own goroutines, several at once, without holding a lock. Methods
// with a ctx may block until it ends; the others must not block.
type Worker interface {
	// Keys describes the type of the worker's keys, such as "string". Two workers with the same name
	// but other keys are different workers. [Set.Join] calls Keys.
	Keys() string
	// WaitForSync blocks until the worker can begin. The replica joins the set when all of its
	// workers can.
	WaitForSync(ctx context.Context) error
	// Stopped returns a channel that is closed when the worker stops. The replica then leaves the
	// set.
	Stopped() <-chan struct{}
	// CatchUp blocks until the worker's caches are at least as new as the caches of the last holder
	// of a bucket. seen is the result of Seen in that replica.
	CatchUp(ctx context.Context, seen Versions) error
	// Missing asks the sources of the worker's caches for their current versions. It returns the
	// versions of the sources that do not have their version in seen. A source that does not answer
	// counts as having it.
	Missing(ctx context.Context, seen Versions) Versions
	// Fresh blocks until the sources of the worker's caches have been connected without a break for
	// at least d. The set calls it when the last holder has died, because its last versions are not
	// known.
	Fresh(ctx context.Context, d time.Duration) error
	// Connected reports whether the sources of the worker's caches are connected now.
	Connected() bool
	// Queue queues all keys in buckets that this replica has got, and the keys of deletes in them
	// that are not handled. Events may have queued some of the keys already.
	Queue(ctx context.Context, buckets Buckets) error
	// Seen returns the versions up to which calls may have read. The set calls it before it releases
	// a bucket, when all calls for keys in the bucket have returned.
	Seen() Versions
	// Known returns the versions up to which the caches have every change. The worker gets each later
	// delete.
	Known() Versions
	// Handled returns the ranges of versions, by source, in which all deletes with keys in buckets
	// are handled.
	Handled(ctx context.Context, buckets Buckets) map[string]Range
	// Deletes returns the keys of the deletes in a bucket that are not handled.
	Deletes(bucket int) []string
	// Handle queues the keys of deletes that another replica has not handled.
	Handle(keys []string)
	// Forget records that another replica, which has the buckets, has handled these deletes. It
	// returns the keys of deletes in the buckets that the other replica has not handled and may not
	// know of, because it began too late. The set then notifies that replica.
	Forget(buckets Buckets, handled map[string]Range) (unknown []string)
	// ForgetKeys records that another replica will handle all deletes of these keys.
	ForgetKeys(keys []string)
}
