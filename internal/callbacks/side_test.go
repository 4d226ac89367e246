package callbacks_test

import (
	"context"
	"fmt"
	"sync"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/internal/version"
)

// side is an informer, with its source and its watchers.
type side struct {
	world   *world
	src     *informertest.Source[configMap]
	inf     *testkit.Informer
	shared  cache.SharedIndexInformer
	handle  cache.ResourceEventHandlerRegistration
	reg     *informer.Registration
	witness recorder
	ordered bool // watchers can follow the versions

	mu     sync.Mutex      // protects the rest
	failed map[string]bool // the operations of the store that have failed once
}

// in is called inside of a callback that gets no ctx and belongs to no watcher.
func (s *side) in(name string) { s.world.in(callback{name: name, of: s}) }

// build makes the informer of s, with a watcher that sees all, a slow one, and one that fails.
func (s *side) build(opts options) {
	var err error
	if s.inf, err = informer.NewFrom(listerWatcher{s.src, s}, opts); err != nil {
		s.world.t.Fatal(err)
	}
	s.ordered = opts.Durable != nil
	slow := func(ctx context.Context, e event) error {
		if e.Type != informer.EventUpdated {
			return nil
		}
		select {
		case <-time.After(time.Hour):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.add(&s.witness, informer.WatcherOptions{Name: "witness"})
	s.add(informer.WatcherFunc[configMap](slow), informer.WatcherOptions{Name: "slow", MaxBacklog: 1})
}

func (s *side) add(w informer.ResourceWatcher[configMap], opts informer.WatcherOptions) *informer.Registration {
	return testkit.AddWatcher(s.world.t, s.inf, w, opts)
}

// watch adds watchers whose methods and options are callbacks.
func (s *side) watch() {
	var plain, crew *informer.Registration
	watcher := func(suffix string, reg **informer.Registration) informer.WatcherFunc[configMap] {
		return func(ctx context.Context, e event) error {
			kind := map[informer.EventType]string{informer.EventAdded: "Add", informer.EventUpdated: "Update", informer.EventDeleted: "Delete"}[e.Type]
			if e.Origin == informer.OriginInitial {
				kind += " of the initial state"
			}
			s.world.in(callback{name: "ResourceWatcher." + kind + suffix, ctx: ctx, of: s, reg: *reg})
			if e.Object().Data["value"] == "bad" {
				return errOnce
			}
			return nil
		}
	}
	onSynced := func(suffix string, reg **informer.Registration) func(context.Context) {
		return func(ctx context.Context) {
			s.world.in(callback{name: "WatcherOptions.OnSynced" + suffix, ctx: ctx, of: s, reg: *reg})
		}
	}
	plain = s.add(watcher("", &plain), informer.WatcherOptions{OnSynced: onSynced("", &plain), ResyncPeriod: 24 * time.Hour})
	crew = s.add(watcher(" with Workers", &crew), informer.WatcherOptions{
		Workers: 2, OnSynced: onSynced(" with Workers", &crew),
		Retry: func(failures int, _ error) (time.Duration, bool) {
			s.world.in(callback{name: "WatcherOptions.Retry", of: s, reg: crew})
			return time.Minute, failures < 3
		},
	})
	s.reg = plain
	if s.ordered {
		var follower *informer.Registration
		follower = s.add(follows(func(ctx context.Context) {
			s.world.in(callback{name: "version.Follower.OnVersion", ctx: ctx, of: s, reg: follower})
		}), informer.WatcherOptions{MaxBacklog: -1})
	}
	s.add(informer.Select(&recorder{}, func(configMap) bool { s.in("Select(selected)"); return true }), informer.WatcherOptions{})
}

// follows is a watcher that ignores events, and follows the versions.
type follows func(ctx context.Context)

func (follows) Add(context.Context, event) error    { return nil }
func (follows) Update(context.Context, event) error { return nil }
func (follows) Delete(context.Context, event) error { return nil }

func (f follows) OnVersion(ctx context.Context, _ version.Exact) { f(ctx) }

// handler uses the informer as client-go's.
func (s *side) handler() {
	s.shared = s.inf.SharedIndexInformer()
	var err error
	s.handle, err = s.shared.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { s.in("ResourceEventHandler.OnAdd") },
		UpdateFunc: func(_, _ any) { s.in("ResourceEventHandler.OnUpdate") },
		DeleteFunc: func(any) { s.in("ResourceEventHandler.OnDelete") },
	})
	for _, err := range []error{
		err,
		s.shared.SetTransform(func(obj any) (any, error) { s.in("SharedIndexInformer.SetTransform(f)"); return obj, nil }),
		s.shared.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, _ error) {
			s.world.in(callback{name: "SharedIndexInformer.SetWatchErrorHandler(f)", ctx: ctx, of: s})
		}),
		s.shared.AddIndexers(cache.Indexers{"old": func(any) ([]string, error) { s.in("SharedIndexInformer.AddIndexers(f)"); return nil, nil }}),
	} {
		if err != nil {
			s.world.t.Fatal(err)
		}
	}
}

