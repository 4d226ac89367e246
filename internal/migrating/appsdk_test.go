package migrating_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

func runAfter[T informer.Object](ctx context.Context, lw cache.ListerWatcher, store cache.Store, watcher informer.ResourceWatcher[T]) error {
	inf, err := informer.NewFrom(lw, informer.Options[T]{Store: store})
	if err != nil {
		return err
	}
	_, err = inf.AddWatcher(watcher, informer.WatcherOptions{
		Name:         "issues",
		Workers:      4,
		ResyncPeriod: 10 * time.Minute,
		Retry:        informer.Backoff(5*time.Second, 160*time.Second, 7),
	})
	if err != nil {
		return err
	}
	return inf.Run(ctx)
}

// appWatcher has the methods of app-sdk's ResourceWatcher; O is its resource.Object.
type appWatcher[O any] interface {
	Add(ctx context.Context, obj O) error
	Update(ctx context.Context, src, tgt O) error
	Delete(ctx context.Context, obj O) error
}

// adapt makes a watcher of one that was written for app-sdk. It gets copies, because
// app-sdk's OpinionatedWatcher changes the objects that it is given.
func adapt[T informer.Object, O any](w appWatcher[O]) informer.ResourceWatcher[T] {
	object := func(obj T) O { return obj.DeepCopyObject().(O) }
	return informer.WatcherFuncs[T]{
		AddFunc: func(ctx context.Context, e informer.Event[T]) error {
			return w.Add(ctx, object(e.New))
		},
		UpdateFunc: func(ctx context.Context, e informer.Event[T]) error {
			return w.Update(ctx, object(e.Old), object(e.New))
		},
		DeleteFunc: func(ctx context.Context, e informer.Event[T]) error {
			old, known := e.Old.DeepCopyObject().(O)
			if !known {
				return fmt.Errorf("of %v nothing is known but its key", e.Key())
			}
			return w.Delete(ctx, old)
		},
	}
}

// changing is a watcher in the shape of app-sdk's that changes its objects.
type changing struct{ told chan string }

func (c changing) tell(what string, obj metav1.Object) error {
	obj.SetFinalizers([]string{"operator"})
	c.told <- what + " " + obj.GetName()
	return nil
}

func (c changing) Add(_ context.Context, obj metav1.Object) error { return c.tell("add", obj) }

func (c changing) Update(_ context.Context, _, tgt metav1.Object) error { return c.tell("update", tgt) }

func (c changing) Delete(_ context.Context, obj metav1.Object) error { return c.tell("delete", obj) }

func TestAWatcherOfAppSDKIsToldTheSameAndChangesNothing(t *testing.T) {
	pods, src := informertest.Start(t, pod("web", "web"))
	watcher := changing{make(chan string)}
	if _, err := pods.AddWatcher(adapt[*corev1.Pod](watcher), informer.WatcherOptions{Name: "app"}); err != nil {
		t.Fatal(err)
	}
	told := []string{<-watcher.told}
	src.Apply(pod("web", "shop"))
	told = append(told, <-watcher.told)
	if stored, _, err := pods.Get(web); err != nil || len(stored.Finalizers) > 0 {
		t.Errorf("the object in the store is changed: %v, %v", stored, err)
	}
	if _, err := src.Delete(web); err != nil {
		t.Fatal(err)
	}
	told = append(told, <-watcher.told)
	if diff := cmp.Diff([]string{"add web", "update web", "delete web"}, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

func TestWhatWasAnAppSDKInformerRunsAsAWhole(t *testing.T) {
	watcher := changing{make(chan string)}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	go func() {
		done <- runAfter(ctx, informertest.NewSource(pod("web", "web")), store, adapt[*corev1.Pod](watcher))
	}()
	if got := <-watcher.told; got != "add web" {
		t.Errorf("told %s, want add web", got)
	}
	stop()
	if err := <-done; err != nil || len(store.ListKeys()) != 1 {
		t.Errorf("%v, stored %v", err, store.ListKeys())
	}
}
