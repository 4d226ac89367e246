package informertest_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer/informertest"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// restore goes back to a version that is in the history.
func restore(t *testing.T, src *configMapSource, version string) {
	t.Helper()
	if err := src.Restore(version); err != nil {
		t.Fatal(err)
	}
}

// newPast returns a source at version 1006 that has seen every kind of change.
func newPast() *configMapSource {
	src := informertest.NewSource(configMap("a", "1"), configMap("b", "1")) // 1001, 1002
	src.Apply(configMap("a", "2"))
	must(src.Delete(keyOf("b")))
	src.Apply(configMap("c", "1"))
	src.Apply(configMap("b", "2")) // 1006
	return src
}

func TestRestoreGoesBackToEachVersion(t *testing.T) {
	for version, want := range map[string][]string{
		"1000": nil,
		"1001": {"a=1 @1001"},
		"1002": {"a=1 @1001", "b=1 @1002"},
		"1003": {"a=2 @1003", "b=1 @1002"},
		"1004": {"a=2 @1003"},
		"1005": {"a=2 @1003", "c=1 @1005"},
		"1006": {"a=2 @1003", "b=2 @1006", "c=1 @1005"},
	} {
		t.Run(version, func(t *testing.T) {
			src := newPast()
			restore(t, src, version)
			list := must(src.List(metav1.ListOptions{}))
			wantItems(t, list, want...)
			if got := listMeta(t, list).GetResourceVersion(); got != version || src.ResourceVersion() != version {
				t.Errorf("the list is of %s, the source at %s, want %s", got, src.ResourceVersion(), version)
			}
			if diff := cmp.Diff(items(t, list), src.Objects()); len(want) > 0 && diff != "" {
				t.Errorf("the list is not what there is (-list +objects):\n%s", diff)
			}
		})
	}
}

func TestRestoreKeepsOlderVersionsAndForgetsNewerOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newPast()
		restore(t, src, "1004")
		src.Apply(configMap("a", "3"))
		must(src.Create(configMap("c", "2")))

		wantEvents(t, openWatch(t, src, metav1.ListOptions{ResourceVersion: "1000"}),
			"ADDED a=1 @1001", "ADDED b=1 @1002", "MODIFIED a=2 @1003", "DELETED b=1 @1004", "MODIFIED a=3 @1005", "ADDED c=2 @1006")
		exact := metav1.ListOptions{ResourceVersion: "1003", ResourceVersionMatch: metav1.ResourceVersionMatchExact}
		wantItems(t, must(src.List(exact)), "a=2 @1003", "b=1 @1002")
		exact.ResourceVersion = "1005"
		wantItems(t, must(src.List(exact)), "a=3 @1005")

		restore(t, src, "1005")
		restore(t, src, "1002")
		wantEvents(t, openWatch(t, src, metav1.ListOptions{ResourceVersion: "1000"}), "ADDED a=1 @1001", "ADDED b=1 @1002")
	})
}

func TestRestoreRefusesVersionsOutsideTheHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(configMap("a", "1"))
		src.Compact() // 1002
		src.Apply(configMap("a", "2"))
		w := openWatch(t, src, metav1.ListOptions{ResourceVersion: "1003"})
		for _, version := range []string{"", "new", "-1", "1001", "1004"} {
			if err := src.Restore(version); err == nil {
				t.Errorf("%q: no error", version)
			}
		}
		if got := src.ResourceVersion(); got != "1003" {
			t.Errorf("a Restore that failed has moved the resourceVersion to %s", got)
		}
		src.Apply(configMap("a", "3"))
		wantEvents(t, w, "MODIFIED a=3 @1004")

		restore(t, src, "1002")
		wantItems(t, must(src.List(metav1.ListOptions{})), "a=1 @1001")
	})
}

