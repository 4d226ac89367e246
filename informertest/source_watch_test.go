package informertest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

// watchList returns the options with which a reflector asks for the initial events.
func watchList(version string) metav1.ListOptions {
	return metav1.ListOptions{
		ResourceVersion:      version,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		SendInitialEvents:    ptr.To(true),
		AllowWatchBookmarks:  true,
	}
}

func TestAWatchDeliversEveryChangeAfterItsVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(configMap("a", "1")) // 1001
		src.Apply(configMap("a", "2"))
		src.Apply(configMap("b", "1"))
		must(src.Delete(keyOf("a")))

		fromStart := openWatch(t, src, metav1.ListOptions{ResourceVersion: "1000"})
		fromMiddle := openWatch(t, src, metav1.ListOptions{ResourceVersion: "1002"})
		fromEnd := openWatch(t, src, metav1.ListOptions{ResourceVersion: "1004"})
		fromFuture := openWatch(t, src, metav1.ListOptions{ResourceVersion: "1005"})
		wantQuiet(t, fromEnd)
		src.Apply(configMap("a", "3"))
		src.Apply(configMap("a", "4"))

		wantEvents(t, fromStart, "ADDED a=1 @1001", "MODIFIED a=2 @1002", "ADDED b=1 @1003", "DELETED a=2 @1004",
			"ADDED a=3 @1005", "MODIFIED a=4 @1006")
		wantEvents(t, fromMiddle, "ADDED b=1 @1003", "DELETED a=2 @1004", "ADDED a=3 @1005", "MODIFIED a=4 @1006")
		wantEvents(t, fromEnd, "ADDED a=3 @1005", "MODIFIED a=4 @1006")
		wantEvents(t, fromFuture, "MODIFIED a=4 @1006")
	})
}

func TestAWatchMayBeginWithTheExistingObjects(t *testing.T) {
	initial := []string{"ADDED a=2 @1003", "ADDED b=1 @1002"}
	for _, c := range []struct {
		name    string
		options metav1.ListOptions
		want    []string
	}{
		{"without a version", metav1.ListOptions{}, initial},
		{"at any version", metav1.ListOptions{ResourceVersion: "0", AllowWatchBookmarks: true}, initial},
		{"as a watch list", watchList(""), append(initial, "BOOKMARK @1003true")},
		{"as a watch list at any version", watchList("0"), append(initial, "BOOKMARK @1003true")},
		{"as a watch list not older than", watchList("1001"), append(initial, "BOOKMARK @1003true")},
		{"as a watch list without bookmarks", metav1.ListOptions{
			ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
			SendInitialEvents:    ptr.To(true),
		}, initial},
		{"or not", metav1.ListOptions{
			ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
			SendInitialEvents:    ptr.To(false),
			AllowWatchBookmarks:  true,
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := informertest.NewSource(configMap("a", "1"), configMap("b", "1"))
				src.Apply(configMap("a", "2"))
				w := openWatch(t, src, c.options)
				src.Apply(configMap("c", "1"))
				must(src.Delete(keyOf("b")))
				wantEvents(t, w, append(c.want, "ADDED c=1 @1004", "DELETED b=1 @1005")...)
			})
		})
	}
}

func TestAWatchListOutlivesCompactionBecauseItNeedsNoHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(configMap("a", "1"))
		src.Compact()
		wantEvents(t, openWatch(t, src, watchList("1000")), "ADDED a=1 @1001", "BOOKMARK @1002true")
	})
}

func TestWatchRefusesTheSameRequestsAsTheAPIServer(t *testing.T) {
	src := informertest.NewSource(configMap("a", "1"))
	for _, c := range []struct {
		name    string
		options metav1.ListOptions
		is      func(error) bool
	}{
		{"initial events of a version to come", watchList("1002"), isTooLarge},
		{"a version that is none", metav1.ListOptions{ResourceVersion: "new"}, apierrors.IsBadRequest},
		{"initial events without a match", metav1.ListOptions{SendInitialEvents: ptr.To(true)}, apierrors.IsInvalid},
		{"a match without initial events", metav1.ListOptions{ResourceVersion: "1001", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}, apierrors.IsInvalid},
		{"a broken field selector", metav1.ListOptions{FieldSelector: "a"}, apierrors.IsBadRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, err := src.Watch(c.options)
			wantError(t, err, c.is)
			if w != nil {
				t.Errorf("got a watch of type %T next to the error", w)
			}
		})
	}
	if n := src.Watches(); n != 0 {
		t.Errorf("%d watches are open", n)
	}
}

