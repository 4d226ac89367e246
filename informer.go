package informer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/index"
	"github.com/customcacheinformer/informer/internal/memory"
	"github.com/customcacheinformer/informer/internal/object"
	"github.com/customcacheinformer/informer/internal/source"
	"github.com/customcacheinformer/informer/internal/stopwatch"
	"github.com/customcacheinformer/informer/internal/version"
)

// CustomCacheInformer lists and watches one resource, keeps its objects in a store, and gives the changes to any
// number of watchers, each at its own pace. [New] makes one. Its methods may be called from any goroutine and in
// any order. A CustomCacheInformer must not be copied. The package documentation describes its guarantees.
type CustomCacheInformer[T Object] struct {
	opts      Options[T]
	scan      index.Scan              // reads the store
	own       *memory.Store           // nil if the user has given a store
	source    func(key string) string // the part of the own store that has a key
	index     *index.Index[T]
	gate      *gate[T]
	newScope  func(r resource) *scope
	in        func(namespace string) resource // nil unless NewInNamespaces has made the informer
	syncWait  time.Duration                   // see ClusterOptions; 0 unless the informer is over clusters
	roster    roster
	applier   *applier[T]
	processor *informerProcessor[T]

	clock stopwatch.Stopwatch
	queue cache.Queue

	stopped chan struct{} // closed when Run's ctx is done

	viewOnce sync.Once
	view     cache.SharedIndexInformer // made by the first call of SharedIndexInformer

	ownHandler, ownObserver, ownLists bool // the user has set one

	watchErrorHandler cache.WatchErrorHandlerWithContext // nil unless set through the view

	settings sync.Mutex // protects the settings that may change until Run, and running
	running  atomic.Bool
}

// New returns an informer over the resource of a typed client, such as clientset.CoreV1().Pods(""). T
// is the type of the client's objects, so options for another type do not compile. New makes no
// request; Run does. For other clients and sources, use [NewFrom].
//
// If an argument or a field of opts cannot be used, New returns an error that names it. New does not change
// opts. If Options.Store is a cache.Indexer, or Options.Durable a [DurableIndexer], New adds the
// Indexers and Fields to it, and an index by namespace if it has none.
func New[T Object, L runtime.Object](client Client[T, L], opts Options[T]) (*CustomCacheInformer[T], error) {
	return NewFrom(ListWatch(client), opts)
}

// NewFrom returns an informer over any source that lists and watches one resource: one that [ListWatch]
// makes from a dynamic or a metadata client, one of package informertest, or any other
// cache.ListerWatcher. NewFrom checks its arguments and treats opts as [New] does.
//
// T must be a pointer to an API type, or AnyObject. A list of objects of another type fails, even if it is empty, and the
// failure is reported to Options.ErrorHandler. A watch event with such an object is reported and otherwise ignored.
func NewFrom[T Object](lw cache.ListerWatcher, opts Options[T]) (*CustomCacheInformer[T], error) {
	return newFrom[T](reading{resources: []resource{{lw: lw}}}, opts)
}

// NewInNamespaces returns one informer over one resource in several namespaces, for programs that have no right
// to read all namespaces. It calls client once for each namespace to get the client for it; SetNamespaces does so
// later for each new one. client may be a method of a typed client, of the dynamic client or of the metadata
// client:
//
//	informer.NewInNamespaces(clientset.CoreV1().Pods, namespaces, informer.Options[*corev1.Pod]{})
//	informer.NewInNamespaces(dynamic.Resource(gvr).Namespace, namespaces, informer.Options[*unstructured.Unstructured]{})
//
// The set of namespaces may be empty, and [CustomCacheInformer.SetNamespaces] changes it.
//
// The informer has one store, and each watcher one registration. It lists and watches each namespace
// separately. It has synced when it has listed all of them. A namespace that cannot be read keeps its last
// state, and delays no other. A namespace that has more changes than the store can take delays no other
// either: at most 256 of its changes (1,000 over a Durable) wait in memory, and the rest at the server. The
// events of one object come in order; there is no order between namespaces. Transform is called from a
// goroutine of each namespace.
//
// Over a Durable, a restart continues each namespace without a list if it can, and lists the others, such as
// new ones. The objects of namespaces that are no longer in the set are removed, and come as deletes.
//
// NewInNamespaces returns an error if a namespace is given twice or is not a valid name, or if client is
// nil or returns nil. It also returns the errors of [NewFrom].
func NewInNamespaces[T Object, L runtime.Object, C UntypedClient[L]](client func(namespace string) C, namespaces []string, opts Options[T]) (*CustomCacheInformer[T], error) {
	if client == nil {
		return nil, errors.New("informer: the function that returns clients is nil")
	}
	if err := checkNamespaces(namespaces); err != nil {
		return nil, fmt.Errorf("informer: %w", err)
	}
	what := reading{in: func(namespace string) resource {
		return resource{region: region{namespace: namespace}, lw: ListWatch(client(namespace))}
	}}
	for _, namespace := range namespaces {
		what.resources = append(what.resources, what.in(namespace))
	}
	return newFrom(what, opts)
}

