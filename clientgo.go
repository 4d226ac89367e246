package informer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/framing"
	"github.com/customcacheinformer/informer/internal/index"
	"github.com/customcacheinformer/informer/internal/object"
	"github.com/customcacheinformer/informer/share"
)

// ClientGo makes informers that implement client-go's interfaces, for a program that keeps its handlers,
// listers and factories, or its controller-runtime manager. Such a program has one line to change:
//
//	informer.ClientGo{}.NewSharedIndexInformer(lw, &corev1.Pod{}, resync, indexers) // was cache.NewSharedIndexInformer
//	cache.Options{NewInformer: informer.ClientGo{}.NewSharedIndexInformer}          // for a manager
//
// The zero value is ready to use. If you have an informer of [New], call
// [CustomCacheInformer.SharedIndexInformer] instead.
type ClientGo struct {
	// Options returns the options of an informer. NewSharedIndexInformer calls it with the example, in the caller's goroutine.
	// The Indexers and Fields of the options are added to the requested indexers; Fields must fit the type of the example. The
	// Transform of the options is called before that of SetTransform. An empty Name becomes the example's kind. QueueAuto becomes
	// QueueRealFIFO, which keeps the order of events as client-go's informers do. Nil means default options.
	//
	// controller-runtime makes separate informers for typed objects, unstructured objects and metadata, for
	// each kind and namespace. The example then is a typed object, an *unstructured.Unstructured or a
	// *metav1.PartialObjectMetadata. The latter two have the kind set. The example does not show the
	// namespace.
	//
	// If Options returns an error, or options that cannot be used, the informer never syncs. Its lists fail
	// with that error, which goes to the ErrorHandler of the options, or of Group, or to the log.
	Options func(example runtime.Object) (Options[AnyObject], error)

	// Share, such as share.New(), is the Options.Share of the informers whose options have none. An object
	// is shared after all transforms, including that of a factory or a manager. See package share for
	// the programs in which sharing is safe. Nil means no sharing.
	Share *share.Table

	// Lists is the Options.Lists of the informers whose options have none. Defaults to the limit of Group,
	// and without a Group to no limit.
	Lists *ListLimit

	// Group is a group that shows the informers, although a manager or a factory runs them. Informers whose options have no
	// Observer, ErrorHandler or Lists use those of the group. Until the informers stop, they are part of Health, Ready and
	// Live of the group, and of the page of package debug. They are not members: Run and WaitForSync of the group ignore
	// them. A group without members is not ready until the first informer is made, see Group.MayBeEmpty. Nil means no group.
	Group *Group
}

// NewSharedIndexInformer returns a cache.SharedIndexInformer that uses a [CustomCacheInformer] of this
// library. Use it in place of client-go's function of that name, as controller-runtime's
// cache.Options.NewInformer, or in a function given to the InformerFor of a SharedInformerFactory. The result
// behaves as client-go's does, except for the differences in docs/differences-from-client-go.md.
// NewSharedIndexInformer does not block, except in Options, and may be called from any goroutine.
//
// NewSharedIndexInformer panics if lw is nil or cannot list and watch, or if an index function is nil, because
// it cannot return an error.
// resync is the resync period of handlers that have none of their own. A period of 0 or less means no resyncs, and
// any other below 1 s counts as 1 s. If resync is 0, no handler is resynced. The source's objects must have the type
// of example; if example is nil, they may have any type. Index functions are called while the store is locked and must
// not call the informer, as with client-go's. The informer logs with the logger of the ctx given to RunWithContext.
//
// The result also has the methods Health() [Health] and WaitForSync(context.Context) error of
// CustomCacheInformer. Use a type assertion to call them. A factory's InformerFor returns the result itself,
// but a factory's typed accessors wrap it and hide these methods.
func (c ClientGo) NewSharedIndexInformer(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	if err := checkSource(lw); err != nil {
		panic(fmt.Errorf("informer: %w", err))
	}
	s := c.construct(lw, example, resync, indexers)
	if c.Group != nil {
		c.Group.show(s.core)
	}
	return s
}

