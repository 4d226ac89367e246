// Package disk has a store for an informer that keeps its objects in a file, with
// their indexes: an operator that is started again goes on where the file stands, in
// the place of listing everything, misses no delete, and needs little memory however
// many objects there are.
//
//	store, err := disk.Open("/var/cache/operator/pods.db", &corev1.Pod{}, disk.Options{
//		Identity: disk.Identity{Cluster: clusterID, Resource: "pods"},
//	})
//	…
//	pods, err := informer.New(informer.ListWatch(client.CoreV1().Pods("")), informer.Options[*corev1.Pod]{Store: store})
//	…
//	err = pods.Run(ctx)
//	…
//	err = store.Close() // when Run has returned
//
// One file is for one informer. With informer.SharedIndexInformerFunc it serves a
// controller-runtime manager: open one file for each example that it asks for, named
// after its kind, and close them when the manager has stopped. A second informer of a
// type, of another namespace, asks with the same example, which does not say so: give
// that one a store in memory.
//
// Objects come back equal in what the API server sends, but not to the last bit: where
// their form has no difference between them, an empty map or slice may come back as
// nil, and a quantity in its canonical form.
//
// # For whom it is
//
// For a program that has so many objects that their memory counts; for one that must
// not miss a delete that happens while it is down; for one whose restarts burden the
// API server. For all others client-go's indexer in memory, the default, is simpler
// and faster to read: every Get here decodes the object, in some 20 µs, and every
// List all of them.
//
// With a million Pods of 2 KiB, a process that has started warm has 40 MiB of memory
// of its own at most, where client-go's indexer takes 5.3 GiB (go run ./measure
// -objects 1000000). The first list needs the memory that it always needs, because
// client-go holds all of it at once: set GOMEMLIMIT, or garbage doubles that, and
// some hundred MiB of the runtime's own bookkeeping stay. The pages of the file are
// no part of these figures: they are the kernel's cache, which it takes back when
// somebody needs the memory. Tools that add them up (RSS) show them, and a
// container's usage may count them until then.
//
// # Volumes
//
// An emptyDir survives a crash and a restart of the container: enough against
// crashes, and for an update of the image in place. It is gone with the Pod. A
// persistent volume survives the Pod: a rollout, a drain, another node. It must be
// one that one Pod alone mounts (ReadWriteOncePod, or ReadWriteOnce with the strategy
// Recreate or a StatefulSet), because a file is open once: a second process gets
// ErrInUse. The disk should be local or a block device. On a network file system such
// as NFS the memory map and the locks are only as good as that file system.
//
// The file takes one and a half times what the objects do as protobuf when a list has
// filled it, in the order of their keys, and up to twice that when many of them have
// changed since, or came in any order, one by one. It never becomes smaller: what is
// free in it is used again. To have room for a file that is set aside, and kept, plan
// for twice as much. It has mode 0600, and holds what the API server returns, Secrets
// too, in clear.
//
// # Durability
//
// A process that ends in any way loses nothing: each Apply is there as a whole, with
// its bookmark and tombstones and in all indexes, or not at all. By default it is
// also on the disk before the informer tells anybody of it. SurviveProcess leaves
// that to the operating system, and makes single writes several times as fast; a loss
// of power then costs the file. An informer puts what has queued up meanwhile into
// one write, so that the default is slower only for one that is nearly idle.
//
// # Files that cannot be used
//
// Open reads the whole file before it uses it. One that is of another cluster,
// resource, namespace, selector or Version, of another type of object or of a type
// that has other fields now, of another format, or that is damaged in any way, is
// renamed and reported, and the store begins empty: the informer lists, as at its
// first start. So no file can keep a program from starting. An update of k8s.io/api
// gives many types a new field, which objects that were stored without it lack: that
// too makes it another type. What was set aside holds the only trace of deletes that
// watchers were not told of; one such file is kept, to be looked at.
//
// What the operating system cannot read at a start is an error of Open, and leaves the
// file alone.
//
// Every record has a checksum of key and content, which each reading checks. A record
// that cannot be read is an error with its key; the informer tries again, and says so
// in its Health, and a restart sets the file aside. A file that is cut short under a
// running store is an error of every call, and never ends the process; nor does it heal
// by itself: restart the program when Health has a StoreError for long. One that is
// removed is missed by nobody until the next start, which lists.
//
// # What to watch
//
// Health().StoreError, as with any store: a full disk is there, and goes away when
// there is room. Health().Tombstones, which are kept until every watcher has handled
// them. The size of the file beside that of the volume. And the log, for
// *SetAsideError: it should not be there but after an update.
package disk
