package informer

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// debugWatchers is how many watchers of an informer the page shows, those first that
	// need attention. JSON has all.
	debugWatchers = 100
	// debugText is how much of an error's text the page shows, in bytes, debugName how
	// much of a name or of what a watcher is called for.
	debugText = 1000
	debugName = 200
	// debugKeys is how many keys are shown of what a watcher will be called for again.
	debugKeys = 10
)

// debugView is what the page shows.
type debugView struct {
	Time      time.Time       `json:"time"`
	Informers []debugInformer `json:"informers"`
}

type debugInformer struct {
	// Name is the one in Group.Health.
	Name      string         `json:"name"`
	State     string         `json:"state"`
	Attention bool           `json:"attention"`
	Store     string         `json:"store,omitempty"`
	Health    Health         `json:"health"`
	Watchers  []debugWatcher `json:"watchers"`
}

type debugWatcher struct {
	Name      string `json:"name"`
	State     string `json:"state"`
	Attention bool   `json:"attention"`
	// Calls are the keys of what it is being called for, Retries of what waits for its
	// next attempt.
	Calls   []string `json:"calls,omitempty"`
	Retries []string `json:"retries,omitempty"`
	// Rate is nil until there is something to compare with.
	Rate    *float64     `json:"eventsPerSecond,omitempty"`
	Backlog []debugPoint `json:"backlog"`

	// Stats are the same as in Health.
	Stats WatcherStats `json:"stats"`

	id      watcherID
	details watcherDetails
}

// debugDetails is what an informer tells the page beside its Health.
type debugDetails struct {
	store    string // its type
	watchers map[watcherID]watcherDetails
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

// watcherDetails are those of a watcher. All that is known of a watcher without Workers
// and Retry is what it is being called for.
type watcherDetails struct {
	calls   []string
	retries []string // the keys of what will be tried again, but for what is beyond debugKeys
	hung    bool     // a call lasts for too long
	failed  bool     // the oldest event will be tried again
}

// debugDetails does not block.
func (i *CustomCacheInformer[T]) debugDetails() *debugDetails {
	d := &debugDetails{store: "in memory", watchers: map[watcherID]watcherDetails{}}
	if i.opts.Store != nil {
		d.store = fmt.Sprintf("%T", i.store)
	}
	ids := watcherIDs{}
	for _, l := range i.processor.shown() {
		w := watcherDetails{calls: l.calling()}
		if l.crew != nil {
			w.hung, w.failed, w.retries = l.crew.trouble(debugKeys)
		}
		d.watchers[ids.next(l.opts.Name)] = w
	}
	return d
}

// view returns what there is to see now.
func (d *debugHandler) view(now time.Time) debugView {
	all := d.group.look()
	v := debugView{Time: now.UTC(), Informers: []debugInformer{}}
	for n, name := range names(all) {
		v.Informers = append(v.Informers, newDebugInformer(name, all[n]))
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

// newDebugInformer returns how a member is doing, but for what must be seen for longer.
func newDebugInformer(name string, m seen) debugInformer {
	i := debugInformer{Name: name, Health: m.health, Watchers: []debugWatcher{}}
	i.State, i.Attention = informerState(i.Health)
	details := &debugDetails{}
	if ours, ok := m.Member.(interface{ debugDetails() *debugDetails }); ok {
		details = ours.debugDetails()
	}
	i.Store = details.store
	ids := watcherIDs{}
	for _, s := range i.Health.Watchers {
		id := ids.next(s.Name)
		d := details.watchers[id]
		i.Watchers = append(i.Watchers, debugWatcher{Name: s.Name, Calls: d.calls, Retries: d.retries, Stats: s, id: id, details: d})
	}
	return i
}

// follow adds to i what was seen of its watchers in the last minute, and to trails what
// is to be remembered of them.
func (d *debugHandler) follow(now time.Time, i *debugInformer, trails map[trailID]*trail) {
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
		w.State, w.Attention = watcherState(i.Health, w.Stats, w.details, t)
	}
}

// informerState says in a word or two how an informer is doing, and whether somebody
// should look after it.
func informerState(h Health) (state string, attention bool) {
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
func watcherState(h Health, s WatcherStats, d watcherDetails, t *trail) (state string, attention bool) {
	late := s.OldestWaiting >= hungCall && h.Started
	switch {
	case h.Stopped:
		return "stopped", s.Pending > 0
	case d.hung, late && len(d.calls) > 0 && t.stalled():
		return "blocked", true
	case late && d.failed:
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
func (v debugView) Summary() string {
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
func (i debugInformer) Shown() []debugWatcher {
	shown := slices.Clone(i.Watchers)
	slices.SortStableFunc(shown, func(a, b debugWatcher) int {
		switch {
		case a.Attention == b.Attention:
			return 0
		case a.Attention:
			return -1
		}
		return 1
	})
	return shown[:min(len(shown), debugWatchers)]
}

// Hidden returns how many watchers have none.
func (i debugInformer) Hidden() int { return max(0, len(i.Watchers)-debugWatchers) }

// SourceError returns the text of the source's error, "" if there is none.
func (i debugInformer) SourceError() string { return errorText(i.Health.SourceError) }

// StoreError returns the text of the store's error, "" if there is none.
func (i debugInformer) StoreError() string { return errorText(i.Health.StoreError) }

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return cut(err.Error(), debugText)
}

func shorten(name string) string { return cut(name, debugName) }

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
func (i debugInformer) Class() string { return stateClass(i.State == "watching", i.Attention) }

// Class says how the page shows the state.
func (w debugWatcher) Class() string { return stateClass(w.State == "well", w.Attention) }

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
func (i debugInformer) Ago(page, t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return roundDuration(page.Sub(t)) + " ago"
}

// CallText names what the watcher is being called for.
func (w debugWatcher) CallText() string { return some(w.Calls) }

// RetryText names what the watcher will be called for again.
func (w debugWatcher) RetryText() string { return some(w.Retries) }

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
func (w debugWatcher) RateText() string {
	if w.Rate == nil {
		return "…"
	}
	return fmt.Sprintf("%.1f", *w.Rate)
}

// debugChart is the line of what waited for a watcher, in a box as wide as the seconds
// that it shows, with a margin of 2 above and below.
type debugChart struct {
	Width, BoxHeight int
	Now, Peak        int
	Line             string // the points of a polyline
}

// Chart returns the chart of the watcher's backlog. Ten events are as high as the box,
// or as many as there were, if more: a few that wait for a moment are no mountain.
func (w debugWatcher) Chart() debugChart {
	const height = 20
	c := debugChart{Width: int(trailLength / time.Second), BoxHeight: height + 4, Now: w.Stats.Pending}
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
