package page_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

func TestThePageLoadsWithoutComplaintAndAsksForNothingButItself(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for name, address := range map[string]string{
		"where it is":    s.page(),
		"below a prefix": s.server.URL + prefix + mount,
	} {
		t.Run(name, func(t *testing.T) {
			p := open(t, address)
			first := p.until("all is shown", func(c content) bool { return len(c.Informers) == 2 && len(c.informer("Pod").Watchers) == 3 })
			p.until("a newer page", func(c content) bool { return c.Time > first.Time })
			want := "1 of 2 informers needs attention."
			if first.Summary != want {
				t.Errorf("the summary is %q, want %q", first.Summary, want)
			}
			if pods, secrets := first.informer("Pod"), first.informer("Secret"); pods.State != "watching" || secrets.State != "cannot sync" ||
				pods.Attention || !secrets.Attention || len(secrets.Errors) != 1 || !strings.Contains(secrets.Errors[0], "secrets is forbidden") {
				t.Errorf("shown are %+v", first.Informers)
			}
			p.wantOnly(address)
			p.do(chromedp.Click(chromedp.CSS("header a")))
			p.untilTrue("the same is there as JSON", `document.contentType === "application/json" && document.body.innerText.includes('"name": "webhooks"')`)
			if got := eval[string](p, `location.origin + location.pathname`); got != address {
				t.Errorf("the JSON is at %s", got)
			}
		})
	}
}

func TestWithoutJavaScriptThePageIsCompleteAndComesAnew(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	p := newTab(t)
	command(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	p.do(chromedp.Navigate(s.page()))
	first := p.until("all is shown", func(c content) bool { return len(c.Informers) == 2 && len(c.informer("Pod").Watchers) == 3 })
	if first.Button != "" {
		t.Errorf("there is a button %q, which can do nothing", first.Button)
	}
	if w := first.watcher("cache"); w.state() != "well" || w.Cells["Handled"] != "1" || w.Cells["Last minute"] != "–" {
		t.Errorf("the watcher is shown as %+v", w)
	}
	if !eval[bool](p, `[...document.querySelectorAll("tbody tr")].every((row) => row.checkVisibility())`) {
		t.Error("a part is closed, which would close again and again")
	}
	s.change(100)
	p.until("the page is loaded again", func(c content) bool { return c.watcher("cache").Cells["Handled"] == "101" })
	if n := p.navigated(); n < 2 {
		t.Errorf("it was loaded %d times", n)
	}
	p.wantOnly(s.page())
}

func TestThePageShowsThatTheServerDoesNotAnswerUntilItDoes(t *testing.T) {
	t.Parallel()
	for name, instead := range map[string]http.HandlerFunc{
		"when it closes the connection": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"when it answers with an error": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"when it answers nothing":       func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			p := open(t, s.page())
			p.until("the page is whole", func(c content) bool { return c.Connection == "" && c.Button == "Pause" })
			s.instead.Store(&instead)
			lost := p.until("there is no answer", func(c content) bool { return c.Connection != "" })
			if want := "No answer: what is shown is old."; lost.Connection != want || len(lost.Informers) != 2 {
				t.Errorf("it shows %q and %d informers, want %q", lost.Connection, len(lost.Informers), want)
			}
			if !slices.ContainsFunc(accessible(p), func(n node) bool { return n.role == "status" && strings.Contains(n.text, lost.Connection) }) {
				t.Error("screen readers do not announce it: its element has no role \"status\"")
			}
			s.instead.Store(nil)
			p.until("it is updated", func(c content) bool { return c.Connection == "" && c.Time > lost.Time })
			if n := p.navigated(); n != 1 {
				t.Errorf("it was loaded %d times", n)
			}
			for _, complaint := range p.takeComplaints() {
				if !strings.HasPrefix(complaint, "not loaded: Fetch") && !strings.HasPrefix(complaint, "console: error: Failed to load resource") {
					t.Error(complaint)
				}
			}
		})
	}
}
