package page_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/debug"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/shards"
)

var quota = strings.TrimSpace(strings.Repeat("the quota of the shop is used up ", 5))

// newFleet returns the page of a program with 60 informers, of which three are stuck. One of its controllers fails for
// 120 of 121 keys, and all buckets of one of its sets wait for the caches. Some texts have characters that are not visible.
func newFleet(t *testing.T) *world {
	w := newWorld(t)
	var blocked brake
	blocked.block()
	var all []*informer.CustomCacheInformer[*corev1.Pod]
	for n := range 60 {
		name, src, handle, opts := fmt.Sprintf("kind-%02d", n), informertest.NewSource(pod("cart", 0)), takes(0), informer.Options[*corev1.Pod]{}
		switch n {
		case 1:
			for site := range 120 {
				src.Apply(pod(fmt.Sprintf("site-%03d", site), 0))
			}
		case 5:
			name = "kind-05\u202egnp.exe"
		case 17:
			src.Fail("list", fmt.Errorf("%w\nfor \u2067exe", forbidden("pods")), -1)
			src.Fail("watch", forbidden("pods"), -1)
		case 29:
			handle = blocked.call
		case 43:
			store := informertest.NewStore(nil)
			store.Fail(func(op, _ string) error { return errors.New("no space left on device") })
			opts.Store = store
		}
		opts.Name = name
		inf := member(w, src, opts)
		watch(w, inf, informer.WatcherOptions{Name: "cache"}, takes(0))
		watch(w, inf, informer.WatcherOptions{Name: fmt.Sprintf("dns-%02d", n)}, handle)
		all = append(all, inf)
	}
	for _, name := range []string{"website", "well"} {
		c, err := enqueue.NewController(func(_ context.Context, key types.NamespacedName) (time.Duration, error) {
			if name == "website" && key.Name != "cart" {
				return 0, errors.New(quota)
			}
			return 0, nil
		}, enqueue.Options{Name: name}, enqueue.For(all[1]))
		if err := errors.Join(err, w.group.Add(c)); err != nil {
			t.Fatal(err)
		}
	}
	w.run()
	sites := shards.Health{Name: "sites", Started: true, Synced: true, Session: "s", Buckets: 64, Owned: 16, CatchingUp: 16}
	users := shards.Health{Name: "users", Started: true, Synced: true, Session: "s", Buckets: 64, Owned: 16}
	page := http.HandlerFunc(debug.Handler(func() map[string]informer.MemberHealth {
		all := w.group.Health()
		all["sites"], all["users"] = sites, users
		return all
	}).ServeHTTP)
	w.instead.Store(&page)
	return w
}

func stuck(c content) bool {
	return c.watcher("dns-29").state() == "blocked" && c.informer("kind-17").State == "cannot sync" && c.informer("kind-43").State == "store fails" &&
		len(c.Controllers) == 2 && len(c.Controllers[0].Keys) == 10 && c.Button == "Pause"
}

