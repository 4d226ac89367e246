package migrating_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

var web = types.NamespacedName{Namespace: "shop", Name: "web"}

func pod(name, app string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": app}}}
}

func names(pods []*corev1.Pod) []string {
	var all []string
	for _, pod := range pods {
		all = append(all, pod.Name)
	}
	slices.Sort(all)
	return all
}

func TestBeforeAndAfterFindTheSamePods(t *testing.T) {
	client := fake.NewClientset(pod("web-1", "web"), pod("web-2", "web"), pod("db", "db"), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}},
	})
	for name, find := range map[string]func(context.Context, kubernetes.Interface, types.NamespacedName) ([]*corev1.Pod, error){
		"before": podsBefore, "after": podsAfter,
	} {
		pods, err := find(t.Context(), client, web)
		if diff := cmp.Diff([]string{"web-1", "web-2"}, names(pods)); diff != "" || err != nil {
			t.Errorf("%s: %v, pods (-want +got):\n%s", name, err, diff)
		}
		if pods, err = find(t.Context(), client, types.NamespacedName{Name: "none"}); err == nil {
			t.Errorf("%s: of a service that is not there it finds %v", name, names(pods))
		}
	}
}

// background runs run in a goroutine. stop ends its ctx, and returns when run has.
func background(t *testing.T, run func(ctx context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestAGeneratedListerReadsAnInformerOfSeveralNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := pod("other", "web")
		other.Namespace = "other"
		pods, err := podsOf(fake.NewClientset(pod("web", "web"), pod("db", "db"), other), []string{"shop", "none"})
		if err != nil {
			t.Fatal(err)
		}
		stop := background(t, pods.Run)
		time.Sleep(time.Minute)
		all, err := podLister(pods).List(labels.Everything())
		in, errIn := podLister(pods).Pods("shop").List(labels.Everything())
		for _, found := range [][]*corev1.Pod{all, in} {
			if diff := cmp.Diff([]string{"db", "web"}, names(found)); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
		}
		if err := errors.Join(err, errIn); err != nil {
			t.Error(err)
		}
		stop()
	})
}

func TestBeforeAndAfterReconcileTheSame(t *testing.T) {
	for name, run := range map[string]func(context.Context, kubernetes.Interface, reconciler) error{
		"before": controllerBefore, "with its queue": controllerQueued, "after": controllerAfter,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset(pod("web", "web"))
				var calls []string
				stop := background(t, func(ctx context.Context) error {
					return run(ctx, client, func(_ context.Context, key types.NamespacedName, pod *corev1.Pod) error {
						calls = append(calls, fmt.Sprint(key.Name, " is there: ", pod != nil))
						if len(calls) < 3 {
							return errors.New("not yet")
						}
						return nil
					})
				})
				time.Sleep(10 * time.Second) // enough for more than two retries
				if err := client.CoreV1().Pods("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
				stop()
				there := "web is there: true"
				if diff := cmp.Diff([]string{there, there, there, "web is there: false"}, calls); diff != "" {
					t.Errorf("calls (-want +got):\n%s", diff)
				}
				time.Sleep(time.Minute) // let the timers of client-go's workqueue end
			})
		})
	}
}

func TestBothConstructorsTellHandlersTheSame(t *testing.T) {
	for name, construct := range map[string]func(cache.ListerWatcher) cache.SharedIndexInformer{
		"before": sharedBefore, "after": sharedAfter,
	} {
		synctest.Test(t, func(t *testing.T) {
			var told []string
			inf := construct(informertest.NewSource(pod("web", "web")))
			if _, err := inf.AddEventHandler(recordIn(&told)); err != nil {
				t.Fatal(err)
			}
			stop := background(t, func(ctx context.Context) error { inf.RunWithContext(ctx); return nil })
			time.Sleep(11 * time.Minute) // one resync
			stop()
			if diff := cmp.Diff([]string{"add web, initial: true", "update web"}, told); diff != "" {
				t.Errorf("%s: events of the handler (-want +got):\n%s", name, diff)
			}
		})
	}
}

// recordIn returns a handler that records its calls.
func recordIn(told *[]string) cache.ResourceEventHandler {
	note := func(format string, args ...any) { *told = append(*told, fmt.Sprintf(format, args...)) }
	name := func(obj any) string {
		name, _ := cache.DeletionHandlingObjectToName(obj)
		return name.Name
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(obj any, initial bool) { note("add %s, initial: %t", name(obj), initial) },
		UpdateFunc: func(_, obj any) { note("update %s", name(obj)) },
		DeleteFunc: func(obj any) { note("delete %s", name(obj)) },
	}
}

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

func dynamicClient() dynamic.Interface {
	obj := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"phase": "Ready"}}}
	obj.SetGroupVersionKind(widgets.GroupVersion().WithKind("Widget"))
	obj.SetNamespace(web.Namespace)
	obj.SetName(web.Name)
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{widgets: "WidgetList"}, obj)
}

