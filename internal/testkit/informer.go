package testkit

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// Queues maps the name of each kind of queue to the kind.
var Queues = map[string]informer.QueueKind{"DeltaFIFO": informer.QueueDeltaFIFO, "RealFIFO": informer.QueueRealFIFO}

// EachQueue runs a test with each kind of queue, each time in a new synctest bubble.
func EachQueue(t *testing.T, test func(t *testing.T, queue informer.QueueKind)) {
	t.Helper()
	for name, queue := range Queues {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, queue) })
		})
	}
}

// EachQueueOf is EachQueue in a subtest with a name.
func EachQueueOf(t *testing.T, name string, test func(t *testing.T, queue informer.QueueKind)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { EachQueue(t, test) })
}

// BothWays runs a test twice, each time in a new synctest bubble: with options for an informer
// that streams the initial state, and for one that lists it. full is "stream" or "list", the
// words that [Asked] uses.
func BothWays(t *testing.T, test func(t *testing.T, opts Options, full string)) {
	t.Helper()
	for full, mode := range map[string]informer.WatchListMode{"stream": informer.WatchListOn, "list": informer.WatchListOff} {
		t.Run(full, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, Options{WatchList: mode}, full) })
		})
	}
}

// NewInformer returns a new informer. Unless opts has an ErrorHandler, an error that the
// informer reports fails the test.
func NewInformer(t *testing.T, lw cache.ListerWatcher, opts Options) *Informer {
	t.Helper()
	if opts.ErrorHandler == nil {
		opts.ErrorHandler = func(_ context.Context, err error) { t.Errorf("unexpected error: %v", err) }
	}
	inf, err := informer.NewFrom(lw, opts)
	Must(t, err)
	return inf
}

// AddWatcher adds w to inf. If inf returns an error, the test fails and ends.
func AddWatcher(t *testing.T, inf *Informer, w informer.ResourceWatcher[ConfigMap], opts informer.WatcherOptions) *informer.Registration {
	t.Helper()
	reg, err := inf.AddWatcher(w, opts)
	Must(t, err)
	return reg
}

// Start starts an informer or a group, and does not wait until it has synced. It returns a function
// that stops it and waits until Run has returned, and that fails the test if Run returns an error.
// The function is also called when the test ends.
func Start(t *testing.T, member interface {
	Run(ctx context.Context) error
}) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- member.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// shared is an informer in client-go's shape with a Run that Start can call.
type shared struct{ cache.SharedIndexInformer }

func (s shared) Run(ctx context.Context) error { s.RunWithContext(ctx); return nil }

// StartShared is Start for an informer in client-go's shape.
func StartShared(t *testing.T, inf cache.SharedIndexInformer) (stop func()) {
	t.Helper()
	return Start(t, shared{inf})
}

// Running returns an informer that has synced, and runs until the end of the test.
func Running(t *testing.T, lw cache.ListerWatcher, opts Options) *Informer {
	t.Helper()
	inf := NewInformer(t, lw, opts)
	informertest.Run(t, inf)
	return inf
}

// StartWith returns a synced informer and its source, which has objs. The informer runs until
// the end of the test.
func StartWith(t *testing.T, queue informer.QueueKind, objs ...ConfigMap) (*Informer, *Source) {
	t.Helper()
	src := informertest.NewSource(objs...)
	return Running(t, src, Options{Queue: queue}), src
}

// RunWith returns a synced informer with the given source and store. The informer drops the
// errors that it reports, and runs until the end of the test.
func RunWith(t *testing.T, queue informer.QueueKind, src *Source, store *informertest.Store) *Informer {
	t.Helper()
	inf := Running(t, src, Options{Queue: queue, Store: store, ErrorHandler: Ignore})
	synctest.Wait()
	return inf
}

// Watched runs an informer with one watcher until the end of the test. It returns when the
// informer has synced.
func Watched(t *testing.T, lw cache.ListerWatcher, opts Options) (*Informer, *Recorder) {
	t.Helper()
	inf, r := NewInformer(t, lw, opts), &Recorder{}
	AddWatcher(t, inf, r, informer.WatcherOptions{})
	informertest.Run(t, inf)
	return inf, r
}

// OneRun runs an informer with one watcher and the given store for a minute of the bubble's time.
// Then it checks the view of the watcher and the store, and stops the informer.
func OneRun(t *testing.T, src *Source, store *Durable, opts Options) *Recorder {
	t.Helper()
	opts.Durable = store
	inf := NewInformer(t, src, opts)
	r := &Recorder{}
	AddWatcher(t, inf, r, informer.WatcherOptions{})
	stop := informertest.Run(t, inf)
	SleepBubble(time.Minute)
	CheckView(t, r, src)
	CheckStore(t, inf, src)
	stop()
	NoError(t, store.Err())
	return r
}
