// Package valkey keeps the objects of an informer on a Valkey or Redis server. One process writes: it has
// a [Store], which is an informer.Durable. Any number of other processes read: each has a [Source],
// and an ordinary informer over it, and needs no connection to the API server.
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
// client is one of github.com/valkey-io/valkey-go, with the addresses, passwords and TLS that it was
// given. Both packages are named valkey, so import one of them under another name.
//
// # For whom it is
//
// Use it for a cache that must outlive a node without a volume, or one that several processes read. For
// a cache of one process, package store/disk is faster and needs no server. For many readers that may talk
// to an API server, such as agents on each node, package relay needs no change in them.
//
// # One writer
//
// Each write names its Store. The server refuses the writes of a Store that another one has replaced,
// however late they arrive. The call then returns ErrFenced, nothing of it is stored, and [Store.Run] ends.
// Options.Token decides which Store is newer, and should come from the Lease of a leader election: a Store with a
// lower token than the server knows is not opened. The token of LeaseToken also rises after somebody
// has deleted the Lease.
//
// The next writer continues from the bookmark, like an informer over any Durable. It makes one list of
// one object and one watch, and its watchers get the deletes that they have missed. The readers notice nothing.
//
// # What the server may lose
//
// Each write is one script, which the server runs as a whole or not at all. With an append-only file and
// appendfsync always, the server loses nothing that it has confirmed. With appendfsync everysec, a server
// that is killed or loses power may lose the last two seconds. A replica may be behind by more.
// The next call of the writer notices a server with an older state than it has written, or without all
// parts of the store: the call gets ErrLost, and Run ends. The next Open continues with an older
// state. If a part is missing, it begins an empty store and reports a *MissingError. Then deletes that no
// watcher got never come.
//
// A reader gets no delete that did not happen, and misses none. While the server is empty, lacks a part or
// is behind the reader, lists get 503, new watches 429, and open watches nothing, and the reader keeps what it has.
// When the server has the version of the reader again, the reader lists. There are two exceptions. A reader that
// keeps its own state in a Durable, and starts after the server has gone back, cannot know that. Neither can
// a reader of a new store, if the server then comes back with the whole store before that one.
//
// All of this is about one primary. If a primary that is cut off from its replicas keeps confirming
// writes, there are two. Set min-replicas-to-write, so that it refuses them.
//
// While the writer's informer has no exact state, the store has no version, and readers wait: during a list, and
// after an object that could not be used, such as one that the Transform refuses, until the next list. The same
// holds after a call of Add, Update, Delete or Replace.
//
// A server that evicts keys would lose parts of a store at any time. So Open refuses a server whose
// maxmemory-policy begins with allkeys-. With other policies, a full memory is an error of the write, which the
// informer repeats and shows in its Health.
//
// # Readers
//
// The server keeps a log of the changes between states of the API server, with the API server's
// versions. A reader lists the objects, follows the log, and continues from its version after a lost connection.
// If the log has been trimmed further than that (Options.Log), the reader's watch ends with 410, and it
// lists again. After the writer has listed again, all readers do so, because the changes in between are
// not known one by one.
//
// An informer over several namespaces, clusters or kinds can write a Store, but its readers get 503, because no
// single version describes its state. Selectors are those of the writer.
//
// # On the server
//
// A store has five keys, which begin with informer: and a hash of the Identity and of the type of the
// objects, down to its fields. So a program whose type has other fields uses other keys, and its readers
// wait for a writer of that program. The field label of the key that ends with about has the Identity
// of the store; delete the keys of stores that are not needed any more. All keys of a store are on one node of a
// cluster.
//
// Secrets are stored in clear. Use TLS, and give the stores a user that has their keys alone:
//
//	ACL SETUSER operator on >PASSWORD ~informer:* +@read +@write +@scripting +@connection +time
//
// The server takes about one and a half times the size of the objects as protobuf, and the log as
// much again for each object in it.
//
// # What to watch
//
// The writer's Health has the failures of the server, and the page and the metrics have their durations, as
// with any store. [Store.Status] and [Source.Status] show which store writes, since when, and which version the store
// has. A reader is behind by the time since its Health's LastProgress: a writer that works confirms its
// version about once a minute.
//
// When the writer has ended, or cannot reach the API server, its readers stay ready with what they have.
// No list and no watch of theirs fails, and LastContact counts each watch that opens, so no alert
// fires for it. Alert on LastProgress, by the metric of module metrics/prometheus:
//
//	time() - informer_last_progress_timestamp_seconds > 900
//
// Then look at the writer that Status names, and at its election. The readers and their connections are
// well: a restart of a reader changes nothing.
//
// Each watch of a reader holds one connection that waits for changes.
package valkey

// The parts of the package.
//
//   - store.go opens a Store. durable.go and read.go have its methods, write.go plans a write, and
//     token.go makes the number that fences writers.
//   - source.go lists for readers, watch.go follows the log, and head.go reads its newest entries.
//   - script.go runs the scripts in lua, each of which is one atomic step. lua/state.lua checks the fence.
//   - keys.go has the names on the server, position.go where a store stands after a write.
//   - options.go, errors.go and status.go are what a program gives and gets.
