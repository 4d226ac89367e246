package debug

import (
	"maps"
	"slices"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/shards"
)

// view is the state of all informers, controllers, sets of package shards and other members at one moment, as the
// page and the JSON show it.
type view struct {
	Time        time.Time        `json:"time"`
	Informers   []informerView   `json:"informers"`
	Controllers []controllerView `json:"controllers"`
	Sets        []setView        `json:"sets"`
	Members     []memberView     `json:"members,omitempty"` // of other kinds
}

type informerView struct {
	Name      string          `json:"name"` // the key in the map of health
	State     string          `json:"state"`
	Attention bool            `json:"attention"`
	Store     string          `json:"store,omitempty"`
	Health    informer.Health `json:"health"`
	Watchers  []watcherView   `json:"watchers"`
}

type watcherView struct {
	Name      string                `json:"name"`
	State     string                `json:"state"`
	Attention bool                  `json:"attention"`
	Calls     []string              `json:"calls,omitempty"`
	Retries   []string              `json:"retries,omitempty"`
	Rate      *float64              `json:"eventsPerSecond,omitempty"` // nil after a single look
	Backlog   []point               `json:"backlog"`
	Stats     informer.WatcherStats `json:"stats"`
}

// look returns the current state of all members, and records the trails of the watchers for later looks.
func (h *handler) look() view {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, all := time.Now(), h.health()
	v := view{Time: now.UTC(), Informers: []informerView{}, Controllers: []controllerView{}, Sets: []setView{}}
	trails := map[trailID]*trail{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch is := all[name].(type) {
		case nil:
		case enqueue.Health:
			v.Controllers = append(v.Controllers, newControllerView(name, is))
		case shards.Health:
			v.Sets = append(v.Sets, newSetView(name, is))
		case informer.Health:
			i := informerView{Name: name, Store: is.Store, Health: is, Watchers: []watcherView{}}
			i.State, i.Attention = informerState(is)
			for _, w := range is.Watchers {
				id := trailID{informer: name, watcher: w.Name}
				for trails[id] != nil {
					id.number++
				}
				t := h.trails[id]
				if t == nil {
					t = &trail{}
				}
				trails[id] = t
				t.add(now, w.WatcherStats)
				i.Watchers = append(i.Watchers, newWatcherView(is, w, t))
			}
			v.Informers = append(v.Informers, i)
		default:
			v.Members = append(v.Members, newMemberView(name, is))
		}
	}
	h.trails = trails // without those of watchers that are gone
	return v
}

// newWatcherView returns the state of a watcher of an informer. The trail t ends with w.
func newWatcherView(h informer.Health, w informer.WatcherHealth, t *trail) watcherView {
	v := watcherView{Name: w.Name, Calls: w.Calls, Retries: w.Retries, Rate: t.rate(), Backlog: t.points(), Stats: w.WatcherStats}
	v.State, v.Attention = watcherState(h, w, t)
	return v
}
