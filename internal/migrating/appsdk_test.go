package migrating_test

import (
	"context"
	"errors"
	"fmt"
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

func TestAWatcherOfAppSDKGetsTheSameAndChangesNothing(t *testing.T) {
	src, store := informertest.NewSource(pod("web", "web")), cache.NewStore(cache.MetaNamespaceKeyFunc)
	watcher := changing{make(chan string)}
	stop := background(t, func(ctx context.Context) error { return runAfter(ctx, src, store, adapt[*corev1.Pod](watcher)) })
	told := []string{<-watcher.told}
	src.Apply(pod("web", "shop"))
	told = append(told, <-watcher.told)
	if stored, _, err := store.GetByKey("shop/web"); err != nil || len(stored.(*corev1.Pod).Finalizers) > 0 {
		t.Errorf("the object in the store is changed: %v, %v", stored, err)
	}
	if _, err := src.Delete(web); err != nil {
		t.Fatal(err)
	}
	told = append(told, <-watcher.told)
	if diff := cmp.Diff([]string{"add web", "update web", "delete web"}, told); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	stop()
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
		src.Apply(pod("web", "shop"))
		for _, when := range []string{"when all are removed", "after the removal"} {
			if diff := cmp.Diff([]int{1, 1, 1}, calls); diff != "" {
				t.Errorf("%s: calls that have returned (-want +got):\n%s", when, diff)
			}
			time.Sleep(time.Minute)
		}
	})
}

func TestReconcilersOfAKindAreAddedAndRemovedOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(pod("web", "web"))
		pods, err := informer.NewFrom(src, informer.Options[*corev1.Pod]{})
		group := informer.Group{ErrorHandler: func(context.Context, error) {}}
		if err := errors.Join(err, group.Add(pods)); err != nil {
			t.Fatal(err)
		}
		stop := background(t, group.Run)
		calls := make(chan string, 100)
		removes := map[string]func() error{}
		for _, name := range []string{"removed", "stays", "fails", "twice"} {
			seen := 0
			remove, err := addReconciler(&group, pods, name, func(_ context.Context, _ types.NamespacedName, _ *corev1.Pod, exists bool) (time.Duration, error) {
				seen++
				calls <- fmt.Sprint(name, " ", exists)
				switch {
				case name == "fails":
					return 0, errors.New("no")
				case name == "twice" && seen == 1:
					return time.Minute, nil
				}
				return 0, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			removes[name] = remove
		}
		if _, err := addReconciler[*corev1.Pod](&group, pods, "stays", nil); err == nil {
			t.Error("two reconcilers have one name")
		}
		made := func() map[string]int {
			count := map[string]int{}
			for len(calls) > 0 {
				count[<-calls]++
			}
			return count
		}
		time.Sleep(time.Hour)
		if diff := cmp.Diff(map[string]int{"removed true": 1, "stays true": 1, "twice true": 2, "fails true": 7}, made()); diff != "" { // MaxAttempts
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		err = errors.Join(removes["fails"](), removes["removed"]())
		if _, gone := src.Delete(web); err != nil || gone != nil {
			t.Errorf("%v, %v", err, gone)
		}
		time.Sleep(time.Second)
		got := made()
		if got["stays false"] != 1 || got["twice false"] != 1 || got["removed false"] > 0 {
			t.Errorf("calls after the delete: %v", got)
		}
		stop()
		time.Sleep(time.Hour) // let the timers of client-go's workqueue end
	})
}
