package migrating_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/customcacheinformer/informer"
)

func TestOneInformerReadsSeveralNamespacesOfWhichOneIsForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := func(namespace string) *corev1.Pod {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pod-" + namespace}}
		}
		client := fake.NewClientset(in("a"), in("b"), in("other"))
		var allowed atomic.Bool
		client.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			switch namespace := action.GetNamespace(); {
			case namespace == "b" && !allowed.Load():
				return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("no Role"))
			case namespace == "":
				t.Error("it lists all namespaces")
			}
			return false, nil, nil
		})
		pods, err := podsOf(client, []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		told := make(chan string, 10)
		watcher := informer.WatcherFunc[*corev1.Pod](func(_ context.Context, e informer.Event[*corev1.Pod]) error {
			told <- e.Key().Name
			return nil
		})
		if _, err := pods.AddWatcher(watcher, informer.WatcherOptions{}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = pods.Run(ctx) })
		defer running.Wait()
		defer stop()

		soon, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		err = pods.WaitForSync(soon)
		if err == nil || !strings.Contains(err.Error(), "the first list of b") || !strings.Contains(err.Error(), "no Role") {
			t.Errorf("WaitForSync: %v", err)
		}
		listed := func(want ...string) {
			t.Helper()
			found, err := podLister(pods).List(labels.Everything())
			if diff := cmp.Diff(want, names(found)); diff != "" || err != nil {
				t.Errorf("%v, pods (-want +got):\n%s", err, diff)
			}
		}
		listed("pod-a")
		if first := <-told; first != "pod-a" {
			t.Errorf("the watcher was told %s", first)
		}
		allowed.Store(true)
		if err := pods.WaitForSync(ctx); err != nil {
			t.Error(err)
		}
		listed("pod-a", "pod-b")
		if second := <-told; second != "pod-b" || len(told) > 0 {
			t.Errorf("the watcher was told %s, and %d events more", second, len(told))
		}
	})
}
