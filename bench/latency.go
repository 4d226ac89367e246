package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer"
)

// load is a stream of events at a fixed rate, whether or not a side keeps up with it.
type load struct {
	name     string
	watchers int
	ticks    int // number of milliseconds
	each     int // events in each millisecond
}

// latencyObjects is the number of objects that the events update in turn.
const latencyObjects = 1000

func latencySection(sz sizes) section {
	loads := []load{
		{"1 event a ms to 3 watchers", 3, sz.trickle, 1},
		{"20 events a ms to 10 watchers", 10, sz.load, 20},
	}
	s := section{
		name:  "latency",
		title: "Latency",
		about: "Time from the moment at which an event was due to be sent until a watcher is called for it, over all events and watchers. The events " +
			"come at a fixed rate that every side sustains with ease. The time counts from when an event was due, so it includes delays at the " +
			"entrance of a side as well as delays inside. The blocked watcher is an additional watcher that never returns from its first call, with " +
			"the defaults of each side; its own waiting does not count.",
	}
	for _, l := range loads {
		for _, blocked := range []bool{false, true} {
			name := "latency, " + l.name
			if blocked {
				name += ", one more is blocked"
			}
			s.cases = append(s.cases, measurement{
				rows: []row{
					{name: name + ", p50", unit: "µs", common: true},
					{name: name + ", p99", unit: "µs", common: true, floor: both(1)},
				},
				measure: func(ctx context.Context, side side) ([]float64, error) {
					p50, p99, err := latency(ctx, side, l, blocked)
					return []float64{p50, p99}, err
				},
			})
		}
	}
	return s
}

// latency returns quantiles of the time from when an event is due until it is handled, in
// microseconds.
func latency(ctx context.Context, s side, l load, blocked bool) (p50, p99 float64, err error) {
	src := newSource(latencyObjects)
	inf, err := open[pod](s, src.listWatch())
	if err != nil {
		return 0, 0, err
	}
	clock := newClock(l)
	synced, err := addAll(inf, l.watchers, everyEvent, clock.handler)
	if err != nil {
		return 0, 0, err
	}
	release := func() error { return nil }
	if blocked {
		if release, err = addBlocked(inf); err != nil {
			return 0, 0, err
		}
	}
	running := start(inf.run)
	defer running.stop(&err)
	defer func() { err = errors.Join(err, release()) }() // Run would otherwise wait forever
	if err := synced(ctx); err != nil {
		return 0, 0, err
	}
	events := updates(latencyObjects, l.ticks*l.each)
	restart()
	if err := clock.run(ctx, src, events); err != nil {
		return 0, 0, err
	}
	all := clock.sorted()
	return quantile(all, 0.5), quantile(all, 0.99), nil
}

// addBlocked registers a handler whose first call blocks until release is called. release also
// drops the handler's waiting events.
func addBlocked(inf subject[pod]) (release func() error, err error) {
	released := make(chan struct{})
	reg, err := inf.add(func(pod) { <-released }, informer.WatcherOptions{})
	if err != nil {
		return nil, err
	}
	return func() error { close(released); return reg.remove() }, nil
}

// clock measures the latency of every event at every watcher.
type clock struct {
	load    load
	begun   time.Time
	took    [][]time.Duration // by watcher and place; only the watcher writes it
	handled *tally
}

func newClock(l load) *clock {
	c := &clock{load: l, took: make([][]time.Duration, l.watchers), handled: newTally(l.watchers)}
	for i := range c.took {
		c.took[i] = make([]time.Duration, l.ticks*l.each)
	}
	return c
}

// handler returns the i-th watcher's handler. It ignores the events of the first state, which
// are not part of the stream.
func (c *clock) handler(i int) func(pod) {
	took, left := c.took[i], len(c.took[i])
	return func(p pod) {
		if p.Generation < 0 {
			return
		}
		took[p.Generation] = time.Since(due(c.begun, int(p.Generation)/c.load.each))
		if left--; left == 0 {
			c.handled.one()
		}
	}
}

// run sends each event when it is due, and returns when all events are handled.
func (c *clock) run(ctx context.Context, src *source, events []watch.Event) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	pacing, stop := context.WithCancel(ctx)
	var sending sync.WaitGroup
	defer sending.Wait()
	defer stop()
	sending.Go(func() {
		err := pace(pacing, func(begun time.Time) { c.begun = begun }, func(tick int) error {
			if tick >= c.load.ticks {
				stop()
				return nil
			}
			for _, e := range events[tick*c.load.each : (tick+1)*c.load.each] {
				if err := src.send(ctx, e); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			fail(err)
		}
	})
	return c.handled.wait(ctx)
}

// sorted returns every latency, in microseconds.
func (c *clock) sorted() []float64 {
	var all []float64
	for _, took := range c.took {
		for _, d := range took {
			all = append(all, microseconds(d))
		}
	}
	slices.Sort(all)
	return all
}
