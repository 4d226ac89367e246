package debug_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/debug"
	"github.com/customcacheinformer/informer/informertest"
)

type debuggedInformer struct {
	Name, State, Store string
	Attention          bool
	Health             struct {
		Synced   bool
		Watchers []struct {
			Name    string
			Pending int
		}
	}
	Watchers []debuggedWatcher
}

type debuggedWatcher struct {
	Name, State     string
	Attention       bool
	Calls, Retries  []string
	EventsPerSecond *float64
	Backlog         []struct {
		SecondsAgo float64
		Pending    int
	}
}

func get(h http.Handler, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	for n := 0; n+1 < len(header); n += 2 {
		r.Header.Set(header[n], header[n+1])
	}
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, r)
	return answer
}

// look requests the page of h as JSON.
func look(t *testing.T, h http.Handler) debugged {
	t.Helper()
	return decoded(t, get(h, jsonPage))
}

// jsonPage is the target of a request for JSON.
const jsonPage = "/debug/informers?format=json"

// decoded returns what an answer in JSON shows.
func decoded(t *testing.T, answer *httptest.ResponseRecorder) debugged {
	t.Helper()
	var d debugged
	must(t, json.Unmarshal(answer.Body.Bytes(), &d))
	return d
}

// page requests the page of h as HTML.
func page(t *testing.T, h http.Handler) string {
	t.Helper()
	answer := get(h, "/debug/informers")
	if answer.Code != http.StatusOK {
		t.Fatalf("%d: %s", answer.Code, answer.Body)
	}
	return answer.Body.String()
}

// runGroup runs a group of members until the test ends.
func runGroup(t *testing.T, members ...informer.Member) *informer.Group {
	t.Helper()
	var group informer.Group
	for _, m := range members {
		must(t, group.Add(m))
	}
	start(t, &group)
	synctest.Wait()
	return &group
}

// start runs a group until stop is called or the test ends. stop waits for the end.
func start(t *testing.T, group *informer.Group) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- group.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		noError(t, <-ended)
	})
	t.Cleanup(stop)
	return stop
}

// fields returns the names of the fields of a value in JSON, in the order of the alphabet.
func fields(value map[string]json.RawMessage) string {
	return strings.Join(slices.Sorted(maps.Keys(value)), " ")
}

func TestThePageShowsHowAWatcherIsDoing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"))
		inf := newInformer(t, src, options{ErrorHandler: ignore})
		join := func(name string, opts informer.WatcherOptions, call func(context.Context, event) error) {
			opts.Name = name
			addWatcher(t, inf, informer.WatcherFunc[configMap](call), opts)
		}
		hold := make(chan struct{})
		wait := func(ctx context.Context, _ event) error {
			select {
			case <-hold:
			case <-ctx.Done():
			}
			return nil
		}
		join("quick", informer.WatcherOptions{}, func(context.Context, event) error { return nil })
		join("slow", informer.WatcherOptions{}, func(context.Context, event) error { time.Sleep(4 * time.Second); return nil })
		join("stuck", informer.WatcherOptions{}, wait)
		join("full", informer.WatcherOptions{MaxBacklog: 1}, func(context.Context, event) error { time.Sleep(2 * time.Second); return nil })
		join("failing", informer.WatcherOptions{Retry: informer.Backoff(time.Hour, time.Hour, 0)}, func(context.Context, event) error { return errors.New("no") })
		h := debug.Handler(runGroup(t, inf).Health)
		states := func() map[string]string {
			all := map[string]string{}
			for _, w := range look(t, h).Informers[0].Watchers {
				all[w.Name] = w.State
				if w.Attention {
					all[w.Name] += "!"
				}
			}
			return all
		}
		check := func(when string, want map[string]string) {
			t.Helper()
			synctest.Wait()
			for name, got := range states() {
				if got != want[name] {
					t.Errorf("%s, the watcher %s is %s, not %s", when, name, got, want[name])
				}
			}
		}
		check("at first", map[string]string{"quick": "well", "slow": "syncing", "stuck": "syncing", "full": "syncing", "failing": "well"})
		for range 20 {
			src.Apply(object("a", fmt.Sprint(time.Now().Unix())))
			sleepBubble(time.Second)
			states()
		}
		check("after twenty seconds", map[string]string{"quick": "well", "slow": "behind!", "stuck": "blocked!", "full": "merging!", "failing": "retrying!"})
		shown := page(t, h)
		if got := summary(shown); got != "4 of 5 watchers need attention." {
			t.Errorf("the summary is %q", got)
		}
		// Watchers that need attention come first.
		if quick := strings.Index(shown, "<bdi>quick<"); quick < strings.Index(shown, "<bdi>stuck<") {
			t.Error("a watcher that is well comes before one that needs attention")
		}
		w := look(t, h).Informers[0].Watchers
		if calls := w[4].Calls; w[4].Name != "stuck" || len(calls) != 1 || !strings.HasPrefix(calls[0], "default/a") {
			t.Errorf("%s is being called for %q", w[4].Name, calls)
		}
		if rate := w[2].EventsPerSecond; w[2].Name != "quick" || rate == nil || *rate != 1 {
			t.Errorf("the rate of %s is %v, not 1", w[2].Name, rate)
		}
		close(hold)
		sleepBubble(2 * time.Minute)
		check("when all have caught up", map[string]string{"quick": "well", "slow": "well", "stuck": "well", "full": "well", "failing": "retrying!"})
	})
}

