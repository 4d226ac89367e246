package informer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/object"
)

// minResync is the shortest resync period of a handler, as in client-go.
const minResync = time.Second

// SharedIndexInformer returns the informer in the shape that client-go, its listers and
// factories, and controller-runtime ask for; see [NewSharedIndexInformer] for how it
// differs from client-go's own. Each call returns the same one. It does not block, and
// may be called at any time; what was deleted before the first call is told to handlers
// with the state that the store had, later deletes with their final one.
//
// Handlers and watchers may be added side by side, and either Run may be called, but
// only one of them. No handler is resynced, as with a client-go informer whose period is
// 0; WatcherOptions.ResyncPeriod is for that. SetTransform adds to Options.Transform.
func (i *CustomCacheInformer[T]) SharedIndexInformer() cache.SharedIndexInformer { return i.shared() }

// sharedIndexInformer is a CustomCacheInformer as client-go's SharedIndexInformer.
type sharedIndexInformer[T Object] struct {
	core   *CustomCacheInformer[T]
	resync time.Duration // of handlers that have no period of their own

	mu      sync.Mutex    // protects the rest
	every   time.Duration // it looks whether a handler is to be resynced; 0 is never
	started bool
}

func newView[T Object](core *CustomCacheInformer[T], resync time.Duration) *sharedIndexInformer[T] {
	core.applier.finalState.Store(true)
	resync = max(0, resync)
	return &sharedIndexInformer[T]{core: core, resync: resync, every: resync}
}

func (s *sharedIndexInformer[T]) Run(stop <-chan struct{}) {
	s.RunWithContext(wait.ContextForChannel(stop))
}

func (s *sharedIndexInformer[T]) RunWithContext(ctx context.Context) {
	s.start()
	if err := s.core.Run(ctx); err != nil {
		s.logger(klog.FromContext(ctx)).Info("The informer cannot be run a second time")
	}
}

// start settles when the handlers that are there are resynced.
func (s *sharedIndexInformer[T]) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started || s.every == 0 {
		return
	}
	s.started = true
	s.core.source.Look(s.every, s.look)
	for _, l := range s.core.processor.all() {
		if l.handler != nil {
			l.resync = resyncTimer{period: l.handler.settle(s.every), synced: l.synced}
		}
	}
}

// look is called where client-go's informer would look whether a handler is to be
// resynced: that is up to each one's own clock here.
func (s *sharedIndexInformer[T]) look() {
	for _, l := range s.core.processor.all() {
		if l.handler != nil {
			l.handler.look(s.core.processor.Now())
		}
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
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &handler[T]{
		ResourceEventHandler: h, logger: logger,
		asked: s.periodLocked(logger, ptr.Deref(opts.ResyncPeriod, s.resync)), added: s.core.processor.Now(),
	}
	w.due.Store(true)
	l, err := s.core.processor.add(w, WatcherOptions{MaxBacklog: -1, ResyncPeriod: w.settle(s.every)})
	if err != nil {
		return nil, s.failed("AddEventHandler", err)
	}
	return &registeredHandler[T]{s, l}, nil
}

// periodLocked returns the period with which a handler that asks for one is resynced,
// by client-go's rules: none if the informer has none; at least a second; and a shorter
// one than any before makes the informer look more often, but not once it runs.
func (s *sharedIndexInformer[T]) periodLocked(logger klog.Logger, asked time.Duration) time.Duration {
	period := max(0, asked)
	switch {
	case period == 0:
		return 0
	case s.every == 0:
		period = 0
	case s.started:
		period = max(period, minResync, s.every)
	default:
		period = max(period, minResync)
		s.every = min(s.every, period)
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
		return s.failed("RemoveEventHandler", fmt.Errorf("%T is no handle of this library's", handle))
	}
	r.removeFrom(s)
	return nil
}

func (s *sharedIndexInformer[T]) SetTransform(f cache.TransformFunc) error {
	own := s.core.opts.Transform
	joined := own
	if f != nil {
		joined = func(obj T) (T, error) {
			if own != nil {
				var err error
				if obj, err = own(obj); err != nil || object.IsNil(obj) {
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
	return s.failed("SetTransform", s.core.set(func() { s.core.inlet.transform = joined }))
}

func (s *sharedIndexInformer[T]) SetWatchErrorHandler(h cache.WatchErrorHandler) error {
	return s.SetWatchErrorHandlerWithContext(func(_ context.Context, r *cache.Reflector, err error) { h(r, err) })
}

func (s *sharedIndexInformer[T]) SetWatchErrorHandlerWithContext(h cache.WatchErrorHandlerWithContext) error {
	return s.failed("SetWatchErrorHandler", s.core.set(func() { s.core.source.OnWatchFailed(h) }))
}

// failed says what an error is about, if it is one.
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

func (s *sharedIndexInformer[T]) LastSyncResourceVersion() string { return s.core.source.LastVersion() }

func (s *sharedIndexInformer[T]) IsStopped() bool { return channel.Closed(s.core.stopped) }

// Health and WaitForSync are not in client-go's interface; see NewSharedIndexInformer.
func (s *sharedIndexInformer[T]) Health() Health { return s.core.Health() }

func (s *sharedIndexInformer[T]) WaitForSync(ctx context.Context) error {
	return s.core.WaitForSync(ctx)
}

// GetController returns what client-go calls of no use: it cannot be run.
func (s *sharedIndexInformer[T]) GetController() cache.Controller { return sharedController[T]{s} }

type sharedController[T Object] struct{ of *sharedIndexInformer[T] }

func (sharedController[T]) Run(<-chan struct{})                   {}
func (sharedController[T]) RunWithContext(context.Context)        {}
func (c sharedController[T]) HasSynced() bool                     { return c.of.HasSynced() }
func (c sharedController[T]) HasSyncedChecker() cache.DoneChecker { return c.of.HasSyncedChecker() }
func (c sharedController[T]) LastSyncResourceVersion() string     { return c.of.LastSyncResourceVersion() }

// registeredHandler is the handle of a handler.
type registeredHandler[T Object] struct {
	of       *sharedIndexInformer[T]
	listener *informerProcessorListener[T]
}

func (r *registeredHandler[T]) HasSynced() bool { return channel.Closed(r.listener.synced) }

func (r *registeredHandler[T]) HasSyncedChecker() cache.DoneChecker {
	return done{fmt.Sprintf("informer %s: handler %s", r.of.core.opts.Name, r.listener.opts.Name), r.listener.synced}
}

// ShutdownChan is what cache.ShutDownEventHandler waits for.
func (r *registeredHandler[T]) ShutdownChan() <-chan struct{} { return r.listener.stopped }

// removeFrom does nothing if r is a handle of another informer.
func (r *registeredHandler[T]) removeFrom(informer any) {
	if informer == any(r.of) {
		r.of.core.processor.remove(r.listener)
	}
}

// done is a cache.DoneChecker.
type done struct {
	name    string
	channel <-chan struct{}
}

func (d done) Name() string          { return d.name }
func (d done) Done() <-chan struct{} { return d.channel }
