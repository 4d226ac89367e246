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

// Source is where the keys of a [Controller] come from: the events of one informer, and a rule
// that leads from an object to keys. [For], [Owns] and [Watches] make one. It is a value.
type Source[K comparable] struct {
	opts          informer.WatcherOptions
	informer      any
	own           bool  // it is a For
	maps          bool  // it is a Watches
	clusterScoped bool  // the keys are of owners without a namespace
	err           error // the arguments cannot be used
	// attach registers a watcher for a controller.
	attach func(c *Controller[K], opts informer.WatcherOptions) (input[K], error)
}

// With returns a source like s whose watcher has these options, such as a ResyncPeriod. The
// default of Name is the name of the controller.
func (s Source[K]) With(opts informer.WatcherOptions) Source[K] {
	s.opts = opts
	return s
}

// For returns a source of the keys of the objects themselves: the key of each object that is
// added, updated or deleted. An update counts if one of changes wants it, or if there are no
// changes; see [Change]. For keys of another type use [Watches].
func For[T informer.Object](inf *informer.CustomCacheInformer[T], changes ...Change) Source[types.NamespacedName] {
	return newSource("For", inf, mapper[T, types.NamespacedName]{changes, keyOf[T]}, nil)
}

// Owns returns a source of the keys of the objects' owners: an object that is added, updated or deleted leads
// to its owners, and an update also to those that it had before. An update counts if one of changes wants
// it, or if there are no changes; see [Change]. If only the key of a deleted object is known (see
// [informer.Event].FinalStateUnknown), its owners are not known, and its delete leads to no key.
//
// If Owners.ClusterScoped is set although it should not be, or is not set, the keys are keys that no object
// of the controller's [For] can have: those objects have a namespace and the key has none, or the reverse.
// NewController returns an error if the options of the informers show that. Otherwise the controller
// reports the first such key to Options.ErrorHandler and does not reconcile them; their deletes count as
// handled. A controller with a [Watches] reconciles them, because its function may mean something by them.
func Owns[T informer.Object](inf *informer.CustomCacheInformer[T], owners Owners, changes ...Change) Source[types.NamespacedName] {
	var err error
	if owners.Kind.Kind == "" {
		err = errors.New("Owners.Kind has no kind")
	}
	s := newSource("Owns", inf, mapper[T, types.NamespacedName]{changes, ownersOf[T](owners)}, err)
	s.clusterScoped = owners.ClusterScoped
	return s
}

// Watches returns a source of the keys that keys returns for an object that is added, updated or deleted. For
// an update it calls keys for both the new and the old state, and queues each key once. An update counts if
// one of changes wants it, or if there are no changes; see [Change].
//
// keys is called from the watcher's goroutine, with the ctx of the watcher's call. It may block, and may look
// things up in an informer. If only the key of a deleted object is known, keys gets an object with nothing but
// that key. An event for which keys fails leads to no key, and comes again, after 100 ms at first and up to a minute later on, until keys
// succeeds; With sets another Retry, except for the objects that come after an election.
// Meanwhile a Durable keeps the tombstones of all later deletes of the informer. A delete that is
// given up after an error counts as handled.
func Watches[T informer.Object, K comparable](inf *informer.CustomCacheInformer[T], keys func(ctx context.Context, obj T) ([]K, error), changes ...Change) Source[K] {
	var err error
	if keys == nil {
		err = errors.New("keys is nil")
	}
	s := newSource("Watches", inf, mapper[T, K]{changes, keys}, err)
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

// mapRetry decides about events for which the function of a Watches has failed.
var mapRetry = informer.Backoff(100*time.Millisecond, time.Minute, 0)

func newSource[T informer.Object, K comparable](function string, inf *informer.CustomCacheInformer[T], m mapper[T, K], err error) Source[K] {
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

// feed is the watcher of a source. It leads events to the controller.
type feed[T informer.Object, K comparable] struct {
	controller *Controller[K]
	mapper     mapper[T, K]
	informer   *informer.CustomCacheInformer[T]
	opts       informer.WatcherOptions
	keeping    bool // the store has tombstones; set before any event
	number     int  // of the source, from 0
	own        bool // it is a For
}

func (f *feed[T, K]) Add(ctx context.Context, e informer.Event[T]) error { return f.put(ctx, e.New) }

func (f *feed[T, K]) Update(ctx context.Context, e informer.Event[T]) error {
	if !f.mapper.wants(e) {
		return nil
	}
	return f.put(ctx, e.New, e.Old)
}

// put queues the keys of all states. On standby it does nothing, because a controller that is
// elected reads all objects.
func (f *feed[T, K]) put(ctx context.Context, states ...T) error {
	if f.own {
		f.controller.scope.saw(states[0].GetNamespace())
	}
	if f.controller.onStandby() {
		return nil
	}
	keys, err := f.mapper.of(ctx, states...)
	f.controller.add(keys)
	return err
}

func (f *feed[T, K]) Delete(ctx context.Context, e informer.Event[T]) error {
	if f.own { // perhaps of an object from before the start
		f.controller.scope.saw(e.Old.GetNamespace())
	}
	keys, err := f.mapper.of(ctx, e.Old)
	if err != nil {
		return err
	}
	// The event has no key, because it would make each event larger. So the key of the tombstone is made again.
	d := deletion{f, tombstone.ID{Key: object.Key(e.Old), UID: e.Old.GetUID()}}
	if s := f.controller.shard; s != nil {
		s.deleted(ctx, d, f.number, e.Old, keys)
		return nil
	}
	f.controller.addDeleted(ctx, d, f.keeping, keys)
	return nil
}

func (f *feed[T, K]) Keep() { f.keeping = true }

func (f *feed[T, K]) Keeps(id tombstone.ID) bool { return f.controller.state.keeps(deletion{f, id}) }
