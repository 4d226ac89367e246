package informer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/index"
	"github.com/customcacheinformer/informer/internal/memory"
	"github.com/customcacheinformer/informer/internal/object"
)

// Reader reads the objects that an informer has in its store. [CustomCacheInformer] implements it. A function that
// only reads should take a Reader. Objects are shared and must not be changed.
//
// All methods may be called at any time and from any goroutine, also before Run. They read the store as it is now, so
// before the informer has synced they may not find all objects. A later call may see a later state. If several calls must
// see the same state, read from a [Snapshot], which is a Reader too.
//
// Over the informer's own store, Get and ByIndex do not block. List and All may wait for a moment, as
// [CustomCacheInformer.Snapshot] does, and see one state. Over another store, all methods block until that store answers.
type Reader[T Object] interface {
	// Get returns the object with that key, or the zero T and false if there is none. Get, List and ByIndex return an
	// error if the store cannot be read or if it has an object of another type.
	Get(key types.NamespacedName) (obj T, exists bool, err error)
	// List returns the objects in a namespace that match sel, in no particular order. "" means all namespaces, and a
	// nil sel matches all objects.
	List(namespace string, sel labels.Selector) ([]T, error)
	// ByIndex returns the objects for which the index function called name returned value, in no particular order.
	// Besides those of Options.Indexers and Options.Fields, the index cache.NamespaceIndex always exists. If there is no
	// index of that name, ByIndex returns an error.
	ByIndex(name, value string) ([]T, error)
	// All yields every object with its key, in no particular order. If the store cannot be read, the iteration ends
	// early, see [CustomCacheInformer.All].
	All() iter.Seq2[types.NamespacedName, T]
}

// Get returns the object with that key, see [Reader.Get]. If the store fails, the error is a *StoreError.
// For an informer of [NewOverClusters], Get always returns an error: use [Clusters.In].
func (i *CustomCacheInformer[T]) Get(key types.NamespacedName) (obj T, exists bool, err error) {
	name := object.KeyOf(key)
	switch {
	case i.gate.clusters:
		return obj, false, fmt.Errorf("informer %s: Get: %w", i.opts.Name, errNoCluster)
	case i.own != nil:
		raw, _ := i.own.Part(i.source(name)).Get(name)
		if obj, exists = raw.(T); exists || raw == nil {
			return obj, exists, nil
		}
	}
	return i.get(name)
}

// get reads an object from the store by its key.
func (i *CustomCacheInformer[T]) get(name string) (obj T, exists bool, err error) {
	return i.getUntil(context.Background(), name)
}

// getUntil is like get, but the read of a Durable ends when ctx ends.
func (i *CustomCacheInformer[T]) getUntil(ctx context.Context, name string) (obj T, exists bool, err error) {
	obj, exists, err = index.Get[T](ctx, i.scan, name)
	if err != nil {
		var none T
		return none, false, &StoreError{Op: "get", Key: name, Failures: 1, Err: err}
	}
	return obj, exists, nil
}

// List returns the objects in a namespace that match sel, see [Reader.List].
func (i *CustomCacheInformer[T]) List(namespace string, sel labels.Selector) ([]T, error) {
	if i.own != nil {
		return i.shown(i.own.Snapshot()).List(namespace, sel)
	}
	if namespace == "" {
		return i.under("", sel)
	}
	objs, err := i.index.Find(cache.NamespaceIndex, namespace)
	return selected(objs, sel), err
}

// under reads the objects whose keys begin with prefix, and returns those that match sel.
func (i *CustomCacheInformer[T]) under(prefix string, sel labels.Selector) ([]T, error) {
	objs, err := index.All[T](context.Background(), i.scan, prefix)
	return selected(objs, sel), err
}

func selected[T Object](objs []T, sel labels.Selector) []T {
	if sel == nil || sel.Empty() {
		return objs
	}
	return slices.DeleteFunc(objs, func(obj T) bool { return !sel.Matches(labels.Set(obj.GetLabels())) })
}

