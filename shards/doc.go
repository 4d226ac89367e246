// Package shards divides the work of a controller over the replicas of a program.
//
//	set, err := shards.New(clientset.CoordinationV1().Leases("default"), shards.Options{Name: "website"})
//	…
//	c, err := enqueue.NewController(reconcile, enqueue.Options{Name: "website", Shards: set},
//		enqueue.For(websites, enqueue.Generation))
//	…
//	err = errors.Join(group.Add(websites), group.Add(c), group.Add(set))
//
// Each key of a controller belongs to one of 64 buckets. Each bucket belongs to one replica, which reconciles
// its keys. The bucket of a key depends only on the text of the key. So an object that is deleted and created
// again stays in its bucket. So do the objects that it owns, because their events lead to the key of their
// owner. Every replica caches all objects. With Options.ByNamespace, a bucket holds whole namespaces, and
// [Set.Source] gives informers only the objects of this replica's namespaces.
//
// Nothing needs to be installed. The replicas coordinate through Leases in one namespace, and need the rights to
// get, list, watch, create, update and delete Leases there. Each replica has one Lease that it renews, its session.
// Each bucket has a Lease that is written only when the bucket moves to another replica or deletes are passed
// on.
//
// # The promises
//
//  1. Two replicas never work on one key at once, as long as calls of reconcile return within Options.Margin
//     after the end of their ctx, and no process pauses for longer. If one takes longer, the late call has a
//     lower fencing token than the replica that has the bucket now, see [Token].
//  2. While any replica can reach the API server, no bucket is without an owner for longer than
//     Options.LeaseDuration and a second. No replica has more than its share. When a replica joins or leaves,
//     only as many buckets move as necessary. A replica whose caches have been behind for three minutes has
//     no bucket while there is a replica whose caches are not behind.
//  3. A bucket moves only when no call for its keys is under way, however long that takes. Until then its
//     replica renews the session, and Health shows how long the bucket has been waiting.
//  4. A replica that gets a bucket reconciles all of its keys, from states that are not older than those of
//     the last holder. If the last holder has died, the versions that it wrote may be as old as
//     Options.RenewEvery. The new holder then also waits until its watches have been open for Options.Margin.
//  5. Each delete is reconciled by a replica, possibly twice, unless every replica that got it dies before
//     one has reconciled it and recorded that. To get deletes that happen while no replica runs, use a
//     finalizer. With a source of Set.Source, only one replica gets a delete, or none if the namespace moves
//     to another replica at that moment.
//
// Clocks need not agree: no replica compares its own clock with a time that another replica has written. They
// must run at about the same speed.
//
// # Leases
//
// If a session is not renewed, its own replica stops Options.Margin before the end, and cancels the calls.
// Another replica ends the session when it has seen no renewal for LeaseDuration. It does so by changing the
// Lease, so that the API server refuses a late renewal. Then the buckets are free.
//
// A replica that releases a bucket writes into the bucket's Lease which versions it has seen, and the keys of
// deletes that are not handled. The session's Lease records which deletes are handled. The other replicas,
// which get every delete as well, then forget them.
//
// With Options.ByNamespace, one more Lease records the ranges of namespaces. Every Lease records how its
// replica divides: a replica that divides in another way does not join.
//
// Do not change or delete the Leases of a set while it runs. Its replicas write them again, and report that.
// But a replica that starts at that moment may take a bucket that another replica has had for less than
// RenewEvery. And if you remove the holder of a bucket, the bucket is free at once.
//
// # Tests
//
// The Leases of client-go's fake clientsets have no versions, so two replicas could take one bucket. A set
// does not join then. A Source of package informertest can serve the Leases of a fake clientset, see the
// example of [New].
//
// # Logging
//
// A set logs with the logger of the ctx of Run. Every line has its name, as "set":
//
//	V(2)   The replica has joined
//	       with the id of the session, also when it has got a new one
package shards

// The parts of the package.
//
// Calls go from the files at the top of this list to those below, and never back.
//
//   - membership.go runs the set: it joins, has one session after another, and leaves. admission.go begins a
//     session, if the replica may join, and programs.go compares its workers with those of others. renewal.go
//     renews a session, and ends it.
//   - balance.go is the step that compares the buckets with the plan. takeover.go takes a bucket, and catchup.go
//     waits for the caches before its calls begin. release.go releases a bucket. repairs.go writes Leases again
//     that were changed from outside, and deaths.go ends the sessions of replicas that have died.
//   - claims.go records which deletes are handled, and deletes.go passes on deletes that a holder cannot know of.
//   - division.go has the buckets of keys, and has the replicas agree on ranges of namespaces, for which count.go counts
//     objects. source.go decides when a replica lists its namespaces again, and part.go asks for their objects.
//   - calls.go lets calls in, and health.go shows how the set is doing.
//   - setup.go makes a set, set.go has its state, and requests.go its requests.
//   - session.go and holding.go have a session of this replica and a bucket of it, and lag.go how far its
//     caches are behind, and how long it stays away for that. view.go is the set as its Leases show it. options.go has what a program gives to the
//     set, and internal/sharding is the border to its controllers.
//   - internal/leases reads and writes the Leases, and internal/plan decides who should have which bucket.