func TestObjectsEnterAndLeaveTheSelectionOfAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(labelled(configMap("a", "1"), "x"), labelled(configMap("b", "1"), "y"))
		w := openWatch(t, src, metav1.ListOptions{LabelSelector: "app=x"})
		wantEvents(t, w, "ADDED a=1 @1001")
		src.Apply(labelled(configMap("b", "2"), "x"))
		src.Apply(labelled(configMap("b", "3"), "x"))
		src.Apply(labelled(configMap("a", "2"), "y"))
		src.Apply(labelled(configMap("a", "3"), "y"))
		must(src.Delete(keyOf("a")))
		must(src.Delete(keyOf("b")))
		// The object that leaves has the state in which it was last selected.
		want := []string{"ADDED b=2 @1003", "MODIFIED b=3 @1004", "DELETED a=1 @1005", "DELETED b=3 @1008"}
		wantEvents(t, w, want...)

		again := openWatch(t, src, metav1.ListOptions{LabelSelector: "app=x", ResourceVersion: "1002"})
		wantEvents(t, again, want...)
		byName := openWatch(t, src, metav1.ListOptions{FieldSelector: "metadata.name=a,metadata.namespace=default", ResourceVersion: "1005"})
		wantEvents(t, byName, "MODIFIED a=3 @1006", "DELETED a=3 @1007")
	})
}

func TestAWatchEndsWithItsReaderOrItsTime(t *testing.T) {
	unread, idle := metav1.ListOptions{}, metav1.ListOptions{ResourceVersion: "1001"}
	for name, end := range map[string]func(w watch.Interface, cancel func()){
		"stop":    func(w watch.Interface, _ func()) { w.Stop(); w.Stop() },
		"ctx":     func(_ watch.Interface, cancel func()) { cancel() },
		"timeout": func(watch.Interface, func()) { time.Sleep(time.Second) },
	} {
		for _, options := range []metav1.ListOptions{unread, idle} {
			t.Run(name+" at "+options.ResourceVersion, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					src := informertest.NewSource(configMap("a", "1"))
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					options.TimeoutSeconds = ptr.To[int64](60)
					w := must(src.WatchWithContext(ctx, options))
					time.Sleep(59 * time.Second)
					if n := src.Watches(); n != 1 {
						t.Errorf("%d watches are open, want 1", n)
					}
					end(w, cancel)
					wantClosed(t, w)
					if n := src.Watches(); n != 0 {
						t.Errorf("%d watches are open, want none", n)
					}
				})
			})
		}
	}
}

func TestAnEndedContextGetsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	src := informertest.NewSource(configMap("a", "1"))
	if _, err := src.ListWithContext(ctx, metav1.ListOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("list: %v", err)
	}
	if _, err := src.WatchWithContext(ctx, metav1.ListOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("watch: %v", err)
	}
}

func TestWritesDoNotWaitForSlowWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource[*corev1.ConfigMap]()
		w := openWatch(t, src, metav1.ListOptions{})
		var want []string
		for i := range 1000 {
			src.Apply(configMap("a", fmt.Sprint(i)))
			want = append(want, fmt.Sprintf("MODIFIED a=%d @%d", i, 1001+i))
		}
		want[0] = "ADDED a=0 @1001"
		wantEvents(t, w, want...)
	})
}

func TestBookmarksLookLikeTheObjects(t *testing.T) {
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	widget := &unstructured.Unstructured{}
	widget.SetGroupVersionKind(kind)
	widget.SetName("a")
	partial := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	partial.SetGroupVersionKind(kind)

	testBookmark(t, kind, widget)
	testBookmark(t, kind, partial)
	testBookmark(t, schema.GroupVersionKind{}, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	testBookmark(t, kind, informer.AnyObject(widget))
}

func testBookmark[T informer.Object](t *testing.T, kind schema.GroupVersionKind, obj T) {
	t.Run(fmt.Sprintf("%T", obj), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			src := informertest.NewSource(obj)
			must(src.Delete(types.NamespacedName{Name: "a"}))
			e := next(t, openWatch(t, src, watchList("")))
			got, ok := e.Object.(T)
			if !ok || e.Type != watch.Bookmark {
				t.Fatalf("got %s of type %T", e.Type, e.Object)
			}
			want := fmt.Sprintf("%T %v", obj, kind)
			if got := fmt.Sprintf("%T %v", got, got.GetObjectKind().GroupVersionKind()); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			if got.GetResourceVersion() != "1002" || got.GetName() != "" {
				t.Errorf("got %v", got)
			}
		})
	})
}

func TestASourceThatNeverHadAnObjectHasBookmarksNevertheless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wantEvents(t, openWatch(t, informertest.NewSource[*corev1.ConfigMap](), watchList("")), "BOOKMARK @1000true")
		wantEvents(t, openWatch(t, informertest.NewSource[informer.AnyObject](), watchList("")), "BOOKMARK *v1.PartialObjectMetadata")
		wantEvents(t, openWatch(t, informertest.NewSource[*unstructured.Unstructured](), watchList("")), "BOOKMARK *unstructured.Unstructured")
	})
}
