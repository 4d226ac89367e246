// Package disk provides a store for an informer that keeps its objects in a file, with their
// indexes. With it, an operator that is restarted resumes from the file instead of listing
// everything, misses no delete, and needs little memory, however many objects there are.
//
//	cluster, err := store.ClusterUID(ctx, client.CoreV1().Namespaces())
//	…
//	store, err := disk.Open("/var/cache/operator/pods.db", &corev1.Pod{}, disk.Options{
//		Identity: store.Identity{Cluster: cluster, Resource: "pods"},
//	})
//	…
//	pods, err := informer.New(client.CoreV1().Pods(""), informer.Options[*corev1.Pod]{Durable: store})
//	…
//	err = pods.Run(ctx)
//	…
//	err = store.Close() // when Run has returned
//
// One file serves one informer. For a controller-runtime manager, open the files in the function
// Options of informer.ClientGo: one file for each example object, named after its kind. Close the
// files when the manager has stopped. A second informer of the same type, for another namespace,
// has the same example: give it a store in memory. In a manager, a delete stays in the file only
// until its key is in the queue of controller-runtime. For a reconcile that must not miss a delete,
// use a controller of package enqueue.
//
// A stored object means the same to the API server as the original, but may differ from it. An
// empty map or slice may come back as nil, and a quantity in its canonical form.
//
// # When to use it
//
// Use it for a program whose objects take much memory, that must not miss a delete while it is
// down, or whose restarts burden the API server. For all other programs the default, a store in
// memory, is simpler and faster to read: every Get here decodes the object, in some 20 µs, and
// every List decodes all objects.
//
// With a million Pods of 2 KiB, a process has at most some 50 MiB of its own memory, even during its first list.
// For the same Pods, client-go's indexer in memory takes 5.3 GiB (go run ./measure -objects 1000000). An informer
// that reads a list as a whole, see informer.IntakeWhole, takes several GiB more. The pages of the file are not
// part of these figures: they are in the kernel's cache, and the kernel frees them when memory is needed. Tools
// that add them up (RSS) show them, and a container's usage may count them until then.
//
// # Volumes
//
// An emptyDir survives a crash and a restart of the container, and an update of the image in
// place. It is deleted with the Pod. A persistent volume survives the Pod: a rollout, a drain, a
// move to another node. Only one Pod may mount the volume
// (ReadWriteOncePod, or ReadWriteOnce with the strategy Recreate or a StatefulSet), because
// only one process may open a file: a second process gets ErrInUse. The disk should be local
// or a block device. A network file system such as NFS may not support memory maps and locks
// well enough.
//
// The file takes one and a half times the size of the objects as protobuf when a list has
// filled it, in the order of their keys. It takes up to twice that when many objects have
// changed since, or came one by one in any order. It never becomes smaller: free space in it
// is reused. Open keeps a file that it sets aside, see below: plan for twice the size. On a
// 32-bit machine, a file can have at most 1 GiB: beyond that, writes return an error as on a
// full disk, and Open sets a larger file aside.
//
// The file holds the objects that the API server returns, also Secrets, unencrypted. It has mode
// 0600, like the files next to it. Open changes the mode of a file that others can read or write.
// If it cannot, because the file has another owner, it sets the file aside. The path must not be
// a symbolic link: Open returns an error, because the other files would be next to the link.
//
// # Durability
//
// A process that ends in any way loses nothing: each Apply is in the file as a whole, with its bookmark and
// tombstones (see informer.Durable) and in all indexes, or not at all. By default it is also on the disk before any
// watcher gets it. With SurviveProcess the operating system chooses when to write, and single writes are several
// times as fast, but after a loss of power the file is lost. An informer puts the changes that have queued up
// during a write into the next one, so the default is slower only for an informer that is nearly idle.
//
// # Files that cannot be used
//
// Open reads the whole file before it uses it. It does not use a file of another cluster,
// resource, namespace, selector or Version, of another format, or of another type of object. A
// type that has other fields now is another type. Nor does it use a file that is damaged in any way. It renames and
// reports such a file, and the store begins empty: the informer lists, as at its first start.
// So nothing in a file can keep a program from starting. An update of k8s.io/api gives many types a new
// field, which objects stored before lack: so a type with a new field counts as another type.
// Code that decodes, such as an UnmarshalJSON, may change without its type. Therefore Open also
// decodes some of the objects, and sets the file aside if one of them cannot be decoded. If another
// object cannot be decoded, its first read returns an error with its key, and the next Open sets
// the file aside. Open does not notice code that decodes objects to something else: change
// Identity.Version with such code.
// A file that is set aside holds the only trace of deletes that watchers did not get. One such
// file is kept for inspection.
//
// If the operating system cannot read the file, Open returns an error and leaves the file alone.
// So a program that gets another user, by runAsUser or runAsNonRoot, does not start on the volume
// of the former user, whose files have mode 0600: Open cannot check the lock, and must not set
// aside a file that another process uses. The error names the owners and explains what to do.
//
// Every record has a checksum of key and content, which each read verifies. If a record cannot
// be read, the read returns an error with its key. The informer retries, and shows the error in
// its Health. The next start sets the file aside. If a file is truncated under a running store,
// every call returns an error, but the process does not end. The store does not recover by
// itself: restart the program if Health keeps showing a StoreError. If the file is removed,
// nothing notices until the next start, which lists.
//
// # What to watch
//
// Watch Health().StoreError, as with any store: it shows a full disk until there is room again.
// Watch Health().Tombstones, the number of deleted objects that are kept until every watcher has handled their
// deletes. Compare the size of the file with the size of the volume. And look in the log for *SetAsideError: it
// should appear only after an update.
package disk

// The parts of the package.
//
//   - open.go opens and closes a Store, which store.go declares, under the lock of lock_unix.go.
//   - inspect.go decides whether a file can be used, and sets it aside. check.go reads its pages
//     without bbolt.
//   - database.go is a file that bbolt has open, with its transactions, its one writer and the end
//     of its use if it is damaged. session.go marks it while writes may not be on the disk.
//   - layout.go has the names and limits in the file, record.go the checksums.
//   - change.go encodes and decodes objects. write.go makes changes in one transaction.
//   - index.go is an index in the file. addindexers.go fills it from the objects.
//   - read.go reads records page by page. durable.go and indexer.go have the methods of
//     informer.Durable and informer.DurableIndexer.
