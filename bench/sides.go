package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

// side is one of the informers that are compared.
type side struct {
	name  string
	queue informer.QueueKind // 0 for client-go
}

func (s side) String() string { return s.name }

var (
	clientGo  = side{name: "client-go"}
	deltaFIFO = side{"DeltaFIFO", informer.QueueDeltaFIFO}
	realFIFO  = side{"RealFIFO", informer.QueueRealFIFO}

	// sides are the columns of the table. Ratios compare with the first.
	sides = []side{clientGo, deltaFIFO, realFIFO}
)

// everyEvent makes a watcher of ours keep its whole backlog, as client-go does. It is used
// where events are counted. Otherwise, if the machine is busy for a moment, events would be
// merged, and that would be less work.
var everyEvent = informer.WatcherOptions{MaxBacklog: -1}

type subject[T informer.Object] interface {
	// add registers a handler for added and updated objects, before or while the informer
	// runs. opts have no effect on client-go, which has nothing like them.
	add(h func(T), opts informer.WatcherOptions) (registration, error)
	// list returns all objects.
	list() []T
	// run runs the informer. It returns when ctx is done and everything has stopped.
	run(ctx context.Context) error
}

// registration is a handler's place at a subject.
type registration struct {
	synced <-chan struct{} // closed once the handler was called for the whole first state
	remove func() error
}

// options are those of our informers of Pods.
type options = informer.Options[pod]

// open returns an informer of a side over a source. opts have no effect on client-go.
func open[T informer.Object](s side, lw cache.ListerWatcher, opts informer.Options[T]) (subject[T], error) {
	if s == clientGo {
		return newShared[T](lw), nil
	}
	opts.Queue = s.queue
	inf, err := informer.NewFrom(lw, opts)
	return custom[T]{inf}, err
}

// shared is client-go's informer in its default configuration. It has the index by namespace,
// because the generated factories of client-go give it to every informer, and our informer has
// it too.
type shared[T informer.Object] struct{ cache.SharedIndexInformer }

var byNamespace = cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}

func newShared[T informer.Object](lw cache.ListerWatcher) shared[T] {
	return shared[T]{cache.NewSharedIndexInformer(lw, example[T](), 0, byNamespace)}
}

func (s shared[T]) add(h func(T), _ informer.WatcherOptions) (registration, error) {
	call := func(obj any) { h(obj.(T)) }
	reg, err := s.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: call, UpdateFunc: func(_, obj any) { call(obj) }})
	if err != nil {
		return registration{}, err
	}
	return registration{reg.HasSyncedChecker().Done(), func() error { return s.RemoveEventHandler(reg) }}, nil
}

func (s shared[T]) list() []T {
	listed := s.GetStore().List()
	objs := make([]T, len(listed)) // as a lister of client-go does
	for i, obj := range listed {
		objs[i] = obj.(T)
	}
	return objs
}

func (s shared[T]) run(ctx context.Context) error {
	s.RunWithContext(ctx)
	return nil
}

// custom is this library's informer.
type custom[T informer.Object] struct {
	*informer.CustomCacheInformer[T]
}

func (c custom[T]) add(h func(T), opts informer.WatcherOptions) (registration, error) {
	call := func(_ context.Context, e informer.Event[T]) error { h(e.New); return nil }
	reg, err := c.AddWatcher(informer.WatcherFuncs[T]{AddFunc: call, UpdateFunc: call}, opts)
	if err != nil {
		return registration{}, err
	}
	return registration{reg.Synced(), func() error { reg.Remove(); <-reg.Stopped(); return nil }}, nil
}

func (c custom[T]) list() []T {
	objs, _ := c.List("", nil) // a store in memory does not fail
	return objs
}

func (c custom[T]) run(ctx context.Context) error { return c.Run(ctx) }

// running is a subject that runs, or nil.
type running struct {
	cancel context.CancelFunc
	ended  chan struct{} // closed when run has returned; err is set before
	err    error
}

// start runs a subject until stop is called.
func start(run func(context.Context) error) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.err = run(ctx)
	}()
	return r
}

// await returns when closed is closed. It returns an error if run returns before; stop returns its reason.
func (r *running) await(closed <-chan struct{}) error {
	select {
	case <-closed:
		return nil
	case <-r.ended:
		return errors.New("the informer stopped too early")
	}
}

// stop returns when everything has stopped. It joins run's error to err.
func (r *running) stop(err *error) {
	if r == nil {
		return
	}
	r.cancel()
	<-r.ended
	*err = errors.Join(*err, r.err)
}

// live is an informer that runs over a source of its own.
type live struct {
	subject[pod]

	src     *source
	running *running
}

// launch runs an informer over n objects, and returns when its watchers, which get every event, have synced. It must be
// stopped, even after an error.
func launch(ctx context.Context, s side, opts options, n, watchers int, handler func(i int) func(pod)) (*live, error) {
	l := &live{src: newSource(n)}
	var err error
	if l.subject, err = open(s, l.src.listWatch(), opts); err != nil {
		return l, err
	}
	synced, err := addAll(l.subject, watchers, everyEvent, handler)
	if err != nil {
		return l, err
	}
	l.running = start(l.run)
	return l, synced(ctx)
}

// stop returns when everything has stopped. It joins run's error to err.
func (l *live) stop(err *error) {
	l.running.stop(err)
	l.src.drop()
}

// addAll registers count handlers. synced waits until all of them are synced.
func addAll[T informer.Object](inf subject[T], count int, opts informer.WatcherOptions, handler func(i int) func(T)) (synced func(context.Context) error, err error) {
	regs := make([]registration, count)
	for i := range regs {
		if regs[i], err = inf.add(handler(i), opts); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context) error {
		for i, reg := range regs {
			if err := await(ctx, reg.synced, fmt.Sprintf("watcher %d of %d has not synced", i+1, count)); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// example returns an empty object, from which client-go knows the type.
func example[T informer.Object]() runtime.Object {
	obj, _ := reflect.New(reflect.TypeFor[T]().Elem()).Interface().(runtime.Object)
	return obj
}
