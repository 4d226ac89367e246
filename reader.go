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
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/index"
	"github.com/customcacheinformer/informer/internal/memory"
	"github.com/customcacheinformer/informer/internal/object"
)

// Reader reads the state that an informer knows. [CustomCacheInformer] implements it. A
// function that only reads should take a Reader. Objects are shared and must not be changed.
//
// All methods may be called at any time and from any goroutine, also before Run. They see the store as
// it is now: before Synced, that may be less than the whole state. A later call may see a later state. If several
// calls must fit together, read from a [Snapshot], which is a Reader too.
//
// The informer's own store answers Get and ByIndex at once. List and All wait as
// [CustomCacheInformer.Snapshot] does, and see one state. Over another store, all methods block for as long as it takes to
// answer.
type Reader[T Object] interface {
	// Get returns the object of that key, or the zero T and false if there is none. Like List and ByIndex, it
	// returns an error if the store cannot be read, or if it has an object of another type.
	Get(key types.NamespacedName) (obj T, exists bool, err error)
	// List returns the objects of a namespace ("" for all) that match the labels (nil for any),
	// in no particular order.
	List(namespace string, sel labels.Selector) ([]T, error)
	// ByIndex returns the objects for which the index function of that name returned value, in
	// no particular order. The index cache.NamespaceIndex always exists. Any other name that
	// is not in Options.Indexers or Options.Fields is an error.
	ByIndex(name, value string) ([]T, error)
	// All yields every object with its key, in no particular order.
	All() iter.Seq2[types.NamespacedName, T]
}

// Get returns the object of that key, see [Reader.Get]. Its error is a *StoreError.
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

// get reads the object of a key out of the store.
func (i *CustomCacheInformer[T]) get(name string) (obj T, exists bool, err error) {
	obj, exists, err = index.Get[T](context.Background(), i.scan, name)
	if err != nil {
		var none T
		return none, false, &StoreError{Op: "get", Key: name, Failures: 1, Err: err}
	}
	return obj, exists, nil
}

// List returns the objects of a namespace that match the labels, see [Reader.List].
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

// under reads the objects whose keys begin with prefix out of the store, and returns those that match the labels.
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

// ByIndex returns the objects with that value in an index, see [Reader.ByIndex]. Each had the value when the index
// function was last called for it. In the informer's own store, they are the objects that had it
// between two batches of changes, but a batch that is being written may already show in some of them. ByIndex of a
// [Snapshot] has one state of all of them; it costs the next writes some time, and ByIndex here costs them none.
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

// All yields every object with its key, see [Reader.All]. Objects of another type that someone
// else has put into the store are skipped. If a Durable fails, the error goes
// to Options.ErrorHandler and the iteration ends.
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

// WaitFor blocks until cond returns true for the object of that key. It calls cond for the object
// that the store has now, and for every state that a later change brings. For a deleted or missing
// object cond gets the zero T and false. An object also counts as missing while it is not in the
// store yet, so wait for the sync before you wait for the end of an object. WaitFor returns a
// *SyncError if ctx or the informer ends first, and a *StoreError if the store cannot be read. It
// may be called before Run, but not in a watcher's callback. cond is called from the caller's
// goroutine and must not change obj.
func (i *CustomCacheInformer[T]) WaitFor(ctx context.Context, key types.NamespacedName, cond func(obj T, exists bool) bool) error {
	switch {
	case cond == nil:
		return fmt.Errorf("informer %s: WaitFor: cond is nil", i.opts.Name)
	case i.gate.clusters:
		return fmt.Errorf("informer %s: WaitFor: %w", i.opts.Name, errNoCluster)
	}
	at := i.processor.log.Cursor()
	defer at.Close()
	obj, exists, err := i.Get(key)
	if err != nil {
		return err
	}
	if cond(obj, exists) {
		return nil
	}
	for name := object.KeyOf(key); ; {
		if s, ok := at.Next(maxChunk); ok {
			for _, r := range s.Records {
				if err := i.ended(ctx); err != nil {
					return i.syncErrorIn(key.Namespace, err, []string{key.String()})
				}
				if r.kind == recordEvent && r.key == name && cond(r.event.New, r.event.Type != EventDeleted) {
					return nil
				}
			}
			continue
		}
		if !at.Sleep() {
			continue
		}
		select {
		case <-at.Wake():
		case <-i.stopped:
			return i.syncErrorIn(key.Namespace, ErrStopped, []string{key.String()})
		case <-ctx.Done():
			return i.syncErrorIn(key.Namespace, ctx.Err(), []string{key.String()})
		}
	}
}