func newFrom[T Object](what reading, opts Options[T]) (*CustomCacheInformer[T], error) {
	if t := reflect.TypeFor[T](); t != reflect.TypeFor[AnyObject]() && (t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct) {
		return nil, fmt.Errorf("informer: the type of the objects (T) is %v, neither a pointer to a struct nor AnyObject", t)
	}
	indexers, err := opts.indexers(reflect.TypeFor[T]())
	if err != nil {
		return nil, fmt.Errorf("informer: %w", err)
	}
	indexers[cache.NamespaceIndex] = index.ByNamespace()
	return newInformer(what, object.As[T], bareObject[T], indexers, opts)
}

// newInformer returns an informer over the objects for which accept returns no error. bareObject makes
// an object with only a key and a UID, for a delete whose object is not known. The indexers
// replace Options.Indexers and Options.Fields.
func newInformer[T Object](what reading, accept func(any) (T, error), bareObject func(string, types.UID) T, indexers cache.Indexers, opts Options[T]) (*CustomCacheInformer[T], error) {
	omit, err := opts.omission(bareObject("", ""))
	if err != nil {
		return nil, fmt.Errorf("informer: %w", err)
	}
	for _, r := range what.resources {
		if err := r.check(opts.durable()); err != nil {
			return nil, fmt.Errorf("informer: %w", err)
		}
	}
	i := &CustomCacheInformer[T]{clock: stopwatch.New(), stopped: make(chan struct{}), in: what.in, roster: roster{clusters: what.clusters, last: map[string]*scope{}}, ownHandler: opts.ErrorHandler != nil, ownObserver: opts.Observer != nil, ownLists: opts.Lists != nil}
	i.opts = opts.withDefaults()
	store := opts.Store
	if store == nil && opts.Durable == nil {
		i.source = what.sourceOf()
		if i.own, store, err = newMemory(i.source, func(r memory.Ref, errs []error) {
			i.applier.storage.(*ownStore[T]).indexed(context.Background(), r.Key, errs)
		}); err != nil {
			return nil, err
		}
	}
	i.scan = scanOf(store, opts.Durable)
	if i.index, err = index.New[T](i.scan, indexers); err != nil {
		return nil, fmt.Errorf("informer: Options.Indexers and Options.Fields: %w", err)
	}
	opts = i.opts
	opts.ErrorHandler = i.report
	i.queue = newQueue[T](opts.Queue)
	i.processor = newProcessor(i.scan, i.own, i.clock, what.clusters, opts)
	i.gate = newGate(i.queue, i.clock, what, i.own != nil, newReports(i.report), opts)
	i.applier = newApplier(i.gate, i.processor, store, i.own, i.source, i.index, bareObject, opts)
	i.newScope = func(r resource) *scope {
		r.omit = omit
		s := &scope{region: r.region, left: make(chan struct{}), synced: make(chan struct{})}
		s.divided, _ = r.lw.(source.Divided)
		if s.cluster != nil {
			s.wire = source.NewWire(r.lw, r.tapped(opts.Decode), r.tweak)
		}
		s.Source = newSource(r, i.clock, i.gate.reports, opts, func(ctx context.Context, r *cache.Reflector, err error) {
			if i.watchErrorHandler != nil {
				i.watchErrorHandler(ctx, r, err)
			}
		})
		s.sink = &sink[T]{gate: i.gate, scope: s, accept: accept, bare: bareObject, omit: omit, progress: s.Progress}
		return s
	}
	var set []*scope
	for _, r := range what.resources {
		set = append(set, i.newScope(r))
	}
	i.gate.become(set, nil, false)
	i.applier.decoding = func() DecodingHealth { return i.sourceHealth().Decoding }
	return i, nil
}

// set calls change, which changes a setting. It does not call change, and returns ErrAlreadyRun, if the
// informer runs or has run.
func (i *CustomCacheInformer[T]) set(change func()) error {
	i.settings.Lock()
	defer i.settings.Unlock()
	if i.running.Load() {
		return ErrAlreadyRun
	}
	change()
	return nil
}

