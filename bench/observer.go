package main

import (
	"context"

	"github.com/customcacheinformer/informer"
	informerprometheus "github.com/customcacheinformer/informer/metrics/prometheus"
)

// observerSection measures the whole way again, with Observers.
func observerSection(sz sizes) section {
	s := section{
		name: "observer", title: "Observers",
		about: "The whole way, as above, to 10 watchers, with an Observer in our informers: none, as by default; one whose functions " +
			"for applied and handled events do nothing; and that of metrics/prometheus. So the Observer is called for an event once when the event is applied and once for each watcher. client-go has no Observer: its column " +
			"shows the same work three times.",
	}
	const watchers = 10
	for _, kind := range []struct {
		name     string
		observer *informer.Observer
	}{
		{"no Observer", nil},
		{"functions that do nothing", &informer.Observer{Apply: func(informer.ApplyInfo) {}, Handled: func(informer.HandledInfo) {}}},
		{"Prometheus", informerprometheus.New(func() map[string]informer.MemberHealth { return nil }).Observer()}, // without scrapes
	} {
		s.cases = append(s.cases, measurement{
			rows: []row{{name: kind.name + ", " + plural(watchers, "watcher"), unit: "ns/event"}},
			measure: func(ctx context.Context, side side) ([]float64, error) {
				return wholeWay(ctx, side, options{Observer: kind.observer}, watchers, sz.events/2)
			},
		})
	}
	return s
}