func (s *side) values(obj configMap) ([]string, error) {
	s.in("Options.Indexers")
	if obj.Data["value"] == "cannot be indexed" {
		return nil, errOnce
	}
	return []string{obj.Data["value"]}, nil
}

func (s *side) transform(obj configMap) (configMap, error) {
	s.in("Options.Transform")
	if obj.Data["value"] == "cannot be transformed" {
		return nil, errOnce
	}
	return obj, nil
}

// store gives opts a store of that kind whose methods are callbacks. The informer's own store has
// none.
func (s *side) store(kind string, opts *options) {
	hook := func(field string) func(op, _ string) error {
		return func(op, _ string) error {
			s.in(field + ": " + op)
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.failed[op] || !s.world.isLiving() || s.world.visiting() { // a method that a callback calls does not fail
				return nil
			}
			s.failed[op] = true
			return errOnce
		}
	}
	switch kind {
	case "plain":
		store := informertest.NewStore(nil)
		store.Fail(hook("Options.Store"))
		opts.Store = plainStore{store, s}
	case "durable":
		store := informertest.NewDurable()
		gone := object("gone", "1")
		gone.UID, gone.ResourceVersion = "gone", "1"
		// A delete that an earlier process has not delivered.
		if err := store.Apply(s.world.ctx, []informer.Change{testkit.Burying(gone)}, "1"); err != nil {
			s.world.t.Fatal(err)
		}
		store.Fail(hook("Options.Durable"))
		opts.Durable = store
	}
}

// plainStore has callbacks for the methods that return no error, too.
type plainStore struct {
	*informertest.Store
	of *side
}

func (s plainStore) List() []any {
	s.of.in("Options.Store: list")
	return s.Store.List()
}

func (s plainStore) Bookmark(version string) {
	s.of.in("Options.Store: bookmark")
	s.Store.Bookmark(version)
}

// listerWatcher is a source whose methods, and those of its watches, are callbacks.
type listerWatcher struct {
	*informertest.Source[configMap]
	of *side
}

func (l listerWatcher) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	l.of.world.in(callback{name: "ListerWatcher.List", ctx: ctx, of: l.of})
	return l.Source.ListWithContext(ctx, opts)
}

func (l listerWatcher) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	l.of.world.in(callback{name: "ListerWatcher.Watch", ctx: ctx, of: l.of})
	w, err := l.Source.WatchWithContext(ctx, opts)
	return stream{w, l.of}, err
}

type stream struct {
	watch.Interface
	of *side
}

func (s stream) Stop() {
	s.of.in("watch.Interface.Stop")
	s.Interface.Stop()
}

func (s stream) ResultChan() <-chan watch.Event {
	s.of.in("watch.Interface.ResultChan")
	return s.Interface.ResultChan()
}

// change makes everything happen to the objects and to the informer.
func (s *side) change() {
	apply := func(name, value string) {
		s.src.Apply(object(name, value))
		s.world.quiet()
	}
	apply("a", "2")
	apply("c", "1")
	_, _ = s.src.Delete(keyOf("b"))
	apply("t", "cannot be transformed")
	_, _ = s.src.Delete(keyOf("t"))
	apply("bad", "bad")
	apply("i", "cannot be indexed")
	s.src.Fail("watch", errOnce, 2)
	s.src.Disconnect()
	s.world.quiet()
	s.src.Expire()
	s.world.quiet()
	s.burst()
	testkit.SleepBubble(4 * time.Hour) // until the slow watcher has caught up
	s.src.Bookmark()
	s.world.quiet()
}

// burst makes more changes than the slow watcher may have waiting.
func (s *side) burst() {
	for n := range 5 {
		s.src.Apply(object("a", fmt.Sprint("burst ", n)))
		synctest.Wait()
	}
}
