// Package store provides stores for an informer, to be passed as informer.Options.Store.
//
// # To keep less of each object
//
// Before [NewProjection], try these simpler ways:
//
//   - An informer of metadata only, over a client of k8s.io/client-go/metadata, for
//     objects of type *metav1.PartialObjectMetadata: the API server then does not even send
//     the rest. Choose this if spec and status are not needed.
//   - Options.Transform, such as informer.StripManagedFields: it removes unneeded fields
//     before any watcher sees the object, so that the store, all watchers and all events
//     agree.
//
// A projection is for the remaining case: watchers that must see a whole object once, when it
// changes, over a store that must not hold every object as a whole. It changes the objects
// that watchers get. New of an event is the full object. Everything that comes from the store
// is reduced: Old; the state, including New, that a watcher gets when it joins after the first
// list, or by a resync; the results of Get, List and ByIndex; and the arguments of index
// functions. So the Old of an event is no longer the New of the event before it. A watcher
// must not mistake a field that is missing in Old for a change.
//
// # Stores of your own
//
// Package storetest checks whether a store meets an informer's requirements. A store that
// outlives the process may use package codec, [Identity] and [ClusterUID].
package store
