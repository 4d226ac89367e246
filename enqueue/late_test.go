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
	"github.com/customcacheinformer/informer/internal/testkit"
)

// waitsFor checks why a controller is not ready, what it waits for, and that it makes no call before it is ready. It is
// called in a bubble.
func waitsFor(t *testing.T, c *enqueue.Controller[key], want string, late ...string) {
	t.Helper()
	time.Sleep(time.Second)
	h := c.Health()
	if got := fmt.Sprint(h.Ready()); got != want || !slices.Equal(h.Late, late) {
		t.Errorf("late are %q, and Ready returned %q, want %q and %q", h.Late, got, late, want)
	}
	if called := h.Succeeded > 0; called != (want == "<nil>") {
		t.Errorf("Ready returned %v, and reconcile was called: %v", h.Ready(), called)
	}
}

func TestHealthNamesTheInformersThatAControllerWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := informertest.NewSource(pod("a"))
		source.SetFaults(informertest.Faults{HoldLists: true, RejectWatchList: true})
		pods, maps, nodes := newPods(t, "pods", source), newPods(t, "maps", informertest.NewSource[*corev1.Pod]()), newPods(t, "nodes", informertest.NewSource[*corev1.Pod]())
		other, told := newPods(t, "other", informertest.NewSource(pod("a"))), make(chan struct{})
		_, err := other.AddWatcher(informer.WatcherFunc[*corev1.Pod](func(context.Context, informer.Event[*corev1.Pod]) error { <-told; return nil }), informer.WatcherOptions{})
		testkit.Must(t, err)
		c := newController(t, nothing, enqueue.Options{Name: "website", Reads: []informer.Member{other, nodes}},
			enqueue.For(pods), enqueue.For(pods), enqueue.For(maps))
		var group informer.Group
		shows := func(attention bool, late ...string) {
			t.Helper()
			answer := httptest.NewRecorder()
			debug.Handler(group.Health).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
			shown := answer.Body.String()
			if strings.Contains(shown, `<span class="state attention">cannot sync</span>`) != attention {
				t.Errorf("the page shows that a controller cannot sync: %v", !attention)
			}
			for _, name := range late {
				if !strings.Contains(shown, name) {
					t.Errorf("the page does not name %s", name)
				}
			}
		}
		runGroup(t, &group, pods, other, c) // maps and nodes are not run
		const want = "controller website: has not synced: informer maps has not started: add it to the group, or call its Run"
		waitsFor(t, c, want, "informer pods", "Run of informer maps", "Run of informer nodes")
		shows(true, "informer pods", "Run of informer maps", "Run of informer nodes")
		if err := group.Ready(); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("the group is not ready because of %v, want also %q", err, want)
		}
		testkit.Must(t, errors.Join(group.Add(maps), group.Add(nodes)))
		waitsFor(t, c, "controller website: has not synced: it waits for informer pods", "informer pods")
		shows(false, "informer pods")
		source.Heal()
		waitsFor(t, c, "controller website: has not synced: it waits for Options.Reads[0] (other)", "Options.Reads[0] (other)") // for its watcher
		close(told)
		waitsFor(t, c, "<nil>")
		shows(false)
	})
}

func TestHealthShowsWhyAControllerCannotSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := informertest.NewSource(pod("a"))
		source.SetFaults(informertest.Faults{RejectWatchList: true})
		forbidden := errors.New("forbidden")
		source.Fail("list", forbidden, -1)
		pods, own := newPods(t, "pods", source), newPods(t, "own", informertest.NewSource(pod("a")))
		c := newController(t, nothing, enqueue.Options{Name: "website", Reads: []informer.Member{pods}}, enqueue.For(own))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		informertest.Run(t, own)
		done, ended := make(chan error, 1), make(chan error, 1)
		go func() { done <- c.Run(t.Context()) }()
		go func() { ended <- pods.Run(ctx) }()
		time.Sleep(100 * time.Millisecond)
		if err := c.Health().Ready(); !errors.Is(err, forbidden) || err.Error() != "controller website: has not synced: list pods: forbidden" {
			t.Errorf("while the list fails, Ready returned %v", err)
		}
		if err := <-done; !errors.Is(err, informer.ErrStopped) {
			t.Errorf("Run returned %v, want an error that wraps ErrStopped", err)
		}
		testkit.NoError(t, <-ended)
		err := c.Health().Ready()
		if !errors.Is(err, informer.ErrStopped) || !strings.Contains(err.Error(), "controller website: informer has stopped before it has synced: Options.Reads[0]: informer pods: informer has stopped") {
			t.Errorf("when the informer has stopped, Ready returned %v", err)
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
		runGroup(t, &group, pods, own, c)
		const not = "controller website: has not synced: "
		waitsFor(t, c, not+"Options.Reads[1] (first) has not started: add it to the group, or call its Run", "informer pods", "Run of Options.Reads[1] (first)")
		testkit.Must(t, group.Add(first))
		waitsFor(t, c, not+"it waits for informer pods and Options.Reads[1] (first)", "informer pods", "Options.Reads[1] (first)")
		testkit.Must(t, group.Remove(first))
		waitsFor(t, c, not+"controller first: informer has stopped", "informer pods", "Options.Reads[1] (first)")
	})
}

// The slice is the program's, which may use it for something else.
func TestReadsMayBeChangedAfterNewController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods, services := newPods(t, "pods", informertest.NewSource[*corev1.Pod]()), newPods(t, "services", informertest.NewSource[*corev1.Pod]())
		reads := []informer.Member{services}
		c := newController(t, nothing, enqueue.Options{Name: "website", Reads: reads}, enqueue.For(pods))
		reads[0] = nil
		runGroup(t, &informer.Group{}, pods, c)
		synctest.Wait()
		waitsFor(t, c, "controller website: has not synced: informer services has not started: add it to the group, or call its Run", "Run of informer services")
	})
}
