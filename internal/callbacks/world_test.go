package callbacks_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{}) // most tests provoke errors
	informertest.Main(m)
}

// Short names of the helpers that the test packages share.
type (
	configMap = testkit.ConfigMap
	event     = testkit.Event
	options   = testkit.Options
	recorder  = testkit.Recorder
)

var object, keyOf = testkit.Object, testkit.KeyOf

var errOnce = errors.New("this fails once")

// world is a program that uses everything. During its life each callback of the library is called
// at least once.
type world struct {
	t       *testing.T
	ctx     context.Context // of the program
	running context.Context // of the group's Run
	group   informer.Group
	members [2]*side
	// The callbacks of the second controller are those of the group.
	controllers [2]*enqueue.Controller[types.NamespacedName]
	stuck       bool                   // a visit does not end; only live uses it
	visit       func(*world, callback) // called at the first call of each callback during the life

	mu      sync.Mutex // protects the rest
	living  bool
	visited map[string]bool
	visits  int // that are under way
}

// callback is a call of a function of the program by the library.
type callback struct {
	name string
	ctx  context.Context        // that the function was given, or that of the program
	of   *side                  // the informer that calls; nil if no informer calls
	reg  *informer.Registration // of the watcher that is called, or of another one
	own  informer.Member        // the controller that calls, if of is nil; nil if no controller calls
}

// in is called inside of each callback.
func (w *world) in(c callback) {
	w.mu.Lock()
	first := w.living && !w.visited[c.name]
	if first {
		w.visited[c.name] = true
		w.visits++
	}
	w.mu.Unlock()
	if !first {
		return
	}
	if c.ctx == nil {
		c.ctx = w.ctx
	}
	if c.reg == nil {
		c.reg = w.members[0].reg
	}
	w.visit(w, c)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.visits--
}

func (w *world) isLiving() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.living
}

func (w *world) visiting() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.visits > 0
}

// quiet waits until no visit is under way, for up to three hours: a method that waits gives up
// after a minute. If a visit lasts longer, quiet does not wait for it any more.
func (w *world) quiet() {
	for range 3 * 60 {
		if testkit.SleepBubble(time.Minute); w.stuck || !w.visiting() {
			return
		}
	}
	w.stuck = true
}

// newWorld returns a program whose first informer has that kind of store. The callbacks of the
// second informer are those of the group.
func newWorld(t *testing.T, ctx context.Context, store string, visit func(*world, callback)) *world {
	w := &world{t: t, ctx: ctx, visit: visit, visited: map[string]bool{}}
	for i := range w.members {
		w.members[i] = &side{world: w, failed: map[string]bool{}, src: informertest.NewSource(object("a", "1"), object("b", "1"))}
	}
	first, second := w.members[0], w.members[1]
	w.group.ErrorHandler = w.errorHandler(second, "Group.ErrorHandler")
	w.group.Observer = w.observer(second, "Group.Observer.")
	opts := options{
		Name:             "first",
		Indexers:         informer.Indexers[configMap]{"value": first.values},
		Transform:        first.transform,
		TweakListOptions: func(*metav1.ListOptions) { first.in("Options.TweakListOptions") },
		WatchList:        informer.WatchListOff,
		DrainTimeout:     time.Minute,
		ErrorHandler:     w.errorHandler(first, "Options.ErrorHandler"),
		Observer:         w.observer(first, "Options.Observer."),
	}
	first.store(store, &opts)
	first.build(opts)
	first.watch()
	first.handler()
	second.build(options{Name: "second", WatchList: informer.WatchListOff})
	w.control()
	for _, m := range []informer.Member{first.inf, second.inf, failing{}, w.controllers[0], w.controllers[1]} {
		if err := w.group.Add(m); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *world) errorHandler(s *side, name string) func(context.Context, error) {
	return func(ctx context.Context, err error) {
		c := callback{name: fmt.Sprintf("%s(%s)", name, kindOf(err)), ctx: ctx, of: s}
		switch {
		case errors.Is(err, errFailing):
			c.of = nil
		case errors.As(err, new(*enqueue.Error)):
			c.of, c.own = nil, w.controllers[1]
		}
		w.in(c)
	}
}

// kindOf returns the type of an error, and the operation that has failed.
func kindOf(err error) string {
	var (
		ofSource *informer.WatchError
		ofStore  *informer.StoreError
		ofObject *informer.ObjectError
		op       string
	)
	switch {
	case errors.As(err, &ofSource):
		op = " of " + ofSource.Op
	case errors.As(err, &ofStore):
		op = " of " + ofStore.Op
	case errors.As(err, &ofObject):
		op = " of " + ofObject.Op
	}
	return fmt.Sprintf("%T%s", err, op)
}

func (w *world) observer(s *side, prefix string) *informer.Observer {
	o := &informer.Observer{}
	for field, f := range reflect.ValueOf(o).Elem().Fields() {
		f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value {
			w.in(callback{name: prefix + field.Name, of: s})
			return nil
		}))
	}
	return o
}

