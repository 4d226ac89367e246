package main

import (
	"context"
	"fmt"
	"time"

	"github.com/customcacheinformer/informer"
)

func firstListSection(sz sizes) section {
	s := section{
		name:  "firstlist",
		title: "The first list",
		about: fmt.Sprintf("Time from the start of an informer until every one of its watchers has been called for each of %d objects. ", sz.cached) +
			"A new list is made before each measurement, and is handed over without a copy. Both sides list, because the source does not stream. " +
			"Handlers only count their calls. Watchers have the defaults of each side.",
	}
	for _, watchers := range sz.syncing {
		r := row{name: fmt.Sprintf("first list of %d objects, %s", sz.cached, plural(watchers, "watcher")), unit: "ms"}
		if watchers == 100 {
			r.floor = both(10)
		}
		s.cases = append(s.cases, measurement{
			rows: []row{r},
			measure: func(ctx context.Context, side side) ([]float64, error) {
				took, err := firstList(ctx, side, watchers, sz.cached)
				return []float64{milliseconds(took)}, err
			},
		})
	}
	return s
}

func firstList(ctx context.Context, s side, watchers, objects int) (took time.Duration, err error) {
	inf, err := open[pod](s, newSource(objects).listWatch())
	if err != nil {
		return 0, err
	}
	handled := newTally(watchers)
	if _, err := addAll(inf, watchers, informer.WatcherOptions{}, func(int) func(pod) { return count[pod](handled, objects) }); err != nil {
		return 0, err
	}
	begin := restart()
	running := start(inf.run)
	defer running.stop(&err)
	err = handled.wait(ctx)
	return time.Since(begin), err
}