func TestBeforeAndAfterReadTheSameOfAnUnknownType(t *testing.T) {
	for name, read := range map[string]func(context.Context, dynamic.Interface, schema.GroupVersionResource, types.NamespacedName) (string, error){
		"before": phaseBefore, "after": phaseAfter,
	} {
		if phase, err := read(t.Context(), dynamicClient(), widgets, web); phase != "Ready" || err != nil {
			t.Errorf("%s: %q, %v, want Ready", name, phase, err)
		}
	}
}

func TestADynamicListerReadsTheDropIn(t *testing.T) {
	inf, lister := dynamicInformer(dynamicClient(), widgets)
	defer background(t, func(ctx context.Context) error { inf.RunWithContext(ctx); return nil })()
	if !cache.WaitFor(t.Context(), "", inf.HasSyncedChecker()) {
		t.Fatal("it does not sync")
	}
	if obj, err := lister.Namespace(web.Namespace).Get(web.Name); err != nil || obj.GetName() != web.Name {
		t.Errorf("%v, %v", obj, err)
	}
}

func TestAResourceHasOneInformer(t *testing.T) {
	var group informer.Group
	first, err := sharedByResource(&group, dynamicClient(), widgets)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := sharedByResource(&group, dynamicClient(), widgets); again != first || err != nil {
		t.Errorf("the second call returns another informer, %v", err)
	}
}

func TestBeforeAndAfterFillTheSameStore(t *testing.T) {
	for name, run := range map[string]func(context.Context, cache.ListerWatcher, cache.Store, *[]string) error{
		"before": func(ctx context.Context, lw cache.ListerWatcher, store cache.Store, told *[]string) error {
			storeBefore(ctx, lw, store, recordIn(told))
			return nil
		},
		"drop-in": func(ctx context.Context, lw cache.ListerWatcher, store cache.Store, told *[]string) error {
			return storeDropIn(ctx, lw, store, recordIn(told))
		},
		"after": func(ctx context.Context, lw cache.ListerWatcher, store cache.Store, told *[]string) error {
			return storeAfter(ctx, lw, store, informer.WatcherFunc[*corev1.Pod](func(_ context.Context, e informer.Event[*corev1.Pod]) error {
				switch e.Type {
				case informer.EventAdded:
					recordIn(told).OnAdd(e.New, e.Origin == informer.OriginInitial)
				case informer.EventUpdated:
					recordIn(told).OnUpdate(e.Old, e.New)
				case informer.EventDeleted:
					recordIn(told).OnDelete(e.Old)
				}
				return nil
			}))
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			src, store := informertest.NewSource(pod("web", "web")), cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc)
			var told []string
			stop := background(t, func(ctx context.Context) error { return run(ctx, src, store, &told) })
			time.Sleep(time.Second)
			src.Apply(pod("web", "shop"))
			src.Apply(pod("db", "db"))
			time.Sleep(time.Second)
			if _, err := src.Delete(web); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
			stop()
			if diff := cmp.Diff([]string{"shop/db"}, store.ListKeys()); diff != "" {
				t.Errorf("%s: the store has (-want +got):\n%s", name, diff)
			}
			if diff := cmp.Diff([]string{"add web, initial: true", "update web", "add db, initial: false", "delete web"}, told); diff != "" {
				t.Errorf("%s: events (-want +got):\n%s", name, diff)
			}
		})
	}
}

func TestAReflectorAndASinkFillTheSameStore(t *testing.T) {
	for name, run := range map[string]func(context.Context, cache.ListerWatcher, cache.Store) error{
		"before": func(ctx context.Context, lw cache.ListerWatcher, metrics cache.Store) error {
			reflectorBefore(ctx, lw, metrics)
			return nil
		},
		"after": reflectorAfter,
	} {
		synctest.Test(t, func(t *testing.T) {
			src := informertest.NewSource(pod("web", "web"), pod("db", "db"))
			metrics := cache.NewStore(func(obj any) (string, error) { return string(obj.(*corev1.Pod).UID), nil })
			stop := background(t, func(ctx context.Context) error { return run(ctx, src, metrics) })
			time.Sleep(time.Second)
			changed := src.Apply(pod("web", "changed"))
			src.Expire() // so that a relist finds the delete
			if _, err := src.Delete(types.NamespacedName{Namespace: "shop", Name: "db"}); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
			stop()
			if diff := cmp.Diff([]any{changed}, metrics.List()); diff != "" {
				t.Errorf("%s: it has (-want +got):\n%s", name, diff)
			}
		})
	}
}

func TestAnInformerOfClientGosFillsItsOwnStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		ctx, stop := context.WithCancel(t.Context())
		store := plainBefore(ctx, informertest.NewSource(pod("web", "web")), recordIn(&told))
		time.Sleep(time.Second)
		stop()
		synctest.Wait()
		if len(told) != 1 || len(store.List()) != 1 {
			t.Errorf("delivered %v, stored %v", told, store.ListKeys())
		}
	})
}

var _ informer.ResourceWatcher[*corev1.Pod] = printer{}
