package main

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// usage is the consumption of a manager's process up to some moment.
type usage struct {
	at    time.Time
	cpu   time.Duration
	calls int64
}

func (m *measured) usage() usage {
	return usage{at: time.Now(), cpu: cpuTime(), calls: m.calls.Load()}
}

// phase holds the measurements of a manager between two moments, and its state at the end.
// Times are in seconds, memory is in bytes.
type phase struct {
	Wall, CPU, Caught float64
	Calls             int64
	Heap, Peak        float64
	Goroutines        int
}

func (m *measured) since(begun usage) phase {
	now := m.usage()
	return phase{
		Wall: now.at.Sub(begun.at).Seconds(), CPU: (now.cpu - begun.cpu).Seconds(), Caught: m.caught.Seconds(),
		Calls: now.calls - begun.calls, Heap: float64(m.heap), Peak: peakMemory(), Goroutines: runtime.NumGoroutine(),
	}
}

// peakMemory returns the most memory that was resident, or 0 where the system does not report
// it. It does not use getrusage: on Linux that value starts with the memory of the parent
// process.
func peakMemory() float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			kibi, _ := strconv.ParseFloat(f[1], 64)
			return kibi * 1024
		}
	}
	return 0
}

// figures holds the measurements of one subject in one round.
type figures struct {
	Start, Update, Idle phase
	Writing             float64 // how long the parent took to write
}

// row is a row of the table.
type row struct {
	name, unit string
	of         func(figures) float64
}

const mebi = 1 << 20

// rows are the rows of the table, for managers with controllers and for those with handlers.
var rows = []row{
	{"start: until all is reconciled once", "s", func(f figures) float64 { return f.Start.Wall }},
	{"start: CPU time", "s", func(f figures) float64 { return f.Start.CPU }},
	{"start: reconciles", "", func(f figures) float64 { return float64(f.Start.Calls) }},
	{"updates: writing them", "s", func(f figures) float64 { return f.Writing }},
	{"updates: from the last write until all is reconciled", "ms", func(f figures) float64 { return 1000 * f.Update.Caught }},
	{"updates: CPU time", "s", func(f figures) float64 { return f.Update.CPU }},
	{"updates: reconciles", "", func(f figures) float64 { return float64(f.Update.Calls) }},
	{"idle: CPU time per minute", "ms", func(f figures) float64 { return 1000 * f.Idle.CPU * 60 / f.Idle.Wall }},
	{"live heap", "MiB", func(f figures) float64 { return f.Idle.Heap / mebi }},
	{"most memory ever resident", "MiB", func(f figures) float64 { return f.Idle.Peak / mebi }},
	{"goroutines", "", func(f figures) float64 { return float64(f.Idle.Goroutines) }},
}
