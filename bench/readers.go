package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// readers is how many read next to the watcher.
const readers = 32

func readersSection(sz sizes) section {
	return section{
		name:  "readers",
		title: "Readers next to a watcher",
		about: fmt.Sprintf("As in the section about latency, one event a ms goes to a watcher of an informer that holds %d objects. Meanwhile readers list all objects, ", sz.cached) +
			"each with a pause of 10 ms after each list.",
		cases: []measurement{{
			rows: named(fmt.Sprintf("latency with %d readers, ", readers),
				row{name: "p50", unit: "µs"}, row{name: "p99", unit: "µs", floor: both(20)}, row{name: "longest", unit: "µs"},
				row{name: "objects that they read", unit: "/s", higher: true}),
			measure: func(ctx context.Context, side side) ([]float64, error) {
				return besideReaders(ctx, side, newTrickle(1, 1, sz.ticks), sz.cached)
			},
		}},
	}
}

// besideReaders returns quantiles of the time from when an event is due until it is handled, and how many objects are
// read in a second.
func besideReaders(ctx context.Context, s side, t *trickle, objects int) (values []float64, err error) {
	inf, err := launch(ctx, s, options{}, objects, 1, t.handler)
	defer inf.stop(&err)
	if err != nil {
		return nil, err
	}
	events := make([]watch.Event, t.ticks)
	for place := range events {
		events[place] = update(objects, place*scattered)
		events[place].Object.(pod).Generation = int64(place)
	}
	var reading sync.WaitGroup
	var stop atomic.Bool
	var read atomic.Int64
	begun := restart()
	for range readers {
		reading.Go(func() {
			for more := true; more; more = !stop.Load() {
				read.Add(int64(len(inf.list())))
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	err = t.sendAll(ctx, inf.src, events)
	stop.Store(true)
	reading.Wait()
	perSecond := float64(read.Load()) / time.Since(begun).Seconds()
	if err != nil {
		return nil, err // the watcher may still write its times
	}
	return append(t.quantiles(0.5, 0.99, 1), perSecond), nil
}
