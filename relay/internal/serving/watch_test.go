package serving

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// watchPods starts a watch that ends with the test.
func (f *fixture) watchPods(t testing.TB, options metav1.ListOptions) watch.Interface {
	t.Helper()
	w, err := f.client(t).CoreV1().Pods("").Watch(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

func nameOf(t testing.TB, event watch.Event) string {
	if event.Type == watch.Error {
		t.Errorf("got %v", event.Object)
		return ""
	}
	return event.Object.(metav1.Object).GetName()
}

// next returns the next event as text: its type, and the name and the version of its object.
func next(t testing.TB, w watch.Interface) string {
	t.Helper()
	select {
	case event, ok := <-w.ResultChan():
		if !ok {
			return "end"
		}
		if status, ok := event.Object.(*metav1.Status); ok {
			return fmt.Sprint(event.Type, " ", status.Code)
		}
		object, err := meta.Accessor(event.Object)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(event.Type, " ", object.GetName(), " ", object.GetResourceVersion())
	case <-time.After(patience):
		t.Fatal("no event")
		return ""
	}
}

func expect(t testing.TB, w watch.Interface, events ...string) {
	t.Helper()
	for _, want := range events {
		if got := next(t, w); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
}

func TestAWatchContinuesFromAVersionAndTellsEveryChangeInOrder(t *testing.T) {
	f := serve(t)
	f.pods.set(t, pod("a", "n1")) // 101
	f.pods.set(t, pod("b", "n1"))
	f.settle(t)
	w := f.watchPods(t, metav1.ListOptions{ResourceVersion: "101"})
	expect(t, w, "ADDED b 102")
	f.pods.set(t, pod("a", "n2"))
	f.pods.remove(t, "default/b")
	f.pods.set(t, pod("b", "n2"))
	expect(t, w, "MODIFIED a 103", "DELETED b 104", "ADDED b 105")
}

func TestAWatchByAnIndexedFieldTellsObjectsThatComeAndGo(t *testing.T) {
	f := serve(t)
	one := f.watchPods(t, metav1.ListOptions{ResourceVersion: "100", FieldSelector: "spec.nodeName=n1"})
	two := f.watchPods(t, metav1.ListOptions{ResourceVersion: "100", FieldSelector: "spec.nodeName=n2"})
	all := f.watchPods(t, metav1.ListOptions{ResourceVersion: "100"})
	f.pods.set(t, pod("a", "n1"))
	f.pods.set(t, pod("a", "n2"))
	f.pods.set(t, pod("b", "n1"))
	f.pods.remove(t, "default/a")
	expect(t, one, "ADDED a 101", "DELETED a 102", "ADDED b 103")
	expect(t, two, "ADDED a 102", "DELETED a 104")
	expect(t, all, "ADDED a 101", "MODIFIED a 102", "ADDED b 103", "DELETED a 104")
}

func TestAWatchMayBeginWithTheState(t *testing.T) {
	f := serve(t)
	f.pods.set(t, pod("a", "n1"))
	f.pods.set(t, pod("b", "n1"))
	yes := true
	for _, version := range []string{"", "0", "102"} {
		w := f.watchPods(t, metav1.ListOptions{
			ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
			SendInitialEvents: &yes, AllowWatchBookmarks: true, LabelSelector: "app=a",
		})
		if version == "0" {
			f.settle(t)
		}
		expect(t, w, "ADDED a 101")
		event := <-w.ResultChan()
		mark, ok := event.Object.(*corev1.Pod)
		if !ok || event.Type != watch.Bookmark || mark.Annotations[metav1.InitialEventsAnnotationKey] != "true" || mark.ResourceVersion != "102" {
			t.Fatalf("from %q: got %v, want the bookmark that ends the state", version, event)
		}
	}
	w := f.watchPods(t, metav1.ListOptions{}) // the old way, without a bookmark
	expect(t, w, "ADDED a 101", "ADDED b 102")
}

func TestAWatchGetsABookmarkBeforeItsTimeIsOver(t *testing.T) {
	f := serve(t)
	timeout := int64(3)
	w := f.watchPods(t, metav1.ListOptions{
		ResourceVersion: "100", AllowWatchBookmarks: true, TimeoutSeconds: &timeout, LabelSelector: "app=a",
	})
	f.pods.set(t, pod("b", "n1"))
	expect(t, w, "BOOKMARK  101")
	last := next(t, w)
	for last == "BOOKMARK  101" { // a busy server may send more than one before the end
		last = next(t, w)
	}
	if last != "end" {
		t.Errorf("got %s after the bookmark, want the end", last)
	}
}

func TestAWatchFromALostVersionGets410(t *testing.T) {
	f := serve(t)
	f.pods.set(t, pod("a", "n1"))
	f.settle(t)
	expect(t, f.watchPods(t, metav1.ListOptions{ResourceVersion: "99"}), "ERROR 410", "end")
}

func TestAStorageThatBeginsAgainEndsTheWatches(t *testing.T) {
	f := serve(t)
	f.pods.set(t, pod("a", "n1")) // 101
	w := f.watchPods(t, metav1.ListOptions{ResourceVersion: "100"})
	expect(t, w, "ADDED a 101")
	f.pods.relist() // 102
	expect(t, w, "end")
	f.waitUntilReady(t)
	f.pods.set(t, pod("b", "n1"))
	f.settle(t)
	expect(t, f.watchPods(t, metav1.ListOptions{ResourceVersion: "102"}), "ADDED b 103")
	expect(t, f.watchPods(t, metav1.ListOptions{ResourceVersion: "101"}), "ERROR 410")
	if n := f.pods.read(); n != 2 {
		t.Errorf("the storage was read %d times, want twice", n)
	}
}

func TestLostVersionsOfTheStorageAreNotServed(t *testing.T) {
	f := serve(t)
	f.pods.set(t, pod("a", "n1")) // 101
	version, objects := f.pods.backup()
	w := f.watchPods(t, metav1.ListOptions{ResourceVersion: "100"})
	f.pods.set(t, pod("b", "n1"))
	f.pods.set(t, pod("c", "n1")) // 103
	expect(t, w, "ADDED a 101", "ADDED b 102", "ADDED c 103")
	f.pods.restore(version, objects)
	expect(t, w, "end")
	f.waitUntilReady(t)
	// A bookmark would come a second after the beginning, if there were something new.
	timeout := int64(3)
	options := metav1.ListOptions{ResourceVersion: "101", AllowWatchBookmarks: true, TimeoutSeconds: &timeout}
	expect(t, f.watchPods(t, options), "end")
	w = f.watchPods(t, options)
	f.pods.set(t, pod("d", "n1"))
	expect(t, w, "ADDED d 102")
	f.settle(t)
	all, err := f.client(t).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil || podNames(all) != "a d" || all.ResourceVersion != "102" {
		t.Errorf("got %v, %v", all, err)
	}
	if n := f.pods.read(); n != 3 {
		t.Errorf("the storage was read %d times, want again for the old cacher and for the new one", n)
	}
}

func TestAWatchEndsAfterTheConfiguredTime(t *testing.T) {
	f := serve(t, func(c *Config) { c.Generic.MinRequestTimeout = 1 })
	begun := time.Now()
	expect(t, f.watchPods(t, metav1.ListOptions{ResourceVersion: "100"}), "end")
	if took := time.Since(begun); took < time.Second {
		t.Errorf("the watch ended after %v, want one to two seconds", took)
	}
}

func TestAWatchOfShardsTellsEachChangeToOneOfThem(t *testing.T) {
	f := serve(t)
	const half = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"
	const rest = "shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')"
	one := f.watchPods(t, metav1.ListOptions{ResourceVersion: "100", ShardSelector: half})
	two := f.watchPods(t, metav1.ListOptions{ResourceVersion: "100", ShardSelector: rest})
	told := map[string]int{}
	for i := range 20 {
		f.pods.set(t, pod(fmt.Sprint("p", i), "n1"))
		select {
		case event := <-one.ResultChan():
			told["one "+nameOf(t, event)]++
		case event := <-two.ResultChan():
			told["two "+nameOf(t, event)]++
		}
	}
	f.pods.set(t, pod("p0", "n2")) // would be preceded by an event that both got
	select {
	case event := <-one.ResultChan():
		told["one "+nameOf(t, event)]++
	case event := <-two.ResultChan():
		told["two "+nameOf(t, event)]++
	}
	if len(told) != 20 || told["one p0"]+told["two p0"] != 2 {
		t.Errorf("20 Pods came as %v", told)
	}
}

func TestWatchesOfCustomResourcesTellTheirKind(t *testing.T) {
	f := serve(t)
	widgets, err := f.dynamic(t).Resource(widgetResource).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "200", FieldSelector: "spec.color=red"})
	if err != nil {
		t.Fatal(err)
	}
	defer widgets.Stop()
	f.widgets.set(t, widget("a", "red", 1))
	f.widgets.set(t, widget("a", "blue", 1))
	for _, want := range []watch.EventType{watch.Added, watch.Deleted} {
		event := <-widgets.ResultChan()
		if kind := event.Object.GetObjectKind().GroupVersionKind(); event.Type != want || kind.Kind != "Widget" {
			t.Errorf("got %s of a %s, want %s", event.Type, kind, want)
		}
	}
	f.get(t, "/apis/example.com/v1/namespaces/default/widgets/a", http.StatusOK)
}
