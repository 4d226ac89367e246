package namespaces_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{}) // most tests provoke errors
	informertest.Main(m)
}

type (
	configMap = testkit.ConfigMap
	options   = testkit.Options
	recorder  = testkit.Recorder
	source    = testkit.Source
)

var (
	equal     = testkit.Equal
	errorIs   = testkit.ErrorIs
	errorSays = testkit.ErrorContains
	inBubble  = testkit.InBubble
	must      = testkit.Must
	noError   = testkit.NoError
)

func object(namespace, name, value string) configMap {
	obj := testkit.Object(name, value)
	obj.Namespace = namespace
	return obj
}

func keyOf(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// server is a simulated API server with a gate in front of each namespace, and a store for the
// informers that have one.
type server struct {
	*source
	gates map[string]*gate
	store *testkit.Durable
	other map[string]informer.UntypedClient[*metav1.List] // clients of namespaces that are not their gates
}

func newServer(objs ...configMap) *server {
	return &server{source: informertest.NewSource(objs...), gates: map[string]*gate{}, store: informertest.NewDurable()}
}

// reopen makes the store that of the next process, and returns it.
func (s *server) reopen() *testkit.Durable {
	s.store = s.store.Reopen()
	return s.store
}

func (s *server) client(namespace string) informer.UntypedClient[*metav1.List] {
	if other, ok := s.other[namespace]; ok {
		return other
	}
	return s.gate(namespace)
}

func (s *server) gate(namespace string) *gate {
	if s.gates[namespace] == nil {
		s.gates[namespace] = &gate{client: s.Namespace(namespace), source: s.source, namespace: namespace, opened: make(chan struct{})}
		close(s.gates[namespace].opened)
	}
	return s.gates[namespace]
}

// reader is an informer over some namespaces of a server, and a watcher of it.
type reader struct {
	*testkit.Informer
	*recorder
	t    *testing.T
	s    *server
	stop func()
}

// informer returns a reader that does not run yet. Unless opts has an ErrorHandler, an error that
// the informer reports fails the test.
func (s *server) informer(t *testing.T, opts options, namespaces ...string) *reader {
	t.Helper()
	return s.informerOver(t, opts, s.client, namespaces...)
}

// informerOver is informer with other clients.
func (s *server) informerOver(t *testing.T, opts options, client func(string) informer.UntypedClient[*metav1.List], namespaces ...string) *reader {
	t.Helper()
	if opts.ErrorHandler == nil {
		opts.ErrorHandler = func(_ context.Context, err error) { t.Errorf("unexpected error: %v", err) }
	}
	inf, err := informer.NewInNamespaces(client, namespaces, opts)
	must(t, err)
	r := &reader{Informer: inf, recorder: &recorder{}, t: t, s: s}
	testkit.AddWatcher(t, inf, r.recorder, informer.WatcherOptions{})
	return r
}

// start runs the informer and waits for d, in the time of a bubble.
func (r *reader) start(d time.Duration) {
	r.t.Helper()
	r.stop = testkit.Start(r.t, r.Informer)
	time.Sleep(d)
}

func (r *reader) set(namespaces ...string) {
	r.t.Helper()
	must(r.t, r.SetNamespaces(namespaces))
}

// with returns the informer with another watcher of it.
func (r *reader) with(w *recorder) *reader {
	other := *r
	other.recorder = w
	return &other
}

// checkAfter waits for d, in the time of a bubble, and then calls check.
func (r *reader) checkAfter(d time.Duration, namespaces ...string) {
	r.t.Helper()
	time.Sleep(d)
	r.check(namespaces...)
}

// check fails the test unless the store and the watcher have the objects of these namespaces as
// the server has them.
func (r *reader) check(namespaces ...string) {
	r.t.Helper()
	noError(r.t, r.Err())
	objs, err := r.List("", nil)
	must(r.t, err)
	there := slices.DeleteFunc(r.s.Objects(), func(obj configMap) bool { return !slices.Contains(namespaces, obj.Namespace) })
	want, told := testkit.Versions(there...), testkit.Versions(slices.Collect(maps.Values(r.View()))...)
	if stored := testkit.Versions(objs...); !maps.Equal(stored, want) || !maps.Equal(told, want) {
		r.t.Errorf("server: %v\nstore: %v\nwatcher: %v", want, stored, told)
	}
}

// gate is the client of a namespace. It counts requests that succeed, can cut watches and hold back
// their events.
type gate struct {
	client    informer.UntypedClient[*metav1.List]
	source    *source
	namespace string

	mu           sync.Mutex // protects the rest
	opened       chan struct{}
	watches      []watch.Interface
	lists, opens int // a list for one object does not count
}

func (g *gate) List(ctx context.Context, opts metav1.ListOptions) (*metav1.List, error) {
	list, err := g.client.List(ctx, opts)
	if err == nil && opts.Limit != 1 {
		g.mu.Lock()
		g.lists++
		g.mu.Unlock()
	}
	return list, err
}

func (g *gate) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	inner, err := g.client.Watch(ctx, opts)
	if err != nil {
		return nil, err
	}
	g.opens++
	if opts.SendInitialEvents != nil {
		g.lists++
	}
	w := &gatedWatch{gate: g, inner: inner, out: make(chan watch.Event), stopped: make(chan struct{})}
	g.watches = append(g.watches, w)
	go w.run()
	return w, nil
}

// forbid refuses all requests until the source is healed, and cuts the watches.
func (g *gate) forbid() {
	for _, verb := range []string{"list", "watch"} {
		g.source.FailIn(g.namespace, verb, testkit.Forbidden("configmaps"), -1)
	}
	g.cut()
}

// cut ends all watches.
func (g *gate) cut() {
	g.mu.Lock()
	watches := g.watches
	g.watches = nil
	g.mu.Unlock()
	for _, w := range watches {
		w.Stop()
	}
}

// hold holds back the events of the watches until open is called.
func (g *gate) hold() (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	opened := make(chan struct{})
	g.opened = opened
	return func() { close(opened) }
}

func (g *gate) asked() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return fmt.Sprintf("%d lists, %d watches", g.lists, g.opens)
}

type gatedWatch struct {
	gate    *gate
	inner   watch.Interface
	out     chan watch.Event
	once    sync.Once
	stopped chan struct{}
}

func (w *gatedWatch) ResultChan() <-chan watch.Event { return w.out }

func (w *gatedWatch) Stop() { w.once.Do(func() { close(w.stopped) }) }

func (w *gatedWatch) run() {
	defer close(w.out)
	defer w.inner.Stop()
	for {
		select {
		case e, open := <-w.inner.ResultChan():
			if !open || !w.pass(e) {
				return
			}
		case <-w.stopped:
			return
		}
	}
}

func (w *gatedWatch) pass(e watch.Event) bool {
	w.gate.mu.Lock()
	opened := w.gate.opened
	w.gate.mu.Unlock()
	select {
	case <-opened:
	case <-w.stopped:
		return false
	}
	select {
	case w.out <- e:
		return true
	case <-w.stopped:
		return false
	}
}
