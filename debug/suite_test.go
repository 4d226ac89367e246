package debug_test

import (
	"context"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

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

func TestMain(m *testing.M) { informertest.Main(m) }

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

// sleepBubble lets d of a bubble's time pass and everything happen that is due.
func sleepBubble(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

const hour = time.Hour

// opened waits until a watch of src is open.
func opened(t *testing.T, src *source) {
	t.Helper()
	if err := src.WaitForWatches(within(t, hour), 1); err != nil {
		t.Fatal(err)
	}
}

// within returns a ctx for waiting that is bound to succeed.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// unreachable ends the watches of src and lets every request fail.
func unreachable(src *source) {
	src.Fail(informertest.VerbList, syscall.ECONNREFUSED, -1)
	src.Fail(informertest.VerbWatch, syscall.ECONNREFUSED, -1)
	src.Disconnect()
}

// eachQueue runs a test over both queues, each in a bubble of its own.
func eachQueue(t *testing.T, test func(t *testing.T, queue informer.QueueKind)) {
	t.Helper()
	for name, queue := range queues {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, queue) })
		})
	}
}

var queues = map[string]informer.QueueKind{"DeltaFIFO": informer.DeltaFIFO, "RealFIFO": informer.RealFIFO}

// storeWith returns a store that holds objs already.
func storeWith(t *testing.T, objs ...configMap) cache.Store {
	t.Helper()
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	for _, obj := range objs {
		if err := store.Add(obj); err != nil {
			t.Fatal(err)
		}
	}
	return store
}