// ByIndex returns the objects with that value in an index, see [Reader.ByIndex]. An object has the values that the
// index function last returned for it. While the informer's own store writes a batch of changes, ByIndex may return
// some objects in the new state and others in the old one. ByIndex of a [Snapshot] returns all objects in one state, but
// the next writes after a Snapshot are slower.
func (i *CustomCacheInformer[T]) ByIndex(name, value string) ([]T, error) {
	if i.own != nil {
		return i.shown(i.own.Now()).ByIndex(name, value)
	}
	objs, err := i.index.Find(name, value)
	if err != nil {
		return nil, fmt.Errorf("informer %s: ByIndex: %w", i.opts.Name, err)
	}
	return objs, nil
}

// All yields every object with its key, see [Reader.All]. It skips objects of another type that other code has put
// into the store. If a Durable fails, the iteration ends, and Options.ErrorHandler gets a *StoreError.
func (i *CustomCacheInformer[T]) All() iter.Seq2[types.NamespacedName, T] {
	return func(yield func(types.NamespacedName, T) bool) {
		if i.own != nil {
			i.shown(i.own.Snapshot()).All()(yield)
			return
		}
		i.yield("", yield)
	}
}

// yield yields every object of the store that is a T and whose key begins with prefix.
func (i *CustomCacheInformer[T]) yield(prefix string, yield func(types.NamespacedName, T) bool) {
	i.each(prefix, func(_ object.Entry, obj T) bool {
		return yield(types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}, obj)
	})
}

func (i *CustomCacheInformer[T]) each(prefix string, visit func(object.Entry, T) bool) {
	err := i.scan.EachUnder(context.Background(), prefix, func(e object.Entry) bool {
		obj, ok := e.Object.(T)
		return !ok || visit(e, obj)
	})
	if err != nil {
		i.report(context.Background(), &StoreError{Op: "scan", Failures: 1, GaveUp: true, Err: err})
	}
}

// ResourceVersion returns the version up to which the store has every change, or "" until the first list is in the store
// or, over a [Durable], the watch continues. For several namespaces it returns the lowest of their versions. For an
// informer of [NewOverClusters] it returns "", because versions of different clusters cannot be compared: see Versions.
// With client-go's fakes, whose objects have no versions, it stays at the version of the last list. It does not block.
func (i *CustomCacheInformer[T]) ResourceVersion() string {
	rv, _ := i.gate.resourceVersion(nil)
	return rv
}

// ServerVersion asks the server for its current resourceVersion of the resource in a namespace. The namespace matters only
// for an informer of [NewInNamespaces]. The request lists at most one object, and the API server does not answer it from an
// old cache. So a process can check whether the server has reached a version that another process has passed on. That may
// never happen if etcd was restored, or if the other process reads another cluster. ServerVersion blocks until the answer
// arrives or ctx ends. It returns an error if the request fails, or if the informer does not run or does not read the
// namespace. For an informer of [NewOverClusters], use ServerVersionIn.
func (i *CustomCacheInformer[T]) ServerVersion(ctx context.Context, namespace string) (string, error) {
	s := i.gate.scopeOf(namespace)
	if s == nil || i.gate.clusters {
		return "", fmt.Errorf("informer %s: ServerVersion: the informer does not read the namespace %q", i.opts.Name, namespace)
	}
	rv, err := s.Newest(ctx)
	if err != nil {
		return "", fmt.Errorf("informer %s: ServerVersion: %w", i.opts.Name, err)
	}
	return rv, nil
}

// SourceVersions shows how far an informer has read one of its sources.
type SourceVersions struct {
	// Namespace is the namespace of the source, for an informer of [NewInNamespaces], and otherwise "".
	Namespace string
	// Cluster is the cluster of the source, for an informer of [NewOverClusters], and otherwise "".
	Cluster string
	// ResourceVersion is the version up to which the store has every change, or "" until the first list is in the
	// store or, over a [Durable], the watch continues. Each bookmark raises it, even if no object has changed.
	ResourceVersion string
	// Listed is the version of the last list, or the version at which the informer has continued from a [Durable]
	// without a list. The source sends one event for each change after Listed. It sends none for a delete before
	// Listed: the list only lacks the object. Listed is "" as long as ResourceVersion is.
	Listed string
	// Changed is the highest version of an object or of a delete that the store has, or is about to get. It is "" if
	// there is none. No reader has seen a later state of the store. For a delete that only a list has shown, Changed
	// is the version of the list. Unlike ResourceVersion, Changed does not move with bookmarks. If the server goes
	// back in time, Changed goes back too.
	Changed string
	// Watching is how long the current watch has been open, or 0 if none is open. A watch that was opened only now, after
	// a failure, may still deliver changes that happened long ago.
	Watching time.Duration
}