// construct returns an informer with the options of c. If c.Options returns an error, or options that cannot
// be used, it returns an informer whose lists fail with that error.
func (c ClientGo) construct(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) *sharedIndexInformer[AnyObject] {
	var opts Options[AnyObject]
	var err error
	if c.Options != nil {
		opts, err = c.Options(example)
	}
	opts.Lists, opts.Share = cmp.Or(opts.Lists, c.Lists), cmp.Or(opts.Share, c.Share)
	if err == nil {
		var s *sharedIndexInformer[AnyObject]
		if s, err = newShared(lw, example, resync, indexers, opts); err == nil {
			return s
		}
	}
	s, err := newShared(refusal(err), example, resync, indexers, Options[AnyObject]{
		Name: opts.Name, ErrorHandler: opts.ErrorHandler, Observer: opts.Observer, WatchList: WatchListOff,
	})
	if err != nil {
		panic(err)
	}
	return s
}

func newShared(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers, opts Options[AnyObject]) (*sharedIndexInformer[AnyObject], error) {
	opts.Queue = cmp.Or(opts.Queue, QueueRealFIFO) // as client-go's informers
	accept, tombstone, of := object.As[AnyObject], bareObject[AnyObject], reflect.TypeFor[AnyObject]()
	if example != nil {
		if t := reflect.TypeOf(example); object.IsNil(example) && t.Kind() == reflect.Pointer {
			example = reflect.New(t.Elem()).Interface().(runtime.Object)
		}
		opts.Name = cmp.Or(opts.Name, example.GetObjectKind().GroupVersionKind().Kind, object.TypeName(reflect.TypeOf(example)))
		accept, tombstone = acceptLike(example), bareObjectLike(example)
		of = reflect.TypeOf(example)
	}
	all, err := opts.indexers(of)
	if err != nil {
		return nil, fmt.Errorf("informer: %w", err)
	}
	for name, f := range indexers {
		if all[name] != nil {
			return nil, fmt.Errorf("informer %s: Options.Indexers or Options.Fields: an index of the name %q is asked for besides", opts.Name, name)
		}
		all[name] = f
	}
	inf, err := newInformer(reading{resources: []resource{{lw: lw, framing: framing.TypeOfManager(lw, example)}}}, accept, tombstone, all, opts)
	if err != nil {
		return nil, err
	}
	return newView(inf, resync), nil
}

// refusal returns a source that answers every request with err.
func refusal(err error) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, err },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nil, err },
	}
}

// acceptLike returns a function that accepts only objects of the example's type, and for an unstructured
// example only objects of its kind.
func acceptLike(example runtime.Object) func(any) (AnyObject, error) {
	want, kind := reflect.TypeOf(example), example.GetObjectKind().GroupVersionKind()
	if _, ok := example.(runtime.Unstructured); !ok {
		kind = schema.GroupVersionKind{}
	}
	return func(raw any) (AnyObject, error) {
		obj, err := object.As[AnyObject](raw)
		if err != nil {
			return nil, err
		}
		if reflect.TypeOf(raw) != want {
			return nil, fmt.Errorf("%T %w, %v", raw, object.ErrWrongType, want)
		}
		if got := obj.GetObjectKind().GroupVersionKind(); !kind.Empty() && !got.Empty() && got != kind {
			return nil, fmt.Errorf("%v %w, %v", got, object.ErrWrongType, kind)
		}
		return obj, nil
	}
}

// bareObjectLike returns a function that works like bareObject, but makes objects of the example's type and
// kind.
func bareObjectLike(example runtime.Object) func(string, types.UID) AnyObject {
	t, kind := reflect.TypeOf(example), example.GetObjectKind().GroupVersionKind()
	return func(key string, uid types.UID) AnyObject {
		obj, ok := AnyObject(&metav1.PartialObjectMetadata{}), false
		if t.Kind() == reflect.Pointer {
			if obj, ok = reflect.New(t.Elem()).Interface().(AnyObject); !ok {
				obj = &metav1.PartialObjectMetadata{}
			}
		}
		obj.GetObjectKind().SetGroupVersionKind(kind)
		identify(obj, key, uid)
		return obj
	}
}

// minResync is the shortest resync period of a handler, as in client-go.
const minResync = time.Second

