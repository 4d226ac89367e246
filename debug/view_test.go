package debug_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"math"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/debug"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/shards"
)

func TestThePageNamesTheNamespacesThatCannotBeRead(t *testing.T) {
	page := func(namespaces ...informer.SourceHealth) string {
		return get(showing("maps", informer.Health{Name: "maps", Namespaces: namespaces}), "/").Body.String()
	}
	well := informer.SourceHealth{Namespace: "well", Synced: true}
	failing := informer.SourceHealth{Namespace: "failing", Synced: true, SourceError: errors.New("forbidden"), SourceFailures: 1}
	wantHidden(t, page(), "Namespaces")
	wantShown(t, page([]informer.SourceHealth{}...), "<dt>Namespaces</dt><dd><bdi>0</bdi></dd>")
	wantShown(t, page(well), "<dt>Namespaces</dt><dd><bdi>1</bdi></dd>")
	wantShown(t, page(well, failing, informer.SourceHealth{Namespace: "late"}), "<bdi>3, of which 2 cannot be read: failing, late</bdi>")
	clusters := get(showing("maps", informer.Health{Name: "maps", Clusters: []informer.SourceHealth{{Cluster: "east", Synced: true}, {Cluster: "west"}}}), "/").Body.String()
	wantShown(t, clusters, "<dt>Clusters</dt><dd><bdi>2, of which 1 cannot be read: west</bdi></dd>")
	wantHidden(t, clusters, "Namespaces")
	wantShown(t, page(failing, failing, failing, failing, failing, failing), "6 cannot be read: failing, failing, failing, failing, failing, …")
}

func TestThePageTellsSyncingFromFailingAndStoppedFromBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"))
		src.SetFaults(informertest.Faults{HoldLists: true, RejectWatchList: true})
		release := func() { src.SetFaults(informertest.Faults{RejectWatchList: true}) }
		inf := newInformer(t, src, options{})
		addWatcher(t, inf, &recorder{}, informer.WatcherOptions{Name: "idle"})
		addWatcher(t, inf, informer.WatcherFunc[configMap](func(ctx context.Context, _ event) error {
			<-ctx.Done()
			return ctx.Err() // it misses the event
		}), informer.WatcherOptions{Name: "stuck"})
		var group informer.Group
		must(t, group.Add(inf))
		h := debug.Handler(group.Health)
		stop := start(t, &group)
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
		var top map[string]json.RawMessage
		var informers, watchers []map[string]json.RawMessage
		must(t, json.Unmarshal(get(h, "/?format=json").Body.Bytes(), &top))
		must(t, json.Unmarshal(top["informers"], &informers))
		must(t, json.Unmarshal(informers[0]["watchers"], &watchers))
		equal(t, "the fields", fields(top), "controllers informers sets time")
		equal(t, "the fields of an informer", fields(informers[0]), "attention health name state store watchers")
		equal(t, "the fields of a watcher", fields(watchers[0]), "attention backlog calls eventsPerSecond name retries state stats")
	})
}

func TestTheSummaryIsWellOnlyIfThereIsSomethingAndItIsWell(t *testing.T) {
	of := func(watchers int, err error) informer.Health {
		h := informer.Health{Started: true, Synced: true, Watching: true, SourceError: err, Watchers: make([]informer.WatcherHealth, watchers)}
		if err != nil {
			h.SourceFailures = 1
		}
		return h
	}
	failing, blocked := errors.New("no"), of(1, nil)
	blocked.Watchers[0].Hung = true
	for _, test := range []struct {
		all  []informer.MemberHealth
		want string
	}{
		{nil, "No informers: none was made yet, or all have stopped."},
		{[]informer.MemberHealth{of(0, nil)}, "All is well: 1 informer, 0 watchers."},
		{[]informer.MemberHealth{of(1, nil)}, "All is well: 1 informer, 1 watcher."},
		{[]informer.MemberHealth{of(3, nil), of(4, nil), of(0, nil)}, "All is well: 3 informers, 7 watchers."},
		{[]informer.MemberHealth{of(1, failing)}, "1 of 1 informer needs attention."},
		{[]informer.MemberHealth{of(1, failing), of(1, nil)}, "1 of 2 informers needs attention."},
		{[]informer.MemberHealth{of(1, failing), of(1, failing), blocked}, "2 of 3 informers and 1 of 3 watchers need attention."},
		{[]informer.MemberHealth{shards.Health{Started: true, Synced: true, Session: "s", Owned: 2, CatchingUp: 2}, of(1, nil)},
			"Nothing needs attention yet: 1 informer, 1 watcher, 1 set."},
	} {
		all := map[string]informer.MemberHealth{}
		for n, h := range test.all {
			all[fmt.Sprint(n)] = h
		}
		shown := page(t, debug.Handler(func() map[string]informer.MemberHealth { return all }))
		title, opening := "<title>Informers<", `<p id="summary" role="status">`
		if regexp.MustCompile("^[0-9].*attention").MatchString(test.want) {
			title, opening = `<title>\([13]\) Informers<`, `<p id="summary" role="status" class="attention">`
		}
		if got := summary(shown); got != test.want || !strings.Contains(shown, opening) {
			t.Errorf("the summary is %q, want %q", got, test.want)
		}
		if !regexp.MustCompile(title).MatchString(shown) {
			t.Errorf("the title is not %q with the summary %q", title, test.want)
		}
	}
}

