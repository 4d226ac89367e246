// Package shards divides the work of a controller over the replicas of a program.
//
//	set, err := shards.New(clientset.CoordinationV1().Leases("default"), shards.Options{Name: "website"})
//	…
//	c, err := enqueue.NewController(reconcile, enqueue.Options{Name: "website", Shards: set},
//		enqueue.For(websites, enqueue.Generation))
//	…
//	err = errors.Join(group.Add(websites), group.Add(c), group.Add(set))
//
// Each key of a controller belongs to one of 64 buckets, and each bucket to one replica, which
// reconciles the keys. The bucket of a key depends on its text alone. So an object that is deleted and
// created again stays in its bucket, and so do the objects that it owns, because their events lead to
// the key of their owner. Every replica caches all objects. With Options.ByNamespace, a bucket has whole
// namespaces, and [Set.Source] gives informers the objects of this replica's namespaces alone.
//
// Nothing needs to be installed. The replicas agree by Leases in one namespace, which they may get,
// list, watch, create, update and delete. Each replica has one Lease that it renews, its session, and
// each bucket has one that is written only when it changes hands.
//
// # The promises
//
//  1. Two replicas never work on one key at once, as long as calls of reconcile heed their ctx within
//     Options.Margin and no process stands still for longer. If one does, its effects have a lower
//     fencing token than those of the replica that has the bucket now, see [Token].
//  2. No bucket is without an owner for longer than Options.LeaseDuration and a second while a replica
//     reaches the API server. Nobody has more than its share, and when a replica joins or leaves, only
//     as many buckets move as necessary. A replica whose caches have been behind for three minutes has no
//     bucket while there is one whose caches are not.
//  3. A bucket moves only when no call for its keys is under way, however long that takes. Such a
//     replica keeps renewing its session, and Health shows how long it has been waiting.
//  4. A replica that gets a bucket reconciles all of its keys, and does so from states that are not
//     older than those that the replica before it had. If that one has died, the
//     versions that it wrote last may be as old as Options.RenewEvery; then the caches must have been connected for Options.Margin.
//  5. Each delete is reconciled by a replica, possibly twice, unless every replica that got it
//     dies before one has reconciled it and noted that. Deletes while no replica runs need a finalizer.
//     Of an informer with a source of Set.Source, only one replica gets it, or none if the namespace
//     changes hands at that moment.
//
// Clocks need not agree: no replica compares its own with a time that another has written. They must
// run at about the same speed.
//
// # Leases
//
// A session that is not renewed ends twice. Its own replica ends it Options.Margin early, and cancels
// the calls. Another replica ends it LeaseDuration after the last renewal that it has seen, by a change
// of the Lease, so that a renewal that is on its way is refused. Then the buckets are free.
//
// A replica that releases a bucket writes into its Lease which versions it has seen, and the keys of
// deletes that are not handled. The session's Lease records which deletes are handled, so that the other
// replicas, which get every delete as well, forget them.
//
// With Options.ByNamespace, one more Lease has the ranges of namespaces. Every Lease records how its replica
// divides: a replica that divides in another way does not join.
//
// Do not change or delete the Leases of a set while it runs. Its replicas write them again, and report
// that. But a replica that starts at that moment may take a bucket that another has had for less than
// RenewEvery, and a bucket whose holder was removed is free at once.
//
// # Tests
//
// The Leases of client-go's fake clientsets have no versions, so that nothing keeps two replicas from
// taking one bucket, and the set does not join. A Source of package informertest can serve the Leases of
// a fake clientset, see the example of [New].
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
// Calls run in this order, and never back. The set orchestrates: its files do not call each other in a circle,
// and what they share stands below them.
//
//   - membership.go runs the set: it joins, has one session after another, and leaves. admission.go begins a
//     session, if the replica may join, and programs.go compares its workers with those of others. renewal.go
//     renews a session, and ends it.
//   - balance.go is the step that compares the buckets with the plan. takeover.go takes a bucket, and catchup.go
//     waits for the caches before its calls begin. release.go releases a bucket. repairs.go writes Leases again
//     that were changed from outside, and deaths.go ends the sessions of replicas that have died.
//   - claims.go records which deletes are handled, and deletes.go passes on deletes that a holder cannot know of.
//   - division.go has the buckets of keys, and has the replicas agree on ranges of namespaces. source.go, part.go
//     and count.go deliver the objects of the replica's namespaces.
//   - calls.go lets calls in, and health.go shows how the set is doing.
//   - setup.go makes a set, set.go has its state, and requests.go its requests.
//   - session.go and holding.go are a session of this replica and a bucket of it, and lag.go is how far its caches
//     are behind. view.go is the set as its Leases show it. options.go is what a program gives to the set, and
//     internal/sharding is the border to its controllers.
//   - internal/leases reads and writes the Leases, and internal/plan decides who should have which bucket.