// The page names an object that holds up a watcher, however many other events the watcher gets.
func TestThePageShowsTheEventsThatOneObjectHoldsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource[configMap]()
		inf := newInformer(t, src, options{ErrorHandler: ignore})
		addWatcher(t, inf, informer.WatcherFunc[configMap](func(_ context.Context, e event) error {
			if e.Key().Name == "bad" {
				return errors.New("no")
			}
			return nil
		}), informer.WatcherOptions{Name: "failing", Retry: informer.Backoff(time.Minute, time.Minute, 0)})
		addWatcher(t, inf, informer.WatcherFunc[configMap](func(ctx context.Context, e event) error {
			if e.Key().Name == "bad" {
				<-ctx.Done()
			}
			return nil
		}), informer.WatcherOptions{Name: "hanging", Workers: 4})
		h := debug.Handler(runGroup(t, inf).Health)
		src.Apply(object("bad", "1"))
		for n := range 20 {
			src.Apply(object("good", fmt.Sprint(n)))
			sleepBubble(time.Second)
		}
		for _, w := range look(t, h).Informers[0].Watchers { // the first request already shows it
			switch {
			case w.Name == "failing" && (w.State != "retrying" || len(w.Retries) != 1 || w.Retries[0] != "default/bad" || len(w.Calls) != 0),
				w.Name == "hanging" && (w.State != "blocked" || len(w.Calls) != 1 || w.Calls[0] != "default/bad"):
				t.Errorf("%+v", w)
			}
		}
		wantShown(t, page(t, h), "again later: <bdi>default/bad</bdi>")
	})
}

func TestThePageShowsHowAnInformerIsDoing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := informertest.NewSource(object("a", "1")), informertest.NewStore(nil)
		inf := newInformer(t, src, options{Name: "maps", Store: store, ErrorHandler: ignore})
		group := &informer.Group{}
		h := debug.Handler(group.Health)
		if shown := page(t, h); !strings.Contains(shown, "The program has made no informers") || len(look(t, h).Informers) != 0 {
			t.Error("the page does not say that the group is empty")
		}
		must(t, group.Add(inf))
		check := func(want string, attention bool) {
			t.Helper()
			synctest.Wait()
			i := look(t, h).Informers[0]
			if i.State != want || i.Attention != attention || i.Name != "maps" || i.Store != "*informertest.Store" {
				t.Errorf("the informer is %q (attention %v), want %q: %+v", i.State, i.Attention, want, i)
			}
			wantShown(t, page(t, h), ">"+want+"</span>")
		}
		check("not started", false)
		src.Fail("list", syscall.ECONNREFUSED, -1)
		src.Fail("watch", syscall.ECONNREFUSED, -1)
		stop := start(t, group)
		check("cannot sync", true)
		if shown := page(t, h); !strings.Contains(shown, "connection refused") || summary(shown) != "1 of 1 informer needs attention." {
			t.Error("the page does not show the error")
		}
		src.Heal()
		opened(t, src)
		check("watching", false)
		release := store.Hang()
		src.Apply(object("b", "1"))
		sleepBubble(time.Minute) // the handler answers while the store hangs
		check("store fails", true)
		release()
		check("watching", false)
		unreachable(src)
		sleepBubble(time.Minute)
		check("source fails", true)
		stop()
		check("stopped", true)
	})
}

func TestThePageFollowsForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"))
		inf := newInformer(t, src, options{})
		reg := addWatcher(t, inf, &recorder{}, informer.WatcherOptions{Name: "w"})
		h := debug.Handler(runGroup(t, inf).Health)
		watcher := func() debuggedWatcher { return look(t, h).Informers[0].Watchers[0] }
		if w := watcher(); w.EventsPerSecond != nil || len(w.Backlog) != 1 {
			t.Errorf("after one request the page already has a rate or a trail: %+v", w)
		}
		for range 1000 { // ten requests a second
			sleepBubble(100 * time.Millisecond)
			watcher()
		}
		w := watcher()
		if n := len(w.Backlog); n < 60 || n > 80 || w.Backlog[0].SecondsAgo > 60 || w.Backlog[0].SecondsAgo < 58 {
			t.Errorf("the trail has %d points, the first from %v s ago", n, w.Backlog[0].SecondsAgo)
		}
		if w.EventsPerSecond == nil || *w.EventsPerSecond != 0 {
			t.Errorf("without events the rate is %v", w.EventsPerSecond)
		}
		// If requests are rare, the rate is the average since the last one.
		sleepBubble(30 * time.Second)
		for n := range 60 {
			src.Apply(object("a", fmt.Sprint("v", n)))
		}
		synctest.Wait()
		if w := watcher(); w.EventsPerSecond == nil || *w.EventsPerSecond < 1.9 || *w.EventsPerSecond > 2.1 {
			t.Errorf("60 events in 30 s give a rate of %v a second", w.EventsPerSecond)
		}
		// Another watcher of the same name starts with a rate of its own.
		reg.Remove()
		<-reg.Stopped()
		addWatcher(t, inf, &recorder{}, informer.WatcherOptions{Name: "w"})
		synctest.Wait()
		if w := watcher(); w.EventsPerSecond != nil || len(w.Backlog) != 1 {
			t.Errorf("a new watcher of the same name starts with the figures of the old one: %+v", w)
		}
	})
}

func TestThePageShowsAHundredWatchersAndTheRestAsJSON(t *testing.T) {
	inf := newInformer(t, informertest.NewSource[configMap](), options{})
	for range 103 { // all of the same name
		addWatcher(t, inf, &recorder{}, informer.WatcherOptions{Name: "w"})
	}
	var group informer.Group
	must(t, group.Add(inf))
	h := debug.Handler(group.Health)
	if shown := page(t, h); strings.Count(shown, "<bdi>w</bdi>") != 100 || !strings.Contains(shown, "3 more watchers are in the") {
		t.Errorf("the page shows %d watchers", strings.Count(shown, "<bdi>w</bdi>"))
	}
	if n := len(look(t, h).Informers[0].Watchers); n != 103 {
		t.Errorf("the JSON has %d watchers", n)
	}
}

func TestThePageAnswersAsItIsAsked(t *testing.T) {
	var group informer.Group
	h := debug.Handler(group.Health)
	const html, asJSON = "text/html; charset=utf-8", "application/json"
	for _, test := range []struct{ target, accept, want string }{
		{"/", "", html},
		{"/any/path", "*/*", html},
		{"/", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", html},
		{"/", "application/json", asJSON},
		{"/", "application/json;q=0.5, text/html;q=0.4", asJSON},
		{"/", "application/json, text/html", html},
		{"/", ";;;, application/json; q=x", html},
		{"/?format=json", "text/html", asJSON},
		{"/?format=html", "application/json", html},
	} {
		answer := get(h, test.target, "Accept", test.accept)
		if got := answer.Header().Get("Content-Type"); got != test.want || answer.Code != http.StatusOK || answer.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s with Accept %q: %d, %s", test.target, test.accept, answer.Code, got)
		}
	}
	if answer := get(h, "/?format=yaml"); answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), `"yaml"`) {
		t.Errorf("another format: %d, %s", answer.Code, answer.Body)
	}
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequest(method, "/", nil))
		if answer.Code != http.StatusMethodNotAllowed || answer.Header().Get("Allow") == "" {
			t.Errorf("%s: %d", method, answer.Code)
		}
	}
	server := httptest.NewServer(h)
	defer server.Close()
	answer, err := server.Client().Head(server.URL)
	must(t, err)
	defer func() { _ = answer.Body.Close() }()
	if body, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusOK || len(body) > 0 {
		t.Errorf("HEAD: %d, %q", answer.StatusCode, body)
	}
}