// WaitForVersion blocks until the store has every change up to version in a namespace. After a
// write of yours, pass the namespace and the resourceVersion of the object that the write
// returned: Get and List then return the result of that write, or a later state. An informer that
// reads from one source reads every namespace. For namespace "" it waits for all namespaces of an
// informer that [NewInNamespaces] has made, and one in which nothing happens may be behind for a
// minute.
//
// WaitForVersion returns a *SyncError if ctx or the informer ends first, and another error if the
// informer does not read the namespace, or if version, or the versions of the source, cannot be
// compared. It may be called before Run, but not in a watcher's callback.
//
// A change for which Transform has failed was reported, and counts although it is not in the
// store. If a selector hides the write from this informer, only the next event or bookmark
// shows that its version has passed. That may take a minute, or forever if the server sends no
// bookmarks.
func (i *CustomCacheInformer[T]) WaitForVersion(ctx context.Context, namespace, version string) error {
	var only *scope // nil for all
	if i.gate.clusters {
		return fmt.Errorf("informer %s: WaitForVersion: each cluster has versions of its own: see WaitForVersionIn", i.opts.Name)
	}
	if namespace != "" {
		if only = i.gate.scopeOf(namespace); only == nil {
			return fmt.Errorf("informer %s: WaitForVersion: the informer does not read the namespace %q", i.opts.Name, namespace)
		}
	}
	return i.waitForVersion(ctx, only, version)
}

// waitForVersion waits for the version of one source, or of all for nil.
func (i *CustomCacheInformer[T]) waitForVersion(ctx context.Context, only *scope, version string) error {
	if version == "" {
		return fmt.Errorf("informer %s: WaitForVersion: the version is empty, like the versions of the objects of a fake clientset", i.opts.Name)
	}
	if _, err := resourceversion.CompareResourceVersion(version, version); err != nil {
		return fmt.Errorf("informer %s: WaitForVersion %q: %w", i.opts.Name, version, err)
	}
	for {
		now, moved := i.gate.resourceVersion(only)
		switch {
		case only != nil && only.gone.Load() && only.cluster != nil:
			return fmt.Errorf("informer %s: WaitForVersionIn: cluster %q: %w", i.opts.Name, only.name(), ErrNotEngaged)
		case only != nil && only.gone.Load():
			return fmt.Errorf("informer %s: WaitForVersion: the informer no longer reads the namespace %q", i.opts.Name, only.name())
		case len(i.gate.scopes()) == 0:
			return nil
		}
		ok, err := reached(now, version)
		if err != nil {
			return fmt.Errorf("informer %s: WaitForVersion: the source's versions cannot be compared: %w", i.opts.Name, err)
		}
		if ok {
			return nil
		}
		if err := i.wait(ctx, moved, nil); err != nil {
			if only != nil {
				return i.syncErrorIn(only.name(), err, []string{"resourceVersion " + version})
			}
			return i.syncError(err, []string{"resourceVersion " + version + i.gate.behind(version)})
		}
	}
}

// ResourceVersion returns the version up to which the store has every change, or "" before the
// first list is applied. With several namespaces, that is the lowest of their versions. With several clusters, whose versions cannot be
// compared, it is "": see Versions. The objects
// of client-go's fakes have no versions, so with a fake it stays at the version of the last list.
// It does not block.
func (i *CustomCacheInformer[T]) ResourceVersion() string {
	rv, _ := i.gate.resourceVersion(nil)
	return rv
}

// ServerVersion asks the source of a namespace how far it is, "" for an informer of all namespaces. It
// lists at most one object and names no version, so that the API server does not answer from a cache
// that may be old. A process that waits for a version which it got from another one can find out in that
// way whether the version exists: not if etcd was restored, or if the other process reads another
// cluster. ServerVersion blocks until the answer is there, or until ctx ends. It returns an error if
// the request fails, or unless the informer runs.
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

// SourceVersions is how far an informer has read one of its sources.
type SourceVersions struct {
	// Namespace is "" unless [NewInNamespaces] has made the informer.
	Namespace string
	// Cluster is "" unless [NewOverClusters] has made the informer.
	Cluster string
	// ResourceVersion is the version up to which the store has every change, or "" before the first
	// list is applied. It also moves when nothing has changed, with each bookmark.
	ResourceVersion string
	// Listed is the version of the last list, or the version of a [Durable] at which the informer goes
	// on without a list. The source delivers each change after Listed by itself. Deletes before Listed show
	// only in that the list lacks the object. It is "" before the first list is applied.
	Listed string
	// Changed is the highest version of an object or of a delete that the store has, or is just about
	// to get, and "" if there is none. Nobody has read a later state from the store. For a delete that
	// only a list has shown, Changed is the version of the list. Unlike ResourceVersion, Changed never
	// comes from a bookmark. When the server has gone back in time, Changed goes back with it.
	Changed string
	// Watching is how long the present watch has been open, 0 if none is. If the last one ended
	// because of a failure, the source may still have changes to send that are long past.
	Watching time.Duration
}

