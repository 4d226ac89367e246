package debug_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/debug"
	"github.com/customcacheinformer/informer/informertest"
)

// reporting is a Member with a fixed Health.
type reporting struct {
	informer.Member
	health informer.Health
}

func (r *reporting) Health() informer.Health { return r.health }

// debugOf returns a handler for a group of one member, whose Health is health.
func debugOf(t *testing.T, health informer.Health) http.Handler {
	t.Helper()
	var group informer.Group
	if err := group.Add(&reporting{newInformer(t, informertest.NewSource[configMap](), options{}), health}); err != nil {
		t.Fatal(err)
	}
	return debug.Handler(group.Health)
}

func TestThePageNamesTheNamespacesThatCannotBeRead(t *testing.T) {
	page := func(namespaces ...informer.NamespaceHealth) string {
		return get(debugOf(t, informer.Health{Name: "maps", Namespaces: namespaces}), "/").Body.String()
	}
	well := informer.NamespaceHealth{Namespace: "well", Synced: true}
	failing := informer.NamespaceHealth{Namespace: "failing", Synced: true, SourceError: errors.New("forbidden")}
	if got := page(); strings.Contains(got, "Namespaces") {
		t.Error("an informer without namespaces has a line about them")
	}
	if got := page(well); !strings.Contains(got, "<dt>Namespaces</dt><dd><bdi>1</bdi></dd>") {
		t.Error(got)
	}
	if got := page(well, failing, informer.NamespaceHealth{Namespace: "late"}); !strings.Contains(got, "<bdi>3, of which 2 cannot be read: failing, late</bdi>") {
		t.Error(got)
	}
	if got := page(failing, failing, failing, failing, failing, failing); !strings.Contains(got, "6 cannot be read: failing, failing, failing, failing, failing, …") {
		t.Error(got)
	}
}

func TestThePageTellsSyncingFromFailingAndStoppedFromBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"))
		src.SetWatchList(informertest.WatchListRejected)
		release := src.HoldList()
		inf := newInformer(t, src, options{})
		addWatcher(t, inf, &recorder{}, informer.WatcherOptions{Name: "idle"})
		stuck := func(ctx context.Context, _ event) error { <-ctx.Done(); return ctx.Err() }
		addWatcher(t, inf, informer.WatcherFunc[configMap](stuck), informer.WatcherOptions{Name: "stuck"})
		var group informer.Group
		if err := group.Add(inf); err != nil {
			t.Fatal(err)
		}
		h := debug.Handler(group.Health)
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() { _ = group.Run(ctx); close(stopped) }()
		check := func(want string, attention bool) {
			t.Helper()
			synctest.Wait()
			if i := look(t, h).Informers[0]; i.State != want || i.Attention != attention {
				t.Errorf("the informer is %q (attention %v), want %q", i.State, i.Attention, want)
			}
		}
		check("syncing", false)
		release()
		check("watching", false)
		sleepBubble(time.Minute)
		src.Disconnect()
		opened(t, src)
		src.Disconnect() // the reflector pauses before the next watch
		check("between watches", false)
		check("between watches", false)
		sleepBubble(time.Minute)
		check("watching", false)
		stop()
		<-stopped
		for _, w := range look(t, h).Informers[0].Watchers { // a watcher that missed events needs attention
			if w.State != "stopped" || w.Attention != (w.Name == "stuck") {
				t.Errorf("after the stop: %+v", w)
			}
		}
	})
}

// TestTheJSONHasTheFieldsThatAreDocumented does not check the fields of Health and of
// WatcherStats, which have their own tests.
func TestTheJSONHasTheFieldsThatAreDocumented(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf := newInformer(t, informertest.NewSource(object("fails", "1"), object("hangs", "1")), options{ErrorHandler: ignore})
		addWatcher(t, inf, informer.WatcherFunc[configMap](func(ctx context.Context, e event) error {
			if e.Key().Name == "hangs" {
				<-ctx.Done()
			}
			return errors.New("not now")
		}), informer.WatcherOptions{Workers: 2, Retry: func(int, error) (time.Duration, bool) { return time.Hour, true }})
		h := debug.Handler(runGroup(t, inf).Health)
		get(h, "/?format=json")
		sleepBubble(10 * time.Second) // a rate needs two requests
		var answer struct{ Informers []map[string]json.RawMessage }
		var watchers []map[string]json.RawMessage
		all := get(h, "/?format=json").Body.Bytes()
		if err := json.Unmarshal(all, &answer); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(answer.Informers[0]["watchers"], &watchers); err != nil {
			t.Fatal(err)
		}
		var top map[string]json.RawMessage
		if err := json.Unmarshal(all, &top); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			got  map[string]json.RawMessage
			want []string
		}{
			{top, []string{"controllers", "informers", "sets", "time"}},
			{answer.Informers[0], []string{"attention", "health", "name", "state", "store", "watchers"}},
			{watchers[0], []string{"attention", "backlog", "calls", "eventsPerSecond", "name", "retries", "state", "stats"}},
		} {
			if got := slices.Sorted(maps.Keys(c.got)); !slices.Equal(got, c.want) {
				t.Errorf("the fields are %q, want %q", got, c.want)
			}
		}
	})
}

