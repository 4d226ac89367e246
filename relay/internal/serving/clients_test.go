package serving

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

func TestClientGosClientsReadFromTheServer(t *testing.T) {
	f := serve(t)
	f.pods.set(t, pod("a", "n1"))
	f.widgets.set(t, widget("w", "red", 7))
	f.settle(t)
	typed, err := f.client(t).CoreV1().Pods("default").Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || typed.Spec.NodeName != "n1" {
		t.Errorf("typed: %v, %v", typed, err)
	}
	if _, err := f.client(t).CoreV1().Pods("default").Get(t.Context(), "b", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("typed: got %v, want not found", err)
	}
	if _, err := f.client(t).CoreV1().Pods("default").Create(t.Context(), pod("b", ""), metav1.CreateOptions{}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("typed: got %v, want 405", err)
	}
	for resource, name := range map[string]string{"pods": "a", "widgets": "w"} {
		gvr := podResource
		if resource == "widgets" {
			gvr = widgetResource
		}
		obj, err := f.dynamic(t).Resource(gvr).Namespace("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || obj.GetName() != name || obj.GetKind() == "" {
			t.Errorf("dynamic: %v, %v", obj, err)
		}
		client, err := metadata.NewForConfig(&rest.Config{Host: f.url, QPS: -1}) // protobuf
		if err != nil {
			t.Fatal(err)
		}
		list, err := client.Resource(gvr).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 || list.Items[0].Name != name {
			t.Errorf("metadata: %v, %v", list, err)
		}
	}
}

// seen collects the events of an informer.
type seen chan string

func (s seen) OnAdd(obj any, _ bool) { s <- "add " + obj.(metav1.Object).GetName() }
func (s seen) OnUpdate(_, obj any)   { s <- "update " + obj.(metav1.Object).GetName() }
func (s seen) OnDelete(obj any)      { s <- "delete " + obj.(metav1.Object).GetName() }

func (s seen) expect(t testing.TB, want string) {
	t.Helper()
	select {
	case got := <-s:
		if got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("not delivered: %s", want)
	}
}

func TestAnInformerOfClientGoFollowsTheServer(t *testing.T) {
	f := serve(t)
	f.pods.set(t, pod("a", "n1"))
	f.widgets.set(t, widget("a", "red", 1))
	ctx, cancel := context.WithCancel(t.Context())
	typed := informers.NewSharedInformerFactory(f.client(t), 0)
	dynamic := dynamicinformer.NewDynamicSharedInformerFactory(f.dynamic(t), 0)
	defer typed.Shutdown()
	defer dynamic.Shutdown()
	defer cancel()
	for storage, informer := range map[*memory]cache.SharedIndexInformer{
		f.pods: typed.Core().V1().Pods().Informer(), f.widgets: dynamic.ForResource(widgetResource).Informer(),
	} {
		events := make(seen, 100)
		if _, err := informer.AddEventHandler(events); err != nil {
			t.Fatal(err)
		}
		typed.Start(ctx.Done())
		dynamic.Start(ctx.Done())
		events.expect(t, "add a")
		change := func(label string) {
			storage.mu.Lock()
			obj := storage.objects["default/a"].DeepCopyObject()
			storage.mu.Unlock()
			obj.(metav1.Object).SetLabels(map[string]string{"l": label})
			storage.set(t, obj)
		}
		change("1")
		events.expect(t, "update a")
		storage.relist() // ends the watch; the informer begins again
		change("2")
		events.expect(t, "update a")
		storage.remove(t, "default/a")
		events.expect(t, "delete a")
	}
}
