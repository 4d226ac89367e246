package controllerruntime_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/controllerruntime"
)

// asked is a client that records the options of each request, in the form that would be sent
// to the API server. ListWatch does not take it for a fake client.
type asked struct {
	client.WithWatch
	options   []metav1.ListOptions
	namespace string
	list      client.ObjectList
	watch     *watch.FakeWatcher
}

func (a *asked) note(list client.ObjectList, opts []client.ListOption) {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	a.namespace, a.list = o.Namespace, list
	a.options = append(a.options, *o.AsListOptions())
}

func (a *asked) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	a.note(list, opts)
	if l, ok := list.(*metav1.PartialObjectMetadataList); ok {
		l.Items = make([]metav1.PartialObjectMetadata, 1)
	}
	return nil
}

func (a *asked) Watch(_ context.Context, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
	a.note(list, append(opts, &client.ListOptions{})) // the empty options must not undo the others
	a.watch = watch.NewFake()
	return a.watch, nil
}

func TestEveryOptionOfTheReflectorReachesTheServer(t *testing.T) {
	timeout, stream := int64(7), true
	list := metav1.ListOptions{Limit: 5, Continue: "token", ResourceVersion: "3", ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	watching := metav1.ListOptions{
		ResourceVersion: "4", TimeoutSeconds: &timeout, AllowWatchBookmarks: true,
		SendInitialEvents: &stream, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}
	for name, opts := range map[string][]client.ListOption{
		"by options": {client.MatchingLabels{"a": "b"}, client.MatchingFields{"metadata.name": "c"}, client.InNamespace("here"), client.Limit(9)},
		"by Raw": {&client.ListOptions{Namespace: "here", Raw: &metav1.ListOptions{
			LabelSelector: "a=b", FieldSelector: "metadata.name=c", Limit: 9, ResourceVersion: "1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			c := &asked{}
			lw := cache.ToListerWatcherWithContext(controllerruntime.ListWatch(c, &corev1.PodList{}, opts...))
			if watchlist.DoesClientNotSupportWatchListSemantics(lw) {
				t.Error("a client that is not a fake is not asked to stream")
			}
			for range 2 { // the second requests must be like the first
				_, err := lw.ListWithContext(t.Context(), list)
				ok(t, err)
				_, err = lw.WatchWithContext(t.Context(), watching)
				ok(t, err)
			}
			wantList, wantWatch := list, watching
			for _, o := range []*metav1.ListOptions{&wantList, &wantWatch} {
				o.LabelSelector, o.FieldSelector = "a=b", "metadata.name=c"
			}
			if diff := cmp.Diff([]metav1.ListOptions{wantList, wantWatch, wantList, wantWatch}, c.options); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
			if c.namespace != "here" {
				t.Errorf("the namespace is %q, want here", c.namespace)
			}
		})
	}
}

func TestTheListIsCopied(t *testing.T) {
	c, list := &asked{}, listOf(widgetKind)
	lw := cache.ToListerWatcherWithContext(controllerruntime.ListWatch(c, list))
	list.SetGroupVersionKind(podKind)
	for range 2 {
		_, err := lw.ListWithContext(t.Context(), metav1.ListOptions{})
		ok(t, err)
		if got := c.list.GetObjectKind().GroupVersionKind().Kind; got != "WidgetList" {
			t.Errorf("a %s is listed, want a WidgetList", got)
		}
		c.list.GetObjectKind().SetGroupVersionKind(podKind) // as a client may do
	}
}

func TestTheRawOptionsAreCopied(t *testing.T) {
	c, raw := &asked{}, &metav1.ListOptions{LabelSelector: "a=b"}
	lw := cache.ToListerWatcherWithContext(controllerruntime.ListWatch(c, &corev1.PodList{}, &client.ListOptions{Raw: raw}))
	raw.LabelSelector = "a=c"
	_, err := lw.ListWithContext(t.Context(), metav1.ListOptions{})
	ok(t, err)
	if got := c.options[0].LabelSelector; got != "a=b" {
		t.Errorf("the selector is %q, want that of the call of ListWatch", got)
	}
}

func TestMetadataSaysTheKindOfTheObject(t *testing.T) {
	c := &asked{}
	lw := cache.ToListerWatcherWithContext(controllerruntime.ListWatch(c, metadataOf(widgetKind)))
	list, err := lw.ListWithContext(t.Context(), metav1.ListOptions{})
	ok(t, err)
	wantKind(t, widgetKind, &list.(*metav1.PartialObjectMetadataList).Items[0])

	w, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{})
	ok(t, err)
	go func() {
		c.watch.Add(&metav1.PartialObjectMetadata{})
		c.watch.Error(&metav1.Status{Message: "an error"})
	}()
	wantKind(t, widgetKind, (<-w.ResultChan()).Object.(*metav1.PartialObjectMetadata))
	if got := (<-w.ResultChan()).Object.(*metav1.Status); got.Kind != "" || got.Message != "an error" {
		t.Errorf("got %+v, want the error as it was", got)
	}
	c.watch.Stop()
	if _, open := <-w.ResultChan(); open {
		t.Error("the watch is still open after the client's watch has ended")
	}
	w.Stop()
}

func TestAWatchCanBeStoppedWithEventsInHand(t *testing.T) {
	c := &asked{}
	lw := cache.ToListerWatcherWithContext(controllerruntime.ListWatch(c, metadataOf(widgetKind)))
	w, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{})
	ok(t, err)
	c.watch.Add(&metav1.PartialObjectMetadata{}) // this event is not read
	w.Stop()
	w.Stop()
	if !c.watch.IsStopped() {
		t.Error("the client's watch is not stopped")
	}
}

func TestNoClientAndNoListAreErrors(t *testing.T) {
	for _, c := range []client.WithWatch{nil, (*asked)(nil)} {
		_, err := informer.NewFrom(controllerruntime.ListWatch(c, &corev1.PodList{}), informer.Options[*corev1.Pod]{})
		if err == nil {
			t.Errorf("New accepts the client %#v, want an error", c)
		}
	}
	lw := controllerruntime.ListWatch(fake.NewFakeClient(), (*corev1.PodList)(nil))
	inf, err := informer.NewFrom(lw, informer.Options[*corev1.Pod]{ErrorHandler: func(context.Context, error) {}})
	ok(t, err)
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	ok(t, inf.Run(ctx))
	if err := inf.WaitForSync(t.Context()); err == nil {
		t.Error("an informer that cannot list has synced")
	} else {
		t.Log(err)
	}
}