// TestThePageLeadsToTheTrouble has one expression for each thing that a person sees, or should not see.
func TestThePageLeadsToTheTrouble(t *testing.T) {
	t.Parallel()
	w := newFleet(t)
	p := open(t, w.page())
	p.until("all problems show", stuck)
	p.untilTrue("each failure has a time, and the next try", `/^Failures in a row: \d+, for \d+ s; next try in \d+ s\. /.test(document.querySelector(".informer .error").textContent) &&
		[...document.querySelectorAll(".controller tbody tr:not(.why) td:last-child")].slice(0, 10).every((c) => /^in \d+ s$/.test(c.textContent))`)
	const helpers = `const all = (css, e = document) => [...e.querySelectorAll(css)], texts = (css, e) => all(css, e).map((e) => e.textContent).join();
		const row = (name) => all("tbody tr").find((r) => r.cells[0].textContent === name), height = (e) => e.getBoundingClientRect().height;`
	const troubles = "website,kind-17,kind-29,kind-43,sites"
	checks := []struct{ what, expression string }{
		{"trouble comes first, then controllers, sets and informers", `texts("h2 bdi").startsWith("` + troubles + `,well,users,kind-00,kind-01,")`},
		{"the first screen names all trouble", `texts("nav a") === "` + troubles + `" && all("nav a").every((a) => a.getBoundingClientRect().bottom < 900)`},
		{"the links of the list lead to it", `all("nav a").every((a) => document.querySelector(a.hash + " h2 bdi").textContent === a.textContent)`},
		{"the counts lead to the first of each kind", `all("#summary a").map((a) => texts(a.hash + " h2 bdi")).join() === "kind-17,kind-29,website"`},
		{"what is well takes a line", `all("details:not([open])").length === 59 && all("details:not([open])").every((d) => height(d) < 36)`},
		{"the page is short", `document.documentElement.scrollHeight < 5000`},
		{"a set whose buckets all wait is not green", `all(".set .state")[0].matches(".unready") && all(".set .state")[1].matches(".well")`},
		{"a controller that fails is red, and so are its keys", `texts("h2 .state", all(".controller")[0]) === "failing" && all(".controller")[0].querySelectorAll("tr.attention").length === 10`},
		{"the longest duration does not break", `((cell, before, was) => { cell.textContent = "47 h 59 min"; const fits = cell.scrollWidth <= cell.clientWidth && height(cell.parentElement) < before + 1; cell.textContent = was; return fits; })(
			row("dns-29").querySelector("[data-label=Oldest]"), height(row("dns-29")), row("dns-29").querySelector("[data-label=Oldest]").textContent)`},
		{"a chart has something to show", `all("svg").every((s) => !s.ariaLabel.includes("at most 0") && s.querySelector("polyline").points.length > 1)`},
		{"a level chart has no scale", `all(".chart").every((c) => c.querySelector(".scale") || new Set([...c.querySelector("polyline").points].map((p) => p.y)).size === 1)`},
		{"nothing that waits is a dash", `row("dns-58").querySelector("[data-label='Last minute']").textContent === "–"`},
		{"what is not visible is an escape", `texts("h2").includes("kind-05‹U+202E›gnp.exe") && texts(".error").includes("cluster scope‹U+000A›for ‹U+2067›exe") && !/[\u0000-\u0009\u000b-\u001f\u200b-\u200f\u2028-\u202e\u2066-\u2069]/.test(texts("main"))`},
		{"there are no milliseconds", `!/\d ms\b/.test(texts("main"))`},
		{"there are no zeros in the summary", `texts("#summary") === "2 of 60 informers, 1 of 122 watchers and 1 of 2 controllers need attention."`},
		{"keys that are not listed are counted", `texts("p", all(".controller")[0]) === "110 more failing keys."`},
		{"an error is there once", `texts(".why") === "` + quota + `" && !texts(".controller tr:not(.why)").includes("quota")`},
		{"no label is over an empty cell", `innerWidth > 1000 || all("tbody td").every((c) => c.textContent !== "" || c.querySelector("svg") || !c.checkVisibility())`},
		{"a watcher that is well takes less room", `innerWidth > 1000 || height(row("cache")) > 0 && 3 * height(all("[open] tbody tr").find((r) => r.cells[0].textContent === "cache" && texts(".state", r) === "well")) < height(row("dns-29"))`},
	}
	for _, scheme := range []string{"light", "dark"} {
		p.prefer(scheme)
		for _, width := range []int{1280, 500, 380} {
			p.resize(int64(width), 900, 1)
			p.untilTrue("the window has its width", fmt.Sprintf(`innerWidth === %d`, width))
			p.wantFits(width)
			for _, check := range checks {
				if !eval[bool](p, "(() => { "+helpers+" return "+check.expression+"; })()") {
					t.Errorf("%s, %d pixels wide: not so: %s", scheme, width, check.what)
				}
			}
			if *screenshots != "" {
				if err := os.WriteFile(filepath.Join(*screenshots, fmt.Sprintf("%d-%s.png", width, scheme)), ask(p, chromedp.FullScreenshot(100)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func TestAFilterAndOpenRowsStayWhenThePageFollows(t *testing.T) {
	t.Parallel()
	p := open(t, newFleet(t).page())
	next := p.until("all problems show", stuck)
	for filter, want := range map[string]string{"KIND-5": "kind-50,kind-51,kind-52,kind-53,kind-54,kind-55,kind-56,kind-57,kind-58,kind-59", "dns-29": "kind-29"} {
		p.do(chromedp.Evaluate[chromedp.Void](`document.querySelector("input").value = ""`), chromedp.SendKeys(chromedp.CSS("input"), filter))
		const names = `[...document.querySelectorAll("section")].filter((s) => s.checkVisibility()).map((s) => s.querySelector("h2 bdi").textContent).join()`
		for range 2 {
			if got := eval[string](p, names); got != want {
				t.Errorf("with the filter %q the page shows %s", filter, got)
			}
			next = p.until("the page is updated", func(c content) bool { return c.Time > next.Time })
		}
		// The first is opened, or closed if it was open.
		const first = `[...document.querySelectorAll("section")].find((s) => s.checkVisibility()).querySelector("details")`
		before := eval[bool](p, first+`.open`)
		eval[bool](p, first+`.querySelector("summary").click() === undefined`)
		if next = p.until("the page is updated", func(c content) bool { return c.Time > next.Time }); eval[bool](p, first+`.open`) == before {
			t.Errorf("with the filter %q the first section is open again: %v", filter, before)
		}
	}
}
