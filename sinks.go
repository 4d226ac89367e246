package informer

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/object"
)

// SinkInformer fills a [Sink]. It is a [Member] of a [Group]. It keeps no objects, so it has no readers, watchers or
// indexes: of each object it knows the key, the UID and the resourceVersion. [NewSink] makes one.
type SinkInformer[T Object] struct{ core *CustomCacheInformer[T] }

// NewSink returns an informer that gives the objects of a source to a sink. The source is one of [ListWatch], or any other
// cache.ListerWatcher. NewSink makes no request; Run does. The sink should be empty: what it has from an earlier process is not
// removed.
//
// NewSink returns an error if lw or sink is nil, in the cases in which [NewFrom] does, and if an option is set that is about
// stored objects or watchers: Store, Durable, Indexers, Fields or DrainTimeout. IntakeAuto is IntakeEarly. Share helps only if the
// sink keeps objects.
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

// RunSink gives the objects of a source to a sink until ctx ends, and then returns nil. It takes the place of a reflector of
// client-go over a store of the program's own. It returns an error in the cases in which [NewSink] does.
func RunSink[T Object](ctx context.Context, lw cache.ListerWatcher, sink Sink[T]) error {
	i, err := NewSink(lw, sink, Options[T]{})
	if err != nil {
		return err
	}
	return i.Run(ctx)
}

// Run lists and watches, and calls the sink, until ctx ends. It returns nil then, when the last call has returned, and
// ErrAlreadyRun if it was called before.
func (i *SinkInformer[T]) Run(ctx context.Context) error { return i.core.Run(ctx) }

// Name returns Options.Name, or the name of T.
func (i *SinkInformer[T]) Name() string { return i.core.Name() }

// Synced returns a channel that closes when the sink has been given the whole first list.
func (i *SinkInformer[T]) Synced() <-chan struct{} { return i.core.Synced() }

// WaitForSync waits for Synced. If ctx ends before, the error names the cause.
func (i *SinkInformer[T]) WaitForSync(ctx context.Context) error { return i.core.WaitForSync(ctx) }

// ResourceVersion returns the version up to which the sink was given every change, and "" before the first list.
func (i *SinkInformer[T]) ResourceVersion() string { return i.core.ResourceVersion() }

// Health returns how the informer is doing. Objects is the number of objects that the sink has. It does not block.
func (i *SinkInformer[T]) Health() Health { return i.core.Health() }

// MemberHealth returns Health.
func (i *SinkInformer[T]) MemberHealth() MemberHealth { return i.core.MemberHealth() }

func (i *SinkInformer[T]) adopt(common given) { i.core.adopt(common) }
