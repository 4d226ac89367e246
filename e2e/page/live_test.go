package page_test

import (
	"context"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	corev1 "k8s.io/api/core/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

func TestThePageFollowsChangesWithoutBeingLoadedAgain(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	p := open(t, s.page())
	eval[string](p, `window.marker = "still here"`)
	first := p.until("all is shown", func(c content) bool { return c.watcher("dns").state() == "well" })
	if w := first.watcher("dns"); w.Cells["Handled"] != "1" || w.Cells["Last minute"] != "–" {
		t.Errorf("at first the watcher is shown as %+v", w)
	}
	s.change(100) // these take the watcher two seconds
	p.until("something waits", func(c content) bool {
		w := c.watcher("dns")
		return w.Cells["Waiting"] != "0" && w.Line != first.watcher("dns").Line
	})
	last := p.until("all is handled", func(c content) bool {
		return c.watcher("dns").Cells["Handled"] == "101" && c.watcher("dns").Cells["Waiting"] == "0"
	})
	if w := last.watcher("dns"); strings.HasSuffix(w.Label, "at most 0 in the last minute") || len(strings.Fields(w.Line)) < 3 || w.Cells["Events/s"] == "0.0" {
		t.Errorf("in the end the watcher is shown as %+v", w)
	}
	if marker := eval[string](p, `window.marker`); marker != "still here" || p.navigated() != 1 {
		t.Errorf("it was loaded %d times", p.navigated())
	}
	p.wantOnly(s.page())
}

func TestAPageWithoutInformersShowsThatUntilThereIsOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	p := open(t, w.page())
	empty := p.until("the page is live", func(c content) bool { return c.Button == "Pause" })
	if want := "No informers: none was made yet, or all have stopped."; empty.Summary != want || len(empty.Informers) != 0 {
		t.Errorf("without informers the summary is %q, want %q", empty.Summary, want)
	}
	inf := member(w, informertest.NewSource(pod("cart", 0)), informer.Options[*corev1.Pod]{})
	watch(w, inf, informer.WatcherOptions{Name: "cache"}, func(context.Context) {})
	p.until("it is well", func(c content) bool { return c.Summary == "All is well: 1 informer, 1 watcher." })
	if n := p.navigated(); n != 1 {
		t.Errorf("it was loaded %d times", n)
	}
	p.wantOnly(w.page())
}

func TestABlockedWatcherStandsOutUntilItContinues(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	p := open(t, s.page())
	first := p.until("all is well", func(c content) bool { return c.watcher("webhooks").state() == "well" })
	if pods := first.informer("Pod").Watchers; pods[len(pods)-1].name() != "webhooks" {
		t.Error("webhooks is not the last watcher at first")
	}
	release := s.webhooks.block()
	s.change(5)
	blocked := p.until("it is blocked", func(c content) bool { return c.watcher("webhooks").state() == "blocked" })
	if w := blocked.informer("Pod").Watchers[0]; w.name() != "webhooks" || !w.Attention || w.Cells["Waiting"] != "5" || w.Cells["Handling now"] != "shop/cart" {
		t.Errorf("the first watcher is shown as %+v", w)
	}
	if want := "1 of 2 informers and 1 of 4 watchers need attention."; blocked.Summary != want {
		t.Errorf("the summary is %q, want %q", blocked.Summary, want)
	}
	p.untilTrue("the title counts it", `document.title === "(2) Informers"`)
	if blocked.watcher("cache").Attention || blocked.watcher("dns").Attention {
		t.Error("the other watchers stand out too")
	}
	release()
	well := p.until("it is well again", func(c content) bool { return c.watcher("webhooks").state() == "well" })
	if w := well.watcher("webhooks"); w.Attention || w.Cells["Waiting"] != "0" || w.Cells["Handling now"] != "" || well.Summary != first.Summary {
		t.Errorf("in the end: %s, and the watcher is shown as %+v", well.Summary, w)
	}
	p.untilTrue("the title counts it no more", `document.title === "(1) Informers"`) // the other informer cannot sync
}

func TestThePageIsPausedByKeyboard(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	p, other := open(t, s.page()), open(t, s.page())
	p.until("it is live", func(c content) bool { return c.Button == "Pause" })
	const focused = `document.activeElement.tagName`
	for n := 0; eval[string](p, focused) != "BUTTON"; n++ {
		if n == 3 {
			t.Fatalf("after %d times Tab the focus is on %s", n, eval[string](p, focused))
		}
		p.do(chromedp.KeyEvent(kb.Tab))
	}
	if !eval[bool](p, `document.activeElement.matches(":focus-visible") && getComputedStyle(document.activeElement).outlineStyle !== "none"`) {
		t.Error("the focus is not visible")
	}
	p.do(chromedp.KeyEvent(kb.Enter))
	paused := p.until("it is paused", func(c content) bool { return c.Button == "Resume" })
	s.change(100)
	// The other page shows how much time has passed.
	seen := other.until("the other page has it", func(c content) bool { return c.watcher("cache").Cells["Handled"] == "101" })
	for range 2 {
		seen = other.until("the other page is updated", func(c content) bool { return c.Time > seen.Time })
	}
	still := p.until("it answers", func(content) bool { return true })
	if still.Time != paused.Time || still.watcher("cache").Cells["Handled"] != "1" {
		t.Errorf("it was updated while it was paused, from %s to %s", paused.Time, still.Time)
	}
	if got := eval[string](p, focused); got != "BUTTON" {
		t.Errorf("the focus went to %s", got)
	}
	p.do(chromedp.KeyEvent(kb.Enter))
	p.until("it is updated", func(c content) bool { return c.Button == "Pause" && c.watcher("cache").Cells["Handled"] == "101" })
}

func TestTheFocusAndTheScrollPositionsStayWhenThePageFollows(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	p := newTab(t)
	p.resize(900, 800, 1)
	p.do(chromedp.Navigate(s.page()))
	first := p.until("it is live", func(c content) bool { return c.Button == "Pause" })
	const scrolls = `document.activeElement.classList.contains("scroll")`
	for n := 0; !eval[bool](p, scrolls); n++ {
		if n == 10 {
			t.Fatal("no table can be scrolled by keyboard")
		}
		p.do(chromedp.KeyEvent(kb.Tab))
	}
	// The browser scrolls step by step. It stops if the page changes in between, so one key may not be enough.
	p.poll("it has scrolled", func(ctx context.Context) (bool, any, error) {
		if err := chromedp.Do(ctx, chromedp.KeyEvent(kb.ArrowRight)); err != nil {
			return false, nil, err
		}
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`document.querySelector(".scroll").scrollLeft > 0`))
		return is, is, err
	})
	next := first
	for range 2 {
		next = p.until("the page is updated", func(c content) bool { return c.Time > next.Time })
	}
	if !eval[bool](p, `document.querySelector(".scroll").scrollLeft > 0`) {
		t.Error("it has scrolled back")
	}
	if !eval[bool](p, scrolls) {
		t.Errorf("the focus went to %s", eval[string](p, `document.activeElement.tagName`))
	}
}

// TestThePageFollowsAlsoIfItsAddressHasAPassword uses an address with a password. A browser
// then refuses to fetch relative addresses.
func TestThePageFollowsAlsoIfItsAddressHasAPassword(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	p := open(t, strings.Replace(s.page(), "http://", "http://user:password@", 1))
	first := p.until("it is shown", func(c content) bool { return len(c.Informers) == 2 })
	p.until("a newer page", func(c content) bool { return c.Time > first.Time })
}
