// Package valkey keeps the objects of an informer on a Valkey or Redis server. One process writes with a
// [Store], which is an informer.Durable. Any number of other processes read with a [Source] and an ordinary
// informer over it. They need no connection to the API server.
//
// The writer:
//
//	token, err := valkey.LeaseToken(ctx, clientset.CoordinationV1().Leases(namespace), "operator", id)
//	…
//	store, err := valkey.Open(ctx, client, &corev1.Pod{}, valkey.Options{Identity: identity, Token: token})
//	…
//	pods, err := informer.New(clientset.CoreV1().Pods(""), informer.Options[*corev1.Pod]{Durable: store})
//	…
//	err = store.Run(ctx, pods.Run)
//
// A reader:
//
//	source, err := valkey.NewSource(client, &corev1.Pod{}, identity)
//	…
//	pods, err := informer.NewFrom(source, informer.Options[*corev1.Pod]{})
//	…
//	err = pods.Run(ctx)
//
// client is a client of github.com/valkey-io/valkey-go, which knows the addresses, passwords and TLS. Both
// packages are named valkey, so import one of them under another name.
//
// # When to use it
//
// Use it for a cache that must outlive a node without a volume, or one that several processes read. For
// a cache of one process, package store/disk is faster and needs no server. Many readers that can use
// an API server, such as agents on each node, need no change with package relay.
//
// # One writer
//
// Each write names its Store. The server refuses the writes of a Store that another Store has replaced,
// however late they arrive. Then the call returns ErrFenced, stores nothing, and [Store.Run] ends.
// Options.Token decides which Store is newer, and should come from the Lease of a leader election: a Store with a
// lower token than the server knows is not opened. The token of LeaseToken also rises after
// the Lease was deleted.
//
// The next writer continues from the bookmark, like an informer over any Durable. It makes one list of
// one object and one watch, and its watchers get the deletes that they have missed. Readers do not notice.
//
// # What the server may lose
//
// Each write is one script, which the server runs as a whole or not at all. With an append-only file and
// appendfsync always, the server loses nothing that it has confirmed. With appendfsync everysec, a server
// that is killed or loses power may lose the last two seconds. A replica may be behind by more. If the
// server has an older state than the writer has written, or lacks a part of the store, the next call of
// the writer returns ErrLost, and Run ends. The next Open continues with the older state. If a part is
// missing, it begins an empty store and reports a *MissingError. Watchers then never get the deletes that
// they had not received by then.
//
// A reader gets no delete that did not happen, and misses none. While the server is empty, lacks a part or
// is behind the reader, the reader keeps what it has: lists get 503, new watches get 429, and open watches get
// nothing. When the server has the version of the reader again, the reader lists. There are two exceptions. A
// reader that keeps its own state in a Durable, and starts after the server has gone back, cannot notice that.
// A reader of a new store cannot notice it either, if the server comes back with the complete earlier store.
//
// All of this is about one primary. If a primary that is cut off from its replicas keeps confirming
// writes, there are two primaries. Set min-replicas-to-write, so that it refuses such writes.
//
// While the writer's informer has no exact state, the store has no version, and readers wait. That is so during
// a list, from an error of Transform until the object changes again, and from a change that the store refuses until the
// next list.
//
// A server that evicts keys would lose parts of a store at any time. So Open refuses a server whose
// maxmemory-policy begins with allkeys-. With other policies, a write returns an error when the memory is full. The
// informer repeats the write and shows the error in its Health.
//
// # Readers
//
// The server keeps a log of the changes between states of the API server, with the API server's
// versions. A reader lists the objects, follows the log, and continues from its version after a lost connection.
// If the log does not go back that far (Options.Log), the reader's watch ends with 410, and the reader
// lists again. After the writer has listed again, all readers do so, because the changes in between are
// not known one by one.
//
// An informer over several namespaces, clusters or kinds can write a Store, but its readers get 503, because no
// single version describes its state. Only the writer can have selectors.
//
// # On the server
//
// A store has five keys, which begin with informer: and a hash of the Identity and of the type of the
// objects, down to its fields. So a program whose type has other fields uses other keys, and its readers
// wait for a writer of that program. The field "label" of the key that ends with "about" has the Identity
// of the store. Delete the keys of stores that are no longer needed. In a cluster of servers, all keys of a
// store are on one node.
//
// Secrets are stored unencrypted. Use TLS, and give the stores a user that can use only their keys:
//
//	ACL SETUSER operator on >PASSWORD ~informer:* +@read +@write +@scripting +@connection +time
//
// The server needs about one and a half times the size of the objects as protobuf, and as much again
// for each object in the log.
//
// # What to watch
//
// As with any store, the writer's Health has the errors of the server, and the page of package debug and the
// metrics have the durations of calls. [Store.Status] and [Source.Status] return who writes, since when, and
// which version the store has. A reader is behind by the time since its Health's LastProgress: a writer that
// works confirms its version about once a minute.
//
// When the writer has exited, or cannot reach the API server, its readers stay ready with what they have.
// Their lists and watches do not fail, and each watch that opens sets LastContact, so other alerts do
// not fire. Alert on LastProgress, by the metric of module metrics/prometheus:
//
//	time() - informer_last_progress_timestamp_seconds > 900
//
// Then look at the writer that Status names, and at its election. The readers and their connections
// work: a restart of a reader changes nothing.
//
// Each watch of a reader holds one connection that waits for changes.
package valkey

// The parts of the package.
//
//   - store.go opens a Store. durable.go and read.go have its methods, write.go plans a write, and
//     token.go makes the number that fences writers.
//   - source.go lists for readers, watch.go follows the log, and head.go reads its entries, and decides whether the log has
//     all changes after a version.
//   - script.go runs the scripts in lua, each of which is one atomic step. lua/state.lua checks the fence.
//   - keys.go has the names on the server, position.go the position of a store after a write.
//   - options.go, errors.go and status.go are what a program gives and gets.
