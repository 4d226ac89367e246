package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/lab"
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
		about: fmt.Sprintf("Time from the first of %d updates of %d objects until the last version of every object has been handled, per event. ", sz.events, streamed) +
			"On our side that is a watcher with Workers and Retry; on client-go's the loop that programs write for it: a handler that puts keys into a typed " +
			"rate-limiting workqueue, and workers that get the key, read the object from the indexer, handle it, and then Forget and Done, or AddRateLimited and " +
			"Done. Back-offs begin at 1 ms; the handler is the same. Both sides handle only the newest of an object's waiting events, so the calls per event are given too: fewer calls are less work, not " +
			"better work.",
	}
	for _, every := range []int{0, failEvery} {
		for _, workers := range []int{1, 4} {
			name := plural(workers, "worker")
			if every > 0 {
				name += fmt.Sprintf(", every %dth call fails once", every)
			}
			s.cases = append(s.cases, measurement{
				rows: named(name, row{unit: "ns/event"}, row{name: ": calls", unit: "calls/event", plain: true}),
				measure: func(ctx context.Context, side side) ([]float64, error) {
					return work(ctx, side, workers, newLedger(sz.events, every))
				},
			})
		}
	}
	return s
}

// work returns the time per event and the calls per event.
func work(ctx context.Context, s side, workers int, l *ledger) (values []float64, err error) {
	src, events := newSource(streamed), updates(streamed, l.events)
	run := runCustom
	if s == clientGo {
		run = runShared
	}
	loop, err := run(s, src.listWatch(), workers, l.handle)
	if err != nil {
		return nil, err
	}
	running := start(loop)
	defer func() { running.stop(&err); src.drop() }()
	if err := l.initial.wait(ctx); err != nil {
		return nil, err
	}
	before, n := l.calls.Load(), float64(len(events))
	took, err := timeOf(ctx, src, events, l.final)
	return []float64{nanoseconds(took) / n, float64(l.calls.Load()-before) / n}, err
}

// ledger is the handler of both sides. It records which versions of each object were handled,
// and fails as often as it should.
type ledger struct {
	events         int
	every          int64 // one in this number of calls fails; 0 for none
	calls          atomic.Int64
	initial, final *tally // count the objects whose first, or last, version was handled
	objects        []entry
}

// entry is the ledger's record of an object. It needs no lock, because an object is handled by
// one call at a time.
type entry struct{ begun, done, failed bool }

func newLedger(events, every int) *ledger {
	return &ledger{
		events: events, every: int64(every), objects: make([]entry, streamed),
		initial: newTally(streamed), final: newTally(streamed),
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
	e := &l.objects[place%streamed]
	if l.every > 0 && call%l.every == 0 && !e.failed {
		e.failed = true
		return errOnce
	}
	e.failed = false
	if !e.done && place >= l.events-streamed {
		e.done = true
		l.final.one()
	}
	return nil
}

// runCustom returns the loop of a watcher of ours with workers.
func runCustom(s side, lw cache.ListerWatcher, workers int, handle func(pod) error) (func(context.Context) error, error) {
	inf, err := informer.NewFrom(lw, informer.Options[pod]{
		Queue:        s.queue,
		ErrorHandler: func(context.Context, error) {}, // the other side does not log either
	})
	if err != nil {
		return nil, err
	}
	w := informer.WatcherFunc[pod](func(_ context.Context, e informer.Event[pod]) error { return handle(e.New) })
	_, err = inf.AddWatcher(w, informer.WatcherOptions{Workers: workers, Retry: informer.Backoff(backoff, maxBackoff, 0)})
	return inf.Run, err
}

// runShared returns the loop that a program writes around client-go's informer.
func runShared(_ side, lw cache.ListerWatcher, workers int, handle func(pod) error) (func(context.Context) error, error) {
	inf := newShared[pod](lw)
	queue := workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](backoff, maxBackoff))
	enqueue := func(obj any) {
		if key, err := cache.MetaNamespaceKeyFunc(obj); err != nil {
			utilruntime.HandleError(err)
		} else {
			queue.Add(key)
		}
	}
	_, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) }})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		ended := make(chan error, 1)
		go func() { ended <- inf.run(ctx); queue.ShutDown() }()
		return errors.Join(lab.Divide(workers, workers, func(int) error { return workOff(queue, inf.GetIndexer(), handle) }), <-ended)
	}, nil
}

// workOff handles the objects whose keys are in the queue, until the queue is shut down.
func workOff(queue workqueue.TypedRateLimitingInterface[string], indexer cache.Indexer, handle func(pod) error) error {
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return nil
		}
		obj, exists, err := indexer.GetByKey(key)
		if err == nil && !exists {
			err = errors.New("it is not in the indexer")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		if err := handle(obj.(pod)); err != nil {
			queue.AddRateLimited(key)
		} else {
			queue.Forget(key)
		}
		queue.Done(key)
	}
}
