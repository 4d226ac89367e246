package informer

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/index"
	"github.com/customcacheinformer/informer/internal/object"
)

// NewSharedIndexInformer replaces client-go's function of that name. It returns a
// cache.SharedIndexInformer that is this library's [CustomCacheInformer] inside. It behaves as
// client-go's does, except for the differences in docs/differences-from-client-go.md. It has the
// shape that controller-runtime's cache.Options.NewInformer asks for. The function given to a
// SharedInformerFactory's InformerFor may return its result. It does not block.
//
// It panics if lw is nil or cannot list and watch, because it has no error to return. resync is
// the resync period of handlers that have none of their own; if it is 0, no handler is
// resynced. The type of example is the type of the source's objects; a nil example allows any
// type. The informer logs with the logger of the ctx given to RunWithContext, failures too.
//
// The result has two more methods, which a type assertion finds: Health() [Health] and
// WaitForSync(context.Context) error, as CustomCacheInformer has them. A factory's typed
// accessors wrap the result and hide these methods; the factory's InformerFor returns it as it
// is.
func NewSharedIndexInformer(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	s, err := newShared(lw, example, resync, indexers, Options[AnyObject]{})
	if err != nil {
		panic(err)
	}
	return s
}

// SharedIndexInformerFunc returns a [NewSharedIndexInformer] whose options depend on the type.
// Each time an informer is made, configure is called with the example, in the caller's
// goroutine. The Indexers of the options are added to the requested ones, and the Transform of
// the options comes before that of SetTransform. An empty Name becomes the example's kind.
// QueueAuto becomes RealFIFO, which keeps the order of events as client-go's informers do.
//
// controller-runtime makes an informer per kind, namespace and form. The example of an informer
// for unstructured objects is an *unstructured.Unstructured, that of one for metadata only a
// *metav1.PartialObjectMetadata; both have the kind. configure does not learn the namespace.
//
// If configure returns an error, or options that cannot be used, the informer never syncs. Its
// lists fail with that error, which goes to the options' ErrorHandler, or the log.
// SharedIndexInformerFunc panics if configure is nil.
func SharedIndexInformerFunc(configure func(example runtime.Object) (Options[AnyObject], error)) func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer {
	if configure == nil {
		panic("informer: SharedIndexInformerFunc: configure is nil")
	}
	return func(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
		return configuredShared(configure, lw, example, resync, indexers)
	}
}

// configuredShared returns an informer with the options that configure returns. If there are
// none, or they cannot be used, it returns an informer whose lists fail with the reason.
func configuredShared(configure func(runtime.Object) (Options[AnyObject], error), lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) *sharedIndexInformer[AnyObject] {
	if err := checkSource(lw); err != nil {
		panic(fmt.Errorf("informer: %w", err))
	}
	opts, err := configure(example)
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
	if err := opts.check(); err != nil {
		return nil, fmt.Errorf("informer: %w", err)
	}
	opts.Queue = cmp.Or(opts.Queue, RealFIFO) // as client-go's
	accept, tombstone := object.As[AnyObject], bareObject[AnyObject]
	if example != nil {
		if t := reflect.TypeOf(example); object.IsNil(example) && t.Kind() == reflect.Pointer {
			example = reflect.New(t.Elem()).Interface().(runtime.Object)
		}
		opts.Name = cmp.Or(opts.Name, example.GetObjectKind().GroupVersionKind().Kind, object.TypeName(reflect.TypeOf(example)))
		accept, tombstone = acceptLike(example), tombstoneLike(example)
	}
	all := index.Untyped(opts.Indexers)
	for name, f := range indexers {
		if all[name] != nil {
			return nil, fmt.Errorf("informer %s: Options.Indexers[%q]: an index of that name is asked for besides", opts.Name, name)
		}
		all[name] = f
	}
	inf, err := newInformer(lw, accept, tombstone, all, opts)
	if err != nil {
		return nil, err
	}
	return newView(inf, resync), nil
}

// refusal returns a source whose requests all fail with err.
func refusal(err error) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, err },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nil, err },
	}
}

// acceptLike returns a function that accepts objects of the example's type. For an
// unstructured example, the kind must be the same too.
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

// tombstoneLike returns a function that makes tombstones, as tombstone does, for objects of the example's type and kind.
func tombstoneLike(example runtime.Object) func(string, types.UID) AnyObject {
	t, kind := reflect.TypeOf(example), example.GetObjectKind().GroupVersionKind()
	return func(key string, uid types.UID) AnyObject {
		obj, ok := AnyObject(&metav1.PartialObjectMetadata{}), false
		if t.Kind() == reflect.Pointer {
			if obj, ok = reflect.New(t.Elem()).Interface().(AnyObject); !ok {
				obj = &metav1.PartialObjectMetadata{}
			}
		}
		obj.GetObjectKind().SetGroupVersionKind(kind)
		nameTombstone(obj, key, uid)
		return obj
	}
}
