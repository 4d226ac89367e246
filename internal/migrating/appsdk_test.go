package migrating_test

import (
	"context"
	"errors"
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
	"github.com/customcacheinformer/informer/enqueue"
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

// removeAll removes the watchers, and returns when their last calls have returned.
func removeAll(watchers []*informer.Registration) {
	for _, w := range watchers {
		w.Remove()
	}
	for _, w := range watchers {
		<-w.Stopped()
	}
}

// addReconciler adds a reconciler of the objects of inf to the group, which may run already. remove
// takes it out again, and returns when its last call has returned.
func addReconciler[T informer.Object](group *informer.Group, inf *informer.CustomCacheInformer[T], name string,
	reconcile func(ctx context.Context, key types.NamespacedName, obj T, exists bool) (again time.Duration, err error),
) (remove func() error, err error) {
	c, err := enqueue.NewController(func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
		obj, exists, err := inf.Get(key)
		if err != nil {
			return 0, err
		}
		return reconcile(ctx, key, obj, exists)
	}, enqueue.Options{Name: name, Workers: 4, MaxAttempts: 7}, enqueue.For(inf))
	if err != nil {
		return nil, err
	}
	if err := group.Add(c); err != nil {
		return nil, err
	}
	return func() error { return group.Remove(c) }, nil
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

func TestAllWatchersOfAKindAreRemovedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods, src := informertest.Start(t, pod("web", "web"))
		calls := make([]int, 3)
		var watchers []*informer.Registration
		for n := range calls {
			watcher := informer.WatcherFunc[*corev1.Pod](func(context.Context, informer.Event[*corev1.Pod]) error {
				time.Sleep(time.Second)
				calls[n]++
				return nil
			})
			reg, err := pods.AddWatcher(watcher, informer.WatcherOptions{})
			if err != nil {
				t.Fatal(err)
			}
			watchers = append(watchers, reg)
		}
		synctest.Wait() // for the first calls to begin
		removeAll(watchers)
		if diff := cmp.Diff([]int{1, 1, 1}, calls); diff != "" {
			t.Errorf("calls that have returned (-want +got):\n%s", diff)
		}
		src.Apply(pod("web", "shop"))
		time.Sleep(time.Minute)
		if diff := cmp.Diff([]int{1, 1, 1}, calls); diff != "" {
			t.Errorf("calls after the removal (-want +got):\n%s", diff)
		}
	})
}

func TestReconcilersOfAKindAreAddedAndRemovedOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(pod("web", "web"))
		pods, err := informer.NewFrom(src, informer.Options[*corev1.Pod]{})
		if err != nil {
			t.Fatal(err)
		}
		group := informer.Group{ErrorHandler: func(context.Context, error) {}}
		if err := group.Add(pods); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = group.Run(ctx) })

		calls := map[string][]bool{} // what each reconciler saw: whether the Pod exists
		var mu sync.Mutex
		reconciler := func(name string, result func(call int) (time.Duration, error)) (remove func() error) {
			remove, err := addReconciler(&group, pods, name, func(_ context.Context, _ types.NamespacedName, _ *corev1.Pod, exists bool) (time.Duration, error) {
				mu.Lock()
				defer mu.Unlock()
				calls[name] = append(calls[name], exists)
				return result(len(calls[name]))
			})
			if err != nil {
				t.Fatal(err)
			}
			return remove
		}
		done := func(int) (time.Duration, error) { return 0, nil }
		removed := reconciler("removed", done)
		reconciler("stays", done)
		reconciler("fails", func(int) (time.Duration, error) { return 0, errors.New("no") })
		reconciler("twice", func(call int) (time.Duration, error) {
			if call == 1 {
				return time.Minute, nil
			}
			return 0, nil
		})
		if _, err := addReconciler(&group, pods, "stays", func(context.Context, types.NamespacedName, *corev1.Pod, bool) (time.Duration, error) {
			t.Error("a reconciler that was refused is called")
			return 0, nil
		}); err == nil {
			t.Error("two reconcilers have one name")
		}
		time.Sleep(time.Hour)
		check := func(want map[string][]bool) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if diff := cmp.Diff(want, calls); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			clear(calls)
		}
		check(map[string][]bool{
			"removed": {true}, "stays": {true}, "twice": {true, true},
			"fails": {true, true, true, true, true, true, true}, // MaxAttempts
		})
		if err := removed(); err != nil {
			t.Error(err)
		}
		if _, err := src.Delete(web); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second / 1000)
		mu.Lock()
		delete(calls, "fails")
		delete(calls, "twice")
		mu.Unlock()
		check(map[string][]bool{"stays": {false}})
		stop()
		running.Wait()
		time.Sleep(time.Hour) // let the timers of client-go's workqueue end
	})
}

func TestAnEventInThePauseBeforeARetryWaitsForAWatcherAndNotForAReconciler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(pod("web", "web"))
		pods, err := informer.NewFrom(src, informer.Options[*corev1.Pod]{})
		if err != nil {
			t.Fatal(err)
		}
		group := informer.Group{ErrorHandler: func(context.Context, error) {}}
		var mu sync.Mutex
		var watched, reconciled []string // the app label of each call
		refuse := func(calls *[]string, pod *corev1.Pod) error {
			mu.Lock()
			defer mu.Unlock()
			*calls = append(*calls, pod.Labels["app"])
			if len(*calls) < 8 && pod.Labels["app"] == "web" {
				return errors.New("no")
			}
			return nil
		}
		watcher := informer.WatcherFunc[*corev1.Pod](func(_ context.Context, e informer.Event[*corev1.Pod]) error {
			return refuse(&watched, e.New)
		})
		if _, err := pods.AddWatcher(watcher, informer.WatcherOptions{Retry: informer.Backoff(time.Hour, time.Hour, 0)}); err != nil {
			t.Fatal(err)
		}
		if err := group.Add(pods); err != nil {
			t.Fatal(err)
		}
		if _, err := addReconciler(&group, pods, "app", func(_ context.Context, _ types.NamespacedName, pod *corev1.Pod, _ bool) (time.Duration, error) {
			return 0, refuse(&reconciled, pod)
		}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = group.Run(ctx) })
		time.Sleep(100 * time.Millisecond) // the next attempt of the reconciler is due after 155 ms
		made := func() (byWatcher, byReconciler []string) {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(watched), slices.Clone(reconciled)
		}
		_, before := made()
		src.Apply(pod("web", "shop"))
		time.Sleep(time.Millisecond)
		byWatcher, byReconciler := made()
		if diff := cmp.Diff([]string{"shop"}, byReconciler[len(before):]); diff != "" {
			t.Errorf("reconciled at once (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"web"}, byWatcher); diff != "" {
			t.Errorf("the watcher's calls before the end of the pause (-want +got):\n%s", diff)
		}
		time.Sleep(2 * time.Hour)
		byWatcher, byReconciler = made()
		if diff := cmp.Diff([]string{"web", "shop"}, byWatcher); diff != "" {
			t.Errorf("the watcher's calls (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"shop"}, byReconciler[len(before):]); diff != "" {
			t.Errorf("reconciled in the end (-want +got):\n%s", diff)
		}
		stop()
		running.Wait()
		time.Sleep(time.Hour) // let the timers of client-go's workqueue end
	})
}
