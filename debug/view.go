package debug

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/customcacheinformer/informer"
)

const (
	// pageWatchers is how many watchers of an informer the page shows, those first that
	// need attention. JSON has all.
	pageWatchers = 100
	// pageText is how much of an error's text the page shows, in bytes, pageName how
	// much of a name or of what a watcher is called for.
	pageText = 1000
	pageName = 200
)

// pageView is what the page shows.
type pageView struct {
	Time      time.Time      `json:"time"`
	Informers []pageInformer `json:"informers"`
}

type pageInformer struct {
	// Name is the one in Group.Health.
	Name      string          `json:"name"`
	State     string          `json:"state"`
	Attention bool            `json:"attention"`
	Store     string          `json:"store,omitempty"`
	Health    informer.Health `json:"health"`
	Watchers  []pageWatcher   `json:"watchers"`
}

type pageWatcher struct {
	Name      string `json:"name"`
	State     string `json:"state"`
	Attention bool   `json:"attention"`
	// Calls are the keys of what it is being called for, Retries of what waits for its
	// next attempt.
	Calls   []string `json:"calls,omitempty"`
	Retries []string `json:"retries,omitempty"`
	// Rate is nil until there is something to compare with.
	Rate    *float64 `json:"eventsPerSecond,omitempty"`
	Backlog []point  `json:"backlog"`

	// Stats are the same as in Health.
	Stats informer.WatcherStats `json:"stats"`

	id     watcherID
	health informer.WatcherHealth
}

// watcherID tells the watchers of an informer from each other, those of one name by
// number.
type watcherID struct {
	name   string
	number int
}

// watcherIDs holds how many watchers have had a name.
type watcherIDs map[string]int

func (n watcherIDs) next(name string) watcherID {
	id := watcherID{name, n[name]}
	n[name]++
	return id
}

// view returns what there is to see now.
func (d *handler) view(now time.Time) pageView {
	all := d.health()
	v := pageView{Time: now.UTC(), Informers: []pageInformer{}}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		v.Informers = append(v.Informers, newPageInformer(name, all[name]))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	trails := map[trailID]*trail{}
	for n := range v.Informers {
		d.follow(now, &v.Informers[n], trails)
	}
	d.trails = trails // what is gone is forgotten
	return v
}

// newPageInformer returns how an informer is doing, but for what must be seen for longer.
func newPageInformer(name string, h informer.Health) pageInformer {
	i := pageInformer{Name: name, Store: h.Store, Health: h, Watchers: []pageWatcher{}}
	i.State, i.Attention = informerState(h)
	ids := watcherIDs{}
	for _, s := range h.Watchers {
		i.Watchers = append(i.Watchers, pageWatcher{Name: s.Name, Calls: s.Calls, Retries: s.Retries, Stats: s.WatcherStats, health: s, id: ids.next(s.Name)})
	}
	return i
}

// follow adds to i what was seen of its watchers in the last minute, and to trails what
// is to be remembered of them.
func (d *handler) follow(now time.Time, i *pageInformer, trails map[trailID]*trail) {
	for n := range i.Watchers {
		w := &i.Watchers[n]
		id := trailID{i.Name, w.id}
		t := d.trails[id]
		if t == nil {
			t = &trail{}
		}
		trails[id] = t
		t.add(now, w.Stats)
		w.Rate, w.Backlog = t.rate(), t.points(now)
		w.State, w.Attention = watcherState(i.Health, w.health, t)
	}
}

// informerState says in a word or two how an informer is doing, and whether somebody
// should look after it.
func informerState(h informer.Health) (state string, attention bool) {
	switch {
	case h.Stopped:
		return "stopped", true
	case !h.Started:
		return "not started", false
	case h.StoreError != nil:
		return "store fails", true
	case h.SourceError != nil && !h.Synced:
		return "cannot sync", true
	case h.SourceError != nil:
		return "source fails", true
	case !h.Synced:
		return "syncing", false
	case !h.Watching:
		return "between watches", false
	}
	return "watching", false
}

// watcherState says how a watcher of an informer is doing, and whether somebody should
// look after it. t is what was seen of it.
func watcherState(h informer.Health, s informer.WatcherHealth, t *trail) (state string, attention bool) {
	late := s.OldestWaiting >= hung && h.Started
	switch {
	case h.Stopped:
		return "stopped", s.Pending > 0
	case s.Hung, late && len(s.Calls) > 0 && t.stalled():
		return "blocked", true
	case late && s.Retrying:
		return "retrying", true
	case s.Lagging:
		return "merging", true
	case late:
		return "behind", true
	case !s.Synced:
		return "syncing", false
	}
	return "well", false
}

