// Package disk has a store for an informer that keeps its objects in a file, with their
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
// One file serves one informer. With Options of informer.ClientGo the package serves a
// controller-runtime manager: open one file for each example object that the manager asks for,
// named after its kind, and close the files when the manager has stopped. A second informer of
// the same type, for another namespace, asks with the same example, which does not show the
// difference: give that informer a store in memory.
//
// Objects come back equal as far as the API server is concerned, but not identical: where
// their encoding has no difference between them, an empty map or slice may come back as nil,
// and a quantity in its canonical form.
//
// # For whom it is
//
// Use it for a program whose objects take much memory, for one that must not miss a delete
// that happens while it is down, or for one whose restarts burden the API server. For all
// others the default, a store in memory, is simpler and faster to read: every Get
// here decodes the object, in some 20 µs, and every List decodes all objects.
//
// With a million Pods of 2 KiB, a process has some 50 MiB of memory of its own at most, also in its
// first list, where client-go's indexer in memory takes 5.3 GiB (go run ./measure -objects 1000000). A list
// that is taken in as a whole, see informer.IntakeWhole, takes several GiB more. The pages of the
// file are not part of these figures: they are in the kernel's cache, and the kernel frees them
// when memory is needed. Tools that add them up (RSS) show them, and a container's usage may count
// them until then.
//
// # Volumes
//
// An emptyDir survives a crash and a restart of the container: enough against crashes, and for
// an update of the image in place. It is deleted with the Pod. A persistent volume survives
// the Pod: a rollout, a drain, another node. Only one Pod may mount the volume
// (ReadWriteOncePod, or ReadWriteOnce with the strategy Recreate or a StatefulSet), because
// only one process may open a file: a second process gets ErrInUse. The disk should be local
// or a block device. On a network file system such as NFS the memory map and the locks are
// only as good as that file system.
//
// The file takes one and a half times the size of the objects as protobuf when a list has
// filled it, in the order of their keys. It takes up to twice that when many objects have
// changed since, or came in any order, one by one. It never becomes smaller: free space in it
// is reused. A file that is set aside is kept: plan for twice the size. On a machine of 32 bit, a
// file can have 1 GiB: beyond that, writes fail as on a full disk, and Open sets a larger file
// aside.
//
// The file holds the objects that the API server returns, Secrets too, in clear. It has mode
// 0600, as the files next to it: Open changes the mode of a file that others can read or write,
// and if it cannot, because the file has another owner, it sets the file aside. The path must not
// be a symbolic link: Open returns an error, since the other files would be next to the link.
//
// # Durability
//
// A process that ends in any way loses nothing: each Apply is in the file as a whole, with its
// bookmark and tombstones and in all indexes, or not at all. By default it is also on the disk
// before any watcher gets it. SurviveProcess leaves the time of the write to the
// operating system, and makes single writes several times as fast; a loss of power then costs
// the file. An informer puts the changes that have queued up meanwhile into one write, so that
// the default is slower only for an informer that is nearly idle.
//
// # Files that cannot be used
//
// Open reads the whole file before it uses it. It does not use a file of another cluster,
// resource, namespace, selector or Version, of another type of object or of a type that has
// other fields now, of another format, or a file that is damaged in any way. It renames and
// reports such a file, and the store begins empty: the informer lists, as at its first start.
// So nothing in a file can keep a program from starting. An update of k8s.io/api gives many types a new
// field, which objects stored before lack: so a type with a new field counts as another type.
// Code that decodes, such as an UnmarshalJSON, may change without its type. Therefore Open also
// decodes some of the objects, and sets the file aside if one of them cannot be decoded. If it
// has missed one, the first read of that object returns an error with its key, and the next Open
// sets the file aside. Objects that are decoded to something else are not noticed: change
// Identity.Version with such code.
// A file that is set aside holds the only trace of deletes that watchers did not get; one such
// file is kept for inspection.
//
// If the operating system cannot read the file at a start, Open returns an error and leaves
// the file alone. So a program that gets another user, by runAsUser or runAsNonRoot, does not start
// on the volume of the former one, whose files have mode 0600: Open cannot look at the lock, and a
// file that another process uses must not be set aside. The error has the owners and the remedy.
//
// Every record has a checksum of key and content, which each read verifies. A record that
// cannot be read leads to an error with its key; the informer retries, and reports it in its
// Health; a restart sets the file aside. If a file is truncated under a running store, every
// call returns an error, but the process does not end. The store does not recover by itself:
// restart the program when Health has a StoreError for long. If the file is removed, nothing
// notices until the next start, which lists.
//
// # What to watch
//
// Watch Health().StoreError, as with any store: a full disk appears there, and disappears when
// there is room. Watch Health().Tombstones, which are kept until every watcher has handled
// them. Compare the size of the file with that of the volume. And look in the log for
// *SetAsideError: it should appear only after an update.
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
