package clusters_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
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
	event     = informer.Event[configMap]
)

var (
	equal     = testkit.Equal
	errorIs   = testkit.ErrorIs
	errorSays = testkit.ErrorContains
	inBubble  = testkit.InBubble
	must      = testkit.Must
	noError   = testkit.NoError
)

// each runs a test with each queue, with lists as a whole, early and streamed, and over a Durable, each time in a bubble of its own.
func each(t *testing.T, test func(t *testing.T, opts options)) {
	for name, opts := range map[string]options{
		"whole":  {WatchList: informer.WatchListOff},
		"early":  {Intake: informer.IntakeEarly, PageSize: 2, WatchList: informer.WatchListOff},
		"stream": {Intake: informer.IntakeEarly, WatchList: informer.WatchListOn},
	} {
		testkit.EachQueueOf(t, name, func(t *testing.T, queue informer.QueueKind) {
			opts := opts
			opts.Queue = queue
			test(t, opts)
		})
	}
	inBubble(t, "durable", func(t *testing.T) {
		test(t, options{Durable: informertest.NewDurable(), WatchList: informer.WatchListOff})
	})
}

// world has some clusters, and an informer over them.
type world struct {
	*informer.Clusters[configMap]
	t       *testing.T
	sources map[string]*source
	store   *testkit.Durable // nil for a world over the store of the informer
	stop    func()
}

// newWorld returns an informer over clusters, of which none is engaged. Unless opts has an ErrorHandler, an error that the
// informer reports fails the test.
func newWorld(t *testing.T, opts options) *world {
	t.Helper()
	return newWorldWith(t, opts, informer.ClusterOptions{})
}

func newWorldWith(t *testing.T, opts options, clusters informer.ClusterOptions) *world {
	t.Helper()
	if opts.ErrorHandler == nil {
		opts.ErrorHandler = func(_ context.Context, err error) { t.Errorf("unexpected error: %v", err) }
	}
	inf, err := informer.NewOverClusters(opts, clusters)
	must(t, err)
	return &world{Clusters: inf, t: t, sources: map[string]*source{}}
}

// overStore returns an informer over clusters and a store.
func overStore(t *testing.T, store *testkit.Durable, handler func(context.Context, error)) *world {
	t.Helper()
	w := newWorld(t, options{Durable: store, WatchList: informer.WatchListOff, ErrorHandler: handler})
	w.store = store
	return w
}

// next returns the next process, over the same clusters and the store as that process finds it. Nothing asks for its errors.
func (w *world) next() *world {
	w.t.Helper()
	next := overStore(w.t, w.store.Reopen(), testkit.Ignore)
	next.sources = w.sources
	return next
}

// cluster returns the source of a cluster, which it makes with these objects unless there is one.
func (w *world) cluster(name string, objs ...configMap) *source {
	if w.sources[name] == nil {
		w.sources[name] = informertest.NewSource(objs...)
	}
	return w.sources[name]
}

func (w *world) engage(name string, objs ...configMap) {
	w.t.Helper()
	must(w.t, w.Engage(name, informer.ClusterSource{Source: w.cluster(name, objs...)}))
}

// engageAs engages a cluster with a UID.
func (w *world) engageAs(name string, uid types.UID) {
	w.t.Helper()
	must(w.t, w.Engage(name, informer.ClusterSource{Source: w.cluster(name), UID: uid}))
}

func (w *world) disengage(name string, leave informer.Leave) <-chan struct{} {
	w.t.Helper()
	left, err := w.Disengage(name, leave)
	must(w.t, err)
	return left
}

// start runs the informer and waits for d, in the time of a bubble.
func (w *world) start(d time.Duration) {
	w.t.Helper()
	w.stop = testkit.Start(w.t, w.CustomCacheInformer)
	time.Sleep(d)
}

// watch adds a watcher.
func (w *world) watch(opts informer.WatcherOptions) *views {
	w.t.Helper()
	v := newViews()
	testkit.AddWatcher(w.t, w.CustomCacheInformer, v, opts)
	return v
}

// checkAfter waits for d, in the time of a bubble, and then calls check.
func (w *world) checkAfter(d time.Duration, names []string, watchers ...*views) {
	w.t.Helper()
	time.Sleep(d)
	w.check(names, watchers...)
}

