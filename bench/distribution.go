package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// distributionBenchmark is in the root module, because it needs its internals.
const distributionBenchmark = "BenchmarkDistribution"

// perWatcher is the unit of the benchmark's first figure.
const perWatcher = "ns/event/watcher"

func distributionSection(sz sizes) section {
	s := section{
		name:     "distribution",
		title:    "Distribution alone",
		oneQueue: true,
		about: "One goroutine hands out ready-made events, without source, queue and store, to watchers that only count their calls. The time ends when" +
			" the last watcher has been called for the last event. The time per event is divided by the number of watchers, so a distribution that " +
			"costs one call per watcher shows the same figure in every row. Distributing is the part of the time that the one goroutine needs; " +
			"everything behind this goroutine waits for it. It is " + distributionBenchmark + " of the root module, run once per round for each side; client-go's side is its shared " +
			"informer's own distribution. The queue plays no part, so both our columns show one figure.",
	}
	floors := map[string]floor{"100 " + perWatcher: {deltaFIFO: 80, realFIFO: 80, below: 5}, "1000 " + perWatcher: both(100)}
	var rows []row
	var columns []string
	for _, unit := range []string{perWatcher, "distributing-ns/event", "allocs/event"} {
		for _, n := range []int{1, 10, 100, 1000} {
			column := fmt.Sprint(n, " ", unit)
			columns = append(columns, column)
			rows = append(rows, row{name: "distribution, " + plural(n, "watcher"), unit: unit, floor: floors[column]})
		}
	}
	s.cases = []measurement{{rows: rows, measure: func(ctx context.Context, side side) (values []float64, err error) {
		name := "informer"
		if side == clientGo {
			name = "client-go"
		}
		got, err := benchmark(ctx, name, sz.benchtime)
		for _, column := range columns {
			values = append(values, got[column])
			if _, ok := got[column]; !ok && err == nil {
				err = fmt.Errorf("%s/%s has printed no %s", distributionBenchmark, name, column)
			}
		}
		return values, err
	}}}
	return s
}

var printed = regexp.MustCompile(`(?m)^Benchmark\w+/[^/\s]+/(\d+)\S*\s+\d+\s+(.+)$`)

// benchmark runs the benchmark of the root module for a side, and returns its figures by the number of
// watchers and the unit.
func benchmark(ctx context.Context, side, benchtime string) (map[string]float64, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-vet=off", "-run", "^$",
		"-bench", "^"+distributionBenchmark+"$/^"+side+"$", "-benchtime", benchtime, "github.com/customcacheinformer/informer")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	figures := map[string]float64{}
	for _, line := range printed.FindAllStringSubmatch(string(out), -1) {
		fields := strings.Fields(line[2])
		for i := 0; i+1 < len(fields); i += 2 {
			if figures[line[1]+" "+fields[i+1]], err = strconv.ParseFloat(fields[i], 64); err != nil {
				return nil, err
			}
		}
	}
	return figures, nil
}
