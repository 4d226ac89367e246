package informer_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

type (
	configMap = *corev1.ConfigMap
	event     = informer.Event[configMap]
	options   = informer.Options[configMap]
	recorder  = informertest.Recorder[configMap]
	source    = informertest.Source[configMap]
	ci        = informer.CustomCacheInformer[configMap]
)

var queues = map[string]informer.QueueKind{"DeltaFIFO": informer.DeltaFIFO, "RealFIFO": informer.RealFIFO}

// eachQueue runs a test over both queues, each in a bubble of its own.
func eachQueue(t *testing.T, test func(t *testing.T, queue informer.QueueKind)) {
	t.Helper()
	for name, queue := range queues {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, queue) })
		})
	}
}

// object returns a config map of the namespace "default" that holds value.
func object(name, value string) configMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"value": value}},
		Data:       map[string]string{"value": value},
	}
}

func keyOf(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: name}
}

// newInformer makes an informer that fails the test on errors that the test does
// not handle itself.
func newInformer(t *testing.T, lw cache.ListerWatcher, opts options) *ci {
	t.Helper()
	if opts.ErrorHandler == nil {
		opts.ErrorHandler = func(_ context.Context, err error) { t.Errorf("unexpected error: %v", err) }
	}
	inf, err := informer.New(lw, opts)
	if err != nil {
		t.Fatal(err)
	}
	return inf
}

func addWatcher(t *testing.T, inf *ci, w informer.ResourceWatcher[configMap], opts informer.WatcherOptions) *informer.Registration {
	t.Helper()
	reg, err := inf.AddWatcher(w, opts)
	if err != nil {
		t.Fatal(err)
	}
	return reg
}

// start runs inf without waiting for it to sync, and returns a function that
// stops it and waits, which the end of the test calls too.
func start(t *testing.T, inf *ci) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- inf.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// within returns a ctx for waiting that is bound to succeed.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// watched runs an informer with one watcher until the end of the test, and waits until it
// has synced.
func watched(t *testing.T, lw cache.ListerWatcher, opts options) (*ci, *recorder) {
	t.Helper()
	inf, r := newInformer(t, lw, opts), &recorder{}
	addWatcher(t, inf, r, informer.WatcherOptions{})
	informertest.Run(t, inf)
	return inf, r
}

// errorLog collects what an ErrorHandler is told.
type errorLog struct {
	mu   sync.Mutex
	errs []error
}

func (l *errorLog) handle(_ context.Context, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, err)
}

// take returns the errors since the last call.
func (l *errorLog) take() []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	errs := l.errs
	l.errs = nil
	return errs
}

// versions maps each object to its UID and resourceVersion.
func versions(objs ...configMap) map[types.NamespacedName]string {
	m := map[types.NamespacedName]string{}
	for _, obj := range objs {
		m[keyOf(obj.Name)] = fmt.Sprintf("%s@%s", obj.UID, obj.ResourceVersion)
	}
	return m
}

// checkView fails the test unless what r was told is consistent and adds up to
// the state of src.
func checkView(t *testing.T, r *recorder, src *source) {
	t.Helper()
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	var seen []configMap
	for _, obj := range r.View() {
		seen = append(seen, obj)
	}
	if diff := cmp.Diff(versions(src.Objects()...), versions(seen...)); diff != "" {
		t.Errorf("what the watcher was told is not what the source has (-source +watcher):\n%s", diff)
	}
}

// checkStore fails the test unless inf reads what src has.
func checkStore(t *testing.T, inf *ci, src *source) {
	t.Helper()
	objs, err := inf.List("", nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(versions(src.Objects()...), versions(objs...)); diff != "" {
		t.Errorf("the store is not what the source has (-source +store):\n%s", diff)
	}
	if got := inf.Health().Objects; got != len(objs) && got != -1 {
		t.Errorf("Health counts %d objects in the store, which has %d", got, len(objs))
	}
}

const hour = time.Hour

// sleepBubble lets d of a bubble's time pass and everything happen that is due.
func sleepBubble(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func sorted(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}

func ignore(context.Context, error) {}
