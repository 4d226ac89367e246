package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/lab"
)

// idleObjects is the number of objects in the informer that gets idle watchers.
const idleObjects = 10

func memorySection(sz sizes) section {
	objects := fmt.Sprintf("%d objects", sz.cached)
	return section{
		name:  "memory",
		title: "Memory",
		about: "Heap per object: the live heap after the first list of " + objects + " to one watcher, divided by their number. " +
			"It is given with the objects themselves and without them, that is without the heap that the list alone takes. The list is made before and given away, so only the side keeps it. The peaks are peaks during that first list, " +
			"compared with the heap before the list is made: one of the heap at the default GOGC, including garbage, read up to 5000 times a second;" +
			" and one of the live heap, as found by a collector that runs all the time (GOGC=5). The idle watchers have handled the few objects that" +
			" exist, and nothing happens. Their heap and stacks are the memory that their registration has added, after three collections.",
		cases: []measurement{
			{
				rows: []row{
					{name: "heap per cached object", unit: "B", common: true},
					{name: "heap per cached object, without the object", unit: "B", common: true},
				},
				measure: func(ctx context.Context, s side) ([]float64, error) { return heapPerObject(ctx, s, sz.cached) },
			},
			peak("first list of "+objects+", peak of the heap", lab.HeapObjects, 100, sz.cached),
			peak("first list of "+objects+", peak of what is live", lab.HeapLive, 5, sz.cached),
			{
				rows: []row{
					{name: "heap per idle watcher", unit: "B", common: true, floor: both(10)},
					{name: "stacks per idle watcher", unit: "B", common: true},
					{name: "heap and stacks per idle watcher", unit: "B", common: true},
				},
				measure: func(ctx context.Context, s side) ([]float64, error) { return idleWatchers(ctx, s, sz.idle) },
			},
		},
	}
}

func firstListSection(sz sizes) section {
	s := section{
		name:  "firstlist",
		title: "The first list",
		about: fmt.Sprintf("Time from the start of an informer until every one of its watchers has been called for each of %d objects. ", sz.cached) +
			"A new list is made before each measurement, and is handed over without a copy. Both sides list, because the source does not stream. " +
			"Handlers only count their calls. Watchers have the defaults of each side.",
	}
	for i, watchers := range []int{1, 10, 100} {
		s.cases = append(s.cases, measurement{
			rows: []row{{
				name: fmt.Sprintf("first list of %d objects, %s", sz.cached, plural(watchers, "watcher")), unit: "ms",
				floor: []floor{{}, {}, both(10)}[i],
			}},
			measure: func(ctx context.Context, side side) (values []float64, err error) {
				src := newSource(sz.cached)
				begin := restart()
				running, err := firstSync(ctx, side, src, watchers, sz.cached)
				took := time.Since(begin)
				running.stop(&err)
				return []float64{milliseconds(took)}, err
			},
		})
	}
	return s
}

// peak returns a measurement of the highest value of a figure during a first list, with the
// garbage collector set to gogc.
func peak(name, metric string, gogc, objects int) measurement {
	return measurement{
		rows: []row{{name: name, unit: "MiB", common: true, floor: both(1)}},
		measure: func(ctx context.Context, s side) (values []float64, err error) {
			before, _ := lab.Settled()
			defer debug.SetGCPercent(debug.SetGCPercent(gogc))
			src := newSource(objects)
			runtime.GC()
			highest := lab.WatchPeak(200*time.Microsecond, func() float64 { return lab.Bytes(metric) })
			running, err := firstSync(ctx, s, src, 1, objects)
			most := highest()
			running.stop(&err)
			return []float64{(most - before) / lab.MiB}, err
		},
	}
}

// firstSync runs a new informer, and returns when its watchers have had all objects. The informer must be
// stopped, even after an error.
func firstSync(ctx context.Context, s side, src *source, watchers, objects int) (*running, error) {
	inf, err := open(s, src.listWatch(), options{})
	if err != nil {
		return nil, err
	}
	handled := newTally(watchers)
	if _, err := addAll(inf, watchers, informer.WatcherOptions{}, func(int) func(pod) { return count[pod](handled, objects) }); err != nil {
		return nil, err
	}
	running := start(inf.run)
	return running, handled.wait(ctx)
}

func heapPerObject(ctx context.Context, s side, objects int) (values []float64, err error) {
	before, _ := lab.Settled()
	src := newSource(objects)
	listed, _ := lab.Settled()
	running, err := firstSync(ctx, s, src, 1, objects)
	defer running.stop(&err)
	cached, _ := lab.Settled()
	n := float64(objects)
	return []float64{(cached - before) / n, (cached - listed) / n}, err
}

func idleWatchers(ctx context.Context, s side, count int) (values []float64, err error) {
	inf, err := launch(ctx, s, options{}, idleObjects, 1, doNothing)
	defer inf.stop(&err)
	if err != nil {
		return nil, err
	}
	heapBefore, stacksBefore := lab.Settled()
	if err := addIdle(ctx, inf.subject, count); err != nil {
		return nil, err
	}
	heap, stacks := lab.Settled()
	n := float64(count)
	heap, stacks = (heap-heapBefore)/n, (stacks-stacksBefore)/n
	return []float64{heap, stacks, heap + stacks}, nil
}

// addIdle adds count watchers and returns when all are synced. It keeps no reference to them,
// so only the informer does.
func addIdle(ctx context.Context, inf subject[pod], count int) error {
	synced, err := addAll(inf, count, informer.WatcherOptions{}, doNothing)
	if err != nil {
		return err
	}
	return synced(ctx)
}

func doNothing(int) func(pod) { return func(pod) {} }