func (i *CustomCacheInformer[T]) report(ctx context.Context, err error) {
	i.settings.Lock()
	handler := i.opts.ErrorHandler
	i.settings.Unlock()
	handler(ctx, err)
}

// AddWatcher registers w. It does not block. The watcher gets the state as of this call, as added events with OriginInitial,
// and then every later change. No change is left out and none comes twice, but waiting events may be merged, see
// [WatcherOptions]. Over a [Durable], deletes from before the start may come first. Objects that leave the store without an
// event may be added again, see [LeaveSilently] and shards.Set.Source. The informer does not call the watcher before Run.
//
// AddWatcher may be called before and during Run, also in a watcher's callback. It returns an error that wraps [ErrStopped]
// once Run's ctx is done or Run has failed, and another error if w is nil or a field of opts cannot be used.
func (i *CustomCacheInformer[T]) AddWatcher(w ResourceWatcher[T], opts WatcherOptions) (*Registration, error) {
	if err := checkWatcher(w); err != nil {
		return nil, fmt.Errorf("informer %s: %w", i.opts.Name, err)
	}
	if err := opts.check(); err != nil {
		return nil, fmt.Errorf("informer %s: %w", i.opts.Name, err)
	}
	if _, follows := w.(version.Follower); follows {
		if err := i.follow(opts); err != nil {
			return nil, fmt.Errorf("informer %s: a watcher that follows versions %w", i.opts.Name, err)
		}
	}
	opts.MaxBacklog = cmp.Or(opts.MaxBacklog, defaultMaxBacklog)
	l, err := i.processor.add(w, opts)
	if err != nil {
		return nil, fmt.Errorf("informer %s: AddWatcher: %w", i.opts.Name, err)
	}
	return &Registration{synced: l.synced, stopped: l.stopped, listener: l}, nil
}

// SetNamespaces replaces the set of namespaces that an informer of [NewInNamespaces] reads. It does not wait for requests. It may be
// called at any time, also in a watcher's callback. The set may be empty.
//
//   - A namespace that stays is not affected: its watch continues.
//   - A new namespace is listed and watched. SetNamespaces gets the client for it from the function that was given to
//     NewInNamespaces. That function must not call SetNamespaces. The first objects of the namespace come with OriginInitial,
//     even if the informer has synced.
//   - The requests for a removed namespace end. Its events that have arrived are delivered as usual. Then each of its objects comes
//     as a delete with OriginLeft and FinalStateUnknown, and no further events of it follow. If the namespace is added again, it is
//     listed when these deletes are in the store.
//
// An informer that has synced stays synced. One that has not synced no longer waits for a removed
// namespace.
//
// SetNamespaces returns an error and changes nothing if a name is given twice or is not valid, if a client is nil, or if
// the informer was not made by NewInNamespaces. It returns an error that wraps [ErrStopped] once Run's ctx is done or Run has failed.
func (i *CustomCacheInformer[T]) SetNamespaces(namespaces []string) error {
	if err := i.setNamespaces(namespaces); err != nil {
		return fmt.Errorf("informer %s: SetNamespaces: %w", i.opts.Name, err)
	}
	return nil
}

func (i *CustomCacheInformer[T]) setNamespaces(namespaces []string) error {
	if i.in == nil {
		return errors.New("the informer reads one source; NewInNamespaces makes one whose namespaces change")
	}
	if err := checkNamespaces(namespaces); err != nil {
		return err
	}
	made := map[string]*scope{}
	i.roster.mu.Lock()
	for {
		set, missing := setOf(i.gate.scopes(), namespaces, made)
		if len(missing) == 0 {
			defer i.roster.mu.Unlock()
			come, gone := changes(i.gate.scopes(), set)
			return i.become(set, come, gone)
		}
		i.roster.mu.Unlock() // the clients come from a function of the program
		for _, namespace := range missing {
			r := i.in(namespace)
			if err := checkSource(r.lw); err != nil {
				return fmt.Errorf("namespace %q: %w", namespace, err)
			}
			made[namespace] = i.newScope(r)
		}
		i.roster.mu.Lock()
	}
}

