// Package chaos contains only tests. They put informers of all kinds, over a real API server
// with a real etcd, through the failures of production, and through thousands of watchers that
// come and go.
//
// TestChaos plays faults in random order, for the time given by -chaos: servers that restart,
// that come back with an older etcd, that refuse, throttle, lie or stay silent, definitions
// that go away and come back, programs that crash. After each fault, every store and every
// watcher must have the state of the server. TestChaos prints its seed; -seed plays the faults in
// the same order again, in real time, and -fault plays only one of them. TestSoak runs for the time given by -soak,
// and fails if goroutines, memory, files or metrics grow with the number of joins. Both tests
// print a table, and add it to the file that -table names:
//
//	go test -count=1 -timeout 0 -v ./chaos -chaos 10m -soak 10m -table /tmp/figures.md
package chaos
