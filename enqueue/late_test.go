package enqueue_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/debug"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
)

func TestHealthSaysForWhatAControllerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := informertest.NewSource(pod("a"))
		source.SetFaults(informertest.Faults{HoldLists: true, RejectWatchList: true})
		release := func() { source.SetFaults(informertest.Faults{RejectWatchList: true}) }
		pods, maps, nodes := newPods(t, "pods", source), newPods(t, "maps", informertest.NewSource[*corev1.Pod]()), newPods(t, "nodes", informertest.NewSource[*corev1.Pod]())
		other, told := newPods(t, "other", informertest.NewSource(pod("a"))), make(chan struct{})
		if _, err := other.AddWatcher(informer.WatcherFunc[*corev1.Pod](func(context.Context, informer.Event[*corev1.Pod]) error { <-told; return nil }), informer.WatcherOptions{}); err != nil {
			t.Fatal(err)
		}
		c := newController(t, nothing, enqueue.Options{Name: "website", Reads: []informer.Member{other, nodes}},
			enqueue.For(pods), enqueue.For(pods), enqueue.For(maps))
		var group informer.Group
		check := func(when, want string, attention bool, late ...string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			h := c.Health()
			if got := fmt.Sprint(h.Ready()); got != want {
				t.Errorf("%s: Ready returned %q, want %q", when, got, want)
			}
			if got := h.Late; strings.Join(got, ", ") != strings.Join(late, ", ") {
				t.Errorf("%s: late are %q, want %q", when, got, late)
			}
			if got := fmt.Sprint(group.Ready()); !strings.Contains(got, want) && want != "<nil>" {
				t.Errorf("%s: the group is not ready because of %q, want also %q", when, got, want)
			}
			answer := httptest.NewRecorder()
			debug.Handler(group.Health).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
			shown := answer.Body.String()
			if strings.Contains(shown, `<span class="state attention">cannot sync</span>`) != attention {
				t.Errorf("%s: the page shows that a controller cannot sync: %v", when, !attention)
			}
			for _, name := range late {
				if !strings.Contains(shown, name) {
					t.Errorf("%s: the page does not name %s", when, name)
				}
			}
		}
		stop := runGroup(t, &group, pods, other, c) // not maps and nodes: nobody runs them
		check("with an informer that nobody runs", "controller website: has not synced: informer maps has not started: add it to the group, or call its Run", true,
			"informer pods", "Run of informer maps", "Run of informer nodes")
		if err := errors.Join(group.Add(maps), group.Add(nodes)); err != nil {
			t.Fatal(err)
		}
		check("during the first list", "controller website: has not synced: it waits for informer pods", false, "informer pods")
		release()
		check("when only a watcher is late", "controller website: has not synced: it waits for Options.Reads[0] (other)", false, "Options.Reads[0] (other)")
		close(told)
		check("in the end", "<nil>", false)
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestHealthSaysWhyAControllerCannotSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := informertest.NewSource(pod("a"))
		source.SetFaults(informertest.Faults{RejectWatchList: true})
		forbidden := errors.New("forbidden")
		source.Fail("list", forbidden, -1)
		pods, own := newPods(t, "pods", source), newPods(t, "own", informertest.NewSource(pod("a")))
		c := newController(t, nothing, enqueue.Options{Name: "website", Reads: []informer.Member{pods}}, enqueue.For(own))
		var group informer.Group
		stop := runGroup(t, &group, own, c)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- pods.Run(ctx) }()
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if err := c.Health().Ready(); !errors.Is(err, forbidden) || err.Error() != "controller website: has not synced: list pods: forbidden" {
			t.Errorf("while the list fails, Ready returned %v", err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		err := c.Health().Ready()
		if !errors.Is(err, informer.ErrStopped) || !strings.Contains(err.Error(), "controller website: informer has stopped before it has synced: Options.Reads[0]: informer pods: informer has stopped") {
			t.Errorf("when the informer has stopped, Ready returned %v", err)
		}
		if err := stop(); !errors.Is(err, informer.ErrStopped) {
			t.Errorf("Run of the group returned %v, want an error that wraps ErrStopped", err)
		}
	})
}

func TestHealthNamesTheMembersForWhichAControllerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := informertest.NewSource(pod("a"))
		source.SetFaults(informertest.Faults{HoldLists: true, RejectWatchList: true})
		pods, own := newPods(t, "pods", source), newPods(t, "own", informertest.NewSource(pod("a")))
		first := newController(t, nothing, enqueue.Options{Name: "first"}, enqueue.For(pods))
		c := newController(t, nothing, enqueue.Options{Name: "website", Reads: []informer.Member{pods, first}}, enqueue.For(own))
		var group informer.Group
		stop := runGroup(t, &group, pods, own, c)
		check := func(want string, late ...string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			h := c.Health()
			if got := fmt.Sprint(h.Ready()); got != "controller website: has not synced: "+want || !slices.Equal(h.Late, late) {
				t.Errorf("late are %q, and Ready returned %q, want %q", h.Late, got, want)
			}
		}
		check("Options.Reads[1] (first) has not started: add it to the group, or call its Run", "informer pods", "Run of Options.Reads[1] (first)")
		if err := group.Add(first); err != nil {
			t.Fatal(err)
		}
		check("it waits for informer pods and Options.Reads[1] (first)", "informer pods", "Options.Reads[1] (first)")
		if err := group.Remove(first); err != nil {
			t.Fatal(err)
		}
		check("controller first: informer has stopped", "informer pods", "Options.Reads[1] (first)")
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