// Versions returns how far the informer has read each of its sources. There is usually one source. An informer of
// [NewInNamespaces] has one for each namespace, in the given order, and one of [NewOverClusters] has one for each cluster,
// in the order of Engage. Versions does not block.
//
// A process that hands work over can pass on Changed of each source, with Namespace or Cluster. The process that takes over
// passes both to [CustomCacheInformer.WaitForVersion] or WaitForVersionIn. Then it never works from an older state than the
// first process had. The wait is only for changes that have happened.
//
// An informer that continues from the bookmark of a [Durable] begins with this bookmark as Changed. Otherwise objects that
// the store had before Run do not count until they are listed. The objects of client-go's fakes have no versions, so
// Changed stays "". If Transform removes the resourceVersion of listed objects, Changed does not include it.
func (i *CustomCacheInformer[T]) Versions() []SourceVersions {
	var versions []SourceVersions
	for _, s := range i.gate.scopes() {
		rv, _ := i.gate.resourceVersion(s)
		var watching time.Duration
		if status := s.Status(); status.Watching {
			watching = time.Since(status.Opened)
		}
		versions = append(versions, SourceVersions{Watching: watching, Namespace: s.namespace, Cluster: s.cluster.name(), ResourceVersion: rv, Listed: i.gate.base(s), Changed: s.changed.Get()})
	}
	return versions
}

// In returns a Reader of the objects of one cluster. In does not block. The Reader may be kept: each of its methods reads the cluster
// at the time of the call. While the cluster is not engaged, Get, List and ByIndex return an error that wraps [ErrNotEngaged], and
// All yields nothing. Before the first list of the cluster is in the store, the Reader may find only some of its objects. After
// [Clusters.Replace], it may still find those of the old cluster: see WaitForSyncIn.
func (c *Clusters[T]) In(cluster string) Reader[T] { return clusterReader[T]{c, cluster} }

type clusterReader[T Object] struct {
	of      *Clusters[T]
	cluster string
}

// engaged calls read, again if the cluster was replaced meanwhile, and returns its error. The error wraps ErrNotEngaged unless the
// cluster is engaged before and after the call.
func (r clusterReader[T]) engaged(read func() error) error {
	for before, engaged := r.of.scope(r.cluster); engaged; {
		last, err := before, read()
		if before, engaged = r.of.scope(r.cluster); before == last {
			return err
		}
	}
	return fmt.Errorf("informer %s: cluster %q: %w", r.of.opts.Name, r.cluster, ErrNotEngaged)
}

// in returns the part of one cluster of the snapshot that take returns.
func (r clusterReader[T]) in(take func() *memory.Snapshot) (s *Snapshot[T], err error) {
	err = r.engaged(func() error { s = r.of.shown(take()).In(r.cluster); return nil })
	return s, err
}

func (r clusterReader[T]) Get(key types.NamespacedName) (obj T, exists bool, err error) {
	if r.of.own == nil {
		err = r.engaged(func() (err error) { obj, exists, err = r.of.get(object.KeyIn(r.cluster, key)); return err })
		return obj, exists, err
	}
	s, err := r.in(r.of.own.Now)
	if err != nil {
		return obj, false, err
	}
	return s.Get(key)
}

func (r clusterReader[T]) List(namespace string, sel labels.Selector) (objs []T, err error) {
	if r.of.own == nil {
		prefix := r.cluster + object.ClusterMark
		if namespace != "" {
			prefix += namespace + "/"
		}
		err = r.engaged(func() (err error) { objs, err = r.of.under(prefix, sel); return err })
		return objs, err
	}
	s, err := r.in(r.of.own.Snapshot)
	if err != nil {
		return nil, err
	}
	return s.List(namespace, sel)
}

func (r clusterReader[T]) ByIndex(name, value string) (objs []T, err error) {
	if r.of.own == nil {
		err = r.engaged(func() (err error) {
			objs, err = r.of.index.FindUnder(r.cluster+object.ClusterMark, name, value)
			return err
		})
		return objs, err
	}
	s, err := r.in(r.of.own.Now)
	if err != nil {
		return nil, err
	}
	return s.ByIndex(name, value)
}

