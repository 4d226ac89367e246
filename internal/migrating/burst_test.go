package migrating_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

// A fake's watch holds 100 events, and panics the writer of the next. The factory's informer
// cannot take any object out of the way of the next while its transform function hangs, and yet
// the fake's watch must be read. With one processor and runtime.Gosched, every other goroutine
// has its turn after each write.
func TestAFactorysInformerOverAFakeLosesNothingOfABurst(t *testing.T) {
	const burst = 1000
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	client := fake.NewSimpleClientset() // NewClientset takes 5 ms for each write
	watching, written := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(written) })
	client.PrependWatchReactor("pods", func(action clienttesting.Action) (bool, watch.Interface, error) {
		w, err := client.Tracker().Watch(action.GetResource(), action.GetNamespace())
		close(watching)
		return true, w, err
	})
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(func(obj any) (any, error) {
		<-written
		return obj, nil
	}))
	pods := factory.InformerFor(&corev1.Pod{}, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (apiruntime.Object, error) {
				return client.CoreV1().Pods("").List(ctx, opts)
			},
			WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				return client.CoreV1().Pods("").Watch(ctx, opts)
			},
		}, client)
		return informer.ClientGo{}.NewSharedIndexInformer(lw, &corev1.Pod{}, resync, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	})
	var told []string
	all := make(chan struct{})
	if _, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		if told = append(told, obj.(*corev1.Pod).Name); len(told) == burst {
			close(all)
		}
	}}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer factory.Shutdown()
	defer stop()
	defer release()
	factory.StartWithContext(ctx)
	if err := factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		t.Fatal(err)
	}
	<-watching // a fake loses changes before the watch

	var want []string
	for n := range burst {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("pod-%04d", n)}}
		want = append(want, pod.Name)
		if _, err := client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
	release()
	<-all
	if !slices.Equal(told, want) {
		t.Errorf("the handler was told %d pods, not in the order of the writes", len(told))
	}
	if stored, err := factory.Core().V1().Pods().Lister().List(labels.Everything()); err != nil || len(stored) != burst {
		t.Errorf("the lister has %d pods, %v", len(stored), err)
	}
}
