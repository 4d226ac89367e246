package page_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/chromedp/chromedp"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/debug"
	"github.com/customcacheinformer/informer/informertest"
)

var hostile = []string{
	`<script>window.pwned=1</script>`,
	`"><img src=x onerror=window.pwned=1>`,
	`' onmouseover='window.pwned=1' autofocus onfocus='window.pwned=1' x='`,
	`</style><style>*{display:none}</style><link rel=stylesheet href=//example.com>`,
	`</title></noscript></bdi></svg></table></section></main></body><h1>gone</h1><base href=//example.com>`,
	`javascript:window.pwned=1`,
	"{{.Name}} ${window.pwned=1} <!-- <![CDATA[ \\u003cscript> &lt;b&gt; &#60;",
	"\u202egnp.\u2067exe\u2066\u202d\u200f",
	"a\x00b\x07\x1b[31m\r\n\t\u2028c",
	"\xff\xfe\xc3(",
	strings.Repeat("long", 2500),
	strings.Repeat("wide words ", 1000),
}

func TestHostileNamesAreOnlyText(t *testing.T) {
	t.Parallel()
	p := onlyText(t, hostile, everywhere)
	shown := p.until("it answers", func(content) bool { return true })
	for n, name := range hostile {
		name = shortened(name)
		inf := shown.informer(name)
		if len(inf.Watchers) == 0 || len(inf.Errors) < 2 {
			t.Errorf("%.100q is shown as %.500q", name, fmt.Sprint(inf))
			continue
		}
		if inf.Watchers[0].name() != name || inf.Watchers[0].Cells["Handling now"] != shortened("shop/"+hostile[n]) {
			t.Errorf("%.100q is shown as %.500q", name, fmt.Sprint(inf))
		}
		if begin := browsers(hostile[n][:min(len(hostile[n]), 500)]); !strings.Contains(inf.Errors[0], begin) || !strings.Contains(inf.Errors[1], begin) {
			t.Errorf("%.100q is in no error: %.500q", name, inf.Errors)
		}
	}
	p.wantFits(1200)
	p.wantOnly(eval[string](p, `location.href`))
}

// onlyText returns the page that show makes of names. It fails the test unless that has the same elements with the same
// attributes as with harmless names, and no script has run.
func onlyText(t *testing.T, names []string, show func(*testing.T, []string) *tab) *tab {
	t.Helper()
	harmless := make([]string, len(names))
	for n := range names {
		harmless[n] = "name" + string(rune('a'+n))
	}
	const elements = `[...document.querySelectorAll("*")].map((e) => e.tagName + " " + e.getAttributeNames().sort())`
	want, p := eval[[]string](show(t, harmless), elements), show(t, names)
	if got := eval[[]string](p, elements); !slices.Equal(got, want) {
		t.Errorf("the elements are\n%q, want\n%q", got, want)
	}
	p.untilTrue("nothing has run", `window.pwned === undefined && /^(\(\d+\) )?Informers$/.test(document.title)`)
	return p
}

// browsers returns a text of hostile as the page represents it at the edge of an element.
func browsers(text string) string { return strings.TrimSpace(escapes.Replace(text)) }

var escapes = strings.NewReplacer("\u202e", "‹U+202E›", "\u2067", "‹U+2067›", "\u2066", "‹U+2066›", "\u202d", "‹U+202D›", "\u200f", "‹U+200F›",
	"\x00", "‹U+0000›", "\a", "‹U+0007›", "\x1b", "‹U+001B›", "\r", "‹U+000D›", "\n", "‹U+000A›", "\t", "‹U+0009›", "\u2028", "‹U+2028›",
	"\xff", "‹0xFF›", "\xfe", "‹0xFE›", "\xc3(", "‹0xC3›(")

// shortened returns a name as the page shows it.
func shortened(name string) string {
	if len(name) > 200 {
		name = name[:200] + " …"
	}
	return browsers(name)
}

// everywhere returns a page whose informers, watchers, objects and errors have these names.
func everywhere(t *testing.T, names []string) *tab {
	w := newWorld(t)
	var sources []*informertest.Source[*corev1.Pod]
	var stores []*informertest.Store
	for _, name := range names {
		src, store := informertest.NewSource(pod(name, 1)), informertest.NewStore(nil)
		inf := member(w, src, informer.Options[*corev1.Pod]{Name: name, Store: store})
		var blocked brake
		blocked.block()
		watch(w, inf, informer.WatcherOptions{Name: name}, blocked.call)
		watch(w, inf, informer.WatcherOptions{Name: name}, func(context.Context) {})
		sources, stores = append(sources, src), append(stores, store)
	}
	w.run()
	p := open(t, w.page())
	p.until("all is called", func(c content) bool {
		return !slices.ContainsFunc(c.Informers, func(i informerShown) bool {
			return i.State != "watching" || len(i.Watchers) != 2 || i.Watchers[0].Cells["Handling now"] == ""
		})
	})
	for n, name := range names {
		stores[n].Fail(func(string, string) error { return errors.New(name) })
		sources[n].Apply(pod(name, 2))
	}
	p.until("all stores fail", func(c content) bool {
		return !slices.ContainsFunc(c.Informers, func(i informerShown) bool { return i.State != "store fails" })
	})
	for n, name := range names {
		sources[n].Fail("list", errors.New(name), -1)
		sources[n].Fail("watch", errors.New(name), -1)
		sources[n].Disconnect()
	}
	p.until("all sources fail", func(c content) bool {
		return !slices.ContainsFunc(c.Informers, func(i informerShown) bool { return len(i.Errors) != 2 })
	})
	return p
}

