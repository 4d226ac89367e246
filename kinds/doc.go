// Package kinds reads kinds that come and go while a program runs: kinds of CRDs and of aggregated APIs, and the built-in kinds.
//
// A [Set] has one informer over all of its kinds, see [Set.Informer]. [Set.Acquire] adds a kind by its name, and Options.Wanted chooses
// among all that the server offers. The set and its informer are members of an [informer.Group]:
//
//	set, err := kinds.NewMetadata(clients, kinds.Options[*metav1.PartialObjectMetadata]{
//		Wanted: func(o kinds.Offer) bool { return slices.Contains(o.Categories, "managed") },
//	})
//	…
//	err = errors.Join(group.Add(set.Informer()), group.Add(set))
//	…
//	lease, err := set.Acquire(kinds.Kind{Group: "apps", Kind: "Deployment"})
//	…
//	defer lease.Release()
//
// # One informer
//
// The informer of a set is one over many sources, an [informer.Clusters]. Each kind is a source, whose name is [Kind.String]. So a watcher
// over all kinds has two goroutines, not two for each kind, and [informer.Event.Cluster] is the kind of an event. Package enqueue works
// with it as with any informer over clusters: the Cluster of a key is the name of the kind, and [Set.Find] returns its resource. A [Lease] is
// the Reader of its kind, and may have watchers of its own.
//
// # Guarantees
//
//  1. A kind is read as soon as it is served, and until it is gone or released. Until it is served, [KindHealth] has the reason why it is not.
//  2. A kind delivers deletes if an object was deleted, or if the kind is gone. A kind is gone if its CRD was deleted, or is absent from a complete
//     list of CRDs. It is also gone if all APIServices of its group were deleted, or if its group, which has no APIService, is missing in complete
//     discoveries for 10 s. The deletes of a kind that is gone have [informer.OriginLeft], and come a few seconds later. If its CRD is created again
//     before that, the kind is listed, and only the objects that no longer exist are deleted.
//  3. Any other trouble parks a kind: its objects stay, and the set tries again. Examples are a 403, a 404, a 410, a list that expires, a conversion
//     webhook that fails, and a discovery that fails for its group or as a whole. Others are a CRD that is not established or whose names are not
//     accepted, and an APIService that is not available. Such a kind delays no other.
//  4. If another version is served or preferred, the kind moves: each object comes once, as an update with [informer.OriginRelist], although its
//     UID and its resourceVersion are the same. Metadata that is equal in both versions is not an update. A kind with Kind.Version keeps its version.
//  5. The last release of a kind stops its source and drops its objects, without events. No call waits for that.
//
// While a CRD is being deleted, its kind is Parked, and its watch continues: the API server deletes the objects one by one.
//
// # How a set knows the kinds
//
// The set lists and watches CRDs and APIServices, and keeps a few strings of each. It asks for discovery once at the start. It asks again when a CRD
// is deleted, when an APIService changes and for 5 minutes after that, and when a kind gets a 404 or 410. While discovery fails or does not show a
// kind that is read, the set asks every 30 s. A program needs the verbs list and watch on both resources. Without them, or while the first list of
// the CRDs fails, discovery decides: the set asks every 30 s, and after each 404 or 410 of a kind. Then a kind is gone when no discovery has shown it
// for 10 s, and the first and the last discovery in that time were complete for its group. A group that is missing counts as not complete while it has an
// APIService. The ErrorHandler is called once when discovery decides, and Health shows it.
//
// # Over a Durable
//
// Options.Informer may have a Durable. Each start lists each kind and compares the list with the stored objects, because they may be of another
// version. A kind that only the Durable knows stays until it is acquired, or until [informer.Clusters.DisengageStored]. If it is acquired, and for
// 10 s neither a complete list of CRDs nor discovery has it, its objects come as deletes. For that, also acquire the kinds that Options.Wanted asks
// for.
//
// # The parts of the package
//
//   - kind.go names kinds. catalog.go knows what the server offers, from the CRDs and APIServices of sources.go and the answers of discovery.go.
//   - set.go is the state of a Set. member.go brings each kind to the state that follows from the catalog. follow.go brings the news
//     to the catalog, and decides when to ask discovery. new.go makes and runs a Set, lease.go has the Lease, and health.go shows the states.
package kinds
