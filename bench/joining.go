package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/lab"
)

// afterwards is the time after a join in which delays caused by the join may still show.
const afterwards = 10 * time.Millisecond

// between is the quiet time before each join.
const between = 50 * time.Millisecond

func joiningSection(sz sizes) section {
	return section{
		name:  "joining",
		title: "Joining",
		about: fmt.Sprintf("A watcher joins an informer that holds %d objects, while one event a ms goes to another watcher; ", sz.cached) +
			fmt.Sprintf("%s per round, one after the other. The time for which all others wait is the longest time that the other watcher had to wait for an event ", plural(sz.joins, "join")) +
			"that was due between the call that adds the joiner and 10 ms after the joiner had everything; the figure of a round is the longest of its joins. " +
			"The controls are the same informer, measured as often and for as long, without a joining watcher, and with a goroutine in its place that " +
			"only looks at the clock: times that do not exceed the second one are due to the machine, which has to run the joiner somewhere.",
		cases: []measurement{{
			rows: []row{
				{name: "joining, all others wait for", unit: "ms"},
				{name: "control: the same without a join", unit: "ms", plain: true},
				{name: "control: the same with a goroutine that is busy", unit: "ms", plain: true},
				{name: "joining, until the joiner has everything", unit: "ms"},
			},
			measure: func(ctx context.Context, s side) ([]float64, error) { return joining(ctx, s, sz.cached, sz.joins) },
		}},
	}
}

// span is a part of the trickle's time.
type span struct{ from, to time.Time }

func joining(ctx context.Context, s side, objects, joins int) (values []float64, err error) {
	other := newTrickle(1, 1, unlimited)
	inf, err := launch(ctx, s, options{}, objects, 1, other.handler)
	defer inf.stop(&err)
	if err != nil {
		return nil, err
	}
	restart()
	until, cancel := context.WithCancel(ctx)
	sent := make(chan error, 1)
	go func() {
		sent <- other.send(ctx, until, inf.src, func(place int) watch.Event { return update(objects, place) })
	}()
	stop := func() error { cancel(); return errors.Join(<-sent, other.wait(ctx)) }
	var joined, quiet, busy []span
	var took []float64
	for range joins {
		now := time.Now()
		lasted, err := join(ctx, inf, objects)
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		took = append(took, milliseconds(lasted))
		part := func(from time.Time) span { return span{from, from.Add(lasted + afterwards)} }
		joined = append(joined, part(now))
		time.Sleep(afterwards + between)
		quiet = append(quiet, part(time.Now()))
		time.Sleep(lasted + afterwards + between)
		now = time.Now()
		busy = append(busy, part(now))
		for time.Since(now) < lasted {
		}
		time.Sleep(afterwards + between)
	}
	if err := stop(); err != nil {
		return nil, err
	}
	return []float64{other.longest(joined), other.longest(quiet), other.longest(busy), lab.Median(took)}, nil
}

// join adds a watcher, and removes it once the watcher has everything. It returns the time until then.
func join(ctx context.Context, inf subject[pod], objects int) (time.Duration, error) {
	handled, begun := newTally(1), time.Now()
	reg, err := inf.add(count[pod](handled, objects), informer.WatcherOptions{})
	if err != nil {
		return 0, err
	}
	if err := handled.wait(ctx); err != nil {
		return 0, err
	}
	return time.Since(begun), reg.remove()
}

// longest returns the longest wait, in milliseconds, for an event that was due in one of the
// spans.
func (t *trickle) longest(spans []span) float64 {
	var most time.Duration
	for place, took := range t.watchers[0].took {
		at := t.due(place)
		for _, s := range spans {
			if !at.Before(s.from) && at.Before(s.to) {
				most = max(most, took)
			}
		}
	}
	return milliseconds(most)
}
