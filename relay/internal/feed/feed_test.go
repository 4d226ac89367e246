package feed_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/relay/internal/feed"
)

func TestMain(m *testing.M) { informertest.Main(m) }

// source is a simulated API server that knows its state at each version.
type source struct {
	*informertest.Source[*corev1.ConfigMap]
	states map[string]map[string]string // the versions of the objects by name
}

func newSource(names ...string) *source {
	s := &source{informertest.NewSource[*corev1.ConfigMap](), map[string]map[string]string{}}
	for _, name := range names {
		s.Apply(object(name))
	}
	s.note()
	return s
}

func object(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

// put creates or changes an object.
func (s *source) put(name string) {
	obj := object(name)
	obj.Data = map[string]string{"before": s.ResourceVersion()}
	s.Apply(obj)
	s.note()
}

func (s *source) remove(name string) {
	_, _ = s.Delete(types.NamespacedName{Namespace: "default", Name: name})
	s.note()
}

func (s *source) note() {
	state := map[string]string{}
	for _, obj := range s.Objects() {
		state[obj.Name] = obj.ResourceVersion
	}
	s.states[s.ResourceVersion()] = state
}

// relayed is an informer with a Feed. Both end with the test, or when stop is called.
type relayed struct {
	*feed.Feed
	inf  *informer.CustomCacheInformer[informer.AnyObject]
	stop func()
}

func relay(t *testing.T, src *source, opts informer.Options[informer.AnyObject]) *relayed {
	t.Helper()
	opts.Queue, opts.ErrorHandler = informer.QueueRealFIFO, func(context.Context, error) {}
	inf, err := informer.NewFrom(src, opts)
	if err != nil {
		t.Fatal(err)
	}
	f, err := feed.New(inf, func() runtime.Object { return &corev1.ConfigMap{} })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- inf.Run(ctx) }()
	r := &relayed{f, inf, nil}
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		f.Close()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(r.stop)
	return r
}

// open opens a watch as the watch cache does.
func (r *relayed) open() (watch.Interface, error) {
	yes := true
	return r.Watch(context.Background(), "/", storage.ListOptions{SendInitialEvents: &yes})
}

// reader reads one watch after the other, and keeps each state with its version.
type reader struct {
	state   map[string]string
	version int // 0 until the state is complete
	exact   []exactState
	begun   int // how many states it was given
}

type exactState struct {
	version string
	state   map[string]string
}

// read reads watches until ctx ends.
func (r *reader) read(ctx context.Context, from *relayed) error {
	for ctx.Err() == nil {
		w, err := from.open()
		if err != nil {
			return err
		}
		r.state, r.version = map[string]string{}, 0
		if err := r.readOne(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) readOne(ctx context.Context, w watch.Interface) error {
	defer func() { // the owner of the watch waits until no event is sent any more
		w.Stop()
		for range w.ResultChan() {
		}
	}()
	for {
		select {
		case e, open := <-w.ResultChan():
			if !open || e.Type == watch.Error {
				return nil
			}
			if err := r.take(e); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func (r *reader) take(e watch.Event) error {
	obj := e.Object.(*corev1.ConfigMap)
	version, err := strconv.Atoi(obj.ResourceVersion)
	if err != nil {
		return err
	}
	switch {
	case e.Type == watch.Deleted:
		delete(r.state, obj.Name)
	case e.Type == watch.Added || e.Type == watch.Modified:
		r.state[obj.Name] = obj.ResourceVersion
	case r.version == 0 && obj.Annotations[metav1.InitialEventsAnnotationKey] != "true":
		return fmt.Errorf("the first bookmark has no annotation")
	case r.version == 0:
		r.begun++
		r.version = version - 1
	}
	if r.version == 0 {
		return nil
	}
	if version <= r.version {
		return fmt.Errorf("%s of version %d comes after version %d", e.Type, version, r.version)
	}
	r.version = version
	r.exact = append(r.exact, exactState{obj.ResourceVersion, maps.Clone(r.state)})
	return nil
}

func TestAWatchHasTheStateOfEachVersionInOrder(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 25
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	states, begun := 0, 0
	for round := range rounds {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, uint64(round)))
			src := newSource("a", "b", "c")
			var opts informer.Options[informer.AnyObject]
			var store *informertest.Durable
			if rnd.IntN(2) == 0 {
				store = informertest.NewDurable()
			}
			for range 3 { // processes, one after the other
				if store != nil {
					opts.Durable = store
				}
				from := relay(t, src, opts)
				ctx, cancel := context.WithCancel(context.Background())
				r, done := &reader{}, make(chan error, 1)
				go func() { done <- r.read(ctx, from) }()
				storm(src, rnd)
				time.Sleep(time.Hour)
				synctest.Wait()
				if fmt.Sprint(r.version) != src.ResourceVersion() {
					t.Errorf("at the end the watch is at version %d, want %s", r.version, src.ResourceVersion())
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
				from.stop()
				for _, e := range r.exact {
					if want, known := src.states[e.version]; !known || !maps.Equal(e.state, want) {
						t.Errorf("at version %s the watch has %v, want %v", e.version, e.state, want)
					}
				}
				states, begun = states+len(r.exact), begun+r.begun
				if store != nil {
					store = store.Reopen()
				}
				storm(src, rnd)
			}
		})
		if t.Failed() {
			t.Fatalf("round %d of seed %d failed", round, seed)
		}
	}
	t.Logf("%d states compared, of %d watches", states, begun)
	if begun <= 3*rounds {
		t.Error("no watch has ended because of a list")
	}
}

// storm changes objects and disturbs the source.
func storm(src *source, rnd *rand.Rand) {
	for range rnd.IntN(30) {
		name := string(rune('a' + rnd.IntN(6)))
		switch n := rnd.IntN(16); {
		case n < 8:
			src.put(name)
		case n < 12:
			src.remove(name)
		case n == 12:
			src.Disconnect()
		case n == 13:
			src.Expire()
		case n == 14:
			src.Bookmark()
		default:
			time.Sleep(time.Duration(rnd.IntN(3000)) * time.Millisecond)
		}
		src.note() // some disturbances take a version, too
		if rnd.IntN(2) == 0 {
			synctest.Wait()
		}
	}
}

func TestTheFirstWatchBeginsAtTheVersionOfTheDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource("a", "b")
		store := informertest.NewDurable()
		opts := informer.Options[informer.AnyObject]{Durable: store}
		before := relay(t, src, opts)
		<-before.inf.Synced()
		before.stop()
		version := src.ResourceVersion()
		for range 10 {
			src.put("b")
		}
		opts.Durable = store.Reopen()
		after := relay(t, src, opts)
		time.Sleep(time.Minute) // the changes arrive before the watch begins
		r := &reader{}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- r.read(ctx, after) }()
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if len(r.exact) != 11 || r.exact[0].version != version {
			t.Errorf("the watch had the states of %d versions, the first is %v; want 11, from %s", len(r.exact), r.exact[0].version, version)
		}
	})
}

