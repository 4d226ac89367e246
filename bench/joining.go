package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/customcacheinformer/informer"
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
			fmt.Sprintf("%s per round, one after the other. The time for which everybody else stands still is the longest time that the other watcher had to wait for an event ", plural(sz.joins, "join")) +
			"that was due between the call that adds the joiner and 10 ms after the joiner had everything; the figure of a round is the longest of its joins. " +
			"The control is the same informer, measured as often and for as long, without a joining watcher: times that do not exceed the control " +
			"are due to the machine.",
		cases: []measurement{{
			rows: []row{
				{name: "joining, everybody else stands still for", unit: "ms"},
				{name: "control: the same without a join", unit: "ms", plain: true},
				{name: "joining, until the joiner has everything", unit: "ms"},
			},
			measure: func(ctx context.Context, s side) ([]float64, error) { return joining(ctx, s, sz.cached, sz.joins) },
		}},
	}
}

// span is a part of the trickle's time.
type span struct{ from, to time.Time }

func joining(ctx context.Context, s side, objects, joins int) (values []float64, err error) {
	src := newSource(objects)
	inf, err := open[pod](s, src.listWatch())
	if err != nil {
		return nil, err
	}
	other := &trickle{}
	synced, err := addAll(inf, 1, everyEvent, func(int) func(pod) { return other.handle })
	if err != nil {
		return nil, err
	}
	running := start(inf.run)
	defer running.stop(&err)
	if err := synced(ctx); err != nil {
		return nil, err
	}
	restart()
	stop := other.start(ctx, src, objects)
	var joined, quiet []span
	var took []float64
	for range joins {
		each, err := join(ctx, inf, objects)
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		joined = append(joined, span{each.from, each.to.Add(afterwards)})
		took = append(took, milliseconds(each.to.Sub(each.from)))
		time.Sleep(afterwards + between)
		now := time.Now()
		quiet = append(quiet, span{now, now.Add(each.to.Sub(each.from) + afterwards)})
		time.Sleep(each.to.Sub(each.from) + afterwards + between)
	}
	if err := stop(); err != nil {
		return nil, err
	}
	return []float64{other.longest(joined), other.longest(quiet), median(took)}, nil
}

// join adds a watcher, and removes it once the watcher has everything.
func join(ctx context.Context, inf subject[pod], objects int) (span, error) {
	handled := newTally(1)
	from := time.Now()
	reg, err := inf.add(count[pod](handled, objects), informer.WatcherOptions{})
	if err != nil {
		return span{}, err
	}
	if err := handled.wait(ctx); err != nil {
		return span{}, err
	}
	return span{from, time.Now()}, reg.remove()
}

// trickle sends one event a period. It is also the watcher that measures when each event
// arrives.
type trickle struct {
	begun   time.Time
	took    []time.Duration // by place; only the watcher writes it
	sent    int
	handled atomic.Int64
	all     chan struct{} // gets a token with every handled event
}

func (t *trickle) handle(p pod) {
	if p.Generation < 0 {
		return
	}
	for len(t.took) <= int(p.Generation) {
		t.took = append(t.took, 0)
	}
	t.took[p.Generation] = time.Since(due(t.begun, int(p.Generation)))
	t.handled.Add(1)
	select {
	case t.all <- struct{}{}:
	default:
	}
}

// start sends events until stop is called. stop waits until they are handled.
func (t *trickle) start(ctx context.Context, src *source, objects int) (stop func() error) {
	t.all = make(chan struct{}, 1)
	pacing, cancel := context.WithCancel(ctx)
	var sending sync.WaitGroup
	var failed error
	sending.Go(func() {
		failed = pace(pacing, func(begun time.Time) { t.begun = begun }, func(tick int) error {
			t.sent = tick + 1
			return src.send(ctx, update(objects, tick))
		})
	})
	return func() error {
		cancel()
		sending.Wait()
		for failed == nil && int(t.handled.Load()) < t.sent {
			failed = await(ctx, t.all, "the trickle is not handled")
		}
		return failed
	}
}

// longest returns the longest wait, in milliseconds, for an event that was due in one of the
// spans.
func (t *trickle) longest(spans []span) float64 {
	var most time.Duration
	for tick, took := range t.took {
		at := due(t.begun, tick)
		for _, s := range spans {
			if !at.Before(s.from) && at.Before(s.to) {
				most = max(most, took)
			}
		}
	}
	return milliseconds(most)
}
