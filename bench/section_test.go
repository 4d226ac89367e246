package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

var tinySizes = sizes{rounds: 1, events: 1400, ticks: 50, cached: 500, pods: 500, idle: 400, joins: 2, joiners: 3, resources: 50, framedPods: 20, bursts: 100, benchtime: "10x", clusters: 3, clusterPods: 10, remotes: 2, remotePods: 20, rest: 50 * time.Millisecond}

func TestEverySectionYieldsAFigureForEverySideAndRow(t *testing.T) {
	t.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise each child waits for a second at its end
	for _, s := range sections(tinySizes) {
		t.Run(s.name, func(t *testing.T) {
			if s.name == "distribution" && testing.Short() {
				t.Skip("builds the tests of the root module: make soak")
			}
			r := s.run(t.Context(), tinySizes.rounds)
			if r.err != nil {
				t.Fatal(r.err)
			}
			if len(r.rows) == 0 {
				t.Error("no rows")
			}
			for _, f := range r.rows {
				for i, samples := range f.samples {
					// A row without a ratio may show a difference, and so be 0 or less. A few events may need no allocation.
					none := f.plain || f.unit == "allocs/event"
					if len(samples) != tinySizes.rounds || !none && !(samples[0] > 0) {
						t.Errorf("%s, %s: %v %s, want %d above 0", f.name, sides[i], samples, f.unit, tinySizes.rounds)
					}
				}
			}
		})
	}
}

// rowOf returns a section with one row, which measure yields.
func rowOf(name string, once bool, measure func(side) (float64, error)) section {
	return section{title: strings.ToUpper(name), once: once, cases: []measurement{{
		rows: []row{{name: name}},
		measure: func(_ context.Context, s side) ([]float64, error) {
			v, err := measure(s)
			return []float64{v}, err
		},
	}}}
}

func TestTheFirstRoundIsForWarmingUp(t *testing.T) {
	for want, once := range map[string]bool{"[[6 8] [4 9] [5 7]]": false, "[[1] [2] [3]]": true} {
		calls := 0.0
		r := rowOf("row", once, func(side) (float64, error) { calls++; return calls, nil }).run(t.Context(), 2)
		if got := fmt.Sprint(r.rows[0].samples); r.err != nil || got != want {
			t.Errorf("samples %s, want %s, %v", got, want, r.err)
		}
	}
}

func TestASectionThatFailsDoesNotKeepOthersFromRunning(t *testing.T) {
	broken := errors.New("broken")
	results, failed := measureAll(t.Context(), []section{
		rowOf("first", false, func(side) (float64, error) { return 0, broken }),
		rowOf("second", false, func(side) (float64, error) { return 1, nil }),
	}, 1)
	if !errors.Is(failed, broken) {
		t.Errorf("failed with %v", failed)
	}
	var out strings.Builder
	report(&out, results, 1)
	for _, want := range []string{"There is no result: FIRST: client-go: first: broken", "| second |  | 1 | 1 | 1 | 1 | 1 |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, out.String())
		}
	}
}

func TestARatioAboveOneIsInOurFavour(t *testing.T) {
	samples := [][]float64{{100}, {50}, {400}}
	less, more := figures{samples: samples}, figures{row: row{higher: true}, samples: samples}
	for i, want := range []float64{1, 2, 0.25} {
		if less.ratio(i) != want || more.ratio(i) != 1/want {
			t.Errorf("side %d: %v and, if more is better, %v, want %v", i, less.ratio(i), more.ratio(i), want)
		}
	}
	if got := (figures{row: row{plain: true}, samples: samples}).ratio(1); !math.IsNaN(got) {
		t.Errorf("a plain row has the ratio %v", got)
	}
}

func TestFloors(t *testing.T) {
	samples := [][]float64{{100}, {40}, {20}}
	for _, test := range []struct {
		floor       floor
		floors, met string
	}{
		{floor{}, "", ""},
		{both(2), "≥ 2", "yes"},
		{both(3), "≥ 3", "no / yes"},
		{atMost(0.3), "≥ 3.33", "no / yes"},
		{floor{deltaFIFO: 2, realFIFO: 6}, "≥ 2 / ≥ 6", "yes / no"},
		{floor{deltaFIFO: 1, realFIFO: 1, below: 20}, "≥ 1, < 20", "no"},
	} {
		floors, met := figures{row: row{floor: test.floor}, samples: samples}.floors()
		if floors != test.floors || met != test.met {
			t.Errorf("%+v: %q met %q, want %q met %q", test.floor, floors, met, test.floors, test.met)
		}
	}
}
