package storetest

// The parts of the package.
//
//   - storetest.go runs the checks with the options of options.go, and checker.go has what they share.
//   - check_store.go checks every store, and check_durable.go and check_scan.go a Durable. check_indexer.go checks indexes.
//     check_history.go makes random histories, and check_survive.go what a store must have after it was closed or crashed.
//   - target.go shows both kinds of stores to the checks in one way. model.go is the state that a Durable should have, and
//     ctx.go a ctx that ends in the middle of a call.
