// Package store has stores to be given to an informer, as informer.Options.Store.
//
// # To keep less of each object
//
// There are simpler ways than [NewProjection], to be tried first:
//
//   - An informer of metadata only, over a client of k8s.io/client-go/metadata, for
//     objects of type *metav1.PartialObjectMetadata: what is not needed is not even
//     sent. It is the choice if spec and status are not looked at.
//   - Options.Transform, such as informer.StripManagedFields: it takes away what nobody
//     needs before anybody sees the object, so that the store, all watchers and all
//     events agree.
//
// A projection is for the rest: watchers that must see all of an object once, when it
// changes, over a store that must not hold all of every object. It changes what
// watchers are told. New of an event is the full object. What the store returns is the
// reduced one: Old; the state that a watcher is told when it joins after the first
// list, and that it is told by a resync, New included; what Get, List and ByIndex
// return and index functions are given. So the Old of an event is no longer the New of
// the event before it, and a watcher must not take what is missing in Old for a change.
//
// # Stores of your own
//
// A store that was written for client-go before 0.36 is given to [Adapt]. Package
// storetest checks whether a store is right for an informer.
package store
