package migrating_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

// docs/migrating-from-client-go.md explains how to avoid the 10 s that the drop-in waits for a
// stream from a fake.
func TestASourceKnownToBeAFakeSyncsAtOnce(t *testing.T) {
	client := fake.NewClientset(pod("web", "web"))
	plain := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return client.CoreV1().Pods("").List(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			return client.CoreV1().Pods("").Watch(ctx, opts)
		},
	}
	for name, test := range map[string]struct {
		lw   cache.ListerWatcher
		want time.Duration
	}{
		"plain":           {plain, 10 * time.Second},
		"wrapped":         {cache.ToListWatcherWithWatchListSemantics(plain, client), 0},
		"of this library": {informer.ListWatch(client.CoreV1().Pods("")), 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pods := sharedAfter(test.lw)
				begun := time.Now()
				stop := background(t, func(ctx context.Context) error { pods.RunWithContext(ctx); return nil })
				if !cache.WaitForCacheSync(t.Context().Done(), pods.HasSynced) {
					t.Error("it has not synced")
				}
				// WaitForCacheSync looks ten times a second.
				if took := time.Since(begun); took < test.want || took > test.want+time.Second {
					t.Errorf("it has synced after %v, want about %v", took, test.want)
				}
				stop()
			})
		})
	}
}
