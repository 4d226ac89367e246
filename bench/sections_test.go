package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

var tinySizes = sizes{
	rounds:    1,
	wholeWay:  []stream{{1, 20, 200}, {3, 20, 200}, {10, 20, 100}, {100, 20, 50}},
	trickle:   50,
	load:      50,
	cached:    500,
	pods:      500,
	sharing:   sharingSizes{pods: 500, updated: 200, unstructured: 100, slices: 200, configMaps: 200, nodes: 100, strangers: 100},
	idle:      400,
	joins:     2,
	storm:     storm{3, 20, 40},
	syncing:   []int{1, 10},
	workers:   stream{1, 20, 400},
	custom:    50,
	written:   20,
	benchtime: "10x",
}

// printed is a benchmark that prints a figure for every row.
func printed(_ context.Context, side, _ string) (string, error) {
	var b strings.Builder
	for _, n := range distributionWatchers {
		fmt.Fprintf(&b, "%s/%s/%d-2 \t 10\t 17 ns/op\t 3 %s\t 2 %s\t 1 %s\n", distributionBenchmark, side, n, perWatcher, distributing, allocations)
	}
	return b.String(), nil
}

func TestEverySectionYieldsAFigureForEverySideAndRow(t *testing.T) {
	for _, s := range sections(tinySizes, printed) {
		t.Run(s.name, func(t *testing.T) {
			r := runSection(t.Context(), s, tinySizes.rounds, func(int) {})
			if r.err != nil {
				t.Fatal(r.err)
			}
			if len(r.rows) == 0 {
				t.Error("no rows")
			}
			for _, f := range r.rows {
				for i, samples := range f.samples {
					// A row without a ratio may show a difference, and so be 0 or less.
					if len(samples) != tinySizes.rounds || !f.plain && !(samples[0] > 0) {
						t.Errorf("%s, %s: %v %s, want %d above 0", f.name, sides[i].name, samples, f.unit, tinySizes.rounds)
					}
				}
			}
		})
	}
}

func TestTheBenchmarkOfTheRootModuleIsUnderstood(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the tests of the root module: make test-long")
	}
	for _, side := range []string{"client-go", "informer"} {
		output, err := goTest(t.Context(), side, tinySizes.benchtime)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = pick(parseBenchmarks(output), side); err != nil {
			t.Errorf("%v in:\n%s", err, output)
		}
	}
}

func TestASectionWithoutABenchmarkSaysSo(t *testing.T) {
	silent := func(context.Context, string, string) (string, error) { return "PASS\nok  \tmodule\t0.1s\n", nil }
	results, failed := measureAll(t.Context(), []section{distributionSection(tinySizes, silent)}, 1)
	if failed != nil {
		t.Errorf("it failed: %v", failed)
	}
	if !errors.Is(results[0].err, errNoBenchmark) {
		t.Errorf("error %v, want errNoBenchmark", results[0].err)
	}
	for _, rendered := range []string{text(results), markdown(results, setting{}, "")} {
		if !strings.Contains(rendered, "no result") || !strings.Contains(rendered, errNoBenchmark.Error()) {
			t.Errorf("it does not stand in:\n%s", rendered)
		}
	}
}

func TestSidesTakeTurns(t *testing.T) {
	var order []string
	s := section{cases: []measurement{{
		rows: []row{{name: "row"}},
		measure: func(_ context.Context, s side) ([]float64, error) {
			order = append(order, s.name[:1])
			return []float64{float64(len(order))}, nil
		},
	}}}
	r := runSection(t.Context(), s, 2, func(int) {})
	if r.err != nil {
		t.Fatal(r.err)
	}
	if got, want := strings.Join(order, ""), "cDR"+"DRc"+"RcD"; got != want {
		t.Errorf("measured %s, want %s", got, want)
	}
	// The first three samples were for warming up.
	if got, want := fmt.Sprint(r.rows[0].samples), "[[6 8] [4 9] [5 7]]"; got != want {
		t.Errorf("samples %s, want %s", got, want)
	}
}

func TestASectionThatStandsStillIsMeasuredOnce(t *testing.T) {
	calls := 0
	s := section{still: true, cases: []measurement{{
		rows:    []row{{name: "row"}},
		measure: func(context.Context, side) ([]float64, error) { calls++; return []float64{1}, nil },
	}}}
	r := runSection(t.Context(), s, 5, func(int) {})
	if got := fmt.Sprint(r.rows[0].samples); r.err != nil || calls != len(sides) || got != "[[1] [1] [1]]" {
		t.Errorf("%d calls, samples %s, %v, want one for each side", calls, got, r.err)
	}
}

func TestASectionThatFailsDoesNotKeepOthersFromRunning(t *testing.T) {
	broken, closed := errors.New("broken"), false
	open := func(context.Context) (func() error, error) { return func() error { closed = true; return nil }, nil }
	fails := func(context.Context, side) ([]float64, error) { return nil, broken }
	works := func(context.Context, side) ([]float64, error) { return []float64{1}, nil }
	results, failed := measureAll(t.Context(), []section{
		{name: "one", title: "One", open: open, cases: []measurement{{rows: []row{{name: "first"}}, measure: fails}}},
		{name: "two", title: "Two", cases: []measurement{{rows: []row{{name: "second"}}, measure: works}}},
	}, 1)
	if !errors.Is(failed, broken) || !closed {
		t.Errorf("failed with %v, closed %v", failed, closed)
	}
	rendered := text(results)
	for _, want := range []string{"no result", "One: first, client-go: broken", "second"} {
		if !strings.Contains(rendered, want) {
			t.Errorf("%q is missing in:\n%s", want, rendered)
		}
	}
}

func TestSectionsAreChosenByName(t *testing.T) {
	all := sections(tinySizes, printed)
	chosen, err := choose(all, "^(joining|latency)$")
	if err != nil || len(chosen) != 2 {
		t.Errorf("%d sections, %v, want 2", len(chosen), err)
	}
	if chosen, err := choose(all, ""); err != nil || len(chosen) != len(all) {
		t.Errorf("%d sections, %v, want all", len(chosen), err)
	}
	for _, pattern := range []string{"nothing", "("} {
		if _, err := choose(all, pattern); err == nil {
			t.Errorf("%q: no error", pattern)
		}
	}
}
