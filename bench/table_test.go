package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(test.values); got != test.want {
			t.Errorf("median(%v) = %v, want %v", test.values, got, test.want)
		}
	}
	if got := median(nil); !math.IsNaN(got) {
		t.Errorf("median of nothing is %v", got)
	}
}

func TestQuantile(t *testing.T) {
	values := make([]float64, 100)
	for i := range values {
		values[i] = float64(i + 1)
	}
	for q, want := range map[float64]float64{0.5: 50, 0.99: 99, 1: 100} {
		if got := quantile(values, q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if got := quantile(values[:1], 0.99); got != 1 {
		t.Errorf("quantile of one value is %v", got)
	}
}

func TestARatioAboveOneIsInOurFavour(t *testing.T) {
	samples := [][]float64{{100}, {50}, {400}}
	less, more := figures{samples: samples}, figures{row: row{higher: true}, samples: samples}
	for i, want := range []float64{1, 2, 0.25} {
		if got := less.ratio(i); got != want {
			t.Errorf("side %d: %v, want %v", i, got, want)
		}
		if got := more.ratio(i); got != 1/want {
			t.Errorf("side %d, more is better: %v, want %v", i, got, 1/want)
		}
	}
	if got := (figures{row: row{plain: true}, samples: samples}).ratio(1); !math.IsNaN(got) {
		t.Errorf("a plain row has the ratio %v", got)
	}
}

func TestFloors(t *testing.T) {
	samples := [][]float64{{100}, {50}, {20}}
	for _, test := range []struct {
		floor       floor
		floors, met string
	}{
		{floor{}, "", ""},
		{both(2), "≥ 2", "yes"},
		{both(3), "≥ 3", "no / yes"},
		{floor{deltaFIFO: 2.5, realFIFO: 5}, "≥ 2.5 / ≥ 5", "no / yes"},
		{floor{deltaFIFO: 1, realFIFO: 1, below: 20}, "≥ 1, < 20", "no"},
	} {
		floors, met := figures{row: row{unit: "ns", floor: test.floor}, samples: samples}.floors()
		if floors != test.floors || met != test.met {
			t.Errorf("%+v: %q met %q, want %q met %q", test.floor, floors, met, test.floors, test.met)
		}
	}
}

func TestNumbersHaveThreeDigitsThatCount(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.0012345: "0.00123", 1: "1", 1.236: "1.24", 12.36: "12.4", 99.96: "100", 123.6: "124", 1234567: "1234567", math.Inf(1): "–",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %s, want %s", v, got, want)
		}
	}
}

// measured returns the results of two sections.
func measured() []result {
	way := result{section: section{name: wholeWayName, title: "The way", about: "About the way."}, rows: []figures{
		{row{name: "way, 1 watcher", unit: "ns/event", common: true, floor: both(2)}, [][]float64{{10, 30, 20}, {5}, {4}}},
		{row{name: "way, 10 watchers", unit: "ns/event"}, [][]float64{{100}, {25}, {20}}},
	}}
	alone := result{section: section{name: distributionName, title: "Alone", about: "About it.", oneQueue: true}, rows: []figures{
		{row{name: "alone, 1 watcher", unit: perWatcher}, [][]float64{{400}, {40}, {40}}},
		{row{name: "alone, 100 watchers", unit: perWatcher}, [][]float64{{400}, {4}, {4}}},
	}}
	return []result{way, alone}
}

func TestTheTableBeginsWithWhatMostUsersRun(t *testing.T) {
	want := `
                     unit              client-go  DeltaFIFO  ratio  RealFIFO  ratio  floor  met

THE USUAL WORKLOADS
way, 1 watcher       ns/event          20         5          4      4         5      ≥ 2    yes

THE WAY
way, 10 watchers     ns/event          100        25         4      20        5

ALONE
alone, 1 watcher     ns/event/watcher  400        40         10     40        10
alone, 100 watchers  ns/event/watcher  400        4          100    4         100

Floors are for a full run on a machine that does nothing else.
`
	if got := text(measured()); got != want[1:] {
		t.Errorf("got:\n%s\nwant:%s", got, want)
	}
}

func TestTheReportHasTheTableTheSpreadAndTheMachine(t *testing.T) {
	dir := t.TempDir()
	s := setting{date: "2026-01-02", cpu: "Some CPU", goVersion: "go1.26", clientGo: "v0.37.2", cores: 2, procs: 2, rounds: 3}
	if err := writeReport(dir, measured(), s); err != nil {
		t.Fatal(err)
	}
	report, err := os.ReadFile(filepath.Join(dir, reportFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"2026-01-02", "Some CPU, 2 cores, GOMAXPROCS=2", "go1.26", "client-go v0.37.2", "median of 3 rounds",
		"| **The usual workloads** |", "| way, 1 watcher | ns/event | 20 | 5 | 4 | 4 | 5 | ≥ 2 | yes |",
		"About the way.", "| way, 1 watcher | ns/event | 20 (10–30) | 5 (5–5) | 4 (4–4) |", "](results.svg)",
	} {
		if !strings.Contains(string(report), want) {
			t.Errorf("%q is missing in:\n%s", want, report)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, plotFile)); err != nil {
		t.Error(err)
	}
}

func TestTheSettingIsThatOfThisProcess(t *testing.T) {
	s := currentSetting(3)
	if s.cpu == "" || s.cores == 0 || s.procs == 0 || s.rounds != 3 || !strings.HasPrefix(s.goVersion, "go") {
		t.Errorf("%+v", s)
	}
}

func TestThePlotIsTheSameEachTime(t *testing.T) {
	var first, second bytes.Buffer
	for _, b := range []*bytes.Buffer{&first, &second} {
		if err := writePlot(b, panels(measured())); err != nil {
			t.Fatal(err)
		}
	}
	if first.String() != second.String() {
		t.Error("two plots of one result differ")
	}
	for _, want := range []string{"client-go", "DeltaFIFO", "RealFIFO", "this library", "ns per event", "The way", "Alone"} {
		if !strings.Contains(first.String(), want) {
			t.Errorf("%q is missing in the plot", want)
		}
	}
}

func TestThePlotIsOfTimePerEvent(t *testing.T) {
	got := points(measured()[1], 1)
	if len(got) != 2 || got[0].Y != 40 || got[1].X != 100 || got[1].Y != 400 {
		t.Errorf("points %v, want (1, 40) and (100, 400)", got)
	}
}

func TestBenchmarkLinesAreParsed(t *testing.T) {
	parsed := parseBenchmarks(`goos: linux
pkg: example.com/module
BenchmarkDistribution/client-go/100-2         	      50	  41234 ns/op	         1.5 allocs/event	        12.25 distributing-ns/event	       403.1 ns/event/watcher
BenchmarkDistribution/informer/100            	      50	  234 ns/op	         2.3 ns/event/watcher
BenchmarkOther
--- BENCH: BenchmarkOther-2
    some_test.go:1: 4 words in all
PASS
ok  	example.com/module	1.234s
`)
	if len(parsed) != 2 {
		t.Errorf("%d results, want 2: %v", len(parsed), parsed)
	}
	peer := parsed["BenchmarkDistribution/client-go/100"]
	if peer[perWatcher] != 403.1 || peer[distributing] != 12.25 || peer[allocations] != 1.5 {
		t.Errorf("client-go: %v", peer)
	}
	if ours := parsed["BenchmarkDistribution/informer/100"]; ours[perWatcher] != 2.3 {
		t.Errorf("ours, without GOMAXPROCS: %v", ours)
	}
	if _, err := pick(parsed, "informer"); err == nil {
		t.Error("missing figures are no error")
	}
}
