package main

import (
	"regexp"
	"strconv"
	"strings"
)

// procs matches the suffix that go test adds to the name of a benchmark unless GOMAXPROCS is
// 1.
var procs = regexp.MustCompile(`-\d+$`)

// parseBenchmarks returns the figures in the output of go test -bench, by benchmark name,
// without GOMAXPROCS, and by unit. It skips lines that are not results.
func parseBenchmarks(output string) map[string]map[string]float64 {
	parsed := map[string]map[string]float64{}
	for line := range strings.Lines(output) {
		fields := strings.Fields(line)
		if len(fields) < 4 || len(fields)%2 != 0 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		if _, err := strconv.Atoi(fields[1]); err != nil {
			continue
		}
		figures := map[string]float64{}
		for i := 2; i < len(fields); i += 2 {
			if v, err := strconv.ParseFloat(fields[i], 64); err == nil {
				figures[fields[i+1]] = v
			}
		}
		parsed[procs.ReplaceAllString(fields[0], "")] = figures
	}
	return parsed
}
