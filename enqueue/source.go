package enqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/object"
	"github.com/customcacheinformer/informer/internal/tombstone"
)

// Source delivers keys to a [Controller]. It consists of an informer, whose events it follows, and a rule that leads from an object
// to keys. [For], [Owns], [Watches] and [WatchesIn] make one, and [InClusters] adds clusters to its keys. A source over an
// [informer.Clusters] needs InClusters or WatchesIn. If an argument cannot be used, NewController returns an error. A Source may be
// copied, and given to several controllers. The zero Source cannot be used.
type Source[K comparable] struct {
	opts          informer.WatcherOptions
	informer      any
	own           bool               // it is a For
	maps          bool               // it is a Watches
	clusterScoped bool               // the keys are of owners without a namespace
	err           error              // the arguments cannot be used
	inClusters    func() Source[Key] // the same with clusters; nil for a Watches, and if the keys have clusters
	// attach registers a watcher for controller c.
	attach func(c *Controller[K], opts informer.WatcherOptions) (input[K], error)
}

// With returns a source like s whose watcher uses opts, for example with a ResyncPeriod. opts.Name defaults to the name of the
// controller, with "-2", "-3" and so on for further sources over one informer. opts replaces the options of an earlier With.
func (s Source[K]) With(opts informer.WatcherOptions) Source[K] {
	s.opts = opts
	return s
}

// For returns a source of the keys of the objects themselves: the key of each object that is added, updated or deleted. An update
// counts only if one of changes returns true for it, or if there are no changes. [Change] describes the exceptions. For keys of
// another type use [Watches].
func For[T informer.Object](inf *informer.CustomCacheInformer[T], changes ...Change) Source[types.NamespacedName] {
	return liftable("For", inf, mapper[T, types.NamespacedName]{changes, keyOf[T]}, nil)
}

// Owns returns a source of the keys of the objects' owners. An object that is added, updated or deleted leads to its owners, and an
// update also to the owners that the object had before. An update counts only if one of changes returns true for it, or if there
// are no changes. [Change] describes the exceptions. If only the key of a deleted object is known (see
// [informer.Event].FinalStateUnknown), its owners are not known, and its delete leads to no key.
//
// If Owners.ClusterScoped is wrong, no object of the controller's [For] can have the keys: the objects have a namespace and the
// keys do not, or the reverse. NewController returns an error if the options of the informers show that. Otherwise the controller
// reports the first such key to Options.ErrorHandler, does not reconcile such keys, and counts their deletes as handled. A
// controller that also has a [Watches] reconciles such keys, because the function of the Watches may return them on purpose.
func Owns[T informer.Object](inf *informer.CustomCacheInformer[T], owners Owners, changes ...Change) Source[types.NamespacedName] {
	var err error
	if owners.Kind.Kind == "" {
		err = errors.New("Owners.Kind has no kind")
	}
	s := liftable("Owns", inf, mapper[T, types.NamespacedName]{changes, ownersOf[T](owners)}, err)
	s.clusterScoped = owners.ClusterScoped
	return s
}

// liftable returns a source that [InClusters] accepts.
func liftable[T informer.Object](function string, inf *informer.CustomCacheInformer[T], m mapper[T, types.NamespacedName], err error) Source[types.NamespacedName] {
	s := newSource(function, inf, m, false, err)
	s.inClusters = func() Source[Key] { return newSource(function, inf, lift(m), true, err) }
	return s
}

// Watches returns a source that calls keys for each object that is added, updated or deleted, and queues the keys in the result.
// For an update, the source calls keys for both the new and the old state, and queues each key once. An update counts only if one
// of changes returns true for it, or if there are no changes. [Change] describes the exceptions.
//
// keys is called with the ctx of a watcher's call, possibly from several goroutines at once. It may block, which delays the later
// events of the source, and may read from an informer. If only the key of a deleted object is known, keys gets an object with
// only the namespace, the name and perhaps the UID.
//
// If keys returns an error, the event leads to no key. The source then calls keys again, first after 100 ms and later after up to
// a minute, until keys returns no error or one that wraps [informer.ErrPermanent]. Until then a Durable keeps the tombstones of
// all later deletes of the informer. [Source.With] can set another Retry, but not for the objects that come after an election or
// with a bucket of Options.Shards. A delete that is given up after an error counts as handled.
func Watches[T informer.Object, K comparable](inf *informer.CustomCacheInformer[T], keys func(ctx context.Context, obj T) ([]K, error), changes ...Change) Source[K] {
	return watches("Watches", inf, func(ctx context.Context, _ string, obj T) ([]K, error) { return keys(ctx, obj) }, keys == nil, changes)
}

