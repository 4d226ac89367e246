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
	"github.com/customcacheinformer/informer/internal/migrating"
)

const guides = "../../docs/migrating-from-"

// The module controllerruntime checks the section about controller-runtime.
func TestTheCodeInTheGuideFromClientGoIsTested(t *testing.T) {
	notManager := func(heading string) bool { return heading != migrating.Manager }
	blocks := migrating.Check(t, guides+"client-go.md", notManager,
		"factory_test.go", "handlers_test.go", "dynamic_test.go", "store_test.go")
	if diff := cmp.Diff(map[string]int{"go": 21}, blocks); diff != "" {
		t.Errorf("blocks of code (-want +got):\n%s", diff)
	}
}

// Some blocks need app-sdk, which this library does not require.
func TestTheCodeInTheGuideFromGrafanaAppSDKIsTested(t *testing.T) {
	blocks := migrating.Check(t, guides+"grafana-app-sdk.md", nil, "appsdk_test.go")
	if diff := cmp.Diff(map[string]int{"go": 4, "go app-sdk": 3}, blocks); diff != "" {
		t.Errorf("blocks of code (-want +got):\n%s", diff)
	}
}

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

func TestAFactoryTakesTheDropIn(t *testing.T) {
	factory := newFactory(fake.NewClientset(pod("web-1", "web"), pod("db", "db")), "")
	lister := factory.Core().V1().Pods().Lister()
	if _, is := factory.InformerFor(&corev1.Pod{}, nil).(interface{ Health() informer.Health }); !is {
		t.Error("the factory has an informer of client-go's")
	}
	ctx, stop := context.WithCancel(t.Context())
	defer factory.Shutdown()
	defer stop()
	factory.StartWithContext(ctx)
	if err := factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		t.Fatal(err)
	}
	pods, err := lister.Pods("shop").List(labels.Everything())
	if diff := cmp.Diff([]string{"db", "web-1"}, names(pods)); diff != "" || err != nil {
		t.Errorf("%v, pods (-want +got):\n%s", err, diff)
	}
}

func TestGeneratedListersReadANativeInformer(t *testing.T) {
	pods, _ := informertest.Start(t, pod("web-1", "web"), pod("db", "db"))
	found, err := podLister(pods).Pods("shop").List(labels.Everything())
	if diff := cmp.Diff([]string{"db", "web-1"}, names(found)); diff != "" || err != nil {
		t.Errorf("%v, pods (-want +got):\n%s", err, diff)
	}
}

func TestBeforeAndAfterReconcileTheSame(t *testing.T) {
	for name, run := range map[string]func(context.Context, kubernetes.Interface, reconciler) error{
		"before": controllerBefore, "with its queue": controllerQueued, "after": controllerAfter,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset(pod("web", "web"))
				var calls []string
				ctx, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() {
					err := run(ctx, client, func(_ context.Context, key types.NamespacedName, pod *corev1.Pod) error {
						calls = append(calls, fmt.Sprint(key.Name, " is there: ", pod != nil))
						if len(calls) < 3 {
							return errors.New("not yet")
						}
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				})
				time.Sleep(10 * time.Second) // enough for more than two retries
				if err := client.CoreV1().Pods("shop").Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
				stop()
				running.Wait()
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
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { inf.RunWithContext(ctx) })
			time.Sleep(11 * time.Minute) // one resync
			stop()
			running.Wait()
			if diff := cmp.Diff([]string{"add web, initial: true", "update web"}, told); diff != "" {
				t.Errorf("%s: the handler was told (-want +got):\n%s", name, diff)
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
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { inf.RunWithContext(ctx) })
	defer running.Wait()
	defer stop()
	if !cache.WaitFor(ctx, "", inf.HasSyncedChecker()) {
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
	for name, run := range map[string]func(*testing.T, context.Context, cache.ListerWatcher, cache.Store, *[]string){
		"before": func(_ *testing.T, ctx context.Context, lw cache.ListerWatcher, store cache.Store, told *[]string) {
			storeBefore(ctx, lw, store, recordIn(told))
		},
		"drop-in": func(t *testing.T, ctx context.Context, lw cache.ListerWatcher, store cache.Store, told *[]string) {
			if err := storeDropIn(ctx, lw, store, recordIn(told)); err != nil {
				t.Error(err)
			}
		},
		"after": func(t *testing.T, ctx context.Context, lw cache.ListerWatcher, store cache.Store, told *[]string) {
			err := storeAfter(ctx, lw, store, informer.WatcherFuncs[*corev1.Pod]{
				AddFunc: func(_ context.Context, e informer.Event[*corev1.Pod]) error {
					recordIn(told).OnAdd(e.New, e.Origin == informer.OriginInitial)
					return nil
				},
				UpdateFunc: func(_ context.Context, e informer.Event[*corev1.Pod]) error {
					recordIn(told).OnUpdate(e.Old, e.New)
					return nil
				},
				DeleteFunc: func(_ context.Context, e informer.Event[*corev1.Pod]) error {
					recordIn(told).OnDelete(e.Old)
					return nil
				},
			})
			if err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src, store := informertest.NewSource(pod("web", "web")), cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc)
				var told []string
				ctx, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { run(t, ctx, src, store, &told) })
				time.Sleep(time.Second)
				src.Apply(pod("web", "shop"))
				src.Apply(pod("db", "db"))
				time.Sleep(time.Second)
				if _, err := src.Delete(web); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
				stop()
				running.Wait()
				if diff := cmp.Diff([]string{"shop/db"}, store.ListKeys()); diff != "" {
					t.Errorf("the store has (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff([]string{"add web, initial: true", "update web", "add db, initial: false", "delete web"}, told); diff != "" {
					t.Errorf("told (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestAReflectorAndAProjectionFillTheSameStore(t *testing.T) {
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
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() {
				if err := run(ctx, src, metrics); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Second)
			changed := src.Apply(pod("web", "changed"))
			src.Expire() // so that a relist finds the delete
			if _, err := src.Delete(types.NamespacedName{Namespace: "shop", Name: "db"}); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
			stop()
			running.Wait()
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
			t.Errorf("told %v, stored %v", told, store.ListKeys())
		}
	})
}

var _ informer.ResourceWatcher[*corev1.Pod] = printer{}