func (r clusterReader[T]) All() iter.Seq2[types.NamespacedName, T] {
	return func(yield func(types.NamespacedName, T) bool) {
		if r.of.own == nil {
			if _, engaged := r.of.scope(r.cluster); engaged {
				r.of.yield(r.cluster+object.ClusterMark, yield)
			}
			return
		}
		if s, err := r.in(r.of.own.Snapshot); err == nil {
			s.All()(yield)
		}
	}
}

// Snapshot is the state of an informer between two batches of changes, and implements [Reader].
// [CustomCacheInformer.Snapshot] or [SnapshotOf] takes one. It never changes: all of its methods read the same state, with
// the indexes of that state. The methods do not block, and may be called from any goroutine, also after the informer stops.
//
// Use a snapshot if several reads must see the same state, such as a list and the lookups for each of its objects. Take it
// when you need it, and drop it afterwards, because it keeps objects in memory that were replaced or deleted since. Taking
// one costs as little for a million objects as for one, but the next writes have to copy small parts of the store.
type Snapshot[T Object] struct {
	view     *memory.Snapshot
	source   func(key string) string
	at       moment
	name     string
	clusters bool   // the state is that of several clusters
	prefix   string // of the keys, if it is that of one of them
}

// Snapshot returns the state of the store between two batches of changes. It may be called at any time, also before Run. In
// a watcher's callback, the snapshot has the change of the event, and perhaps later ones. Snapshot waits only for a write
// that is under way, of at most 256 changes. That usually takes less than a millisecond.
//
// Only the informer's own store has snapshots. If Options.Store or Options.Durable is set, Snapshot always returns nil
// and an error. A function that should work over any store takes a [Reader].
func (i *CustomCacheInformer[T]) Snapshot() (*Snapshot[T], error) {
	if i.own == nil {
		return nil, fmt.Errorf("informer %s: Snapshot: %w", i.opts.Name, errNoSnapshots)
	}
	return i.shown(i.own.Snapshot()), nil
}

// SnapshotRequest asks [SnapshotOf] for a snapshot of one informer. [CustomCacheInformer.SnapshotTo] makes one.
type SnapshotRequest struct {
	of   *memory.Store
	name string
	take func(*memory.Snapshot)
}

// SnapshotTo returns a request for [SnapshotOf]. SnapshotOf sets *to to the snapshot, or returns an error if to is nil.
// SnapshotTo itself takes no snapshot and does not block.
func (i *CustomCacheInformer[T]) SnapshotTo(to **Snapshot[T]) SnapshotRequest {
	r := SnapshotRequest{of: i.own, name: i.opts.Name}
	if to != nil {
		r.take = func(v *memory.Snapshot) { *to = i.shown(v) }
	}
	return r
}

// SnapshotOf takes snapshots of several informers at one moment: none of the informers writes its store between two of the
// snapshots. But each informer is only as new as its own source, so a Pod may be there before its Node. SnapshotOf may be
// called at any time, also before Run, and waits only for writes that are under way. If an informer has no snapshots (see
// [CustomCacheInformer.Snapshot]), or a request cannot be used, SnapshotOf returns an error and takes no snapshot.
//
//	var pods *informer.Snapshot[*corev1.Pod]
//	var nodes *informer.Snapshot[*corev1.Node]
//	err := informer.SnapshotOf(podInformer.SnapshotTo(&pods), nodeInformer.SnapshotTo(&nodes))
func SnapshotOf(requests ...SnapshotRequest) error {
	stores := make([]*memory.Store, len(requests))
	for n, r := range requests {
		switch stores[n] = r.of; {
		case r.name == "":
			return errors.New("informer: SnapshotOf: a SnapshotRequest was not made by SnapshotTo")
		case r.of == nil:
			return fmt.Errorf("informer %s: SnapshotOf: %w", r.name, errNoSnapshots)
		case r.take == nil:
			return fmt.Errorf("informer %s: SnapshotTo has nil, in place of the address of a *Snapshot", r.name)
		}
	}
	for n, v := range memory.Snapshots(stores...) {
		requests[n].take(v)
	}
	return nil
}

// shown returns v as a Snapshot.
func (i *CustomCacheInformer[T]) shown(v *memory.Snapshot) *Snapshot[T] {
	return &Snapshot[T]{view: v, source: i.source, at: momentOf(v), name: i.opts.Name, clusters: i.gate.clusters}
}