func watches[T informer.Object, K comparable](function string, inf *informer.CustomCacheInformer[T], keys func(context.Context, string, T) ([]K, error), none bool, changes []Change) Source[K] {
	var err error
	if none {
		err = errors.New("keys is nil")
	}
	s := newSource(function, inf, mapper[T, K]{changes, keys}, function == "WatchesIn", err)
	attach := s.attach
	s.maps = true
	s.attach = func(c *Controller[K], opts informer.WatcherOptions) (input[K], error) {
		if opts.Retry == nil {
			opts.Retry = mapRetry
		}
		return attach(c, opts)
	}
	return s
}

// InClusters returns a source like s whose keys also name the cluster, for a controller over an [informer.Clusters]. An event of a
// cluster leads to keys of that cluster. s must be the result of [For] or [Owns].
//
//	controller, err := enqueue.NewController(reconcile, enqueue.Options{Name: "deployment", Workers: 8},
//		enqueue.InClusters(enqueue.For(deployments.CustomCacheInformer)),
//		enqueue.InClusters(enqueue.Owns(replicaSets.CustomCacheInformer, owners)))
//
// reconcile reads deployments.In(key.Cluster), and may return the error of a read unchanged. If the error wraps
// [informer.ErrNotEngaged] and no informer of the controller reads the cluster any more, the call counts as a success, because
// nothing is left to do there. If one of the informers still reads the cluster, the key is tried again.
//
// A free worker takes a key of the cluster with the fewest calls under way. A call that lasts longer than a second no longer counts
// for Options.Workers: another goroutine takes its place until it returns. The cluster of such a call then gets one call at a time,
// until a call is quick. So a cluster with a flood of events does not hold up the others, and a cluster whose calls hang takes no
// worker from them for longer than a second.
//
// The function of a [Watches] does not get the cluster. For a Watches, NewController returns an error: use [WatchesIn].
//
// With Options.Shards, a replica that takes over keys waits until it has read, in each cluster, at least what the last replica had
// read. It waits at most 30 s for a cluster that it cannot reach or that is behind. Until it reaches that cluster, calls for its
// keys may see an older state than the last replica saw. The Lease of each replica contains about 170 bytes for each cluster and
// informer. Kubernetes allows 256 KiB.
func InClusters(s Source[types.NamespacedName]) Source[Key] {
	if s.inClusters == nil {
		return Source[Key]{err: errors.New("InClusters: the source is neither a For nor an Owns: for a Watches, use WatchesIn")}
	}
	in := s.inClusters()
	in.opts, in.clusterScoped = s.opts, s.clusterScoped
	return in
}

// WatchesIn returns a source like that of [Watches], for an informer over many clusters: keys also gets the name of the object's
// cluster. An error of keys that wraps [informer.ErrNotEngaged] also wraps ErrPermanent, so keys is not called again. So if
// keys reads from an informer that may engage the cluster later, keys must return another error.
func WatchesIn[T informer.Object, K comparable](inf *informer.CustomCacheInformer[T], keys func(ctx context.Context, cluster string, obj T) ([]K, error), changes ...Change) Source[K] {
	return watches("WatchesIn", inf, keys, keys == nil, changes)
}

// mapRetry is the default Retry of a Watches, for events for which its function returns an error.
var mapRetry = informer.Backoff(100*time.Millisecond, time.Minute, 0)

var (
	errClusters   = errors.New("the informer is over clusters: use InClusters or WatchesIn")
	errNoClusters = errors.New("the informer is over one cluster: use neither InClusters nor WatchesIn")
)