func TestTheSummaryIsWellOnlyIfThereIsSomethingAndItIsWell(t *testing.T) {
	of := func(watchers int, err error) informer.Health {
		return informer.Health{Started: true, Synced: true, Watching: true, SourceError: err, Watchers: make([]informer.WatcherHealth, watchers)}
	}
	failing := errors.New("no")
	for _, test := range []struct {
		all  []informer.Health
		want string
	}{
		{nil, "No informers: none was made yet, or all have stopped."},
		{[]informer.Health{of(0, nil)}, "All is well: 1 informer, 0 watchers."},
		{[]informer.Health{of(1, nil)}, "All is well: 1 informer, 1 watcher."},
		{[]informer.Health{of(3, nil), of(4, nil), of(0, nil)}, "All is well: 3 informers, 7 watchers."},
		{[]informer.Health{of(1, failing)}, "1 of 1 informer and 0 of 1 watcher need attention."},
		{[]informer.Health{of(1, failing), of(1, nil)}, "1 of 2 informers and 0 of 2 watchers need attention."},
	} {
		all := map[string]informer.Health{}
		for n, h := range test.all {
			all[fmt.Sprint(n)] = h
		}
		shown := page(t, debug.Handler(func() map[string]informer.Health { return all }))
		title, opening := "Informers", `<p id="summary" role="status">`
		if strings.Contains(test.want, "need attention") {
			title, opening = "(1) Informers", `<p id="summary" role="status" class="attention">`
		}
		_, summary, _ := strings.Cut(shown, opening)
		if summary, _, _ = strings.Cut(summary, "</p>"); summary != test.want {
			t.Errorf("the summary is %q, want %q", summary, test.want)
		}
		if !strings.Contains(shown, "<title>"+title+"</title>") {
			t.Errorf("the title is not %q with the summary %q", title, test.want)
		}
	}
}

func TestColumnsSayWhatTheyCountAndZerosAreFaint(t *testing.T) {
	w := informer.WatcherHealth{WatcherStats: informer.WatcherStats{Name: "w", Delivered: 7}}
	shown := page(t, debugOf(t, informer.Health{Watchers: []informer.WatcherHealth{w}}))
	for _, want := range []string{`<td data-label="Handled" class="number">7</td>`, `<td data-label="Merged" class="number quiet">0</td>`} {
		if !strings.Contains(shown, want) {
			t.Errorf("the page does not have %s", want)
		}
	}
	for _, column := range []string{"Waiting", "Last minute", "Oldest", "Events/s", "Handled", "Merged", "Retried", "Given up", "Handling now"} {
		if !regexp.MustCompile(`<th [^>]*title="[^"]+">` + column + `</th>`).MatchString(shown) {
			t.Errorf("the column %s does not say what it counts", column)
		}
	}
}

func TestThePageCountsInHoursWhatIsLongAgo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := debugOf(t, informer.Health{LastList: time.Now().Add(-90 * time.Minute)})
		if shown := page(t, h); !strings.Contains(shown, "<dd>1 h 30 min ago</dd>") {
			t.Errorf("the list was 90 minutes ago:\n%s", shown)
		}
	})
}

func TestThePageCutsNoCharacterInTwo(t *testing.T) {
	h := debugOf(t, informer.Health{Name: "a" + strings.Repeat("é", 200)}) // 401 bytes
	if shown, want := page(t, h), "<bdi>a"+strings.Repeat("é", 99)+" …</bdi>"; !strings.Contains(shown, want) {
		t.Errorf("the page has no %s:\n%s", want, shown)
	}
}

func TestThePageNamesThreeOfManyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf := newInformer(t, informertest.NewSource(object("a", "1"), object("b", "1"), object("c", "1"), object("d", "1"), object("e", "1")), options{})
		stuck := func(ctx context.Context, _ event) error { <-ctx.Done(); return nil }
		addWatcher(t, inf, informer.WatcherFunc[configMap](stuck), informer.WatcherOptions{Workers: 5})
		shown := page(t, debug.Handler(runGroup(t, inf).Health))
		if want := "<bdi>default/a, default/b, default/c and 2 more</bdi>"; !strings.Contains(shown, want) {
			t.Errorf("the page has no %s:\n%s", want, shown)
		}
	})
}

func TestWhatCannotBeEncodedIsAnErrorAndNoHalfAnAnswer(t *testing.T) {
	h := debugOf(t, informer.Health{Name: "from the future", LastList: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)})
	answer := get(h, "/?format=json")
	if body := answer.Body.String(); answer.Code != http.StatusInternalServerError || strings.Contains(body, "from the future") {
		t.Errorf("%d: %s", answer.Code, body)
	}
	page(t, h)
}

// TestAChartSaysHowHighItIs has backlogs that fit into the lowest chart, and longer ones.
func TestAChartSaysHowHighItIs(t *testing.T) {
	for pending, want := range map[int]string{0: "10", 3: "10", 11: "11", 9_999: "9999", 10_000: "10k", 999_999: "999k", 2_500_000: "2M", math.MaxInt32: "2147M"} {
		w := informer.WatcherHealth{WatcherStats: informer.WatcherStats{Name: "w", Pending: pending}}
		shown := page(t, debugOf(t, informer.Health{Watchers: []informer.WatcherHealth{w}}))
		if !strings.Contains(shown, `<span class="scale" aria-hidden="true">`+want+`</span>`) {
			t.Errorf("the top of the chart of a watcher with %d waiting events is not %s", pending, want)
		}
	}
}