// In returns the part of s that belongs to one cluster, for an informer of [NewOverClusters]. If s has no objects of that
// cluster, the part is empty. For other informers, and for a result of In, In returns s.
func (s *Snapshot[T]) In(cluster string) *Snapshot[T] {
	if !s.clusters {
		return s
	}
	return &Snapshot[T]{view: s.view.In(cluster), source: func(string) string { return cluster }, name: s.name, prefix: cluster + object.ClusterMark}
}

// Version returns the resourceVersion at which the source was exactly in this state, or "" if there is none. With
// QueueDeltaFIFO, the default of Options.Queue, it is always "", because that queue changes the order of events. With
// QueueRealFIFO, it is "" until the first list is complete, and during a later list. If an object cannot be decoded or used, or
// Transform fails for it, it is "" until the object is usable again or deleted, or the next list. It is also "" for a source
// without versions, and for several namespaces or clusters: see Versions. Your own writes to the store do not change it.
func (s *Snapshot[T]) Version() string { return s.at.version() }

// Versions returns one version for each source, as [Snapshot.Version] does for a single source, in the order of
// [CustomCacheInformer.Versions]. It returns nil with QueueDeltaFIFO, before anything arrived from a source, and for
// the result of In. The caller may change the slice.
func (s *Snapshot[T]) Versions() []string { return slices.Clone(s.at.versions) }

// Get returns the object with that key, see [Reader.Get]. Get, List and ByIndex return an error if the store has an
// object of another type, and ByIndex also if the index does not exist. For an informer of [NewOverClusters], Get needs
// [Snapshot.In], and otherwise returns an error.
func (s *Snapshot[T]) Get(key types.NamespacedName) (obj T, exists bool, err error) {
	if s.clusters {
		return obj, false, fmt.Errorf("informer %s: Get: %w", s.name, errNoCluster)
	}
	name := s.prefix + object.KeyOf(key)
	raw, exists := s.view.In(s.source(name)).Get(name)
	if !exists {
		return obj, false, nil
	}
	obj, err = s.as(raw)
	return obj, err == nil, err
}

// as returns raw as a T, or an error if it has another type: other code may have put anything into the store.
func (s *Snapshot[T]) as(raw any) (T, error) {
	obj, ok := raw.(T)
	if !ok {
		return obj, fmt.Errorf("informer %s: the store holds a %T", s.name, raw)
	}
	return obj, nil
}

// List returns the objects in a namespace that match sel, see [Reader.List].
func (s *Snapshot[T]) List(namespace string, sel labels.Selector) ([]T, error) {
	found := s.view.Entries()
	if namespace != "" {
		view, err := s.view, error(nil)
		if !s.clusters {
			view = view.In(s.source(namespace + "/"))
		}
		if found, err = view.ByIndex(cache.NamespaceIndex, namespace); err != nil {
			return nil, err
		}
	}
	return s.matching(found, sel)
}

// ByIndex returns the objects with that value in an index, see [Reader.ByIndex].
func (s *Snapshot[T]) ByIndex(name, value string) ([]T, error) {
	found, err := s.view.ByIndex(name, value)
	if err != nil {
		return nil, fmt.Errorf("informer %s: ByIndex: %w", s.name, err)
	}
	return s.matching(found, nil)
}

func (s *Snapshot[T]) matching(found memory.Entries, sel labels.Selector) ([]T, error) {
	every := sel == nil || sel.Empty()
	var objs []T
	if every {
		objs = make([]T, 0, found.Len())
	}
	for some := range found.Chunks() {
		for _, raw := range some {
			obj, err := s.as(raw)
			if err != nil {
				return nil, err
			}
			if every || sel.Matches(labels.Set(obj.GetLabels())) {
				objs = append(objs, obj)
			}
		}
	}
	return objs, nil
}

// All yields every object with its key, see [Reader.All], but none of another type. Several clusters may have one key.
func (s *Snapshot[T]) All() iter.Seq2[types.NamespacedName, T] {
	return func(yield func(types.NamespacedName, T) bool) {
		for some := range s.view.Entries().Chunks() {
			for _, raw := range some {
				if obj, ok := raw.(T); ok && !yield(types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}, obj) {
					return
				}
			}
		}
	}
}
