package main

import (
	"debug/buildinfo"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// report renders everything as Markdown.
func (r results) report(c config) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# An operator, with this library and with controller-runtime\n\n"+
		"%s Websites, %d workers; the operator is the one in examples/operator, and the same written with controller-runtime,\n"+
		"with its defaults except for metrics, which are off, and once more without its priority queue. Each has a process and an API server of its own; medians of %d\n"+
		"rounds. The API server is on the same machine and competes for its processors, so times say less than CPU time.\n"+
		"All operators reached the same Ingresses and statuses in every round. The most memory includes the start of the process\n"+
		"and the pages of the program's file. The example's file is larger, because it serves a page, and html/template keeps the\n"+
		"linker from leaving out methods. Anonymous memory is without the file.\n",
		thousands(float64(c.sites)), c.workers, c.rounds)
	for _, part := range parts {
		fmt.Fprintf(&b, "\n| %s | unit |", part.title)
		for _, peer := range peers {
			fmt.Fprintf(&b, " %s | ratio |", peer.name)
		}
		fmt.Fprintf(&b, " %s |\n|---|---|%s---:|\n", ours.name, strings.Repeat("---:|---:|", len(peers)))
		for _, row := range rows {
			of := func(f figures) float64 { return row.of(part.of(f)) }
			own := median(r.rounds[ours.name], of)
			fmt.Fprintf(&b, "| %s | %s |", row.name, row.unit)
			for _, peer := range peers {
				theirs := median(r.rounds[peer.name], of)
				fmt.Fprintf(&b, " %s | %s |", number(theirs), number(theirs/own))
			}
			fmt.Fprintf(&b, " %s |\n", number(own))
		}
	}
	fmt.Fprintf(&b, "\nMeasured on %d cores (%s/%s), %s, client-go %s, controller-runtime %s.\n", runtime.NumCPU(), runtime.GOOS,
		runtime.GOARCH, runtime.Version(), r.versions["k8s.io/client-go"], r.versions["sigs.k8s.io/controller-runtime"])
	return b.String()
}

// versionsOf returns the versions of the modules in a program.
func versionsOf(program string) map[string]string {
	versions := map[string]string{}
	if info, err := buildinfo.ReadFile(program); err == nil {
		for _, m := range info.Deps {
			versions[m.Path] = m.Version
		}
	}
	return versions
}

// median returns the median of a figure over all rounds. With an even number of rounds it is
// the mean of the middle two.
func median(rounds []figures, of func(figures) float64) float64 {
	var values []float64
	for _, f := range rounds {
		values = append(values, of(f))
	}
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

// number formats a figure with three significant digits, or with all digits before the decimal
// point if there are more.
func number(v float64) string {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "–"
	case math.Abs(v) >= 100:
		return thousands(v)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

func thousands(v float64) string {
	s := strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
