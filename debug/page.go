package debug

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/customcacheinformer/informer"
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
		"in":       in,
		"visible":  visible,
		"plural":   plural,
		"duration": roundDuration,
		"class":    stateClass,
		"some":     some,
		"short":    func(name string) string { return cut(name, maxName) },
		"text":     func(err string) string { return cut(err, maxErrorText) },
		"quiet":    quiet,
		"compact":  compact,
	}).Parse(markup))

	// policy lets the page run its own script and connect to its own origin, nothing else.
	policy = fmt.Sprintf("default-src 'none'; script-src '%s'; style-src '%s'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
		hashOf(script), hashOf(style))
)

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

func (i informerView) late(attention bool) []watcherView {
	return slices.DeleteFunc(slices.Clone(i.Watchers), func(w watcherView) bool { return w.Attention != attention })
}

// Shown returns the watchers that the page shows, at most maxWatchers. Watchers that need attention
// come first.
func (i informerView) Shown() []watcherView {
	shown := append(i.late(true), i.late(false)...)
	return shown[:min(len(shown), maxWatchers)]
}

// Hidden returns how many watchers Shown omits.
func (i informerView) Hidden() int { return max(0, len(i.Watchers)-maxWatchers) }

// maxUnread is how many unreadable namespaces or clusters of an informer the page names.
const maxUnread = 5

// Namespaces returns how many namespaces an informer reads, and which of them cannot be read. It
// returns "" if the informer is not over namespaces.
func (i informerView) Namespaces() string { return regions(i.Health.Namespaces) }

// Clusters returns how many clusters an informer reads, and which of them cannot be read. It returns
// "" if the informer is not over clusters.
func (i informerView) Clusters() string { return regions(i.Health.Clusters) }

func regions(all []informer.SourceHealth) string {
	if all == nil {
		return ""
	}
	var unread []string
	for _, n := range all {
		if !n.Synced || n.SourceFailures > 0 || n.SourceWaiting > 0 {
			unread = append(unread, cmp.Or(n.Namespace, n.Cluster))
		}
	}
	text := fmt.Sprint(len(all))
	if len(unread) > 0 {
		text += fmt.Sprintf(", of which %d cannot be read: %s", len(unread), strings.Join(unread[:min(len(unread), maxUnread)], ", "))
	}
	if len(unread) > maxUnread {
		text += ", …"
	}
	return text
}

// ObjectsText returns the number of objects in the store.
func (i informerView) ObjectsText() string {
	if i.Health.Objects < 0 {
		return "not counted"
	}
	return plural(i.Health.Objects, "object")
}

// MemoryText returns how much memory the objects take, or "" if that is not known.
func (i informerView) MemoryText() string {
	m := i.Health.Memory
	if m.Objects == 0 {
		return ""
	}
	text := "about " + megabytes(m.Objects)
	if m.Saved > 0 {
		text += ", " + megabytes(m.Saved) + " saved by sharing"
	}
	return text + "; lists took up to " + megabytes(m.ListPeak)
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

// RateText returns the events per second, or "…" while they are not known.
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
	Flat             bool   // the number was the same for the whole time
}

// Chart returns the chart of the watcher's backlog, or nil if no event has waited or there was only
// one request. The top of the box is the peak of the last minute, or ten events if that is more, so a
// few events that wait for a moment stay low.
func (w watcherView) Chart() *chart {
	const height = 20
	c := &chart{Width: int(trailLength / time.Second), BoxHeight: height + 4, Now: w.Stats.Pending}
	for _, p := range w.Backlog {
		c.Peak = max(c.Peak, p.Pending)
	}
	if c.Peak == 0 || len(w.Backlog) < 2 {
		return nil
	}
	c.Top = max(c.Peak, 10)
	line, flat := make([]string, 0, len(w.Backlog)), true
	for _, p := range w.Backlog {
		x := float64(c.Width) - p.SecondsAgo
		y := height * (1 - float64(p.Pending)/float64(c.Top))
		line, flat = append(line, fmt.Sprintf("%.1f,%.1f", x, y)), flat && p.Pending == c.Peak
	}
	c.Line, c.Flat = strings.Join(line, " "), flat
	return c
}
