package main

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// streamed is the number of objects that a stream of events updates in turn.
const streamed = 1000

func wholeWaySection(sz sizes) section {
	s := section{
		name:  "wholeway",
		title: "The whole way",
		about: "Time from the first event of a watch until the last watcher has been called for the last of them, divided by " +
			"the number of events. A source in memory feeds updates of 1000 objects, made beforehand, as fast as the side takes them. Reflector, queue, store, index by namespace and " +
			"distribution are those of the side. Every handler only counts its calls, and every side calls every handler for every event: our watchers have an unbounded backlog here, " +
			"as client-go's always have.",
	}
	for _, w := range []struct {
		watchers, part int // a part of the events
		floor          floor
	}{{1, 1, floor{deltaFIFO: 1.1, realFIFO: 1.5}}, {3, 1, floor{}}, {10, 2, floor{deltaFIFO: 3.5, realFIFO: 4.5}}, {100, 7, floor{deltaFIFO: 20, realFIFO: 25}}} {
		s.cases = append(s.cases, measurement{
			rows: []row{{name: "whole way, " + plural(w.watchers, "watcher"), unit: "ns/event", common: w.watchers <= 3, floor: w.floor}},
			measure: func(ctx context.Context, side side) ([]float64, error) {
				return wholeWay(ctx, side, options{}, w.watchers, sz.events/w.part)
			},
		})
	}
	return s
}

// wholeWay returns the nanoseconds per event until every watcher has had all events.
func wholeWay(ctx context.Context, s side, opts options, watchers, n int) (values []float64, err error) {
	events, handled := updates(streamed, n), newTally(watchers)
	inf, err := launch(ctx, s, opts, streamed, watchers, func(int) func(pod) { return count[pod](handled, streamed+n) })
	defer inf.stop(&err)
	if err != nil {
		return nil, err
	}
	took, err := timeOf(ctx, inf.src, events, handled)
	return []float64{nanoseconds(took) / float64(n)}, err
}

// timeOf feeds events, and returns the time until all are handled.
func timeOf(ctx context.Context, src *source, events []watch.Event, handled *tally) (time.Duration, error) {
	begin := restart()
	src.feed(events)
	err := handled.wait(ctx)
	return time.Since(begin), err
}
