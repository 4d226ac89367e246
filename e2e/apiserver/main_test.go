package apiserver_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer/e2e/apiserver"
)

// patience limits every wait. It is long because machines may be busy.
const patience = 5 * time.Minute

var server *apiserver.Server

func TestMain(m *testing.M) {
	var err error
	if server, err = apiserver.Start(context.Background()); err != nil {
		log.Fatal(err)
	}
	code := m.Run()
	server.Stop()
	os.Exit(apiserver.ExitCode(code))
}

// widgets is a kind that one test has to itself.
type widgets struct {
	kind     schema.GroupVersionKind
	resource schema.GroupVersionResource
}

var groups atomic.Int64

func newGVK() schema.GroupVersionKind {
	group := fmt.Sprintf("test%d.example.com", groups.Add(1))
	return schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Widget"}
}

func install(t testing.TB) widgets {
	t.Helper()
	return installKind(t, apiserver.Kind{GroupVersionKind: newGVK()})
}

func installKind(t testing.TB, kind apiserver.Kind) widgets {
	t.Helper()
	resource, err := server.Install(t.Context(), kind)
	if err != nil {
		t.Fatal(err)
	}
	return widgets{kind.GroupVersionKind, resource}
}

func (w widgets) client(t testing.TB, config *rest.Config) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(w.resource).Namespace("default")
}

func (w widgets) object(name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(w.kind)
	object.SetName(name)
	return object
}

func (w widgets) create(t testing.TB, client dynamic.ResourceInterface, name string) *unstructured.Unstructured {
	t.Helper()
	object, err := client.Create(t.Context(), w.object(name), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func startWatch(t testing.TB, client dynamic.ResourceInterface, options metav1.ListOptions) watch.Interface {
	t.Helper()
	w, err := client.Watch(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

// next returns the next event of the watch. It fails the test if the watch ends first.
func next(t testing.TB, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case event, ok := <-w.ResultChan():
		if !ok {
			t.Fatal("watch ended")
		}
		return event
	case <-time.After(patience):
		t.Fatal("no event")
	}
	panic("unreachable")
}

func resourceVersion(t testing.TB, event watch.Event) string {
	t.Helper()
	object, ok := event.Object.(*unstructured.Unstructured)
	if !ok {
		t.Fatalf("got %s %v, want an object", event.Type, event.Object)
	}
	return object.GetResourceVersion()
}