func TestThePageMayOnlyRunItsOwnScript(t *testing.T) {
	answer := get(debug.Handler(new(informer.Group).Health), "/")
	policy, body := answer.Header().Get("Content-Security-Policy"), answer.Body.String()
	for _, element := range []string{"script", "style"} {
		found := regexp.MustCompile("(?s)<"+element+">(.*)</"+element+">").FindAllStringSubmatch(body, -1)
		if len(found) != 1 {
			t.Fatalf("there are %d elements %s", len(found), element)
		}
		sum := sha256.Sum256([]byte(found[0][1]))
		if want := element + "-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(policy, want) {
			t.Errorf("the policy %q does not allow %s", policy, want)
		}
	}
	if !strings.HasPrefix(policy, "default-src 'none';") || regexp.MustCompile(`(?i)(https?:)?//[a-z0-9]`).MatchString(strings.ReplaceAll(body, "// ", "")) {
		t.Errorf("the policy allows other sources: %s", policy)
	}
}

// A watcher may take the last event of its initial state and the next event together. The page
// must name the object of the call that runs.
func TestThePageNamesTheCallThatFollowsTheFirstState(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		src.SetFaults(informertest.Faults{HoldLists: true, RejectWatchList: true})
		release := func() { src.SetFaults(informertest.Faults{RejectWatchList: true}) }
		inf := newInformer(t, src, options{Queue: queue, Store: newPlainStore(object("known", "1"))})
		hold := make(chan struct{})
		addWatcher(t, inf, informer.WatcherFunc[configMap](func(ctx context.Context, e event) error {
			switch {
			case e.Key().Name == "known" && e.Type == informer.EventAdded:
				<-hold
			case e.Key().Name == "after":
				<-ctx.Done()
			}
			return nil
		}), informer.WatcherOptions{})
		h := debug.Handler(runGroup(t, inf).Health)
		release()
		opened(t, src)
		src.Apply(object("after", "1"))
		synctest.Wait()
		close(hold)
		synctest.Wait()
		if w := look(t, h).Informers[0].Watchers[0]; len(w.Calls) != 1 || w.Calls[0] != "default/after" {
			t.Errorf("the watcher is being called for %q", w.Calls)
		}
	})
}

func TestAHandlerWithoutAHealthFunctionAnswers503(t *testing.T) {
	for _, format := range []string{"html", "json"} {
		answer := get(debug.Handler(nil), "/?format="+format)
		if answer.Code != http.StatusServiceUnavailable || !strings.Contains(answer.Body.String(), "no health function") {
			t.Errorf("as %s: %d, %s", format, answer.Code, answer.Body)
		}
	}
}

// A slow request must not append old figures after newer ones: the page takes figures that
// shrink for those of another watcher.
func TestRequestsAtTheSameTimeKeepTheTrailInOrder(t *testing.T) {
	var asked atomic.Int32
	began, hold := make(chan struct{}), make(chan struct{})
	h := debug.Handler(func() map[string]informer.MemberHealth {
		n := asked.Add(1)
		if n == 2 {
			close(began)
			<-hold
		}
		stats := informer.WatcherStats{Name: "w", Delivered: int(n)}
		return map[string]informer.MemberHealth{"i": informer.Health{Watchers: []informer.WatcherHealth{{WatcherStats: stats}}}}
	})
	look(t, h)
	var long *httptest.ResponseRecorder
	var both sync.WaitGroup
	both.Go(func() { long = get(h, jsonPage) })
	<-began
	answered := make(chan struct{})
	both.Go(func() { get(h, jsonPage); close(answered) })
	select {
	case <-answered:
	case <-time.After(50 * time.Millisecond): // the second request waits for the first, as it must
	}
	close(hold)
	both.Wait()
	if w := decoded(t, long).Informers[0].Watchers[0]; w.EventsPerSecond == nil || len(w.Backlog) != 2 {
		t.Errorf("the long request shows %+v", w)
	}
}

func TestWatchersOfOneNameHaveTrailsOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		h := debug.Handler(func() map[string]informer.MemberHealth {
			watcher := func(rate int) informer.WatcherHealth {
				return informer.WatcherHealth{WatcherStats: informer.WatcherStats{Name: "w", Delivered: rate * int(time.Since(begin).Seconds())}}
			}
			return map[string]informer.MemberHealth{
				"a": informer.Health{Name: "same", Watchers: []informer.WatcherHealth{watcher(2), watcher(1)}},
				"b": informer.Health{Name: "same", Watchers: []informer.WatcherHealth{watcher(3)}},
			}
		})
		look(t, h)
		sleepBubble(5 * time.Second)
		var rates []float64
		for _, i := range look(t, h).Informers {
			for _, w := range i.Watchers {
				if w.EventsPerSecond == nil {
					t.Fatal("a watcher has no rate")
				}
				rates = append(rates, *w.EventsPerSecond)
			}
		}
		if want := []float64{2, 1, 3}; !slices.Equal(rates, want) {
			t.Errorf("their rates are %v, not %v", rates, want)
		}
	})
}