// control makes the controllers. The first call of each fails.
func (w *world) control() {
	first, second := w.members[0], w.members[1]
	reconcile := func(i int, name string) func(context.Context, types.NamespacedName) (time.Duration, error) {
		calls := 0
		return func(ctx context.Context, _ types.NamespacedName) (time.Duration, error) {
			w.in(callback{name: name, ctx: ctx, own: w.controllers[i]})
			if calls++; calls == 1 {
				return 0, errOnce
			}
			return 0, nil
		}
	}
	change := func(_, _ metav1.Object) bool { first.in("enqueue.Change of a source"); return true }
	keys := func(ctx context.Context, obj configMap) ([]types.NamespacedName, error) {
		w.in(callback{name: "enqueue.Watches(keys)", ctx: ctx, of: first})
		return []types.NamespacedName{keyOf(obj.Name)}, nil
	}
	var err error
	w.controllers[0], err = enqueue.NewController(reconcile(0, "enqueue.NewController(reconcile)"), enqueue.Options{
		Name: "controller",
		ErrorHandler: func(ctx context.Context, _ error) {
			w.in(callback{name: "enqueue.Options.ErrorHandler of a controller", ctx: ctx, own: w.controllers[0]})
		},
	}, enqueue.For(first.inf, change), enqueue.Watches(first.inf, keys))
	if err != nil {
		w.t.Fatal(err)
	}
	w.controllers[1], err = enqueue.NewController(reconcile(1, "enqueue.NewController(reconcile) of the other controller"),
		enqueue.Options{Name: "other controller"}, enqueue.For(second.inf))
	if err != nil {
		w.t.Fatal(err)
	}
}

// errFailing is the error of a member whose Run fails.
var errFailing = errors.New("the member has failed")

// failing is a member whose Run fails after a moment, when the other members run.
type failing struct{}

func (failing) Run(context.Context) error         { time.Sleep(time.Millisecond); return errFailing }
func (failing) WaitForSync(context.Context) error { return nil }
func (failing) Name() string                      { return "failing" }
func (failing) MemberHealth() informer.MemberHealth {
	return informer.Health{Name: "failing"}
}

// live runs the program. It returns the names of the callbacks that were called.
func (w *world) live() map[string]bool {
	ctx, stop := context.WithCancel(w.ctx)
	defer stop()
	w.mu.Lock()
	w.living, w.running = true, ctx
	w.mu.Unlock()
	var running sync.WaitGroup
	for _, s := range w.members {
		s.src.Fail("list", errOnce, 1)
		s.src.Fail("watch", errOnce, 1)
	}
	running.Go(func() {
		if err := w.group.Run(ctx); err != nil && !errors.Is(err, errFailing) {
			w.t.Errorf("Run of the group: %v", err)
		}
	})
	running.Go(func() { w.ask(ctx) })
	w.quiet()
	for _, s := range w.members {
		s.change()
	}
	for _, s := range w.members {
		if !s.inf.Health().Stopped { // it was not removed
			testkit.CheckView(w.t, &s.witness, s.src)
			testkit.CheckStore(w.t, s.inf, s.src)
		}
		s.burst()
	}
	stop()
	w.quiet()
	synctest.Wait()
	stopped := make(chan struct{})
	go func() { running.Wait(); close(stopped) }()
	select {
	case <-stopped:
	case <-time.After(24 * time.Hour):
		w.t.Error("the program has not stopped within a day")
	}
	return w.visited
}

// ask calls the methods and functions that call a function of the program.
func (w *world) ask(ctx context.Context) {
	inf := w.members[0].inf
	if err := inf.WaitForSync(ctx); err != nil {
		return
	}
	for range 2 { // if this is the first list of the store, it fails
		for range inf.All() {
			w.in(callback{name: "CustomCacheInformer.All, loop"})
		}
	}
	_, _ = inf.List("", selector{labels.Everything(), w})
	_ = inf.WaitFor(ctx, keyOf("a"), func(configMap, bool) bool {
		w.in(callback{name: "CustomCacheInformer.WaitFor(cond)"})
		return true
	})
	_, err := informer.GetOrAdd(&w.group, "callbacks", func() (*testkit.Informer, error) {
		w.in(callback{name: "GetOrAdd(construct)"})
		return nil, errOnce
	})
	if !errors.Is(err, errOnce) {
		w.t.Errorf("GetOrAdd: %v", err)
	}
	informer.ClientGo{Options: func(runtime.Object) (informer.Options[informer.AnyObject], error) {
		w.in(callback{name: "ClientGo.Options"})
		return informer.Options[informer.AnyObject]{}, nil
	}}.NewSharedIndexInformer(w.members[0].src, nil, 0, nil)
}

type selector struct {
	labels.Selector
	world *world
}

func (selector) Empty() bool { return false }

func (s selector) Matches(labels.Labels) bool {
	s.world.in(callback{name: "labels.Selector.Matches"})
	return true
}
