package debug

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// The limits of the page keep it readable. The JSON has everything.
const (
	maxWatchers  = 100  // of an informer
	maxErrorText = 1000 // bytes
	maxName      = 200  // bytes, of a name or of the keys of calls
)

var (
	//go:embed page.html
	markup string
	//go:embed page.css
	style string
	//go:embed page.js
	script string

	page = template.Must(template.New("page").Funcs(template.FuncMap{
		"style":    func() template.CSS { return template.CSS(style) },
		"script":   func() template.JS { return template.JS(script) },
		"ago":      ago,
		"duration": roundDuration,
		"short":    shorten,
		"quiet":    quiet,
		"compact":  compact,
	}).Parse(markup))

	// policy lets the page run its own script and connect to its own origin, nothing else.
	policy = fmt.Sprintf("default-src 'none'; script-src '%s'; style-src '%s'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		hashOf(script), hashOf(style))
)

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// Title is the name of the page, and the number of things that need attention, so that it can be seen
// among the tabs of a browser.
func (v view) Title() string {
	if bad := v.Bad(); bad > 0 {
		return fmt.Sprintf("(%d) Informers", bad)
	}
	return "Informers"
}

// Bad returns how many things need attention.
func (v view) Bad() int {
	informers, watchers, controllers, sets := v.tallies()
	return informers.bad + watchers.bad + controllers.bad + sets.bad
}

func (v view) tallies() (informers, watchers, controllers, sets tally) {
	for _, i := range v.Informers {
		informers.add(i.Attention)
		for _, w := range i.Watchers {
			watchers.add(w.Attention)
		}
	}
	for _, c := range v.Controllers {
		controllers.add(c.Attention)
	}
	for _, s := range v.Sets {
		sets.add(s.Attention)
	}
	return informers, watchers, controllers, sets
}

// Summary says how many informers and watchers there are, and controllers and sets if there are any,
// and how many of them need attention.
func (v view) Summary() string {
	informers, watchers, controllers, sets := v.tallies()
	bad := v.Bad()
	if informers.all == 0 && bad == 0 {
		return "No informers: none was made yet, or all have stopped."
	}
	all, sick := []string{informers.count("informer"), watchers.count("watcher")}, []string{informers.share("informer"), watchers.share("watcher")}
	if controllers.all > 0 {
		all, sick = append(all, controllers.count("controller")), append(sick, controllers.share("controller"))
	}
	if sets.all > 0 {
		all, sick = append(all, sets.count("set")), append(sick, sets.share("set"))
	}
	if bad == 0 {
		return fmt.Sprintf("All is well: %s.", strings.Join(all, ", "))
	}
	last := len(sick) - 1
	return fmt.Sprintf("%s and %s need attention.", strings.Join(sick[:last], ", "), sick[last])
}

// tally counts things of one kind, and those that need attention.
type tally struct{ all, bad int }

func (t *tally) add(attention bool) {
	t.all++
	if attention {
		t.bad++
	}
}

// count says how many things there are.
func (t tally) count(what string) string {
	if t.all != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", t.all, what)
}

// share says how many of the things need attention.
func (t tally) share(what string) string { return fmt.Sprintf("%d of %s", t.bad, t.count(what)) }

// Shown returns the watchers that the page has room for. Watchers that need attention come
// first.
func (i informerView) Shown() []watcherView {
	shown := slices.Clone(i.Watchers)
	slices.SortStableFunc(shown, func(a, b watcherView) int {
		switch {
		case a.Attention == b.Attention:
			return 0
		case a.Attention:
			return -1
		}
		return 1
	})
	return shown[:min(len(shown), maxWatchers)]
}

// Hidden returns how many watchers Shown omits.
func (i informerView) Hidden() int { return max(0, len(i.Watchers)-maxWatchers) }

// SourceError returns the text of the source's error, "" if there is none.
func (i informerView) SourceError() string { return errorText(i.Health.SourceError) }

// maxNamespaces is how many namespaces the page names that cannot be read.
const maxNamespaces = 5

// Namespaces says how many namespaces an informer over several of them has, and which cannot be
// read. It is "" for another informer.
func (i informerView) Namespaces() string {
	all := len(i.Health.Namespaces)
	if all == 0 {
		return ""
	}
	var unread []string
	for _, n := range i.Health.Namespaces {
		if !n.Synced || n.SourceError != nil {
			unread = append(unread, n.Namespace)
		}
	}
	text := fmt.Sprint(all)
	if len(unread) > 0 {
		text += fmt.Sprintf(", of which %d cannot be read: %s", len(unread), strings.Join(unread[:min(len(unread), maxNamespaces)], ", "))
	}
	if len(unread) > maxNamespaces {
		text += ", …"
	}
	return text
}

// StoreError returns the text of the store's error, "" if there is none.
func (i informerView) StoreError() string { return errorText(i.Health.StoreError) }

func errorText(err error) string { return cut(errorOf(err), maxErrorText) }

// errorOf returns the text of an error, "" for nil.
func errorOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func shorten(name string) string { return cut(name, maxName) }

// cut returns the first bytes of text, up to end, and cuts no character in two.
func cut(text string, end int) string {
	if len(text) <= end {
		return text
	}
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + " …"
}

// Class returns the CSS class of the informer's state.
func (i informerView) Class() string { return stateClass(i.State == "watching", i.Attention) }

// Class returns the CSS class of the watcher's state.
func (w watcherView) Class() string { return stateClass(w.State == "well", w.Attention) }

func stateClass(well, attention bool) string {
	switch {
	case attention:
		return "attention"
	case well:
		return "well"
	}
	return "waiting"
}

// ago returns how long before the page a time was, "never" for the zero time.
func ago(page, t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return roundDuration(page.Sub(t)) + " ago"
}

// CallText names the first objects that the watcher is being called for.
func (w watcherView) CallText() string { return some(w.Calls) }

// RetryText names the first objects that wait for another attempt.
func (w watcherView) RetryText() string { return some(w.Retries) }

// some returns the first three keys, and how many more there are.
func some(keys []string) string {
	const shown = 3
	text := strings.Join(keys[:min(len(keys), shown)], ", ")
	if more := len(keys) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// RateText returns the events per second, "…" while they are not known.
func (w watcherView) RateText() string {
	if w.Rate == nil {
		return "…"
	}
	return fmt.Sprintf("%.1f", *w.Rate)
}

// chart is the line of a watcher's waiting events. Its box is one unit wide per second, and
// has a margin of 2 above and below the line.
type chart struct {
	Width, BoxHeight int
	Now, Peak        int
	Top              int    // the value at the top of the box
	Line             string // the points of a polyline
}

// Chart returns the chart of the watcher's backlog. The peak of the last minute is as high as
// the box, but at least ten events are: a few events that wait for a moment stay low.
func (w watcherView) Chart() chart {
	const height = 20
	c := chart{Width: int(trailLength / time.Second), BoxHeight: height + 4, Now: w.Stats.Pending}
	for _, p := range w.Backlog {
		c.Peak = max(c.Peak, p.Pending)
	}
	c.Top = max(c.Peak, 10)
	line := make([]string, 0, len(w.Backlog))
	for _, p := range w.Backlog {
		x := float64(c.Width) - p.SecondsAgo
		y := height * (1 - float64(p.Pending)/float64(c.Top))
		line = append(line, fmt.Sprintf("%.1f,%.1f", x, y))
	}
	c.Line = strings.Join(line, " ")
	return c
}

// roundDuration returns d in its one or two largest units.
func roundDuration(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return "0 s"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
}

// quiet returns the class of a figure that is zero, so that others stand out.
func quiet(n any) string {
	if fmt.Sprint(n) == "0" {
		return " quiet"
	}
	return ""
}

// compact returns a number in at most five characters, if it is less than a billion.
func compact(n int) string {
	switch {
	case n < 10_000:
		return fmt.Sprint(n)
	case n < 1_000_000:
		return fmt.Sprintf("%dk", n/1000)
	}
	return fmt.Sprintf("%dM", n/1_000_000)
}