// A hostile site's script may read every address of its own origin. If the site's name first
// points at the site and then at the operator's machine, the page is at such an address.
func TestAScriptOfASiteThatPointsAtThisMachineCannotReadThePage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	page := debug.Handler(w.group.Health)
	site := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != mount: // browsers ask for an icon at any time
			rw.WriteHeader(http.StatusNoContent)
		case strings.Contains(r.Header.Get("Accept"), "text/html"): // the tab, not the script
			_, _ = io.WriteString(rw, "<h1>Win a prize</h1>")
		default:
			page.ServeHTTP(rw, r)
		}
	})
	w.instead.Store(&site)
	_, port, _ := strings.Cut(w.server.Listener.Addr().String(), ":")
	read := func(host string) string {
		p := open(t, "http://"+host+":"+port+mount)
		answer := eval[string](p, `(() => {
			const request = new XMLHttpRequest();
			request.open("GET", location.href, false);
			request.setRequestHeader("Sec-Fetch-Site", "none");
			request.send();
			return request.status + " " + request.responseText;
		})()`)
		p.takeComplaints() // the browser refuses to set the header
		return answer
	}
	if answer := read("evil.test"); !strings.HasPrefix(answer, "403 ") || !strings.Contains(answer, `"evil.test:`+port+`"`) {
		t.Errorf("the script reads %.300s", answer)
	}
	for _, host := range []string{"localhost", "127.0.0.1"} {
		if answer := read(host); !strings.HasPrefix(answer, "200 ") || !strings.Contains(answer, "<title>Informers</title>") {
			t.Errorf("at %s the page is %.300s", host, answer)
		}
	}
}

// wantFits fails the test if the page does not fit into a window of that width.
func (p *tab) wantFits(width int) {
	p.t.Helper()
	if got := eval[int](p, `document.documentElement.scrollWidth`); got > width {
		const widest = `[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth && !e.closest(".scroll")).map((e) => e.tagName + "." + e.className).slice(0, 10).join()`
		p.t.Errorf("the page is %d wide in a window of %d, because of %s", got, width, eval[string](p, widest))
	}
}

func TestThePageFitsItsWindow(t *testing.T) {
	t.Parallel()
	p := open(t, newTroubled(t))
	p.until("there is trouble", inTrouble)
	p.wantFits(1200)
	if eval[bool](p, `[...document.querySelectorAll(".scroll")].some((s) => s.scrollWidth > s.clientWidth)`) {
		t.Error("a table has to be scrolled in a window of 1200")
	}
	p.resize(900, 800, 1)
	p.untilTrue("the window is narrower", `innerWidth === 900`)
	p.wantFits(900)
	if !eval[bool](p, `[...document.querySelectorAll(".scroll")].every((s) => s.scrollWidth > s.clientWidth && s.clientWidth <= 900)`) {
		t.Error("the tables do not scroll in a window of 900")
	}
	for _, width := range []int{768, 390, 320} {
		p.resize(int64(width), 800, 1)
		p.untilTrue("the window is narrow", fmt.Sprintf(`innerWidth === %d`, width))
		p.wantFits(width)
		p.wantCards()
	}
	p.do(chromedp.Click(chromedp.CSS("button"))) // the click shows that the button can be reached
	p.until("it is paused", func(c content) bool { return c.Button == "Resume" })
}

// wantCards fails the test unless each row is a card that needs no scrolling, in which each cell has
// the label of its column.
func (p *tab) wantCards() {
	p.t.Helper()
	if eval[bool](p, `[...document.querySelectorAll(".scroll")].some((s) => s.scrollWidth > s.clientWidth)`) {
		p.t.Error("a card has to be scrolled")
	}
	const cells = `[...document.querySelectorAll("tbody td")].filter((c) => c.checkVisibility() && c.textContent !== "")`
	if n := eval[int](p, cells+".length"); n < 20 {
		p.t.Errorf("%d cells are visible", n)
	}
	const label = `JSON.parse(getComputedStyle(c, "::before").content.match(/^"[^"]*"/)[0])`
	const unlike = cells + `.filter((c) => ` + label + ` !== c.closest("table").tHead.rows[0].cells[c.cellIndex].textContent).map((c) => c.outerHTML)`
	if got := eval[[]string](p, unlike); len(got) > 0 {
		p.t.Errorf("cells without the label of their column: %q", got)
	}
	roles := map[string]int{}
	for _, n := range accessible(p) {
		roles[n.role]++
	}
	if roles["table"] != 3 || roles["columnheader"] != 33 || roles["rowheader"] != 6 {
		p.t.Errorf("for those who do not see it, the page has %v", roles)
	}
}
