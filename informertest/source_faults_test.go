package informertest_test

import (
	"context"
	"errors"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer/informertest"
)

func TestFailAnswersTheGivenNumberOfRequests(t *testing.T) {
	src := informertest.NewSource(configMap("a", "1"))
	forbidden := apierrors.NewGenericServerResponse(http.StatusForbidden, "list", corev1.Resource("configmaps"), "", "no", 0, true)
	garbage := errors.New("garbage")
	src.Fail("list", forbidden, 2)
	src.Fail("list", garbage, 0)
	src.Fail("list", syscall.ECONNREFUSED, 1)
	src.Fail("watch", garbage, -1)

	for _, want := range []error{forbidden, forbidden, syscall.ECONNREFUSED, nil} {
		if _, err := src.List(metav1.ListOptions{}); !errors.Is(err, want) {
			t.Errorf("got error %v, want %v", err, want)
		}
	}
	for range 3 {
		if _, err := src.Watch(metav1.ListOptions{}); !errors.Is(err, garbage) {
			t.Errorf("got error %v, want %v", err, garbage)
		}
	}
	src.Heal()
	w, err := src.Watch(metav1.ListOptions{})
	if err != nil {
		t.Fatalf("the source is not healed: %v", err)
	}
	w.Stop()
}

func TestDisconnectEndsAllWatchesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(configMap("a", "1"))
		behind := openWatch(t, src, metav1.ListOptions{})
		muted := openWatch(t, src, metav1.ListOptions{ResourceVersion: "1001"})
		synctest.Wait()
		src.SetFaults(informertest.Faults{Mute: true})
		src.Disconnect()
		if n := src.Watches(); n != 0 {
			t.Errorf("%d watches are open", n)
		}
		wantClosed(t, behind)
		wantClosed(t, muted)
		src.SetFaults(informertest.Faults{})
		wantEvents(t, openWatch(t, src, metav1.ListOptions{}), "ADDED a=1 @1001")
	})
}

func TestCompactMakesAllVersionsSoFarTooOldButDoesNotDisturbOpenWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(configMap("a", "1"))
		behind := openWatch(t, src, metav1.ListOptions{ResourceVersion: "1000"})
		src.Apply(configMap("a", "2"))
		last := src.ResourceVersion()
		src.Compact()
		src.Apply(configMap("a", "3"))

		wantEvents(t, behind, "ADDED a=1 @1001", "MODIFIED a=2 @1002", "MODIFIED a=3 @1004")
		for _, version := range []string{"1000", last} {
			w := openWatch(t, src, metav1.ListOptions{ResourceVersion: version})
			if got := describe(next(t, w)); got != "ERROR 410 Expired" {
				t.Errorf("a watch at %s begins with %s", version, got)
			}
			wantClosed(t, w)
		}
		wantEvents(t, openWatch(t, src, metav1.ListOptions{ResourceVersion: "1003"}), "MODIFIED a=3 @1004")
	})
}

func TestAnUnreadExpiredWatchEndsWithItsReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(configMap("a", "1"))
		w := openWatch(t, src, metav1.ListOptions{ResourceVersion: "1"})
		if n := src.Watches(); n != 0 {
			t.Errorf("%d watches are open", n)
		}
		w.Stop()
		wantClosed(t, w)
	})
}

func TestRefuseExpiredLetsTheCallFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(configMap("a", "1"))
		src.Compact()
		src.SetFaults(informertest.Faults{RefuseExpired: true})
		_, err := src.Watch(metav1.ListOptions{ResourceVersion: "1001"})
		wantError(t, err, apierrors.IsResourceExpired)
		src.Heal() // Heal does not change the kind of server.
		_, err = src.Watch(metav1.ListOptions{ResourceVersion: "1001"})
		wantError(t, err, apierrors.IsResourceExpired)
		src.SetFaults(informertest.Faults{})
		openWatch(t, src, metav1.ListOptions{ResourceVersion: "1001"})
	})
}

