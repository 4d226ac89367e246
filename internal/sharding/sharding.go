// Package sharding is the border between a controller of package enqueue and a set of package shards:
// neither imports the other, so that a program with one replica does not contain the set.
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
	// Started returns a channel that is closed when the set runs.
	Started() <-chan struct{}
	// Join adds a worker, before the set runs. Its name is the same in all replicas. Join returns an
	// error if another worker has the name, or if the set runs.
	Join(name string, w Worker) error
	// Bucket returns the bucket of a key, such as "default/shop". It is the same in every replica and
	// every version of a program. If the set divides by namespace, it is that of the namespace, and 0
	// until the replica has joined.
	Bucket(key string) int
	// Has reports whether calls for keys of the bucket may begin in this replica.
	Has(bucket int) bool
	// Enter begins a call for a key of a bucket. It returns false if the bucket is not this replica's,
	// or not yet: then the caller drops the key, because the worker that gets the bucket queues all of
	// its keys. Otherwise the caller makes the call with the ctx that Enter returns, and calls done when
	// the call has returned.
	//
	// The ctx ends with the given one, and when this replica may no longer work on the bucket. The cause
	// of that end wraps informer.ErrLeaseLost if another replica may have the bucket. If the process was
	// stopped for a while, such as by SIGSTOP, the first look at Err after it continues shows that the
	// session has ended.
	Enter(ctx context.Context, bucket int) (call context.Context, done func(), ok bool)
}

// Option is the type of an option that takes a *shards.Set. Only a type with an embedded [Handle]
// implements it.
type Option interface{ handle() Set }

// Handle gives a type of another package a Set, without a method that programs see.
type Handle struct{ set Set }

// NewHandle returns a handle of set.
func NewHandle(set Set) Handle { return Handle{set} }

func (h Handle) handle() Set { return h.set }

// Of returns the set of an option, nil if the option is nil or a nil pointer.
func Of(o Option) Set {
	if object.IsNil(o) {
		return nil
	}
	return o.handle()
}