// newSource returns a source. clusters reports whether its keys have clusters.
func newSource[T informer.Object, K comparable](function string, inf *informer.CustomCacheInformer[T], m mapper[T, K], clusters bool, err error) Source[K] {
	switch {
	case inf == nil:
		err = errors.New("the informer is nil")
	case slices.ContainsFunc(m.changes, func(c Change) bool { return c == nil }):
		err = errors.New("one of changes is nil")
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", function, err)
	}
	own := function == "For"
	return Source[K]{informer: inf, own: own, err: err, attach: func(c *Controller[K], opts informer.WatcherOptions) (input[K], error) {
		if over := inf.Health().Clusters != nil; over != clusters {
			return input[K]{}, fmt.Errorf("%s: %w", function, map[bool]error{true: errClusters, false: errNoClusters}[over])
		}
		if own && slices.ContainsFunc(inf.Versions(), func(v informer.SourceVersions) bool { return v.Namespace != "" }) {
			c.scope.saw("in namespaces")
		}
		f := &feed[T, K]{controller: c, mapper: m, informer: inf, opts: opts, number: len(c.inputs), own: own}
		reg, err := inf.AddWatcher(f, opts)
		return input[K]{reg: reg, health: inf.Health, cache: inf, replay: f.replay}, err
	}}
}

// input is a source that a controller has attached.
type input[K comparable] struct {
	reg    *informer.Registration
	health func() informer.Health // of the informer
	cache  cache                  // the informer
	// replay registers a watcher that queues the keys of all objects that are wanted.
	replay func(wanted func(K) bool) (replay, error)
}

// engaged reports whether an informer of the controller reads the cluster of key. It returns true for a key without a cluster.
func (c *Controller[K]) engaged(key K) bool {
	in, ok := any(key).(Key)
	return !ok || slices.ContainsFunc(c.inputs, func(of input[K]) bool {
		return slices.ContainsFunc(of.cache.Versions(), func(v informer.SourceVersions) bool { return v.Cluster == in.Cluster })
	})
}

// feed is the watcher of a source. It passes the keys of events to the controller.
type feed[T informer.Object, K comparable] struct {
	controller *Controller[K]
	mapper     mapper[T, K]
	informer   *informer.CustomCacheInformer[T]
	opts       informer.WatcherOptions
	keeping    bool // the store has tombstones; set before any event
	number     int  // of the source, from 0
	own        bool // it is a For
}

func (f *feed[T, K]) Add(ctx context.Context, e informer.Event[T]) error { return f.put(ctx, e, e.New) }

func (f *feed[T, K]) Update(ctx context.Context, e informer.Event[T]) error {
	if !f.mapper.wants(e) {
		return nil
	}
	return f.put(ctx, e, e.New, e.Old)
}

// put queues the keys of all states. On standby it does nothing, because the controller reads all objects when it is elected.
func (f *feed[T, K]) put(ctx context.Context, e informer.Event[T], states ...T) error {
	if f.own {
		f.controller.scope.saw(states[0].GetNamespace())
	}
	if f.controller.onStandby() {
		return nil
	}
	keys, err := f.mapper.of(ctx, e.Cluster(), states...)
	f.controller.add(keys)
	return err
}

func (f *feed[T, K]) Delete(ctx context.Context, e informer.Event[T]) error {
	if f.own { // perhaps of an object from before the start
		f.controller.scope.saw(e.Old.GetNamespace())
	}
	keys, err := f.mapper.of(ctx, e.Cluster(), e.Old)
	if err != nil {
		return err
	}
	// The event has no key, because it would make each event larger. So the key of the tombstone is made again.
	d := deletion{f, tombstone.ID{Key: object.KeyIn(e.Cluster(), e.Key()), UID: e.Old.GetUID()}}
	if s := f.controller.shard; s != nil {
		s.deleted(ctx, d, f.number, f.informer, e.Cluster(), e.Old, keys)
		return nil
	}
	f.controller.addDeleted(ctx, d, f.keeping, keys)
	return nil
}

func (f *feed[T, K]) Keep() { f.keeping = true }

func (f *feed[T, K]) Keeps(id tombstone.ID) bool { return f.controller.state.keeps(deletion{f, id}) }
