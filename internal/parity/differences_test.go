package parity_test

import (
	"context"
	"errors"
	"strings"
	"testing"
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
	"github.com/customcacheinformer/informer/internal/testkit"
)

// TestDifferences tests the single differences of docs/differences-from-client-go.md. The
// cases of the other files, which compare both informers, test the other differences.
func TestDifferences(t *testing.T) {
	sharedCases{
		"in a delete of an object without an add": func(t *testing.T, s shared) {
			src, _, h := settled(t, s, two())
			stranger := object("c", "1")
			stranger.ResourceVersion = "1009"
			src.Inject(watch.Event{Type: watch.Deleted, Object: stranger})
			if s.ours() {
				h.expect(t)
			} else {
				h.expect(t, "delete c@9")
			}
		},
		"in an object without a name": func(t *testing.T, s shared) {
			inf := listing(t, s, object("", "1"))
			sleepBubble(time.Minute)
			_, stored, err := inf.GetStore().GetByKey("default/")
			wantOurs(t, s, "the object is left out", !stored)
			wantError(t, false, "GetByKey", err)
			checkSynced(t, true, inf)
		},
		"in a list with an object of another type": func(t *testing.T, s shared) {
			inf := listing(t, s, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other"}})
			checkSynced(t, !s.ours(), inf)
		},
		"in a server that comes back with an older state": func(t *testing.T, s shared) {
			server := two()
			backup := server.ResourceVersion()
			server.Apply(object("a", "undone"))
			_, inf, _ := follow(t, s, server)
			sleepBubble(10 * time.Second)
			testkit.Unreachable(server)
			must(t, server.Restore(backup))
			sleepBubble(5 * time.Second)
			server.Heal()
			sleepBubble(24 * hour)
			wantOurs(t, s, "the older state", valueOf(t, inf, "a") != "undone")
		},
		"in a version that the server does not take": func(t *testing.T, s shared) {
			src, inf, _ := follow(t, s, two())
			odd := object("odd", "1")
			odd.ResourceVersion = "never"
			inject(src, odd)
			sleepBubble(10 * time.Second)
			src.Disconnect()
			change(t, src, "a=new")
			sleepBubble(24 * hour)
			wantOurs(t, s, "the new state", valueOf(t, inf, "a") == "new")
		},
		"in an event or a bookmark without a version": func(t *testing.T, s shared) {
			odd := object("a", "odd")
			odd.ResourceVersion = ""
			checkVersionless(t, s, watch.Event{Type: watch.Modified, Object: odd})
			for _, ends := range []string{"", "true"} {
				odd := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: ends}}}
				checkVersionless(t, s, watch.Event{Type: watch.Bookmark, Object: odd})
			}
		},
		"in a handler that is nil": func(t *testing.T, s shared) {
			_, err := s.new(two(), 0).AddEventHandler(nil)
			wantError(t, s.ours(), "AddEventHandler(nil)", err)
		},
		"in a secret that comes instead of a list": func(t *testing.T, s shared) {
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
		},
		"in an index function that fails": func(t *testing.T, s shared) {
			inf := s.new(two(), 0)
			fails := func(any) ([]string, error) { return nil, errors.New("it always does") }
			wantError(t, false, "AddIndexers", inf.AddIndexers(cache.Indexers{"fails": fails}))
			defer func() { wantOurs(t, s, "no panic", recover() == nil) }()
			wantError(t, false, "Add", inf.GetIndexer().Add(object("c", "1")))
		},
		"in a source that does not stream the first state": func(t *testing.T, s shared) {
			src := two()
			src.SetFaults(informertest.Faults{IgnoreWatchList: true})
			_, inf, _ := follow(t, s, src)
			sleepBubble(11 * time.Second)
			checkSynced(t, s.ours(), inf)
		},
		"in a transform that makes no API object": func(t *testing.T, s shared) {
			inf := s.new(two(), 0)
			bare := func(raw any) (any, error) { // client-go may call this twice for one object
				return &metav1.ObjectMeta{Name: raw.(metav1.Object).GetName(), Namespace: "default"}, nil
			}
			wantError(t, false, "SetTransform", inf.SetTransform(bare))
			runShared(t, inf)
			wantOurs(t, s, "an empty store", len(inf.GetStore().ListKeys()) == 0)
		},
	}.inBubbles(t)
}

// wantOurs fails the test unless something is so with our informers only.
func wantOurs(t *testing.T, s shared, what string, is bool) {
	t.Helper()
	equal(t, what, is, s.ours())
}

// listing runs an informer of a source that answers each list with obj.
func listing(t *testing.T, s shared, obj runtime.Object) cache.SharedIndexInformer {
	t.Helper()
	src := two()
	src.SetFaults(informertest.Faults{ListItems: []runtime.Object{obj}, RejectWatchList: true})
	_, inf, _ := follow(t, s, src)
	return inf
}

// checkVersionless has the watch send e and end, and an object deleted before the next watch
// begins. client-go misses the delete.
func checkVersionless(t *testing.T, s shared, e watch.Event) {
	t.Helper()
	src, inf, _ := follow(t, s, two())
	src.Inject(e)
	sleepBubble(10 * time.Second)
	src.SetFaults(informertest.Faults{Mute: true}) // until no watch that could bring the delete is open
	change(t, src, "-b")
	src.Disconnect()
	src.SetFaults(informertest.Faults{})
	sleepBubble(hour)
	_, exists, err := inf.GetStore().GetByKey("default/b")
	wantOurs(t, s, "the delete is noticed", !exists)
	wantError(t, false, "GetByKey", err)
}