// SharedIndexInformer returns the informer as a cache.SharedIndexInformer, for client-go's listers and
// factories and for controller-runtime. See docs/differences-from-client-go.md for how the result differs
// from client-go's own. Each call returns the same value. SharedIndexInformer does not block and may be
// called at any time. For an object that is deleted after the first call of SharedIndexInformer, handlers
// get the final state. For an object that is deleted before, they get the state that the store had.
//
// Handlers and watchers may be used together. Call Run of i or of the result, but not both. Handlers are
// never resynced, as with a client-go informer whose period is 0; use a watcher with
// WatcherOptions.ResyncPeriod instead. A function given to SetTransform is called after Options.Transform.
//
// SharedIndexInformer panics for an informer of [NewOverClusters], because client-go's keys have no clusters.
func (i *CustomCacheInformer[T]) SharedIndexInformer() cache.SharedIndexInformer {
	if i.gate.clusters {
		panic(fmt.Errorf("informer %s: SharedIndexInformer: client-go's keys have no clusters", i.opts.Name))
	}
	i.viewOnce.Do(func() { i.view = newView(i, 0) })
	return i.view
}

type sharedIndexInformer[T Object] struct {
	core      *CustomCacheInformer[T]
	resync    time.Duration      // of handlers without a period of their own; if it is 0, no handler is resynced
	transform func(T) (T, error) // of the options; SetTransform adds to it
}

func newView[T Object](core *CustomCacheInformer[T], resync time.Duration) *sharedIndexInformer[T] {
	core.applier.decider.handlers.Store(true)
	core.applier.decider.finals.Store(true)
	return &sharedIndexInformer[T]{core: core, resync: max(0, resync), transform: core.opts.Transform}
}

func (s *sharedIndexInformer[T]) Run(stop <-chan struct{}) {
	s.RunWithContext(wait.ContextForChannel(stop))
}

func (s *sharedIndexInformer[T]) RunWithContext(ctx context.Context) {
	var ofStore *StoreError
	if err := s.core.Run(ctx); errors.Is(err, ErrAlreadyRun) {
		s.logger(klog.FromContext(ctx)).Info("The informer cannot be run a second time")
	} else if err != nil && !errors.As(err, &ofStore) {
		s.core.report(ctx, err)
	}
}

func (s *sharedIndexInformer[T]) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandlerWithOptions(h, cache.HandlerOptions{})
}

func (s *sharedIndexInformer[T]) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, resync time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandlerWithOptions(h, cache.HandlerOptions{ResyncPeriod: &resync})
}

func (s *sharedIndexInformer[T]) AddEventHandlerWithOptions(h cache.ResourceEventHandler, opts cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	if object.IsNil(h) {
		return nil, s.failed("AddEventHandler", errors.New("handler is nil"))
	}
	logger := ptr.Deref(opts.Logger, klog.Background())
	period := s.period(logger, ptr.Deref(opts.ResyncPeriod, s.resync))
	l, err := s.core.processor.add(&handler[T]{ResourceEventHandler: h, logger: logger}, WatcherOptions{MaxBacklog: -1, ResyncPeriod: period})
	if errors.Is(err, ErrStopped) { // the words are client-go's, because programs look for them
		err = fmt.Errorf("%w: handler %T was not added to shared informer because it has stopped already", err, h)
	}
	if err != nil {
		return nil, s.failed("AddEventHandler", err)
	}
	return &registeredHandler[T]{s, l}, nil
}

// period returns the resync period of a handler that asks for one. It returns 0 if the informer has no resync
// period, and otherwise at least minResync.
func (s *sharedIndexInformer[T]) period(logger klog.Logger, asked time.Duration) time.Duration {
	if asked <= 0 {
		return 0
	}
	period := max(asked, minResync)
	if s.resync == 0 {
		period = 0
	}
	if period != asked {
		s.logger(logger).Info("A handler is not resynced as often as it asks for", "asked", asked, "period", period)
	}
	return period
}

func (s *sharedIndexInformer[T]) logger(of klog.Logger) klog.Logger {
	return klog.LoggerWithValues(of, "informer", s.core.opts.Name)
}

func (s *sharedIndexInformer[T]) RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error {
	r, ok := handle.(interface{ removeFrom(informer any) })
	if !ok {
		return s.failed("RemoveEventHandler", fmt.Errorf("%T is not a registration of this library's", handle))
	}
	r.removeFrom(s)
	return nil
}

func (s *sharedIndexInformer[T]) SetTransform(f cache.TransformFunc) error {
	joined := s.transform
	if f != nil {
		joined = func(obj T) (T, error) {
			if s.transform != nil {
				var err error
				if obj, err = s.transform(obj); err != nil || object.IsNil(obj) {
					return obj, err
				}
			}
			out, err := f(obj)
			if err != nil {
				return obj, err
			}
			return object.As[T](out)
		}
	}
	return s.failed("SetTransform", s.core.set(func() { s.core.opts.Transform = joined }))
}

