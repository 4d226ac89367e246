package debug

import (
	"fmt"
	"hash/fnv"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/customcacheinformer/informer"
)

// thing is a section of the page: a controller, a set, a member of another kind or an informer.
type thing struct {
	ID, Kind, Name, State, Class string // ID is that of the section, the same in each look

	Attention bool
	Trouble   string          // why a person should look at the thing or its watchers, "" if there is no reason
	Brief     string          // figures in the line of a thing that is well
	Health    informer.Health // an informer's Health, or only the errors of another thing's source
	Page      time.Time       // the time of the page
	View      any             // a controllerView, a setView, a memberView or an informerView
	Watchers  []watcherView   // of an informer
}

// Things returns the sections of the page: first those that a person should look at, then those that are
// not at work yet, then the others. In each part, the order is controllers, sets, other members,
// informers.
func (v view) Things() []thing {
	var troubled, waiting, others []thing
	add := func(t thing) {
		hash := fnv.New64a()
		_, _ = hash.Write([]byte(t.Name))
		t.ID, t.Page = fmt.Sprintf("t%x", hash.Sum64()), v.Time
		if t.Attention || t.Class == unready && t.Kind != "informer" && t.State != "working" {
			t.Trouble = t.State
		}
		switch {
		case t.Trouble == "":
			others = append(others, t)
		case !t.Attention && t.Kind != "informer":
			waiting = append(waiting, t)
		default:
			troubled = append(troubled, t)
		}
	}
	for _, c := range v.Controllers {
		add(thing{Kind: "controller", Name: c.Name, State: c.State, Class: c.Class(), Attention: c.Attention, Brief: c.Brief(), View: c,
			Health: informer.Health{SourceError: c.Health.Reason}})
	}
	for _, s := range v.Sets {
		add(thing{Kind: "set", Name: s.Name, State: s.State, Class: s.Class(), Attention: s.Attention, Brief: s.BucketsText() + " buckets", View: s,
			Health: informer.Health{SourceError: s.Health.SourceError, SourceFailures: s.Health.SourceFailures,
				SourceFailingSince: s.Health.SourceFailingSince, SourceNextTry: s.Health.SourceNextTry}})
	}
	for _, m := range v.Members {
		add(thing{Kind: "member", Name: m.Name, State: m.State, Class: stateClass(m.State, m.Attention), Attention: m.Attention, View: m})
	}
	for _, i := range v.Informers {
		var late []string
		for _, w := range i.late(true) {
			late = append(late, w.Name+" "+w.State)
		}
		add(thing{Kind: "informer", Name: i.Name, State: i.State, Class: stateClass(i.State, i.Attention), Attention: i.Attention,
			Trouble: some(late), Brief: i.ObjectsText() + ", " + plural(len(i.Watchers), "watcher"), View: i, Watchers: i.Watchers, Health: i.Health})
	}
	return slices.Concat(troubled, waiting, others)
}

// Open reports whether the page shows all of t and not only a line, because t needs attention or its
// source has an error.
func (t thing) Open() bool { return t.Trouble != "" || t.Health.SourceError != nil }

// FailingText returns how often and since when the requests of the source have failed, when the next
// attempt comes, and how old the state is. It returns "" if they do not fail.
func (t thing) FailingText() string {
	h := t.Health
	if h.SourceFailures == 0 {
		return ""
	}
	text := fmt.Sprintf("Failures in a row: %d", h.SourceFailures)
	if !h.SourceFailingSince.IsZero() {
		text += ", for " + roundDuration(t.Page.Sub(h.SourceFailingSince))
	}
	if !h.SourceNextTry.IsZero() {
		text += "; next try " + in(t.Page, h.SourceNextTry)
	}
	if h.Synced && !h.LastProgress.IsZero() {
		text += fmt.Sprintf(". The state is %s old", roundDuration(t.Page.Sub(h.LastProgress)))
	}
	return text + "."
}

type tally struct {
	what     string
	all, bad int
	first    string // ID of the section of the first that needs attention, or else of the first
}

func (t *tally) add(attention bool, id string) {
	t.all++
	if attention {
		t.bad++
	}
	if t.all == 1 || attention && t.bad == 1 {
		t.first = id
	}
}

func (v view) tallies() []*tally {
	all := []*tally{{what: "informer"}, {what: "watcher"}, {what: "controller"}, {what: "set"}, {what: "member"}}
	for _, t := range v.Things() {
		n := slices.IndexFunc(all, func(all *tally) bool { return all.what == t.Kind })
		all[n].add(t.Attention, t.ID)
		for _, w := range t.Watchers {
			all[1].add(w.Attention, t.ID)
		}
	}
	return all
}

func (v view) Bad() (bad int) {
	for _, t := range v.tallies() {
		bad += t.bad
	}
	return bad
}

// Title returns the title of the page, with the number of things that need attention, so that a browser
// shows it in the tab.
func (v view) Title() string {
	if bad := v.Bad(); bad > 0 {
		return fmt.Sprintf("(%d) Informers", bad)
	}
	return "Informers"
}

// Summary returns how many things need attention, with links to the first of each kind. If nothing needs
// attention, it returns how many informers and watchers there are, and how many controllers, sets and
// other members if there are any.
func (v view) Summary() template.HTML {
	bad := v.Bad()
	if bad == 0 && len(v.Informers) == 0 {
		return "No informers: none was made yet, or all have stopped."
	}
	var counts []string
	for n, t := range v.tallies() {
		text := plural(t.all, t.what)
		switch {
		case t.bad > 0:
			text = fmt.Sprintf("%d of %s", t.bad, text)
		case bad > 0 || t.all == 0 && n > 1:
			continue
		}
		counts = append(counts, fmt.Sprintf(`<a href="#%s">%s</a>`, t.first, text))
	}
	text, last := strings.Join(counts, ", "), len(counts)-1
	switch {
	case bad == 1:
		text += " needs attention."
	case bad > 1 && last > 0:
		text = strings.Join(counts[:last], ", ") + " and " + counts[last] + " need attention."
	case bad > 1:
		text += " need attention."
	case slices.ContainsFunc(v.Things(), func(t thing) bool { return t.Class == unready }):
		text = "Nothing needs attention yet: " + text + "."
	default:
		text = "All is well: " + text + "."
	}
	return template.HTML(text)
}