// become replaces the set of sources. It returns ErrStopped if the informer has stopped. The caller holds
// roster.mu.
func (i *CustomCacheInformer[T]) become(set, come, gone []*scope) error {
	i.settings.Lock()
	defer i.settings.Unlock()
	if channel.Closed(i.stopped) {
		return ErrStopped
	}
	running := i.running.Load()
	if running {
		takeInEarly(come, i.opts)
		for _, s := range come {
			s.lists = !i.roster.unread || len(gone) > 0 || i.roster.last[s.name()] != nil
			s.sink.expect()
		}
	}
	i.gate.become(set, gone, running)
	i.roster.change(come, gone, running)
	return nil
}

// follow puts the versions of the source into the log from now on. It returns an error if a watcher
// with these options, or over this informer, cannot follow them.
func (i *CustomCacheInformer[T]) follow(opts WatcherOptions) error {
	switch {
	case opts.MaxBacklog >= 0 || opts.Workers > 1 || opts.Retry != nil:
		return errors.New("needs a negative MaxBacklog, and neither Workers nor Retry, which merge events")
	case i.opts.Queue != QueueRealFIFO:
		return errors.New("needs Options.Queue QueueRealFIFO")
	case i.gate.several:
		return errors.New("needs an informer with one source, not several namespaces or clusters")
	case i.gate.scopes()[0].divided != nil:
		return errors.New("needs a source that always delivers the same objects")
	}
	i.applier.decider.finals.Store(true)
	i.applier.followed.Store(true)
	return nil
}

// Run lists and watches, writes to the store and calls the watchers, and blocks until ctx ends. Then it
// stops the source first and the watchers after it. The watchers may continue for Options.DrainTimeout.
// Run returns nil when every goroutine that it started has returned. It waits for calls of your source,
// store and watchers that are under way, and logs their names after 10 s. Events that still wait for a
// watcher are dropped. Their number is logged, and reported to Observer.Undelivered.
//
// If ctx is done already, Run makes no request, calls no watcher and returns nil. A second Run returns an error
// that wraps [ErrAlreadyRun] at once. Run returns an error and stops the informer if another informer
// runs over the same Durable, or if the store does not find the first object that it was given. Do not
// wait for Run to return in a watcher's callback.
func (i *CustomCacheInformer[T]) Run(ctx context.Context) error {
	if err := i.set(func() { i.running.Store(true); takeInEarly(i.gate.scopes(), i.opts) }); err != nil {
		return fmt.Errorf("informer %s: %w", i.opts.Name, err)
	}
	release, err := claim(i.opts.Durable, i.opts.Name)
	defer release()
	if err != nil || ctx.Err() != nil {
		i.stop()
		i.processor.stop()
		return err
	}
	ctx, i.applier.access.end = context.WithCancel(klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "informer", i.opts.Name)))
	defer i.applier.access.end()

	// The watchers' calls may continue after the end of ctx, until the source has stopped.
	calls, stopCalls := context.WithCancel(context.WithoutCancel(ctx))
	defer stopCalls()
	var watchers, controller sync.WaitGroup
	i.processor.start(calls)
	watchers.Go(func() { i.processor.run(calls) })
	watchers.Go(func() { i.applier.detector.Run(calls.Done()) })
	controller.Go(func() { i.control(ctx) })

	<-ctx.Done()
	i.stop()
	i.await(ctx, controller.Wait) // nothing new can happen now
	i.processor.drain(ctx, i.opts.DrainTimeout)
	i.processor.stop()
	stopCalls()
	i.await(ctx, watchers.Wait)
	i.await(ctx, func() { i.applier.storage.close(ctx) })
	if lost := i.applier.access.lost; lost != nil {
		return fmt.Errorf("informer %s: %w", i.opts.Name, lost)
	}
	return nil
}

// await calls wait. If wait takes longer than HungCall, await logs the names of the user's calls that
// have not returned.
func (i *CustomCacheInformer[T]) await(ctx context.Context, wait func()) {
	done := make(chan struct{})
	var naming sync.WaitGroup
	naming.Go(func() {
		select {
		case <-done:
		case <-time.After(stopwatch.HungCall):
			klog.FromContext(ctx).Info("The informer cannot stop until calls return", "calls", i.underWay(), "waited", stopwatch.HungCall)
		}
	})
	wait()
	close(done)
	naming.Wait()
}

func (i *CustomCacheInformer[T]) underWay() []string {
	var calls []string
	for _, s := range i.roster.all() {
		for _, op := range s.UnderWay() {
			calls = append(calls, strings.TrimSpace("source: "+op+" "+s.name()))
		}
	}
	if op, key := i.applier.access.call.Current(); op != "" {
		calls = append(calls, strings.TrimSpace("store: "+op+" "+key))
	}
	calls = append(calls, i.processor.underWay()...)
	if len(calls) == 0 {
		calls = []string{"ErrorHandler, Observer, Transform or an index function"}
	}
	return calls
}

