// Package storetest checks whether a store meets an informer's requirements on
// informer.Options.Store or informer.Options.Durable. Call [Run] or [RunDurable] from a test of the
// store:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) cache.Store { return mystore.New(t.TempDir()) }, storetest.Options{})
//	}
//
// If the store is also a cache.Indexer or an informer.DurableIndexer, the suite checks its indexes.
// Otherwise it skips these checks, and the message explains what an informer lacks without the
// interface.
//
// Each requirement is a subtest. If it fails, it explains why an informer has the requirement. The
// suite does not check what happens if the process is killed in the middle of a call. Run the tests with
// -race: some checks use the store from several goroutines.
package storetest

// The parts of the package.
//
//   - storetest.go runs the checks with the options of options.go, and checker.go has what they share.
//   - check_store.go checks every store, and check_durable.go and check_scan.go a Durable. check_indexer.go checks indexes.
//     check_history.go makes random histories, and check_survive.go what a store must have after it was closed or crashed.
//   - target.go shows both kinds of stores to the checks in one way. model.go is the state that a Durable should have, and
//     ctx.go a ctx that ends in the middle of a call.
