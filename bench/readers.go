package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer/internal/lab"
)

func readersSection(sz sizes) section {
	s := section{
		name:  "readers",
		title: "Readers next to a watcher",
		about: fmt.Sprintf("As in the section about latency, one event a ms goes to a watcher of an informer that holds %d objects. Meanwhile readers list all objects, ", sz.cached) +
			"each with a pause of 10 ms after each list.",
	}
	for _, readers := range []int{0, 32} {
		name := fmt.Sprintf("latency with %s", plural(readers, "reader"))
		least := floor{}
		if readers > 0 {
			least = both(20)
		}
		s.cases = append(s.cases, measurement{
			rows: []row{
				{name: name + ", p50", unit: "µs"}, {name: name + ", p99", unit: "µs", floor: least}, {name: name + ", longest", unit: "µs"},
				{name: name + ", objects that they read", unit: "/s", higher: true, plain: readers == 0},
			},
			measure: func(ctx context.Context, side side) ([]float64, error) {
				return besideReaders(ctx, side, newTrickle(1, 1, sz.ticks), sz.cached, readers)
			},
		})
	}
	return s
}

// besideReaders returns quantiles of the time from when an event is due until it is handled, in microseconds, and how
// many objects are read in a second.
func besideReaders(ctx context.Context, s side, t *trickle, objects, readers int) (values []float64, err error) {
	src := newSource(objects)
	inf, err := open[pod](s, src.listWatch())
	if err != nil {
		return nil, err
	}
	synced, err := addAll(inf, 1, everyEvent, t.handler)
	if err != nil {
		return nil, err
	}
	running := start(inf.run)
	defer running.stop(&err)
	if err := synced(ctx); err != nil {
		return nil, err
	}
	events := make([]watch.Event, t.ticks)
	for place := range events {
		events[place] = update(objects, place*scattered)
		events[place].Object.(pod).Generation = int64(place)
	}
	begun := restart()
	var reading sync.WaitGroup
	var stop atomic.Bool
	var read atomic.Int64
	for range readers {
		reading.Go(func() {
			for more := true; more; more = !stop.Load() {
				read.Add(int64(len(inf.list())))
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	err = errors.Join(t.send(ctx, ctx, src, func(place int) watch.Event { return events[place] }), t.wait(ctx))
	stop.Store(true)
	reading.Wait()
	perSecond := float64(read.Load()) / time.Since(begun).Seconds()
	if err != nil {
		return nil, err
	}
	var took []float64
	for _, d := range t.watchers[0].took {
		took = append(took, microseconds(d))
	}
	slices.Sort(took)
	return []float64{lab.Quantile(took, 0.5), lab.Quantile(took, 0.99), took[len(took)-1], perSecond}, nil
}