func TestExpireEndsWatchesWith410AndLosesUndeliveredEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(configMap("a", "1"))
		w := openWatch(t, src, metav1.ListOptions{ResourceVersion: "1001"})
		src.SetFaults(informertest.Faults{Mute: true})
		must(src.Delete(keyOf("a")))
		src.Expire()
		if n := src.Watches(); n != 0 {
			t.Errorf("%d watches are open", n)
		}
		src.SetFaults(informertest.Faults{})
		if got := describe(next(t, w)); got != "ERROR 410 Expired" {
			t.Errorf("got %s", got)
		}
		wantClosed(t, w)
		if got := describe(next(t, openWatch(t, src, metav1.ListOptions{ResourceVersion: "1002"}))); got != "ERROR 410 Expired" {
			t.Errorf("a watch at the last version seen: got %s", got)
		}
		wantQuiet(t, openWatch(t, src, metav1.ListOptions{ResourceVersion: src.ResourceVersion()}))
	})
}

func TestMutedWatchesCatchUp(t *testing.T) {
	for name, unmute := range map[string]func(*configMapSource){
		"no faults": func(src *configMapSource) { src.SetFaults(informertest.Faults{}) },
		"Heal":      (*configMapSource).Heal,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := informertest.NewSource(configMap("a", "1"))
				before := openWatch(t, src, metav1.ListOptions{ResourceVersion: "1001"})
				unread := openWatch(t, src, metav1.ListOptions{})
				synctest.Wait()
				src.SetFaults(informertest.Faults{Mute: true})
				during := openWatch(t, src, watchList(""))
				src.Apply(configMap("a", "2"))
				src.SetFaults(informertest.Faults{Mute: true})
				src.Bookmark()
				for _, w := range []watch.Interface{before, unread, during} {
					wantQuiet(t, w)
				}
				unmute(src)
				wantEvents(t, before, "MODIFIED a=2 @1002")
				wantEvents(t, unread, "ADDED a=1 @1001", "MODIFIED a=2 @1002")
				wantEvents(t, during, "ADDED a=1 @1001", "BOOKMARK @1001true", "MODIFIED a=2 @1002", "BOOKMARK @1002")
			})
		})
	}
}

func TestSlowListTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(configMap("a", "1"))
		src.SetFaults(informertest.Faults{ListDelay: time.Minute})
		start := time.Now()
		time.AfterFunc(30*time.Second, func() { src.Apply(configMap("b", "1")) })
		wantItems(t, must(src.List(metav1.ListOptions{})), "a=1 @1001", "b=1 @1002")
		if took := time.Since(start); took != time.Minute {
			t.Errorf("LIST took %v", took)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := src.ListWithContext(ctx, metav1.ListOptions{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v", err)
		}

		src.Heal()
		start = time.Now()
		must(src.List(metav1.ListOptions{}))
		if took := time.Since(start); took != 0 {
			t.Errorf("LIST took %v after Heal", took)
		}
	})
}

func TestAListIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(configMap("a", "1"))
		src.SetFaults(informertest.Faults{HoldLists: true})
		answer := make(chan runtime.Object, 1)
		go func() { answer <- must(src.List(metav1.ListOptions{})) }()
		for range 2 {
			synctest.Wait()
			if len(src.Requests()) != 1 || len(answer) != 0 {
				t.Fatal("LIST is not held")
			}
			src.SetFaults(informertest.Faults{HoldLists: true, RefuseExpired: true})
		}
		src.Apply(configMap("b", "1"))
		src.SetFaults(informertest.Faults{})
		wantItems(t, <-answer, "a=1 @1001", "b=1 @1002")

		src.SetFaults(informertest.Faults{HoldLists: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := src.ListWithContext(ctx, metav1.ListOptions{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v", err)
		}
		src.Heal()
		must(src.List(metav1.ListOptions{}))
	})
}

func TestAServerMayNotSupportWatchLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(configMap("a", "1"))
		src.SetFaults(informertest.Faults{RejectWatchList: true})
		src.Heal() // Heal does not change the kind of server.
		_, err := src.WatchWithContext(t.Context(), watchList(""))
		wantError(t, err, apierrors.IsInvalid)
		wantEvents(t, openWatch(t, src, metav1.ListOptions{}), "ADDED a=1 @1001")

		src.SetFaults(informertest.Faults{IgnoreWatchList: true})
		w := openWatch(t, src, watchList(""))
		src.Apply(configMap("a", "2"))
		src.Bookmark()
		wantQuiet(t, w)
		if n := src.Watches(); n != 2 {
			t.Errorf("%d watches are open, want 2", n)
		}
		src.Disconnect()
		wantClosed(t, w)
		wantEvents(t, openWatch(t, src, metav1.ListOptions{}), "ADDED a=2 @1002")

		src.SetFaults(informertest.Faults{})
		wantEvents(t, openWatch(t, src, watchList("")), "ADDED a=2 @1002", "BOOKMARK @1002true")
	})
}

func TestInjectSendsAnythingInOrderToTheWatchesThatAreOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(configMap("a", "1"))
		w := openWatch(t, src, metav1.ListOptions{FieldSelector: "metadata.name=a"})
		events := []watch.Event{
			{Type: watch.Added, Object: &corev1.Pod{}},
			{Type: watch.Modified},
			{Type: watch.Deleted, Object: (*corev1.ConfigMap)(nil)},
			{Type: watch.Error, Object: &metav1.Status{Code: http.StatusInternalServerError}},
			{Type: "NONSENSE", Object: configMap("b", "1")},
		}
		for _, e := range events {
			src.Inject(e)
		}
		src.Apply(configMap("a", "2"))
		late := openWatch(t, src, metav1.ListOptions{ResourceVersion: "1001"})

		if got := describe(next(t, w)); got != "ADDED a=1 @1001" {
			t.Errorf("got %s", got)
		}
		for _, want := range events {
			if got := next(t, w); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		}
		wantEvents(t, w, "MODIFIED a=2 @1002")
		wantEvents(t, late, "MODIFIED a=2 @1002")
	})
}

func TestBookmarkReachesTheOpenWatchesThatAllowIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(configMap("a", "1"))
		willing := openWatch(t, src, metav1.ListOptions{ResourceVersion: "1001", AllowWatchBookmarks: true})
		unwilling := openWatch(t, src, metav1.ListOptions{ResourceVersion: "1001"})
		src.Bookmark()
		src.Compact()
		src.Bookmark()
		src.Apply(configMap("a", "2"))
		src.Bookmark()
		late := openWatch(t, src, metav1.ListOptions{ResourceVersion: "1002", AllowWatchBookmarks: true})
		wantEvents(t, willing, "BOOKMARK @1001", "BOOKMARK @1002", "MODIFIED a=2 @1003", "BOOKMARK @1003")
		wantEvents(t, unwilling, "MODIFIED a=2 @1003")
		wantQuiet(t, unwilling)
		wantEvents(t, late, "MODIFIED a=2 @1003") // and not the bookmark, which came before the watch
		wantQuiet(t, late)
	})
}

func TestListsMayContainAnything(t *testing.T) {
	src := informertest.NewSource(configMap("a", "1"), configMap("b", "1"))
	want := []runtime.Object{&corev1.Pod{}, &corev1.ConfigMap{}, (*corev1.ConfigMap)(nil), nil}
	src.SetFaults(informertest.Faults{ListItems: want})
	got := must(meta.ExtractList(must(src.List(metav1.ListOptions{}))))
	if len(got) != 6 || !cmp.Equal(want, got[2:]) {
		t.Errorf("got items %v", got)
	}
	src.Heal()
	wantItems(t, must(src.List(metav1.ListOptions{})), "a=1 @1001", "b=1 @1002")
}

func TestListsMayLackAResourceVersion(t *testing.T) {
	src := informertest.NewSource(configMap("a", "1"))
	version := func() string { return listMeta(t, must(src.List(metav1.ListOptions{}))).GetResourceVersion() }
	src.SetFaults(informertest.Faults{OmitListVersion: true})
	got := []string{version()}
	src.SetFaults(informertest.Faults{})
	got = append(got, version())
	src.SetFaults(informertest.Faults{OmitListVersion: true})
	src.Heal()
	got = append(got, version())
	if diff := cmp.Diff([]string{"", "1001", "1001"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