// stop refuses new watchers, and ends the calls that wait for the informer, such as WaitForSync.
func (i *CustomCacheInformer[T]) stop() {
	i.processor.refuse()
	close(i.stopped)
}

// control runs the sources and the applier, once the listeners are live. It returns when ctx is done
// and these have stopped.
func (i *CustomCacheInformer[T]) control(ctx context.Context) {
	select {
	case <-i.processor.startedCh:
	case <-ctx.Done():
		return
	}
	logger := klog.FromContext(ctx)
	logger.V(2).Info("The informer starts", "durable", i.opts.durable())
	defer logger.V(2).Info("The source has stopped")
	if !i.applier.open(ctx) {
		return
	}
	i.gate.begin(ctx, i.applier.access.example, i.opts.Transform)
	var wg sync.WaitGroup
	defer wg.Wait()
	i.roster.begin(ctx, i.gate.scopes)
	defer i.roster.wait()
	wg.Go(func() { i.applier.run(ctx) })
	if i.syncWait > 0 {
		wg.Go(func() { i.gate.endWait(i.syncWait, i.Synced()) })
	}
	if t := i.processor.tombstones; t != nil {
		wg.Go(func() { t.Follow(ctx, i.gate.wakeApplier) })
	}
	<-ctx.Done()
	i.queue.Close()
}

// Synced returns a channel that is closed once the informer has synced: every object of the first list of each source is in the
// store, or was reported because it could not be stored. Over a [Durable], a source that continues its watch needs no list. For
// [Clusters], see also ClusterOptions.SyncWait. The channel is never closed if Run's ctx ends first. Watchers may still be behind
// when it is closed, see [Registration.Synced].
func (i *CustomCacheInformer[T]) Synced() <-chan struct{} { return i.applier.synced }

// HasSynced reports whether the channel of Synced is closed. It does not block.
func (i *CustomCacheInformer[T]) HasSynced() bool { return channel.Closed(i.applier.synced) }

// Name returns Options.Name, or its default if that is "". It does not block.
func (i *CustomCacheInformer[T]) Name() string { return i.opts.Name }

// MemberHealth implements [Member]. It returns the same state as Health and does not block.
func (i *CustomCacheInformer[T]) MemberHealth() MemberHealth { return i.Health() }

// Health returns the state of the informer at this moment. It may be called at any time and does not
// block, even while the store, the source or a watcher hangs.
func (i *CustomCacheInformer[T]) Health() Health {
	failing := i.applier.access.trouble() // read before StoreBusy, so that the two are about the same operation
	h := i.sourceHealth()
	h.Name, h.Store = i.opts.Name, storeName(i.opts.store())
	h.Started = i.running.Load() && channel.Closed(i.processor.startedCh)
	h.Stopped = channel.Closed(i.stopped)
	h.Synced = i.HasSynced()
	h.LastProgress = i.gate.progress.Time(i.clock)
	h.Objects, h.Memory = i.applier.storage.stored(), i.applier.memory()
	h.Queued = i.gate.queuedUp()
	h.StoreBusy = i.applier.access.call.Lasts()
	h.Refused = int(i.applier.access.refused.Load())
	h.Tombstones = i.processor.tombstones.Count()
	h.Watchers = []WatcherHealth{}
	if failing != nil {
		h.StoreError = failing
	}
	for _, l := range i.processor.shown() {
		h.Watchers = append(h.Watchers, l.health())
	}
	return h
}

// sourceHealth returns what Health has of the sources. An informer without a source counts as watching.
func (i *CustomCacheInformer[T]) sourceHealth() (h Health) {
	for n, s := range i.gate.scopes() {
		h.Foreign += int(s.dropped.Load())
		one := s.health(i.opts.Name)
		one.ResourceVersion, _ = i.gate.resourceVersion(s)
		h.addSource(one, n == 0)
	}
	if i.gate.several && len(h.Namespaces)+len(h.Clusters) == 0 {
		h.Watching = true
		if h.Clusters = []SourceHealth{}; !i.gate.clusters {
			h.Namespaces, h.Clusters = h.Clusters, nil
		}
	}
	h.ResourceVersion, _ = i.gate.resourceVersion(nil)
	h.Undecodable, h.UndecodableKeys = i.gate.reports.undecodable(10)
	return h
}