func TestColumnsNameTheirFiguresAndZerosAreFaint(t *testing.T) {
	w := informer.WatcherHealth{WatcherStats: informer.WatcherStats{Name: "w", Delivered: 7}}
	shown := page(t, showing("maps", informer.Health{Watchers: []informer.WatcherHealth{w}}))
	wantShown(t, shown, `<td data-label="Handled" class="number">7</td>`, `<td data-label="Merged" class="number quiet">0</td>`)
	for _, column := range []string{"Waiting", "Last minute", "Oldest", "Events/s", "Handled", "Merged", "Retried", "Given up", "Handling now"} {
		if !regexp.MustCompile(`<th [^>]*title="[^"]+">` + column + `</th>`).MatchString(shown) {
			t.Errorf("the column %s does not say what it counts", column)
		}
	}
}

func TestThePageCountsTimeInTwoUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for ago, want := range map[time.Duration]string{
			-time.Second: "0 s", 932 * time.Millisecond: "0 s", 72 * time.Second: "1 min 12 s", 90 * time.Minute: "1 h 30 min", 48*time.Hour - 1: "47 h 59 min", 50 * time.Hour: "2 d 2 h",
		} {
			wantShown(t, page(t, showing("maps", informer.Health{LastList: time.Now().Add(-ago)})), "<dd>"+want+" ago</dd>")
		}
	})
}

func TestOnlyWorkInProgressIsGreen(t *testing.T) {
	call := []enqueue.KeyHealth{{Key: "a", For: time.Minute}}
	for _, test := range []struct {
		health informer.MemberHealth
		want   string
	}{
		{joined(shards.Health{Owned: 16, CatchingUp: 16}), "unready\">catching up"},
		{joined(shards.Health{Owned: 16, CatchingUp: 15}), "well\">working"},
		{joined(shards.Health{Owned: 16, Unowned: 1}), "unready\">working"},
		{joined(shards.Health{Unowned: 1, UnownedFor: time.Hour}), "attention\">unowned"},
		{enqueue.Health{Started: true}, "unready\">syncing"},
		{enqueue.Health{Started: true, Synced: true, Calls: call}, "unready\">working"},
		{enqueue.Health{Started: true, Synced: true, Calls: call, Succeeded: 1}, "well\">working"},
	} {
		wantShown(t, page(t, showing("x", test.health)), `<bdi>x</bdi> <span class="state `+test.want+"<")
	}
}

func TestThePageShowsSinceWhenASourceFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		failing := informer.Health{Name: "maps", Started: true, SourceError: errors.New("no"), SourceFailures: 7}
		timed := failing
		timed.SourceFailingSince, timed.SourceNextTry = now.Add(-12*time.Minute), now.Add(28*time.Second)
		old := timed
		old.Synced, old.LastProgress = true, now.Add(-13*time.Minute)
		for want, health := range map[string]informer.Health{
			"<strong>Failures in a row: 7.</strong> ":                                                                failing,
			"<strong>Failures in a row: 7, for 12 min 0 s; next try in 28 s.</strong> ":                              timed,
			"<strong>Failures in a row: 7, for 12 min 0 s; next try in 28 s. The state is 13 min 0 s old.</strong> ": old,
			"": {Name: "maps", Started: true, SourceError: errors.New("no")},
		} {
			wantShown(t, page(t, showing(health.Name, health)), `<details class="open" open>`, `<p class="error">`+want+`<bdi>no</bdi>`)
		}
	})
}

// Every text of a program may be such that a reader would take it for another one.
func TestInvisibleCharactersAreEscaped(t *testing.T) {
	for text, want := range map[string]string{
		"\u202egnp.exe": "‹U+202E›gnp.exe", "a\nb": "a‹U+000A›b", "a\x00b": "a‹U+0000›b", "a\u00a0b": "a‹U+00A0›b", "a\u200bb": "a‹U+200B›b",
		"a\u00adb": "a‹U+00AD›b", "a\u3164b": "a‹U+3164›b", "a\ufe0fb": "a‹U+FE0F›b", "a\U000e0041b": "a‹U+E0041›b", "a\u2800b": "a‹U+2800›b",
		"a\xffb": "a‹0xFF›b", "‹U+202E›": "‹U+2039›U+202E›", "a\ufffdb": "a\ufffdb", "größe 大きさ 🙂 e\u0301": "größe 大きさ 🙂 e\u0301",
	} {
		err := errors.New(text)
		h := debug.Handler(func() map[string]informer.MemberHealth {
			return map[string]informer.MemberHealth{
				text + "1": informer.Health{Name: text, Started: true, ResourceVersion: text, Store: text, SourceError: err, StoreError: err,
					Namespaces: []informer.SourceHealth{{Namespace: text}},
					Watchers:   []informer.WatcherHealth{{WatcherStats: informer.WatcherStats{Name: text}, Hung: true, Calls: []string{text}, Retries: []string{text}}}},
				text + "2": enqueue.Health{Name: text, Started: true, Reason: err, Late: []string{text},
					Calls: []enqueue.KeyHealth{{Key: text}}, Failures: []enqueue.KeyHealth{{Key: text, Err: err}}},
				text + "4": fact{started: true, ready: err},
				text + "3": shards.Health{Name: text, Started: true, SourceError: err, Replica: text, Selector: text},
			}
		})
		shown := html.UnescapeString(page(t, h))
		if n := strings.Count(shown, want); n < 20 || want != text && strings.Contains(shown, text) {
			t.Errorf("%q is shown %d times as %q, or as itself", text, n, want)
		}
	}
}

