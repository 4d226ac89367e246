package main

import (
	"runtime"
	"time"
)

// sizes say how much work each section does.
type sizes struct {
	rounds   int
	wholeWay []stream
	trickle  int // events of the latency section's trickle
	load     int // milliseconds of the latency section's load
	cached   int // objects in the sections about the first list, joining and memory
	pods     int // realistic Pods
	sharing  sharingSizes
	idle     int // idle watchers
	joins    int // in each round
	storm    storm
	syncing  []int
	workers  stream
	custom   int // custom resources at the API server
	written  int // updates of the custom resources
	// benchtime is the -benchtime of the distribution's benchmark.
	benchtime string
}

var fullSizes = sizes{
	rounds:    5,
	wholeWay:  []stream{{1, 1000, 200_000}, {3, 1000, 200_000}, {10, 1000, 100_000}, {100, 1000, 30_000}},
	trickle:   2000,
	load:      2000,
	cached:    100_000,
	pods:      100_000,
	sharing:   sharingSizes{pods: 100_000, updated: 30_000, unstructured: 5000, slices: 10_000, configMaps: 20_000, nodes: 2000, strangers: 5000},
	idle:      1000,
	joins:     5,
	storm:     storm{100, 10_000, 10_000},
	syncing:   []int{1, 10, 100},
	workers:   stream{1, 1000, 200_000},
	custom:    20_000,
	written:   5000,
	benchtime: "0.5s",
}

// quickSizes take less than two minutes in all.
var quickSizes = sizes{
	rounds:    2,
	wholeWay:  []stream{{1, 1000, 50_000}, {3, 1000, 50_000}, {10, 1000, 30_000}, {100, 1000, 5000}},
	trickle:   250,
	load:      250,
	cached:    20_000,
	pods:      5000,
	sharing:   sharingSizes{pods: 5000, updated: 3000, unstructured: 500, slices: 1000, configMaps: 2000, nodes: 500, strangers: 500},
	idle:      300,
	joins:     3,
	storm:     storm{100, 10000, 2000},
	syncing:   []int{1, 10, 100},
	workers:   stream{1, 1000, 50_000},
	custom:    2000,
	written:   600,
	benchtime: "0.1s",
}

// sections returns all sections, in the order of the table.
func sections(sz sizes, distribution benchmark) []section {
	return []section{
		wholeWaySection(sz),
		latencySection(sz),
		memorySection(sz),
		podsSection(sz),
		shareSection(sz),
		firstListSection(sz),
		namespacesSection(sz),
		joiningSection(sz),
		stormSection(sz),
		distributionSection(sz, distribution),
		serverSection(sz),
		workersSection(sz),
		observerSection(sz),
	}
}

// restart collects the garbage of the preparations, and returns the start time of the
// measurement.
func restart() time.Time {
	runtime.GC()
	return time.Now()
}

func nanoseconds(d time.Duration) float64  { return float64(d.Nanoseconds()) }
func microseconds(d time.Duration) float64 { return nanoseconds(d) / 1e3 }
func milliseconds(d time.Duration) float64 { return nanoseconds(d) / 1e6 }