func (s *sharedIndexInformer[T]) SetWatchErrorHandler(h cache.WatchErrorHandler) error {
	return s.SetWatchErrorHandlerWithContext(func(_ context.Context, r *cache.Reflector, err error) { h(r, err) })
}

func (s *sharedIndexInformer[T]) SetWatchErrorHandlerWithContext(h cache.WatchErrorHandlerWithContext) error {
	return s.failed("SetWatchErrorHandler", s.core.set(func() { s.core.watchErrorHandler = h }))
}

// failed adds the name of the informer and the operation to err. It returns nil if err is nil.
func (s *sharedIndexInformer[T]) failed(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("informer %s: %s: %w", s.core.opts.Name, op, err)
}

func (s *sharedIndexInformer[T]) HasSynced() bool { return s.core.HasSynced() }

func (s *sharedIndexInformer[T]) HasSyncedChecker() cache.DoneChecker {
	return done{"informer " + s.core.opts.Name, s.core.Synced()}
}

func (s *sharedIndexInformer[T]) LastSyncResourceVersion() string {
	if s.core.gate.several {
		return s.core.ResourceVersion()
	}
	return s.core.gate.scopes()[0].LastVersion()
}

func (s *sharedIndexInformer[T]) IsStopped() bool { return channel.Closed(s.core.stopped) }

// Health returns the state of the informer. Health and WaitForSync are not in client-go's interface, see
// ClientGo.NewSharedIndexInformer.
func (s *sharedIndexInformer[T]) Health() Health { return s.core.Health() }

func (s *sharedIndexInformer[T]) WaitForSync(ctx context.Context) error {
	return s.core.WaitForSync(ctx)
}

// GetController returns a controller that cannot be run: its Run does nothing.
func (s *sharedIndexInformer[T]) GetController() cache.Controller { return sharedController[T]{s} }

type sharedController[T Object] struct{ of *sharedIndexInformer[T] }

func (sharedController[T]) Run(<-chan struct{})                   {}
func (sharedController[T]) RunWithContext(context.Context)        {}
func (c sharedController[T]) HasSynced() bool                     { return c.of.HasSynced() }
func (c sharedController[T]) HasSyncedChecker() cache.DoneChecker { return c.of.HasSyncedChecker() }
func (c sharedController[T]) LastSyncResourceVersion() string     { return c.of.LastSyncResourceVersion() }

func (s *sharedIndexInformer[T]) GetStore() cache.Store { return s.GetIndexer() }

func (s *sharedIndexInformer[T]) GetIndexer() cache.Indexer {
	return s.core.index.Indexer(func(err error) {
		s.core.report(context.Background(), &StoreError{Op: "scan", Failures: 1, GaveUp: true, Err: err})
	})
}

func (s *sharedIndexInformer[T]) AddIndexers(indexers cache.Indexers) error {
	if s.IsStopped() {
		return s.failed("AddIndexers", fmt.Errorf("%w: indexer was not added because it has stopped already", ErrStopped))
	}
	if err := s.core.index.Add(indexers); err != nil {
		return s.failed("AddIndexers", err)
	}
	if s.core.own != nil {
		return nil // the store has reported the objects for which they fail
	}
	s.core.each("", func(e object.Entry, _ T) bool {
		if errs, ctx := index.Failures(indexers, e.Object), context.Background(); len(errs) > 0 {
			key := e.Key()
			s.core.gate.reports.failed(ctx, "index", key, 0, errs...)
			if _, exists, _ := index.Get[T](ctx, s.core.scan, key); !exists { // it was deleted meanwhile
				s.core.gate.reports.ended(ctx, "index", key, false)
			}
		}
		return true
	})
	return nil
}

type registeredHandler[T Object] struct {
	of       *sharedIndexInformer[T]
	listener *informerProcessorListener[T]
}

func (r *registeredHandler[T]) HasSynced() bool { return channel.Closed(r.listener.synced) }

func (r *registeredHandler[T]) HasSyncedChecker() cache.DoneChecker {
	return done{fmt.Sprintf("informer %s: handler %s", r.of.core.opts.Name, r.listener.opts.Name), r.listener.synced}
}

// ShutdownChan returns a channel that is closed when the handler has returned for the last time.
// cache.ShutDownEventHandler of client-go 0.37 waits for it.
func (r *registeredHandler[T]) ShutdownChan() <-chan struct{} { return r.listener.stopped }