// check fails the test unless exactly these clusters are engaged, and the store and the watchers have their objects.
func (w *world) check(names []string, watchers ...*views) {
	w.t.Helper()
	synctest.Wait()
	equal(w.t, "engaged", testkit.Sorted(w.Engaged()), testkit.Sorted(names))
	want, all := map[string]string{}, 0
	for _, name := range names {
		objs := w.sources[name].Objects()
		all += len(objs)
		for key, version := range testkit.Versions(objs...) {
			want[name+" "+key.String()] = version
		}
	}
	stored := map[string]string{}
	for _, name := range names {
		objs, err := w.In(name).List("", nil)
		noError(w.t, err)
		for key, version := range testkit.Versions(objs...) {
			stored[name+" "+key.String()] = version
		}
		for key, obj := range w.In(name).All() {
			if got, exists, err := w.In(name).Get(key); got != obj || !exists || err != nil {
				w.t.Errorf("%s in %s: %v, %v, %v", key, name, got, exists, err)
			}
		}
	}
	if !maps.Equal(stored, want) {
		w.t.Errorf("clusters: %v\nstore: %v", want, stored)
	}
	if objs, err := w.List("", nil); len(objs) != all || err != nil || w.Health().Objects != all {
		w.t.Errorf("List has %d objects, and Health %d, want %d (%v)", len(objs), w.Health().Objects, all, err)
	}
	for n, v := range watchers {
		if got := v.versions(w.t); !maps.Equal(got, want) {
			w.t.Errorf("clusters: %v\nwatcher %d: %v", want, n, got)
		}
	}
}

// views is a watcher that has a recorder for each cluster.
type views struct {
	mu     sync.Mutex
	of     map[string]*recorder
	events []event
	twice  []string // adds of objects that were there, which a Recorder accepts of a cluster that comes again

	silent    string          // a cluster that may leave silently at any moment: its objects may be added twice
	forgotten map[string]bool // clusters
	block     func(e event)   // called for each event that was recorded; may be nil
}

func newViews() *views { return &views{of: map[string]*recorder{}, forgotten: map[string]bool{}} }

func (v *views) in(cluster string) *recorder {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.of[cluster] == nil {
		v.of[cluster] = &recorder{}
	}
	return v.of[cluster]
}

// forget drops what the watcher knows of a cluster that has left silently.
func (v *views) forget(cluster string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.of, cluster)
	v.forgotten[cluster] = true
}

func (v *views) Add(ctx context.Context, e event) error {
	r := v.in(e.Cluster())
	if _, known := r.ViewIn(e.Cluster())[e.Key()]; known && e.Cluster() != v.silent {
		v.mu.Lock()
		v.twice = append(v.twice, e.Cluster()+"|"+e.Key().String())
		v.mu.Unlock()
	}
	return v.record(e, r.Add(ctx, e))
}

func (v *views) Update(ctx context.Context, e event) error {
	return v.record(e, v.in(e.Cluster()).Update(ctx, e))
}

// Delete ignores the delete of an object that the watcher has forgotten: the object was deleted before its cluster has left
// silently, or an earlier source of the cluster has left with deletes.
func (v *views) Delete(ctx context.Context, e event) error {
	r := v.in(e.Cluster())
	if _, known := r.ViewIn(e.Cluster())[e.Key()]; !known && v.hasForgotten(e.Cluster()) {
		return nil
	}
	return v.record(e, r.Delete(ctx, e))
}

func (v *views) hasForgotten(cluster string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.forgotten[cluster]
}

func (v *views) record(e event, err error) error {
	v.mu.Lock()
	v.events = append(v.events, e)
	v.mu.Unlock()
	if v.block != nil {
		v.block(e)
	}
	return err
}

// take returns the events since the last call, as text.
func (v *views) take() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var told []string
	for _, e := range v.events {
		told = append(told, fmt.Sprintf("%s %s %s|%s", e.Origin, e.Type, e.Cluster(), e.Key().Name))
	}
	v.events = nil
	slices.Sort(told)
	return told
}

func (v *views) versions(t *testing.T) map[string]string {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	equal(t, "added twice", v.twice, "[]")
	all := map[string]string{}
	for cluster, r := range v.of {
		if err := r.Err(); err != nil {
			t.Errorf("%s: %v", cluster, err)
		}
		for key, version := range testkit.Versions(slices.Collect(maps.Values(r.ViewIn(cluster)))...) {
			all[cluster+" "+key.String()] = version
		}
	}
	return all
}

func key(name string) types.NamespacedName { return testkit.KeyOf(name) }
