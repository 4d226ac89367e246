package debug

import (
	"maps"
	"slices"
	"time"

	"github.com/customcacheinformer/informer"
)

// view is the state of all informers, controllers and sets of package shards at one moment, as the
// page and the JSON show it.
type view struct {
	Time        time.Time        `json:"time"`
	Informers   []informerView   `json:"informers"`
	Controllers []controllerView `json:"controllers"`
	Sets        []setView        `json:"sets"`

	health map[string]informer.Health // of all of them, by name
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

// look returns the state of all informers, controllers and sets now, and keeps what the next looks need.
func (h *handler) look() view {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, all := time.Now(), h.health()
	v := view{Time: now.UTC(), Informers: []informerView{}, Controllers: []controllerView{}, Sets: []setView{}, health: all}
	trails := map[trailID]*trail{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch {
		case all[name].Controller != nil:
			v.Controllers = append(v.Controllers, newControllerView(name, all[name]))
			continue
		case all[name].Shards != nil:
			v.Sets = append(v.Sets, newSetView(name, all[name]))
			continue
		}
		i := informerView{Name: name, Store: all[name].Store, Health: all[name], Watchers: []watcherView{}}
		i.State, i.Attention = informerState(i.Health)
		for _, w := range i.Health.Watchers {
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
			i.Watchers = append(i.Watchers, newWatcherView(i.Health, w, t))
		}
		v.Informers = append(v.Informers, i)
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