func TestThePageCutsNoCharacterInTwo(t *testing.T) {
	h := showing("a"+strings.Repeat("é", 200), informer.Health{}) // 401 bytes
	wantShown(t, page(t, h), "<bdi>a"+strings.Repeat("é", 99)+" …</bdi>")
}

func TestThePageNamesThreeOfManyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf := newInformer(t, informertest.NewSource(object("a", "1"), object("b", "1"), object("c", "1"), object("d", "1"), object("e", "1")), options{})
		addWatcher(t, inf, stuck, informer.WatcherOptions{Workers: 5})
		wantShown(t, page(t, debug.Handler(runGroup(t, inf).Health)), "<bdi>default/a, default/b, default/c and 2 more</bdi>")
	})
}

func TestAnAnswerThatCannotBeEncodedIsAWholeError(t *testing.T) {
	h := showing("maps", informer.Health{Name: "from the future", LastList: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)})
	answer := get(h, "/?format=json")
	if body := answer.Body.String(); answer.Code != http.StatusInternalServerError || strings.Contains(body, "from the future") {
		t.Errorf("%d: %s", answer.Code, body)
	}
	page(t, h)
}

// A chart whose line rises from 0 has a scale, a level one has none, and one of nothing is a dash.
func TestAChartSaysHowHighItIs(t *testing.T) {
	type pending struct{ before, now int }
	for test, want := range map[pending]string{
		{0, 0}: "", {0, 3}: "10", {0, 11}: "11", {0, 9_999}: "9999", {0, 10_000}: "10k", {0, 999_999}: "999k", {0, 2_500_000}: "2M",
		{0, math.MaxInt32}: "2147M", {11, 0}: "11", {7, 7}: "",
	} {
		synctest.Test(t, func(t *testing.T) {
			w := informer.WatcherHealth{WatcherStats: informer.WatcherStats{Name: "w", Pending: test.before}}
			h := debug.Handler(func() map[string]informer.MemberHealth {
				return map[string]informer.MemberHealth{"maps": informer.Health{Watchers: []informer.WatcherHealth{w}}}
			})
			if shown := page(t, h); strings.Contains(shown, "<svg") || !strings.Contains(shown, `<td data-label="Last minute" class="quiet">–</td>`) {
				t.Error("a single look makes a chart")
			}
			sleepBubble(time.Second)
			w.Pending = test.now
			shown := page(t, h)
			_, scale, _ := strings.Cut(shown, `<span class="scale" aria-hidden="true">`)
			scale, _, _ = strings.Cut(scale, "<")
			if chart := strings.Contains(shown, "<svg"); scale != want || chart != (test != pending{}) {
				t.Errorf("with %d and then %d waiting events the top of the chart is %q, want %q; there is a chart: %v", test.before, test.now, scale, want, chart)
			}
		})
	}
}

// A source that has not failed, but gives no answer, or not the end of the first state.
func TestThePageShowsTheRequestThatASourceWaitsFor(t *testing.T) {
	reason := errors.New("the end of the first state has not come for 12s")
	for _, test := range []struct {
		health    informer.Health
		state     string
		attention bool
	}{
		{informer.Health{Name: "maps", Started: true, SourceError: reason}, "syncing", false},
		{informer.Health{Name: "maps", Started: true, Synced: true, Watching: true, SourceError: reason}, "watching", false},
		{informer.Health{Name: "maps", Started: true, SourceError: reason, SourceWaiting: time.Minute}, "no answer", true},
		{informer.Health{Name: "maps", Started: true, Synced: true, SourceError: reason, SourceWaiting: time.Minute, SourceFailures: 1}, "no answer", true},
	} {
		h := showing("maps", test.health)
		if i := look(t, h).Informers[0]; i.State != test.state || i.Attention != test.attention {
			t.Errorf("the informer is %q (attention %v), want %q", i.State, i.Attention, test.state)
		}
		shown := get(h, "/").Body.String()
		if failures := strings.Contains(shown, "Failures in a row"); !strings.Contains(shown, reason.Error()) || failures != (test.health.SourceFailures > 0) {
			t.Errorf("the page does not show the reason, or shows failures: %v", failures)
		}
	}
}
