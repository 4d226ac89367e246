// Package shards contains only tests. They put the replicas of a sharded controller through random
// histories: replicas come, go, restart, are killed, stopped for longer than their session lasts and
// cut off, their clocks are wrong, and the API server restarts, while objects are written and deleted
// all the time. In half of the histories each replica caches only the objects of its own namespaces,
// and one API server selects them, or another one that does not, or both answer in turn.
//
// Each replica is a process of its own, the test binary started again. The API server is a real one.
// A recorder in the test's process gets a message at the begin and the end of each call of reconcile, also
// by replicas that are cut off from the API server. It is the outside system that checks fencing
// tokens.
//
// TestHistories prints the seed of each history. -shards-seed plays a history again, and -shards-step
// plays only one kind of step:
//
//	go test -race -run TestHistories -v ./shards -shards-seed 7 -shards-histories 1
package shards
