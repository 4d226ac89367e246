package migrating_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

// docs/migrating-from-client-go.md tells how to spare the 10 s for which the drop-in waits for a
// stream from a fake.
func TestASourceThatIsKnownToBeAFakeSyncsAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		source func(client *fake.Clientset, plain *cache.ListWatch) cache.ListerWatcher
		want   time.Duration
	}{
		"plain": {func(_ *fake.Clientset, plain *cache.ListWatch) cache.ListerWatcher { return plain }, 10 * time.Second},
		"wrapped": {func(client *fake.Clientset, plain *cache.ListWatch) cache.ListerWatcher {
			return cache.ToListWatcherWithWatchListSemantics(plain, client)
		}, 0},
		"of this library": {func(client *fake.Clientset, _ *cache.ListWatch) cache.ListerWatcher {
			return informer.ListWatch(client.CoreV1().Pods(""))
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}})
				pods := sharedAfter(test.source(client, &cache.ListWatch{
					ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
						return client.CoreV1().Pods("").List(ctx, opts)
					},
					WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
						return client.CoreV1().Pods("").Watch(ctx, opts)
					},
				}))
				ctx, stop := context.WithCancel(t.Context())
				stopped := make(chan struct{})
				begun := time.Now()
				go func() { pods.RunWithContext(ctx); close(stopped) }()
				if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced) {
					t.Error("it has not synced")
				}
				// WaitForCacheSync looks ten times a second.
				if took := time.Since(begun); took < test.want || took > test.want+time.Second {
					t.Errorf("it has synced after %v, want about %v", took, test.want)
				}
				stop()
				<-stopped
			})
		})
	}
}
