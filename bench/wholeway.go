package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// stream says how many events update how many objects, for how many watchers.
type stream struct{ watchers, objects, events int }

const wholeWayName = "wholeway"

func wholeWaySection(sz sizes) section {
	s := section{
		name:  wholeWayName,
		title: "The whole way",
		about: "Time from the first event of a watch until the last watcher has been called for the last of them, divided by " +
			"the number of events. A source in memory feeds updates of 1000 objects, made beforehand and the same for all sides, as fast as the side takes them. Reflector, queue, store, index by namespace and " +
			"distribution are those of the side. Every handler only counts its calls, and every side calls every handler for every event: our watchers have an unbounded backlog here, " +
			"as client-go's always have.",
	}
	var events []watch.Event
	s.open = func(context.Context) (func() error, error) {
		for _, w := range sz.wholeWay {
			if w.events > len(events) {
				events = updates(w.objects, w.events)
			}
		}
		return func() error { events = nil; return nil }, nil
	}
	for _, w := range sz.wholeWay {
		s.cases = append(s.cases, measurement{
			rows: []row{{
				name: "whole way, " + plural(w.watchers, "watcher"), unit: "ns/event",
				common: w.watchers <= 3, floor: wholeWayFloors[w.watchers],
			}},
			measure: func(ctx context.Context, side side) ([]float64, error) {
				took, err := wholeWay(ctx, side, w, events[:w.events], observing{})
				return []float64{nanoseconds(took) / float64(w.events)}, err
			},
		})
	}
	return s
}

var wholeWayFloors = map[int]floor{
	1:   {deltaFIFO: 1.1, realFIFO: 1.5},
	10:  {deltaFIFO: 3.5, realFIFO: 4.5},
	100: {deltaFIFO: 20, realFIFO: 25},
}

// wholeWay returns the time until every watcher has had all events.
func wholeWay(ctx context.Context, s side, w stream, events []watch.Event, by observing) (took time.Duration, err error) {
	src := newSource(w.objects)
	inf, err := openObserved[pod](s, src.listWatch(), by)
	if err != nil {
		return 0, err
	}
	handled := newTally(w.watchers)
	synced, err := addAll(inf, w.watchers, everyEvent, func(int) func(pod) {
		return count[pod](handled, w.objects+len(events))
	})
	if err != nil {
		return 0, err
	}
	running := start(inf.run)
	stopFeeding := func() {}
	defer func() { running.stop(&err); stopFeeding() }()
	if err := synced(ctx); err != nil {
		return 0, err
	}
	begin := restart()
	stopFeeding = src.feed(events)
	err = handled.wait(ctx)
	return time.Since(begin), err
}

// plural returns a number of things in words.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
