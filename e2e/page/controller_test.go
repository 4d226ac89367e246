package page_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/debug"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
)

type controllerShown struct {
	Name      string     `json:"name"`
	State     string     `json:"state"`
	Attention bool       `json:"attention"`
	Facts     []string   `json:"facts"`
	Keys      []keyShown `json:"keys"`
}

type keyShown struct {
	Cells     map[string]string `json:"cells"` // by the heading of the column
	Attention bool              `json:"attention"`
	Error     string            `json:"error"`
}

// controllers returns a page of controllers with these names. Each has a call that hangs and a key
// that fails, and both keys and the error have the name, too.
func controllers(t *testing.T, names []string) *tab {
	w := newWorld(t)
	health := map[string]informer.MemberHealth{}
	for _, name := range names {
		health[name] = enqueue.Health{
			Name: name, Started: true, Synced: true, Workers: 2, Queued: 3, OldestQueued: 70 * time.Second, Busy: 1, Failing: 1, Dropped: 1,
			Calls:    []enqueue.KeyHealth{{Key: name, For: 6 * time.Minute}},
			Failures: []enqueue.KeyHealth{{Key: name, Failures: 9, For: time.Minute, Err: errors.New(name)}},
		}
	}
	page := http.HandlerFunc(debug.Handler(func() map[string]informer.MemberHealth { return health }).ServeHTTP)
	w.instead.Store(&page)
	return open(t, w.page())
}

func TestHostileKeysAndErrorsOfAControllerAreOnlyText(t *testing.T) {
	t.Parallel()
	names := slices.Sorted(slices.Values(hostile))
	p := onlyText(t, names, controllers)
	shown := p.until("it answers", func(content) bool { return true })
	if len(shown.Controllers) != len(names) || len(shown.Informers) != 0 {
		t.Fatalf("%d controllers and %d informers are shown", len(shown.Controllers), len(shown.Informers))
	}
	for n, c := range shown.Controllers {
		name := shortened(names[n])
		if c.Name != name || c.State != "hung" || len(c.Keys) != 2 || c.Keys[0].Cells["Key"] != name || c.Keys[1].Cells["Key"] != name {
			t.Errorf("%.100q is shown as %.500q", name, fmt.Sprint(c))
			continue
		}
		if begin := browsers(names[n][:min(len(names[n]), 500)]); !strings.HasPrefix(c.Keys[1].Error, begin) {
			t.Errorf("%.100q is not an error: %.500q", name, c.Keys[1].Error)
		}
	}
	p.wantFits(1200)
	if eval[bool](p, `[...document.querySelectorAll(".scroll")].some((s) => s.scrollWidth > s.clientWidth)`) {
		t.Error("a table has to be scrolled in a window of 1200")
	}
	p.resize(360, 800, 1)
	p.untilTrue("the window is narrow", `innerWidth === 360`)
	p.wantFits(360)
	p.wantOnly(eval[string](p, `location.href`))
}

func TestThePageFollowsAController(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	src := informertest.NewSource(pod("cart", 0))
	inf := member(w, src, informer.Options[*corev1.Pod]{})
	var slow brake
	release := slow.block()
	fail := make(chan error, 1)
	fail <- errors.New("no <b>quota</b>")
	c, err := enqueue.NewController(func(ctx context.Context, _ types.NamespacedName) (time.Duration, error) {
		slow.call(ctx)
		select {
		case err := <-fail:
			return 0, err
		default:
			return 0, nil
		}
	}, enqueue.Options{Name: "website", MaxAttempts: 1}, enqueue.For(inf))
	if err == nil {
		err = w.group.Add(c)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.run()
	p := open(t, w.page())
	has := func(shown content, key, value string) bool {
		return len(shown.Controllers) == 1 && slices.ContainsFunc(shown.Controllers[0].Keys, func(k keyShown) bool {
			return k.Cells["Key"] == "shop/cart" && k.Cells[key] == value
		})
	}
	shown := p.until("reconcile is called", func(c content) bool { return has(c, "State", "is reconciled") })
	if c := shown.Controllers[0]; c.Name != "website" || c.State != "working" || c.Attention || !slices.Contains(c.Facts, "Busy: 1 of 1 worker") {
		t.Errorf("the controller is shown as %+v", c)
	}
	if want := "All is well: 1 informer, 1 watcher, 1 controller."; shown.Summary != want {
		t.Errorf("the summary is %q, want %q", shown.Summary, want)
	}
	release()
	p.until("the key has failed", func(c content) bool {
		return has(c, "State", "given up") && c.Controllers[0].Keys[0].Error == "no <b>quota</b>"
	})
	src.Apply(pod("cart", 1))
	p.until("the key is reconciled", func(c content) bool {
		return len(c.Controllers) == 1 && len(c.Controllers[0].Keys) == 0 && slices.Contains(c.Controllers[0].Facts, "Succeeded: 1")
	})
}
