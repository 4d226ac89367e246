// Package sharding connects controllers of package enqueue with sets of package shards. Neither package
// imports the other, so a program with one replica does not contain package shards.
package sharding

import (
	"context"

	"github.com/customcacheinformer/informer/internal/object"
)

// Set is a set of replicas as a controller sees it. Its methods do not block.
type Set interface {
	// Name returns the name of the set.
	Name() string
	// ByNamespace reports whether all keys of a namespace are in one bucket.
	ByNamespace() bool
	// Started returns a channel that is closed when the Run of the set is called.
	Started() <-chan struct{}
	// Join adds a worker. The name must be the same in all replicas. Join returns an error if another
	// worker has the name, or if Run of the set was called.
	Join(name string, w Worker) error
	// Bucket returns the bucket of a key, such as "default/shop". The bucket is the same in every
	// replica and every version of a program. If the set divides by namespace, Bucket returns the bucket
	// of the namespace, or 0 until the replica has joined.
	Bucket(key string) int
	// Has reports whether calls for keys of the bucket may begin in this replica.
	Has(bucket int) bool
	// Enter begins a call for a key of a bucket. If this replica does not have the bucket, or not yet,
	// ok is false. The caller must then drop the key, because the worker that gets the bucket queues all
	// of its keys. Otherwise the caller must make the call with the returned ctx, and call done when the
	// call has returned.
	//
	// The returned ctx ends with ctx, and when this replica may no longer work on the bucket. If another
	// replica may have the bucket, the cause wraps informer.ErrLeaseLost. If the process was stopped for
	// a while, such as by SIGSTOP, the first call of Err after that shows that the session is over.
	Enter(ctx context.Context, bucket int) (call context.Context, done func(), ok bool)
}

// Option is the type of an option that takes a *shards.Set. Only a type with an embedded [Handle]
// implements it.
type Option interface{ handle() Set }

// Handle gives a type of another package a Set, without a public method.
type Handle struct{ set Set }

// NewHandle returns a handle of set.
func NewHandle(set Set) Handle { return Handle{set} }

func (h Handle) handle() Set { return h.set }

// Of returns the set of an option, or nil if the option is nil or a nil pointer.
func Of(o Option) Set {
	if object.IsNil(o) {
		return nil
	}
	return o.handle()
}