// Summary says how many need attention.
func (v pageView) Summary() string {
	var informers, watchers, badInformers, badWatchers int
	for _, i := range v.Informers {
		informers++
		if i.Attention {
			badInformers++
		}
		for _, w := range i.Watchers {
			watchers++
			if w.Attention {
				badWatchers++
			}
		}
	}
	of := func(bad, all int, what string) string {
		if all != 1 {
			what += "s"
		}
		return fmt.Sprintf("%d of %d %s", bad, all, what)
	}
	if badInformers+badWatchers == 0 {
		return fmt.Sprintf("All is well: %s and %s need attention.", of(0, informers, "informer"), of(0, watchers, "watcher"))
	}
	return fmt.Sprintf("%s and %s need attention.", of(badInformers, informers, "informer"), of(badWatchers, watchers, "watcher"))
}

// Shown returns the watchers that have a place on the page: those first that need
// attention.
func (i pageInformer) Shown() []pageWatcher {
	shown := slices.Clone(i.Watchers)
	slices.SortStableFunc(shown, func(a, b pageWatcher) int {
		switch {
		case a.Attention == b.Attention:
			return 0
		case a.Attention:
			return -1
		}
		return 1
	})
	return shown[:min(len(shown), pageWatchers)]
}

// Hidden returns how many watchers have none.
func (i pageInformer) Hidden() int { return max(0, len(i.Watchers)-pageWatchers) }

// SourceError returns the text of the source's error, "" if there is none.
func (i pageInformer) SourceError() string { return errorText(i.Health.SourceError) }

// StoreError returns the text of the store's error, "" if there is none.
func (i pageInformer) StoreError() string { return errorText(i.Health.StoreError) }

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return cut(err.Error(), pageText)
}

func shorten(name string) string { return cut(name, pageName) }

// cut returns no more than the first bytes of text.
func cut(text string, end int) string {
	if len(text) <= end {
		return text
	}
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + " …"
}

// Class says how the page shows the state.
func (i pageInformer) Class() string { return stateClass(i.State == "watching", i.Attention) }

// Class says how the page shows the state.
func (w pageWatcher) Class() string { return stateClass(w.State == "well", w.Attention) }

func stateClass(well, attention bool) string {
	switch {
	case attention:
		return "attention"
	case well:
		return "well"
	}
	return "waiting"
}

// Ago says how long before the page something was, "never" if not at all.
func (i pageInformer) Ago(page, t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return roundDuration(page.Sub(t)) + " ago"
}

// CallText names what the watcher is being called for.
func (w pageWatcher) CallText() string { return some(w.Calls) }

// RetryText names what the watcher will be called for again.
func (w pageWatcher) RetryText() string { return some(w.Retries) }

// some returns the first of keys, and how many more there are.
func some(keys []string) string {
	const shown = 3
	text := strings.Join(keys[:min(len(keys), shown)], ", ")
	if more := len(keys) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// RateText returns the rate for the page.
func (w pageWatcher) RateText() string {
	if w.Rate == nil {
		return "…"
	}
	return fmt.Sprintf("%.1f", *w.Rate)
}

// pageChart is the line of what waited for a watcher, in a box as wide as the seconds
// that it shows, with a margin of 2 above and below.
type pageChart struct {
	Width, BoxHeight int
	Now, Peak        int
	Line             string // the points of a polyline
}

// Chart returns the chart of the watcher's backlog. Ten events are as high as the box,
// or as many as there were, if more: a few that wait for a moment are no mountain.
func (w pageWatcher) Chart() pageChart {
	const height = 20
	c := pageChart{Width: int(trailLength / time.Second), BoxHeight: height + 4, Now: w.Stats.Pending}
	for _, p := range w.Backlog {
		c.Peak = max(c.Peak, p.Pending)
	}
	line := make([]string, 0, len(w.Backlog))
	for _, p := range w.Backlog {
		x := float64(c.Width) - p.SecondsAgo
		y := height * (1 - float64(p.Pending)/float64(max(c.Peak, 10)))
		line = append(line, fmt.Sprintf("%.1f,%.1f", x, y))
	}
	c.Line = strings.Join(line, " ")
	return c
}
