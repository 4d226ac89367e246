// Package share lets equal parts of cached objects share memory.
//
// The objects of a cluster have most of their content in common: the Pods of a Deployment differ in
// their names, addresses and times, and in little else. An informer decodes each object by itself, so
// its cache holds the rest once for each Pod. A [Table] finds equal strings, slices, maps and targets of
// pointers, also in objects of different types, and makes all objects use the same one. Nothing is
// left out: an object has the same content as before.
//
//	table := share.New()
//	inf, err := informer.New(client.CoreV1().Pods(""), informer.Options[*corev1.Pod]{Share: table})
//
// One table can serve all informers of a process. A program that stays with client-go or
// controller-runtime sets [Table.Transform] as the transform of its informers or of its cache.
//
// # Programs that change cached objects
//
// A program must not change an object of a cache, with or without a table. Without a table, such a
// mistake changes one object. With a table, it changes all objects that have the same part: a label that
// is set on one ConfigMap may appear on thousands. It may also end the process, because the table reads
// shared maps while it compares them. So find out first whether the program makes this mistake:
//
//   - go test -race reports a change of an object that others read at the time.
//   - With KUBE_CACHE_MUTATION_DETECTOR=true in the environment of the process (t.Setenv is too late),
//     the informers of client-go and of package informer panic when a cached object was changed. They
//     compare about once a second, but not when they stop: keep them running for some seconds. Use no
//     table for this test, because with one they also name objects that only share the changed part.
//
// Methods of a *resource.Quantity, even Cmp, may change the Quantity. Call them on a copy.
//
// A copy made by DeepCopy shares nothing and may be changed; a shallow copy may not. An append to a slice
// of a cached object is safe: a shared slice has no spare capacity, so append copies it.
//
// # Comparing objects
//
// Use equality.Semantic.DeepEqual. A resource.Quantity caches its text, and sharing computes that text, as
// the first call of String would. So reflect.DeepEqual may see a difference between a shared object and
// another decoding of it. Apart from that, equal means equal in each bit: a nil slice is not an empty
// one, and quantities of 500m and 0.5 are different.
//
// # Not everything is shared
//
// For each path in the objects, such as the image of a container, a table keeps an account of the memory
// that sharing saves and costs. Where sharing costs more than it saves, as for container IDs, the table
// looks only at a sample. A cache of a few hundred objects saves less than a large one: there are fewer
// equal objects in it, and the table is still learning.
//
// A part is not shared if its type has unexported fields, because these may be a lock or a cache.
// resource.Quantity and time.Time are exceptions: they are shared as a part of the struct that holds
// them. Values of interfaces with methods, such as the Object of a runtime.RawExtension, and maps whose
// keys are not strings are not shared either. The fields in and around such a part are shared as usual.
package share

// The parts of the package.
//
//   - table.go is the Table. update.go is the walk over an object with an earlier state. hash.go and replace.go are the two
//     walks over any other object, work.go has their state and limits, and equal.go compares parts.
//   - types.go decides which types are shared, and account.go whether values at a path are looked at. place.go keeps what
//     is known of each path.
//   - weaktable.go holds the parts, and decides when to drop those that were collected. memory.go has all use of unsafe.
