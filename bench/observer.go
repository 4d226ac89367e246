package main

import (
	"context"

	"github.com/customcacheinformer/informer"
	informerprometheus "github.com/customcacheinformer/informer/metrics/prometheus"
)

// observerSection measures the whole way again, with Observers.
func observerSection(sz sizes) section {
	s := wholeWaySection(sz)
	s.name, s.title = "observer", "Observers"
	s.about = "The whole way, as above, to 10 watchers, with an Observer in our informers: none, as by default; one whose functions " +
		"for applied and handled events do nothing; and that of metrics/prometheus. So the Observer is called for an event once when the event is applied and once for each watcher. client-go has no Observer: its column " +
		"shows the same work three times."
	s.cases = nil
	const watchers = 10
	for _, kind := range []struct {
		name string
		make func() observing
	}{
		{"no Observer", func() observing { return observing{} }},
		{"functions that do nothing", func() observing {
			return observing{observer: &informer.Observer{Apply: func(informer.ApplyInfo) {}, Handled: func(informer.HandledInfo) {}}}
		}},
		{"Prometheus", withPrometheus},
	} {
		s.cases = append(s.cases, measurement{
			rows: []row{{name: kind.name + ", " + plural(watchers, "watcher"), unit: "ns/event"}},
			measure: func(ctx context.Context, side side) ([]float64, error) {
				return wholeWay(ctx, side, watchers, sz.events/2, kind.make())
			},
		})
	}
	return s
}

// observing is how an informer is observed; the zero value means not at all.
type observing struct {
	observer *informer.Observer
	group    *informer.Group // the group that the informer joins, or nil
}

func withPrometheus() observing {
	group := &informer.Group{}
	return observing{informerprometheus.New(group.Health).Observer(), group}
}
