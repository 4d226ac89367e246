package main

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/lab"
)

func latencySection(sz sizes) section {
	s := section{
		name:  "latency",
		title: "Latency",
		about: "Time from the moment at which an event was due to be sent until a watcher is called for it, over all events and watchers. The events " +
			"come at a fixed rate that every side sustains with ease. The time counts from when an event was due, so it includes delays at the " +
			"entrance of a side as well as delays inside. The blocked watcher is an additional watcher that never returns from its first call, with " +
			"the defaults of each side; its own waiting does not count.",
	}
	for _, load := range []struct {
		name           string
		watchers, each int // events in each millisecond
	}{{"1 event a ms to 3 watchers", 3, 1}, {"20 events a ms to 10 watchers", 10, 20}} {
		for _, blocked := range []bool{false, true} {
			name := "latency, " + load.name
			if blocked {
				name += ", one more is blocked"
			}
			s.cases = append(s.cases, measurement{
				rows: named(name, row{name: ", p50", unit: "µs", common: true}, row{name: ", p99", unit: "µs", common: true, floor: both(1)}),
				measure: func(ctx context.Context, side side) ([]float64, error) {
					return latency(ctx, side, newTrickle(load.watchers, load.each, sz.ticks), blocked)
				},
			})
		}
	}
	return s
}

// latency returns quantiles of the time from when an event is due until it is handled.
func latency(ctx context.Context, s side, t *trickle, blocked bool) (values []float64, err error) {
	inf, err := launch(ctx, s, options{}, streamed, len(t.watchers), t.handler)
	defer inf.stop(&err)
	if err != nil {
		return nil, err
	}
	if blocked {
		var release func() error
		if release, err = addBlocked(inf); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, release()) }() // Run would otherwise wait forever
	}
	events := updates(streamed, t.ticks*t.each)
	restart()
	if err := t.sendAll(ctx, inf.src, events); err != nil {
		return nil, err // the watchers may still write their times
	}
	return t.quantiles(0.5, 0.99), nil
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

// trickle sends events at a fixed rate, whether or not a side keeps up with it, and measures when each
// arrives at each watcher.
type trickle struct {
	each, ticks int // events in a period, and periods
	begun       time.Time
	sent        int
	watchers    []arrivals
}

// arrivals are the events that a watcher got. It is as large as two cache lines, like the counter of count.
type arrivals struct {
	took    []time.Duration // by place; only the watcher writes it
	handled atomic.Int64
	_       [96]byte
}

// unlimited is the number of periods of a trickle that ends with its ctx.
const unlimited = math.MaxInt

func newTrickle(watchers, each, ticks int) *trickle {
	t := &trickle{each: each, ticks: ticks, watchers: make([]arrivals, watchers)}
	for i := range t.watchers {
		if ticks != unlimited {
			t.watchers[i].took = make([]time.Duration, 0, ticks*each)
		}
	}
	return t
}

// handler returns the i-th watcher's handler. It ignores the events of the first state, which
// are not part of the stream.
func (t *trickle) handler(i int) func(pod) {
	a := &t.watchers[i]
	return func(p pod) {
		place := int(p.Generation)
		if place < 0 {
			return
		}
		for len(a.took) <= place {
			a.took = append(a.took, 0)
		}
		a.took[place] = time.Since(t.due(place))
		a.handled.Add(1)
	}
}

func (t *trickle) due(place int) time.Time { return due(t.begun, place/t.each) }

// send sends each event when it is due, until all are sent or until is over.
func (t *trickle) send(ctx, until context.Context, src *source, event func(place int) watch.Event) error {
	pacing, stop := context.WithCancel(until)
	defer stop()
	return pace(pacing, func(begun time.Time) { t.begun = begun }, func(tick int) error {
		if tick >= t.ticks {
			stop()
			return nil
		}
		for range t.each {
			if err := src.send(ctx, event(t.sent)); err != nil {
				return err
			}
			t.sent++
		}
		return nil
	})
}

// sendAll sends events, and waits until they are handled.
func (t *trickle) sendAll(ctx context.Context, src *source, events []watch.Event) error {
	return errors.Join(t.send(ctx, ctx, src, func(place int) watch.Event { return events[place] }), t.wait(ctx))
}

// wait waits until all events that were sent are handled.
func (t *trickle) wait(ctx context.Context) error {
	return lab.Poll(ctx, time.Millisecond, func() (bool, error) {
		for i := range t.watchers {
			if int(t.watchers[i].handled.Load()) < t.sent {
				return false, nil
			}
		}
		return true, nil
	})
}

// quantiles returns quantiles of the times of all watchers, in microseconds.
func (t *trickle) quantiles(qs ...float64) []float64 {
	var all []float64
	for i := range t.watchers {
		for _, d := range t.watchers[i].took {
			all = append(all, microseconds(d))
		}
	}
	return lab.Quantiles(all, qs...)
}
