// Package share makes equal parts of cached objects one piece of memory.
//
// The objects of a cluster have most of their content in common: the Pods of a Deployment differ in
// their names, addresses and times, and in little else. An informer decodes each of them by itself, so
// its cache has the rest as many times as there are Pods. A [Table] finds equal strings, slices, maps
// and targets of pointers, also in objects of different types, and lets all objects use the same
// one. Nothing is left out: an object has the same content as before.
//
//	table := share.New()
//	inf, err := informer.New(client, informer.Options[*corev1.Pod]{Share: table})
//
// One table can serve all informers of a process. A program that stays with client-go or
// controller-runtime sets [Table.Transform] as the transform of its informers or of its cache.
//
// # Programs that change cached objects
//
// Nobody may change an object of a cache, with or without a table. But without one, such a mistake
// changes one object; with a table, it changes others as well. So find out first whether the program
// makes it: run its tests with KUBE_CACHE_MUTATION_DETECTOR=true, with which client-go's informers, and
// those of package informer, panic when a cached object was changed. A program that changes a copy, made
// by DeepCopy, makes no mistake: the copy shares nothing. A shallow copy is not enough. An append to a
// slice of a cached object is safe, because a shared slice has no room left.
//
// # Not everything is shared
//
// A table keeps an account of each path in the objects, such as the image of a container. Where sharing
// costs more memory than it saves, as for container IDs, the table looks only at a sample. It learns that
// from the first objects, so a cache of a few hundred objects saves less than a large one.
//
// A part is left alone if its type has fields that are not exported, because these may be a lock or a
// cache. A resource.Quantity and a time.Time are known, and shared with the parts around them. So are
// left alone values of interfaces with methods, such as runtime.RawExtension has, and maps whose keys
// are no strings. The fields in and around such a part are shared as usual.
//
// Equal means equal in each bit: a nil slice is not an empty one, and quantities of 500m and 0.5 are
// different. A shared Quantity has its text computed, which otherwise its first String does; so an
// object is equal to another decoding of itself by equality.Semantic.DeepEqual, but not always by
// reflect.DeepEqual.
package share