// removeFrom removes the handler from informer. It does nothing if r belongs to another informer.
func (r *registeredHandler[T]) removeFrom(informer any) {
	if informer == any(r.of) {
		r.of.core.processor.remove(r.listener)
	}
}

type done struct {
	name    string
	channel <-chan struct{}
}

func (d done) Name() string          { return d.name }
func (d done) Done() <-chan struct{} { return d.channel }

// SinkInformer lists and watches one resource, and gives the objects to a [Sink]. It can be a [Member] of a [Group].
// It keeps only the key, the UID and the resourceVersion of each object, so it has no readers, watchers or indexes.
// [NewSink] makes one. Its methods may be called from any goroutine.
type SinkInformer[T Object] struct{ core *CustomCacheInformer[T] }

// NewSink returns an informer that gives the objects of a source to a sink. The source is the result of [ListWatch], or any
// other cache.ListerWatcher. NewSink makes no request; Run does. The sink should be empty: the informer does not remove what an
// earlier process has put into it.
//
// NewSink returns an error if lw or sink is nil, or if [NewFrom] would. It also returns an error if Store, Durable, Indexers, Fields
// or DrainTimeout is set: these options need stored objects or watchers. Share is useful only if the sink keeps objects.
//
// IntakeAuto means IntakeEarly, and WatchListAuto means WatchListOff, because a sink may be slow: the first state is listed in pages,
// see [Options.PageSize]. For a quick sink, WatchListOn saves requests.
func NewSink[T Object](lw cache.ListerWatcher, sink Sink[T], opts Options[T]) (*SinkInformer[T], error) {
	for name, set := range map[string]bool{
		"Store": opts.Store != nil, "Durable": opts.Durable != nil, "Indexers": len(opts.Indexers) > 0, "Fields": len(opts.Fields) > 0, "DrainTimeout": opts.DrainTimeout != 0,
	} {
		if set {
			return nil, fmt.Errorf("informer: Options.%s is set, but an informer with a Sink keeps no objects and has no watchers", name)
		}
	}
	if object.IsNil(sink) {
		return nil, errors.New("informer: the sink is nil")
	}
	opts.Store = sinkStore[T]{cache.NewStore(object.CacheKey), sink}
	core, err := NewFrom(lw, opts)
	if err != nil {
		return nil, err
	}
	return &SinkInformer[T]{core}, nil
}

// RunSink gives the objects of a source to a sink, with default options. It blocks until ctx is done and the last call of the sink
// has returned, and then returns nil. If lw or sink cannot be used, RunSink returns an error at once, as [NewSink] does. Use it in
// place of a client-go reflector that fills a store of the program.
func RunSink[T Object](ctx context.Context, lw cache.ListerWatcher, sink Sink[T]) error {
	i, err := NewSink(lw, sink, Options[T]{})
	if err != nil {
		return err
	}
	return i.Run(ctx)
}

// Run lists and watches, calls the sink, and blocks until ctx is done and the last call has returned. Then it
// returns nil. A second Run returns an error that wraps [ErrAlreadyRun] at once.
func (i *SinkInformer[T]) Run(ctx context.Context) error { return i.core.Run(ctx) }

// Name returns Options.Name, or the name of T if that is "".
func (i *SinkInformer[T]) Name() string { return i.core.Name() }

// Synced returns a channel that is closed when the sink has taken or refused every usable object of the first
// list. It is never closed if Run's ctx ends first.
func (i *SinkInformer[T]) Synced() <-chan struct{} { return i.core.Synced() }

// WaitForSync blocks until the channel of Synced is closed, and then returns nil. If ctx or the informer ends
// first, it returns a *SyncError. It may be called before Run.
func (i *SinkInformer[T]) WaitForSync(ctx context.Context) error { return i.core.WaitForSync(ctx) }

// ResourceVersion returns the version up to which the sink was given every change, or "" before the end of the
// first list.
func (i *SinkInformer[T]) ResourceVersion() string { return i.core.ResourceVersion() }

// Health returns the state of the informer at this moment. Objects is the number of objects that the sink has
// taken and has not removed since. Health does not block.
func (i *SinkInformer[T]) Health() Health { return i.core.Health() }

// MemberHealth implements [Member]. It returns the same state as Health and does not block.
func (i *SinkInformer[T]) MemberHealth() MemberHealth { return i.core.MemberHealth() }

func (i *SinkInformer[T]) adopt(common given) { i.core.adopt(common) }
