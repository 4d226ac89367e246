package informer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/object"
)

// minResync is the shortest resync period of a handler. It is client-go's.
const minResync = time.Second

// SharedIndexInformer returns the informer in the shape that client-go, its listers and
// factories, and controller-runtime ask for. See [NewSharedIndexInformer] for its differences
// from client-go's own. Each call returns the same value. It does not block and may be called
// at any time. Handlers are told deletes before the first call with the state that the store
// had, and later deletes with their final state.
//
// Handlers and watchers may be added side by side. Either Run may be called, but only one of
// them. No handler is resynced, as with a client-go informer whose period is 0; use
// WatcherOptions.ResyncPeriod instead. SetTransform adds to Options.Transform.
func (i *CustomCacheInformer[T]) SharedIndexInformer() cache.SharedIndexInformer {
	i.viewOnce.Do(func() { i.view = newView(i, 0) })
	return i.view
}

// sharedIndexInformer is a CustomCacheInformer as client-go's SharedIndexInformer.
type sharedIndexInformer[T Object] struct {
	core      *CustomCacheInformer[T]
	resync    time.Duration      // of handlers without a period of their own; 0 is never, for all handlers
	transform func(T) (T, error) // of the options; SetTransform adds to it
}

func newView[T Object](core *CustomCacheInformer[T], resync time.Duration) *sharedIndexInformer[T] {
	core.applier.finalState.Store(true)
	return &sharedIndexInformer[T]{core: core, resync: max(0, resync), transform: core.opts.Transform}
}

func (s *sharedIndexInformer[T]) Run(stop <-chan struct{}) {
	s.RunWithContext(wait.ContextForChannel(stop))
}

func (s *sharedIndexInformer[T]) RunWithContext(ctx context.Context) {
	if err := s.core.Run(ctx); err != nil {
		s.logger(klog.FromContext(ctx)).Info("The informer cannot be run a second time")
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
	if err != nil {
		return nil, s.failed("AddEventHandler", err)
	}
	return &registeredHandler[T]{s, l}, nil
}

// period returns the resync period of a handler that asks for one: none if the informer has
// none, and otherwise at least minResync.
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
		return s.failed("RemoveEventHandler", fmt.Errorf("%T is no registration of this library's", handle))
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

// failed returns err with the name of the informer and of the operation, and nil for nil.
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

// Health and WaitForSync are additions to client-go's interface; see NewSharedIndexInformer.
func (s *sharedIndexInformer[T]) Health() Health { return s.core.Health() }

func (s *sharedIndexInformer[T]) WaitForSync(ctx context.Context) error {
	return s.core.WaitForSync(ctx)
}

// GetController returns a controller that cannot be run. client-go calls it of no use too.
func (s *sharedIndexInformer[T]) GetController() cache.Controller { return sharedController[T]{s} }

type sharedController[T Object] struct{ of *sharedIndexInformer[T] }

func (sharedController[T]) Run(<-chan struct{})                   {}
func (sharedController[T]) RunWithContext(context.Context)        {}
func (c sharedController[T]) HasSynced() bool                     { return c.of.HasSynced() }
func (c sharedController[T]) HasSyncedChecker() cache.DoneChecker { return c.of.HasSyncedChecker() }
func (c sharedController[T]) LastSyncResourceVersion() string     { return c.of.LastSyncResourceVersion() }

// registeredHandler is the registration of a handler.
type registeredHandler[T Object] struct {
	of       *sharedIndexInformer[T]
	listener *informerProcessorListener[T]
}

func (r *registeredHandler[T]) HasSynced() bool { return channel.Closed(r.listener.synced) }

func (r *registeredHandler[T]) HasSyncedChecker() cache.DoneChecker {
	return done{fmt.Sprintf("informer %s: handler %s", r.of.core.opts.Name, r.listener.opts.Name), r.listener.synced}
}

// ShutdownChan returns a channel that closes when the handler has returned for the last time.
// cache.ShutDownEventHandler waits for it.
func (r *registeredHandler[T]) ShutdownChan() <-chan struct{} { return r.listener.stopped }

// removeFrom removes the handler. It does nothing if r belongs to another informer.
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