func TestRestoreEndsAllWatchesAndTheyTellNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(configMap("a", "1"))
		behind := openWatch(t, src, metav1.ListOptions{})
		idle := openWatch(t, src, metav1.ListOptions{ResourceVersion: "1001"})
		src.SetFaults(informertest.Faults{Mute: true})
		src.Apply(configMap("a", "2"))
		restore(t, src, "1001")
		if n := src.Watches(); n != 0 {
			t.Errorf("%d watches are open", n)
		}
		src.SetFaults(informertest.Faults{})
		src.Apply(configMap("a", "3"))
		wantClosed(t, behind)
		wantClosed(t, idle)
	})
}

func TestAWatchOfTheFutureIsSilentUntilThatIsPast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(configMap("a", "1"))
		for i := 2; i <= 4; i++ {
			src.Apply(configMap("a", fmt.Sprint(i)))
		}
		restore(t, src, "1001")
		ahead := openWatch(t, src, metav1.ListOptions{ResourceVersion: "1004", AllowWatchBookmarks: true})
		for _, value := range []string{"x", "y", "z"} {
			src.Bookmark()
			src.Apply(configMap("a", value)) // at versions 1002, 1003 and 1004
			time.Sleep(time.Hour)
			wantQuiet(t, ahead)
		}
		src.Bookmark()
		wantQuiet(t, ahead)
		must(src.Delete(keyOf("a")))
		src.Bookmark()
		wantEvents(t, ahead, "DELETED a=z @1005", "BOOKMARK @1005")

		level := openWatch(t, src, metav1.ListOptions{ResourceVersion: "1005", AllowWatchBookmarks: true})
		src.Bookmark()
		wantEvents(t, level, "BOOKMARK @1005")
	})
}

func TestAWatchOfTheFutureHearsABookmarkOnlyWhenThatIsPast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(configMap("a", "1"))
		ahead := openWatch(t, src, metav1.ListOptions{ResourceVersion: "1002", AllowWatchBookmarks: true})
		src.Compact() // 1002
		src.Bookmark()
		wantQuiet(t, ahead)
		src.Compact()
		src.Bookmark()
		wantEvents(t, ahead, "BOOKMARK @1003")
	})
}

func TestOnlyAPlainWatchMayAskForTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newPast()
		token := listMeta(t, must(src.List(metav1.ListOptions{Limit: 1}))).GetContinue()
		restore(t, src, "1002")
		for name, ask := range map[string]func(src *configMapSource) error{
			"initial events": func(src *configMapSource) error {
				_, err := src.WatchWithContext(t.Context(), watchList("1006"))
				return err
			},
			"a list":          listError(metav1.ListOptions{ResourceVersion: "1006"}),
			"a list, matched": listError(metav1.ListOptions{ResourceVersion: "1006", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}),
			"an exact list":   listError(metav1.ListOptions{ResourceVersion: "1006", ResourceVersionMatch: metav1.ResourceVersionMatchExact}),
			"a further page":  listError(metav1.ListOptions{Continue: token}),
		} {
			err := ask(src)
			if err == nil || !isTooLarge(err) || apierrors.ReasonForError(err) != metav1.StatusReasonTimeout {
				t.Errorf("%s: got error %v", name, err)
			} else if seconds, retry := apierrors.SuggestsClientDelay(err); !retry || seconds != 1 {
				t.Errorf("%s: is to be tried again (%v) after %d s", name, retry, seconds)
			}
		}
		wantEvents(t, openWatch(t, src, watchList("1002")), "ADDED a=1 @1001", "ADDED b=1 @1002", "BOOKMARK @1002true")
		wantItems(t, must(src.List(metav1.ListOptions{ResourceVersion: "0"})), "a=1 @1001", "b=1 @1002")
	})
}

func listError(options metav1.ListOptions) func(*configMapSource) error {
	return func(src *configMapSource) error {
		_, err := src.List(options)
		return err
	}
}

