package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// failEvery means that one in this number of calls fails, in the rows with failures.
const failEvery = 10

// backoff is the pause before a failed call is retried, and maxBackoff is the longest pause.
const backoff, maxBackoff = time.Millisecond, 10 * time.Millisecond

// errOnce is the error of a failing call. The next call for the same object succeeds.
var errOnce = errors.New("failed once")

func workersSection(sz sizes) section {
	s := section{
		name:  "workers",
		title: "Workers and retries",
		about: fmt.Sprintf("Time from the first of %d updates of %d objects until the last version of every object has been handled, per event. ", sz.workers.events, sz.workers.objects) +
			"On our side that is a watcher with Workers and Retry; on client-go's the loop that programs write for it: a handler that puts keys into a typed " +
			"rate-limiting workqueue, and workers that get the key, read the object from the indexer, handle it, and then Forget and Done, or AddRateLimited and " +
			"Done. Back-offs begin at 1 ms; the handler is the same. Both sides handle only the newest of an object's waiting events, so the calls per event are given too: fewer calls are less work, not " +
			"better work.",
	}
	var events []watch.Event
	s.open = func(context.Context) (func() error, error) {
		events = updates(sz.workers.objects, sz.workers.events)
		return func() error { events = nil; return nil }, nil
	}
	for _, every := range []int{0, failEvery} {
		for _, workers := range []int{1, 4} {
			name := plural(workers, "worker")
			if every > 0 {
				name += fmt.Sprintf(", every %dth call fails once", every)
			}
			s.cases = append(s.cases, measurement{
				rows: []row{{name: name, unit: "ns/event"}, {name: name + ": calls", unit: "calls/event", plain: true}},
				measure: func(ctx context.Context, side side) ([]float64, error) {
					return work(ctx, side, workers, newLedger(sz.workers, every), events)
				},
			})
		}
	}
	return s
}

// work returns the time per event and the calls per event.
func work(ctx context.Context, s side, workers int, l *ledger, events []watch.Event) (values []float64, err error) {
	src := newSource(l.stream.objects)
	run := runCustom
	if s == clientGo {
		run = runShared
	}
	loop, err := run(s, src.listWatch(), workers, l.handle)
	if err != nil {
		return nil, err
	}
	running := start(loop)
	stopFeeding := func() {}
	defer func() { running.stop(&err); stopFeeding() }()
	if err := l.initial.wait(ctx); err != nil {
		return nil, err
	}
	before := l.calls.Load()
	begin := restart()
	stopFeeding = src.feed(events)
	if err := l.final.wait(ctx); err != nil {
		return nil, err
	}
	took, n := time.Since(begin), float64(len(events))
	return []float64{nanoseconds(took) / n, float64(l.calls.Load()-before) / n}, nil
}

// ledger is the handler of both sides. It records which versions of each object were handled,
// and fails as often as it should.
type ledger struct {
	stream         stream
	every          int64 // one in this number of calls fails; 0 for none
	calls          atomic.Int64
	initial, final *tally // count the objects whose first, or last, version was handled
	objects        []entry
}

// entry is the ledger's record of an object. It needs no lock, because an object is handled by
// one call at a time.
type entry struct{ begun, done, failed bool }

func newLedger(s stream, every int) *ledger {
	return &ledger{
		stream: s, every: int64(every), objects: make([]entry, s.objects),
		initial: newTally(s.objects), final: newTally(s.objects),
	}
}

func (l *ledger) handle(p pod) error {
	call, place := l.calls.Add(1), int(p.Generation)
	if place < 0 {
		if e := &l.objects[-1-place]; !e.begun {
			e.begun = true
			l.initial.one()
		}
		return nil
	}
	e := &l.objects[place%l.stream.objects]
	if l.every > 0 && call%l.every == 0 && !e.failed {
		e.failed = true
		return errOnce
	}
	e.failed = false
	if !e.done && place >= l.stream.events-l.stream.objects {
		e.done = true
		l.final.one()
	}
	return nil
}
