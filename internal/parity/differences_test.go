package parity_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/informertest"
)

// TestDifferences tests the single differences of docs/differences-from-client-go.md. The
// cases of the other files, which compare both informers, test the other differences.
func TestDifferences(t *testing.T) {
	sharedCases{
		"in a delete of something that nobody was told of": deleteOfAStranger,
		"in a bookmark without a version":                  bookmarkWithoutAVersion,
		"in a server that comes back with an older state":  serverThatWentBack,
		"in an event without a version":                    eventWithoutAVersion,
		"in a handler that is nil":                         nilHandler,
		"in a list with an object of another type":         listOfAnotherType,
		"in a secret that comes instead of a list":         secretInsteadOfAList,
		"in an object without a name":                      objectWithoutAName,
		"in an index function that fails":                  failingIndexFunction,
		"in a source that does not stream the first state": silentStream,
		"in a transform that makes no API object":          transformToNothing,
		"in a version that the server does not take":       versionOfNoUse,
	}.inBubbles(t)
}

func deleteOfAStranger(t *testing.T, s shared) {
	src, _, h := settled(t, s)
	stranger := object("c", "1")
	stranger.ResourceVersion = "1009"
	src.Inject(watch.Event{Type: watch.Deleted, Object: stranger})
	if s.ours() {
		h.expect(t)
	} else {
		h.expect(t, "delete c@9")
	}
}

func objectWithoutAName(t *testing.T, s shared) {
	src := two()
	src.SetFaults(informertest.Faults{ListItems: []runtime.Object{object("", "1")}, RejectWatchList: true})
	inf := s.new(src, 0)
	runShared(t, inf)
	sleepBubble(time.Minute)
	if _, stored, err := inf.GetStore().GetByKey("default/"); stored == s.ours() || err != nil {
		t.Errorf("stored: %t, %v", stored, err)
	}
	if !inf.HasSynced() {
		t.Error("it does not sync")
	}
}

func serverThatWentBack(t *testing.T, s shared) {
	server := &away{Source: two(), Cause: dialing(syscall.ECONNREFUSED)}
	backup := server.ResourceVersion()
	server.Apply(object("a", "undone"))
	inf := s.new(server, 0)
	runShared(t, inf)
	sleepBubble(10 * time.Second)
	server.Gone.Store(true)
	if err := server.Restore(backup); err != nil {
		t.Fatal(err)
	}
	sleepBubble(5 * time.Second)
	server.Gone.Store(false)
	sleepBubble(24 * hour)
	obj, exists, err := inf.GetStore().GetByKey("default/a")
	if err != nil || !exists {
		t.Fatal(err)
	}
	if noticed := obj.(configMap).Data["value"] != "undone"; noticed != s.ours() {
		t.Errorf("noticed: %t", noticed)
	}
}

func versionOfNoUse(t *testing.T, s shared) {
	src := two()
	inf := s.new(src, 0)
	runShared(t, inf)
	odd := object("odd", "1")
	odd.ResourceVersion = "never"
	src.Inject(watch.Event{Type: watch.Added, Object: odd})
	sleepBubble(10 * time.Second)
	src.Disconnect()
	src.Apply(object("a", "new"))
	sleepBubble(24 * hour)
	obj, exists, err := inf.GetStore().GetByKey("default/a")
	if err != nil || !exists {
		t.Fatal(err)
	}
	if noticed := obj.(configMap).Data["value"] == "new"; noticed != s.ours() {
		t.Errorf("noticed: %t", noticed)
	}
}

func eventWithoutAVersion(t *testing.T, s shared) {
	odd := object("a", "odd")
	odd.ResourceVersion = ""
	checkVersionless(t, s, watch.Event{Type: watch.Modified, Object: odd})
}

func bookmarkWithoutAVersion(t *testing.T, s shared) {
	for _, ends := range []string{"", "true"} {
		odd := object("", "")
		odd.ResourceVersion, odd.Annotations = "", map[string]string{metav1.InitialEventsAnnotationKey: ends}
		checkVersionless(t, s, watch.Event{Type: watch.Bookmark, Object: odd})
	}
}

// checkVersionless has the watch send e and end, and an object deleted before the next watch
// begins. client-go misses the delete.
func checkVersionless(t *testing.T, s shared, e watch.Event) {
	t.Helper()
	src := two()
	inf := s.new(src, 0)
	runShared(t, inf)
	src.Inject(e)
	sleepBubble(10 * time.Second)
	src.SetFaults(informertest.Faults{Mute: true}) // until no watch that could bring the delete is open
	remove(t, src, "b")
	src.Disconnect()
	src.SetFaults(informertest.Faults{})
	sleepBubble(hour)
	if _, exists, err := inf.GetStore().GetByKey("default/b"); err != nil || exists == s.ours() {
		t.Errorf("b is still there: %t (%v)", exists, err)
	}
}

func nilHandler(t *testing.T, s shared) {
	if _, err := s.new(two(), 0).AddEventHandler(nil); (err != nil) != s.ours() {
		t.Errorf("AddEventHandler(nil): %v", err)
	}
}

func listOfAnotherType(t *testing.T, s shared) {
	src := two()
	src.SetFaults(informertest.Faults{ListItems: []runtime.Object{&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other"}}}, RejectWatchList: true})
	inf := s.new(src, 0)
	runShared(t, inf)
	if inf.HasSynced() == s.ours() {
		t.Errorf("synced: %t", inf.HasSynced())
	}
}

func secretInsteadOfAList(t *testing.T, s shared) {
	const password = "hunter2"
	inf := s.new(&cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &unstructured.Unstructured{Object: map[string]any{"kind": "Secret", "data": password}}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return nil, apierrors.NewMethodNotSupported(schema.GroupResource{}, "watch")
		},
	}, 0)
	var errs errorLog
	wantError(t, false, "SetWatchErrorHandler", inf.SetWatchErrorHandlerWithContext(
		func(ctx context.Context, _ *cache.Reflector, err error) { errs.Handle(ctx, err) }))
	runShared(t, inf)
	if got := errs.Take(); len(got) == 0 || strings.Contains(got[0].Error(), password) == s.ours() {
		t.Errorf("the handler got %v", got)
	}
}

func failingIndexFunction(t *testing.T, s shared) {
	inf := s.new(two(), 0)
	if err := inf.AddIndexers(cache.Indexers{"fails": func(any) ([]string, error) { return nil, errors.New("it always does") }}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if panicked := recover() != nil; panicked == s.ours() {
			t.Errorf("panicked: %t", panicked)
		}
	}()
	if err := inf.GetIndexer().Add(object("c", "1")); err != nil {
		t.Error(err)
	}
}

func silentStream(t *testing.T, s shared) {
	src := two()
	src.SetFaults(informertest.Faults{IgnoreWatchList: true})
	inf := s.new(src, 0)
	runShared(t, inf)
	sleepBubble(11 * time.Second)
	if inf.HasSynced() != s.ours() {
		t.Errorf("synced: %t", inf.HasSynced())
	}
}

func transformToNothing(t *testing.T, s shared) {
	inf := s.new(two(), 0)
	bare := func(raw any) (any, error) { // client-go may call this twice for one object
		return &metav1.ObjectMeta{Name: raw.(metav1.Object).GetName(), Namespace: "default"}, nil
	}
	if err := inf.SetTransform(bare); err != nil {
		t.Fatal(err)
	}
	runShared(t, inf)
	synctest.Wait()
	if stored := len(inf.GetStore().ListKeys()) > 0; stored == s.ours() {
		t.Errorf("stored: %v", inf.GetStore().List())
	}
}