func TestNoUIDIsUsedAgainAfterARestore(t *testing.T) {
	src := informertest.NewSource(configMap("a", "1"))
	seen := map[types.UID]bool{must(src.Get(keyOf("a"))).UID: true}
	create := func(obj *corev1.ConfigMap) {
		t.Helper()
		if uid := must(src.Create(obj)).UID; uid == "" || seen[uid] {
			t.Errorf("%s got UID %q, which is none or was another's", obj.Name, uid)
		} else {
			seen[uid] = true
		}
	}
	mine := configMap("mine", "1")
	mine.UID = "mine"
	for round := range 3 {
		for i := range 3 + round {
			create(configMap(fmt.Sprint("b-", i), "1"))
		}
		create(mine)
		restore(t, src, "1001")
	}
	// A UID that looks like a generated one does not lead to a duplicate.
	taken := configMap("taken", "1")
	taken.UID = "00000000-0000-4000-8000-000000000020"
	create(taken)
	for i := range 30 {
		create(configMap(fmt.Sprint("c-", i), "1"))
	}
	if a := must(src.Get(keyOf("a"))); !seen[a.UID] {
		t.Errorf("what was not undone has got a new UID, %s", a.UID)
	}
}

func TestAListOfOneTellsTheCurrentVersion(t *testing.T) {
	src := informertest.NewSource(configMap("a", "1"), configMap("b", "1"))
	src.Compact() // 1003
	src.Apply(configMap("a", "2"))
	for _, want := range []struct{ version, item string }{{"1004", "a=2 @1004"}, {"1003", "a=1 @1001"}} {
		restore(t, src, want.version)
		list := must(src.List(metav1.ListOptions{Limit: 1}))
		wantItems(t, list, want.item)
		if m := listMeta(t, list); m.GetResourceVersion() != want.version || m.GetContinue() == "" {
			t.Errorf("the list is of %s and continues with %q, want %s", m.GetResourceVersion(), m.GetContinue(), want.version)
		}
	}
	for _, name := range []string{"a", "b"} {
		must(src.Delete(keyOf(name)))
	}
	list := must(src.List(metav1.ListOptions{Limit: 1}))
	wantItems(t, list)
	if m := listMeta(t, list); m.GetResourceVersion() != "1005" || m.GetContinue() != "" {
		t.Errorf("the empty list is of %s and continues with %q, want 1005", m.GetResourceVersion(), m.GetContinue())
	}
}

func TestRestoreMayComeAtAnyTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource[*corev1.ConfigMap]()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { writeAtRandom(src) })
		}
		for range 2 {
			all.Go(func() {
				for range 50 {
					drain(t, must(src.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: fmt.Sprint(1000 + rand.IntN(200))})))
				}
			})
		}
		all.Go(func() {
			for range 100 {
				_ = src.Restore(fmt.Sprint(1000 + rand.IntN(100))) // the version may be in the future
			}
		})
		all.Wait()

		// The history is still consistent: its events add up to the objects of the source.
		f := follower{objects: map[string]*corev1.ConfigMap{}, version: 1000}
		w := openWatch(t, src, metav1.ListOptions{ResourceVersion: "1000"})
		for fmt.Sprint(f.version) != src.ResourceVersion() {
			f.take(next(t, w))
		}
		wantQuiet(t, w)
		want := map[string]*corev1.ConfigMap{}
		for _, obj := range src.Objects() {
			want[obj.Name] = obj
		}
		if diff := cmp.Diff(want, f.objects); diff != "" || len(f.problems) > 0 {
			t.Errorf("(-source +delivered):\n%s\n%s", diff, f.problems)
		}
	})
}

// drain reads a few events of a watch, if there are any, and checks that they come in the
// order of their versions.
func drain(t *testing.T, w watch.Interface) {
	defer w.Stop()
	last := ""
	for range 5 {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				return
			}
			version := e.Object.(*corev1.ConfigMap).ResourceVersion
			if version <= last { // all versions have four digits
				t.Errorf("%s after %s", version, last)
			}
			last = version
		case <-time.After(time.Second):
			return
		}
	}
}