// An agent must never get a state of a version that the API server has lost.
func TestAStateThatTheServerHasLostIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource("a", "b")
		backup := src.ResourceVersion()
		src.put("lost")
		store := informertest.NewDurable()
		opts := informer.Options[informer.AnyObject]{Durable: store}
		before := relay(t, src, opts)
		<-before.inf.Synced()
		before.stop()
		if err := src.Restore(backup); err != nil {
			t.Fatal(err)
		}
		opts.Durable = store.Reopen()
		after := relay(t, src, opts)
		r := &reader{}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- r.read(ctx, after) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if len(r.exact) != 1 || r.exact[0].version != backup || len(r.exact[0].state) != 2 {
			t.Errorf("the watch had the states %v, want only that of version %s, with two objects", r.exact, backup)
		}
	})
}

func TestOnlyAWatchFromTheBeginningIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSource("a")
		ctx := context.Background()
		still, err := informer.NewFrom(src, informer.Options[informer.AnyObject]{Queue: informer.QueueRealFIFO})
		if err != nil {
			t.Fatal(err)
		}
		early, err := feed.New(still, func() runtime.Object { return &corev1.ConfigMap{} })
		if err != nil {
			t.Fatal(err)
		}
		defer early.Close()
		f := relay(t, src, informer.Options[informer.AnyObject]{})
		if _, err := early.GetCurrentResourceVersion(ctx); !apierrors.IsTooManyRequests(err) {
			t.Errorf("the version before the sync: %v, want a request to try later", err)
		}
		<-f.inf.Synced()
		if got, err := f.GetCurrentResourceVersion(ctx); err != nil || fmt.Sprint(got) != src.ResourceVersion() {
			t.Errorf("the version is %d, %v; want %s", got, err, src.ResourceVersion())
		}
		if _, err := f.Watch(ctx, "/", storage.ListOptions{ResourceVersion: "1000"}); !apierrors.IsResourceExpired(err) {
			t.Errorf("a watch from a version: %v", err)
		}
		exact := storage.ListOptions{ResourceVersion: "1000", ResourceVersionMatch: metav1.ResourceVersionMatchExact}
		if err := f.GetList(ctx, "/", exact, &corev1.ConfigMapList{}); !apierrors.IsResourceExpired(err) {
			t.Errorf("a list of an old version: %v", err)
		}
		if err := f.GetList(ctx, "/", storage.ListOptions{}, &corev1.ConfigMapList{}); !apierrors.IsTooManyRequests(err) {
			t.Errorf("a list: %v", err)
		}
		if err := f.Delete(ctx, "/a", nil, nil, nil, nil, storage.DeleteOptions{}); err == nil {
			t.Error("a delete works")
		}
		f.Close()
		if _, err := f.open(); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("a watch after Close: %v", err)
		}
	})
}

func TestAWatchThatWaitsForTheSyncEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf, err := informer.NewFrom(newSource("a"), informer.Options[informer.AnyObject]{Queue: informer.QueueRealFIFO})
		if err != nil {
			t.Fatal(err)
		}
		f, err := feed.New(inf, func() runtime.Object { return &corev1.ConfigMap{} })
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Minute, cancel)
		yes := true
		if _, err := f.Watch(ctx, "/", storage.ListOptions{SendInitialEvents: &yes}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the end of the context", err)
		}
	})
}

func TestWatchesEndWithTheInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := relay(t, newSource("a"), informer.Options[informer.AnyObject]{})
		w, err := f.open()
		if err != nil {
			t.Fatal(err)
		}
		stopped := make(chan struct{})
		go func() { defer close(stopped); f.stop() }()
		for range w.ResultChan() {
		}
		<-stopped
		if w, err := f.open(); err == nil {
			w.Stop()
			t.Error("a watch of a stopped informer begins")
		}
	})
}