// Versions returns how far the informer has read each of its sources: one, or one for each
// namespace, in the order given to [NewInNamespaces], or one for each cluster, in the order in which they were engaged. It does not block.
//
// A process that hands work over can pass on Changed of each namespace. A process that gives both
// to [CustomCacheInformer.WaitForVersion] then never works from an older state than the first one had. It waits only for changes that have happened, and not for the next bookmark.
//
// Over a [Durable], an informer that continues from the store's bookmark begins with this bookmark as
// Changed. Other objects that the store had before Run do not count before they are listed. The
// objects of client-go's fakes have no versions, so that Changed stays "". If Transform removes the
// resourceVersion of an object, Changed lacks that version when the object is listed.
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

// Snapshot is the state of an informer between two batches of changes, and implements [Reader]. It is made by
// [CustomCacheInformer.Snapshot] or [SnapshotOf]. It never changes: all of its methods answer from the same state, with the
// indexes of that time. They do not block, and may be called from any goroutine, also when the informer has stopped.
//
// Use a snapshot if several reads must fit together, such as a list and the lookups for each of its objects. Take it when
// you need it, and drop it afterwards: it keeps the objects in memory that have been replaced or deleted since. To take one
// costs as little for a million objects as for one. The next writes copy small parts of the store.
type Snapshot[T Object] struct {
	view     *memory.Snapshot
	source   func(key string) string
	at       moment
	name     string
	clusters bool   // the state is that of several clusters
	prefix   string // of the keys, if it is that of one of them
}

// Snapshot returns the state of the store between two batches of changes. It may be called at any time, also before Run and
// in a watcher's callback, where it has the change of the event, and perhaps later ones. It waits only for a batch that is
// being written: up to 256 changes, usually less than a millisecond.
//
// Only the informer's own store has snapshots. If Options.Store or Options.Durable is set, Snapshot returns nil and an
// error, always. A function that works over any store takes a [Reader].
func (i *CustomCacheInformer[T]) Snapshot() (*Snapshot[T], error) {
	if i.own == nil {
		return nil, fmt.Errorf("informer %s: Snapshot: %w", i.opts.Name, errNoSnapshots)
	}
	return i.shown(i.own.Snapshot()), nil
}

// SnapshotRequest asks [SnapshotOf] for a snapshot of one informer. It is made by [CustomCacheInformer.SnapshotTo].
type SnapshotRequest struct {
	of   *memory.Store
	name string
	take func(*memory.Snapshot)
}

// SnapshotTo returns a request for [SnapshotOf], which sets *to to the snapshot. SnapshotTo does not block.
func (i *CustomCacheInformer[T]) SnapshotTo(to **Snapshot[T]) SnapshotRequest {
	r := SnapshotRequest{of: i.own, name: i.opts.Name}
	if to != nil {
		r.take = func(v *memory.Snapshot) { *to = i.shown(v) }
	}
	return r
}

// SnapshotOf takes snapshots of several informers at one moment: none of them writes its store between two of the
// snapshots. But each informer is as far as its own source has come, so a Pod may be there before its node. SnapshotOf may
// be called whenever [CustomCacheInformer.Snapshot] may, waits as it does, and returns an error if one of the informers has
// no snapshots. Then it takes none.
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

// shown returns a state of the own store in the form that users read.
func (i *CustomCacheInformer[T]) shown(v *memory.Snapshot) *Snapshot[T] {
	return &Snapshot[T]{view: v, source: i.source, at: momentOf(v), name: i.opts.Name, clusters: i.gate.clusters}
}

// In returns the state of one cluster, if [NewOverClusters] has made the informer. It has no objects if the cluster was not engaged. For
// other informers it returns s.
func (s *Snapshot[T]) In(cluster string) *Snapshot[T] {
	if !s.clusters {
		return s
	}
	return &Snapshot[T]{view: s.view.In(cluster), source: func(string) string { return cluster }, name: s.name, prefix: cluster + object.ClusterMark}
}

// Version returns the resourceVersion at which the source was exactly in this state. Set Options.Queue to QueueRealFIFO for
// it: QueueDeltaFIFO, the default, changes the order of events, and Version is always "". It is also "" until the first list
// is complete, within a later list, after an object that could not be used (until the next list), for a source without
// versions, and for an informer of several namespaces: see Versions. Writes of your own to the store do not change it.
func (s *Snapshot[T]) Version() string { return s.at.version() }

// Versions returns for each source what Version returns for one, in the order given to [NewInNamespaces]. It is nil with
// QueueDeltaFIFO, and until something has come from a source. The slice belongs to the caller.
func (s *Snapshot[T]) Versions() []string { return slices.Clone(s.at.versions) }

// Get returns the object of that key, see [Reader.Get]. Like List and ByIndex, it returns an error only for an object of
// another type in the store, and ByIndex also for an index that was not there.
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

// as returns an object as T. Somebody else may have put anything into the store.
func (s *Snapshot[T]) as(raw any) (T, error) {
	obj, ok := raw.(T)
	if !ok {
		return obj, fmt.Errorf("informer %s: the store holds a %T", s.name, raw)
	}
	return obj, nil
}

// List returns the objects of a namespace that match the labels, see [Reader.List].
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

// All yields every object with its key, see [Reader.All]. It skips objects of another type.
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
