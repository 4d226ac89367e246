package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

const (
	distributionName = "distribution"
	rootModule       = "github.com/customcacheinformer/informer"
	// distributionBenchmark is in the root module, because it needs its internals.
	distributionBenchmark = "BenchmarkDistribution"
)

// These are the units of the benchmark's figures.
const (
	perWatcher   = "ns/event/watcher"
	distributing = "distributing-ns/event"
	allocations  = "allocs/event"
)

// errNoBenchmark reports that the benchmark is missing.
var errNoBenchmark = errors.New(distributionBenchmark + " of the root module has printed nothing")

var distributionWatchers = []int{1, 10, 100, 1000}

var distributionFloors = map[int]floor{
	100:  {deltaFIFO: 80, realFIFO: 80, below: 5},
	1000: both(100),
}

// benchmark runs the distribution's benchmark for a side and returns its output. The side has
// the name that the benchmark gives it.
type benchmark func(ctx context.Context, side, benchtime string) (output string, err error)

func distributionSection(sz sizes, run benchmark) section {
	s := section{
		name:     distributionName,
		title:    "Distribution alone",
		oneQueue: true,
		about: "One goroutine hands out ready-made events, without source, queue and store, to watchers that only count their calls. The time ends when" +
			" the last watcher has been called for the last event. The time per event is divided by the number of watchers, so a distribution that " +
			"costs one call per watcher shows the same figure in every row. Distributing is the part of the time that the one goroutine needs; " +
			"everything behind this goroutine waits for it. It is " + distributionBenchmark + " of the root module, run once per round for each side; client-go's side is its shared " +
			"informer's own distribution. The queue plays no part, so both our columns show one figure.",
	}
	var rows []row
	for _, metric := range []string{perWatcher, distributing, allocations} {
		for _, n := range distributionWatchers {
			r := row{name: "distribution, " + plural(n, "watcher"), unit: metric}
			if metric == perWatcher {
				r.floor = distributionFloors[n]
			}
			rows = append(rows, r)
		}
	}
	s.cases = []measurement{{rows: rows, measure: func(ctx context.Context, side side) ([]float64, error) {
		name := "informer"
		if side == clientGo {
			name = "client-go"
		}
		output, err := run(ctx, name, sz.benchtime)
		if err != nil {
			return nil, err
		}
		return pick(parseBenchmarks(output), name)
	}}}
	return s
}

// pick returns the figures of a side, in the order of the rows.
func pick(parsed map[string]map[string]float64, side string) (values []float64, err error) {
	if len(parsed) == 0 {
		return nil, errNoBenchmark
	}
	for _, metric := range []string{perWatcher, distributing, allocations} {
		for _, n := range distributionWatchers {
			name := fmt.Sprintf("%s/%s/%d", distributionBenchmark, side, n)
			v, ok := parsed[name][metric]
			if !ok {
				return nil, fmt.Errorf("%s has printed no %s", name, metric)
			}
			values = append(values, v)
		}
	}
	return values, nil
}

// goTest runs the benchmark of the root module, and finds the directory of the module.
func goTest(ctx context.Context, side, benchtime string) (string, error) {
	dir, err := command(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", rootModule)
	if err != nil {
		return "", fmt.Errorf("looking for the root module: %w", err)
	}
	return command(ctx, strings.TrimSpace(dir), "go", "test", "-vet=off", "-run", "^$",
		"-bench", "^"+distributionBenchmark+"$/^"+side+"$", "-benchtime", benchtime, ".")
}

// command runs a command and returns its standard output.
func command(ctx context.Context, dir, name string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String(), nil
}
