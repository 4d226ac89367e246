package storetest

import (
	"testing"

	"github.com/customcacheinformer/informer"
)

// Options holds facts about a store that [Run] cannot find out. The zero value is right for a
// store that accepts any object.
type Options struct {
	// Object returns a new object of the type that the store keeps, with the given namespace ("" if
	// cluster-scoped) and name. The suite sets the rest of the metadata. Fill the rest of the
	// object too, or the suite cannot notice that the store drops it. A store that accepts only one
	// type needs Object. Defaults to returning a *metav1.PartialObjectMetadata.
	Object func(namespace, name string) informer.AnyObject

	// Kept returns the part of an object that the store keeps: the object itself, or another
	// object with less in it. It must not change its argument, and must keep namespace, name, UID
	// and resourceVersion. Defaults to the whole object.
	Kept func(informer.AnyObject) informer.AnyObject

	// Seed is the seed of the random histories: sequences of writes that the suite tries. If one
	// fails, the log has the seed to set. Defaults to 0.
	Seed uint64
}

// DurableOptions holds facts about a store that [RunDurable] cannot find out. Reopen must be
// set.
type DurableOptions struct {
	// Object is the same as Object of [Options].
	Object func(namespace, name string) informer.AnyObject

	// Reopen closes s, like a program that ends normally, and returns a store over the same data.
	// The suite does not use s afterwards. Reopen is required.
	Reopen func(t *testing.T, s informer.Durable) informer.Durable

	// Crash abandons s without closing it, like a process that is killed, and returns a store
	// over the data that is left. No call is under way, and the suite does not use s afterwards.
	// Defaults to nil: the state after a crash is not checked.
	Crash func(t *testing.T, s informer.Durable) informer.Durable

	// LosesLast is true if a crash may undo the last calls. An informer can cope with that, as
	// long as the data that is left is a complete earlier state; see informer.Durable for the
	// events that it misses then. Defaults to false: the effect of every call that has returned
	// must survive.
	LosesLast bool

	// Seed is the same as Seed of [Options].
	Seed uint64
}
