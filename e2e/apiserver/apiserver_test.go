package apiserver_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer/e2e/apiserver"
)

func TestCreateListWatch(t *testing.T) {
	t.Parallel()
	widgets := install(t)
	client := widgets.client(t, server.Config())

	w := startWatch(t, client, metav1.ListOptions{})
	created := widgets.create(t, client, "a")
	if got := next(t, w); got.Type != watch.Added || got.Object.(*unstructured.Unstructured).GetName() != "a" {
		t.Errorf("after create: got %s %v, want ADDED a", got.Type, got.Object)
	}

	created.Object["data"] = "changed"
	updated, err := client.Update(t.Context(), created, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := next(t, w); got.Type != watch.Modified || resourceVersion(t, got) != updated.GetResourceVersion() {
		t.Errorf("after update: got %s %v, want MODIFIED %s", got.Type, got.Object, updated.GetResourceVersion())
	}

	if _, err := client.Update(t.Context(), created, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("update of an old version: got %v, want a conflict", err)
	}

	list, err := client.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Object["data"] != "changed" {
		t.Errorf("list: got %v, want the changed object", list.Items)
	}

	if err := client.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := next(t, w); got.Type != watch.Deleted {
		t.Errorf("after delete: got %s, want DELETED", got.Type)
	}
}

func TestPagination(t *testing.T) {
	t.Parallel()
	widgets := install(t)
	client := widgets.client(t, server.Config())
	for i := range 5 {
		widgets.create(t, client, fmt.Sprint("w", i))
	}

	var pages []int
	options := metav1.ListOptions{Limit: 2}
	for {
		page, err := client.List(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, len(page.Items))
		if options.Continue = page.GetContinue(); options.Continue == "" {
			break
		}
	}
	if got, want := fmt.Sprint(pages), "[2 2 1]"; got != want {
		t.Errorf("page sizes: got %s, want %s", got, want)
	}
}

func TestStreamingList(t *testing.T) {
	t.Parallel()
	widgets := install(t)
	client := widgets.client(t, server.Config())
	for i := range 3 {
		widgets.create(t, client, fmt.Sprint("w", i))
	}

	sendInitialEvents := true
	w := startWatch(t, client, metav1.ListOptions{
		SendInitialEvents:    &sendInitialEvents,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		AllowWatchBookmarks:  true,
	})
	for i := range 3 {
		if got := next(t, w); got.Type != watch.Added {
			t.Fatalf("event %d: got %s, want ADDED", i, got.Type)
		}
	}
	end := next(t, w)
	if end.Type != watch.Bookmark {
		t.Fatalf("after the initial events: got %s, want BOOKMARK", end.Type)
	}
	if got := end.Object.(*unstructured.Unstructured).GetAnnotations()[metav1.InitialEventsAnnotationKey]; got != "true" {
		t.Errorf("bookmark: annotation %s is %q, want true", metav1.InitialEventsAnnotationKey, got)
	}
}

func TestStatusSubresource(t *testing.T) {
	t.Parallel()
	for _, enabled := range []bool{true, false} {
		widgets := installKind(t, apiserver.Kind{GroupVersionKind: newGVK(), Status: enabled})
		client := widgets.client(t, server.Config())
		object := widgets.create(t, client, "a")
		object.Object["status"] = "set"
		object, err := client.Update(t.Context(), object, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := object.Object["status"] == nil; got != enabled {
			t.Errorf("subresource %t: Update ignores status: %t", enabled, got)
		}
		object.Object["status"] = "set"
		if _, err := client.UpdateStatus(t.Context(), object, metav1.UpdateOptions{}); (err == nil) != enabled {
			t.Errorf("subresource %t: UpdateStatus: %v", enabled, err)
		}
	}
}

func TestInstallTwice(t *testing.T) {
	t.Parallel()
	widgets := install(t)
	_, err := server.Install(t.Context(), apiserver.Kind{GroupVersionKind: widgets.kind})
	if !apierrors.IsAlreadyExists(err) {
		t.Errorf("got %v, want AlreadyExists", err)
	}
}

func TestExpire(t *testing.T) {
	t.Parallel()
	widgets, others := install(t), install(t)
	client, otherClient := widgets.client(t, server.Config()), others.client(t, server.Config())
	first := widgets.create(t, client, "a")
	widgets.create(t, client, "b")
	others.create(t, otherClient, "a")

	list := metav1.ListOptions{Limit: 1}
	page, err := client.List(t.Context(), list)
	if err != nil {
		t.Fatal(err)
	}
	list.Continue = page.GetContinue()
	otherPast, err := otherClient.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	others.create(t, otherClient, "b")
	past := metav1.ListOptions{ResourceVersion: first.GetResourceVersion()}
	open := startWatch(t, client, past)
	if got := next(t, open); got.Type != watch.Added {
		t.Fatalf("watch before Expire: got %s, want ADDED", got.Type)
	}

	if err := server.Expire(t.Context(), widgets.resource); err != nil {
		t.Fatal(err)
	}

	if event, ok := <-open.ResultChan(); ok {
		t.Errorf("open watch: got %s %v, want its end", event.Type, event.Object)
	}
	event := next(t, startWatch(t, client, past))
	if err := apierrors.FromObject(event.Object); event.Type != watch.Error || !apierrors.IsResourceExpired(err) {
		t.Errorf("watch: got %s %v, want 410", event.Type, err)
	}
	if _, err := client.List(t.Context(), list); !apierrors.IsResourceExpired(err) {
		t.Errorf("continued list: got %v, want 410", err)
	}

	now, err := client.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(now.Items) != 2 {
		t.Errorf("list: got %d objects, want 2", len(now.Items))
	}
	w := startWatch(t, client, metav1.ListOptions{ResourceVersion: now.GetResourceVersion()})
	widgets.create(t, client, "c")
	if got := next(t, w); got.Type != watch.Added {
		t.Errorf("watch from now on: got %s %v, want ADDED", got.Type, got.Object)
	}
	w = startWatch(t, otherClient, metav1.ListOptions{ResourceVersion: otherPast.GetResourceVersion()})
	if got := next(t, w); got.Type != watch.Added {
		t.Errorf("watch of another resource: got %s %v, want ADDED", got.Type, got.Object)
	}
}

func BenchmarkCreate(b *testing.B) {
	widgets := install(b)
	client := widgets.client(b, server.Config())
	var names atomic.Int64
	b.SetParallelism(8)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			object := widgets.object(fmt.Sprint("w", names.Add(1)))
			if _, err := client.Create(b.Context(), object, metav1.CreateOptions{}); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
