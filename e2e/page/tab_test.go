package page_test

import (
	"context"
	_ "embed"
	"fmt"
	"net/url"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// tab is a tab of the browser, with a record of its requests, navigations and complaints.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu          sync.Mutex // protects the rest
	navigations int
	requests    []string // addresses of all requests
	complaints  []string // console messages, refused or failed loads, dialogs
}

// newTab opens a tab that is closed when the test ends. The test fails if the tab has
// complaints by then that the test has not taken.
func newTab(t *testing.T) *tab {
	t.Helper()
	if browser == nil {
		const missing = "no Chromium is installed; `make browser` does so"
		if os.Getenv("BROWSER") == "required" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	p := &tab{t: t}
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithListener(p.note))
	p.ctx = ctx
	t.Cleanup(func() {
		complaints := p.takeComplaints()
		cancel()
		for _, complaint := range complaints {
			t.Error(complaint)
		}
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	p.resize(1200, 900, 1)
	return p
}

// open opens a tab that shows the page at an address.
func open(t *testing.T, address string) *tab {
	t.Helper()
	p := newTab(t)
	p.do(chromedp.Navigate(address))
	return p
}

// note is called for every event of the tab.
func (p *tab) note(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	complain := func(format string, args ...any) {
		p.complaints = append(p.complaints, fmt.Sprintf(format, args...))
	}
	switch e := event.(type) {
	case *page.EventFrameNavigated:
		if e.Frame.URL != "about:blank" {
			p.navigations++
		}
	case *page.EventJavascriptDialogOpening:
		complain("a dialog opened: %s", e.Message)
	case *network.EventRequestWillBeSent:
		p.requests = append(p.requests, e.Request.URL)
	case *network.EventLoadingFailed:
		if !e.Canceled {
			complain("not loaded: %s %s %s", e.Type, e.ErrorText, e.BlockedReason)
		}
	case *log.EventEntryAdded:
		complain("console: %s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
	case *runtime.EventConsoleAPICalled:
		complain("console: %s was called", e.Type)
	case *runtime.EventExceptionThrown:
		complain("not caught: %s", e.ExceptionDetails.Text)
	}
}

func (p *tab) takeComplaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	complaints := p.complaints
	p.complaints = nil
	return complaints
}

// wantOnly fails the test if the tab requested anything except the page at address.
func (p *tab) wantOnly(address string) {
	p.t.Helper()
	want, err := url.Parse(address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.requests) == 0 {
		p.t.Error("no request was seen")
	}
	for _, request := range p.requests {
		if got, err := url.Parse(request); err != nil || got.Host != want.Host || got.Path != want.Path {
			p.t.Errorf("asked for %s, %v", request, err)
		}
	}
}

func (p *tab) navigated() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.navigations
}

func (p *tab) resize(width, height int64, scale float64) {
	p.t.Helper()
	p.do(chromedp.EmulateViewport(width, height, chromedp.EmulateScale(scale)))
}

// prefer has the page shown in a color scheme.
func (p *tab) prefer(scheme string) {
	p.t.Helper()
	command(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
}

// do runs steps in the tab.
func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.t.Fatal(err)
	}
}

// ask runs an action in the tab and returns its result.
func ask[T any](p *tab, action chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	result, err := chromedp.Run(ctx, action)
	if err != nil {
		p.t.Fatal(err)
	}
	return result
}

// command sends the browser a command for the tab and returns its result.
func command[P, R any](p *tab, c cdp.Command[P, R], params P) R {
	p.t.Helper()
	return ask(p, func(ctx context.Context, target *chromedp.Target) (R, error) {
		return cdp.Call(ctx, target, c, params)
	})
}

// eval returns the value of a JavaScript expression.
func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	return ask(p, chromedp.Evaluate[T](expression))
}

type content struct {
	Summary     string            `json:"summary"`
	Connection  string            `json:"connection"`
	Button      string            `json:"button"`
	Time        string            `json:"time"`
	Informers   []informerShown   `json:"informers"`
	Controllers []controllerShown `json:"controllers"`
}

type informerShown struct {
	Name      string         `json:"name"`
	State     string         `json:"state"`
	Attention bool           `json:"attention"`
	Facts     []string       `json:"facts"`
	Errors    []string       `json:"errors"`
	Watchers  []watcherShown `json:"watchers"`
}

type watcherShown struct {
	Cells     map[string]string `json:"cells"` // by the heading of the column
	Attention bool              `json:"attention"`
	Line      string            `json:"line"`  // points of the chart
	Label     string            `json:"label"` // label of the chart
}

func (w watcherShown) name() string  { return w.Cells["Watcher"] }
func (w watcherShown) state() string { return w.Cells["State"] }

// informer returns the content about the named informer, and watcher the content about the
// first watcher of that name. Both return an empty value if the page shows none.
func (c content) informer(name string) informerShown {
	if i := slices.IndexFunc(c.Informers, func(i informerShown) bool { return i.Name == name }); i >= 0 {
		return c.Informers[i]
	}
	return informerShown{}
}

func (c content) watcher(name string) watcherShown {
	for _, i := range c.Informers {
		for _, w := range i.Watchers {
			if w.name() == name {
				return w
			}
		}
	}
	return watcherShown{}
}

//go:embed testdata/content.js
var contentScript string

// until waits until the content of the page satisfies says, and returns that content.
func (p *tab) until(what string, says func(content) bool) (c content) {
	p.t.Helper()
	p.poll(what, func(ctx context.Context) (_ bool, seen any, err error) {
		c, err = chromedp.Run(ctx, chromedp.Evaluate[content](contentScript))
		return err == nil && says(c), c, err
	})
	return c
}

// untilTrue waits until a JavaScript expression is true.
func (p *tab) untilTrue(what, expression string) {
	p.t.Helper()
	p.poll(what, func(ctx context.Context) (bool, any, error) {
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool](expression))
		return is, is, err
	})
}

// poll calls look until it finds something. Unlike chromedp.Poll, it repeats the look on this
// side: the page forbids turning text into code, which chromedp.Poll does.
func (p *tab) poll(what string, look func(context.Context) (found bool, seen any, err error)) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	ticker := time.NewTicker(between)
	defer ticker.Stop()
	var seen any
	var failed error // look fails while a page is loading
	for {
		found, now, err := look(ctx)
		if found {
			return
		}
		if ctx.Err() == nil {
			seen, failed = now, err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			p.t.Fatalf("not within %v: %s; seen at last: %+v, %v", patience, what, seen, failed)
		}
	}
}
