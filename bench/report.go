package main

import (
	"bufio"
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// setting describes the machine and the run of the measurements.
type setting struct {
	date, cpu, goVersion, clientGo string
	cores, procs, rounds           int
}

func currentSetting(rounds int) setting {
	return setting{
		date: time.Now().Format(time.DateOnly), cpu: cpuModel(), goVersion: runtime.Version(), clientGo: version("k8s.io/client-go"),
		cores: runtime.NumCPU(), procs: runtime.GOMAXPROCS(0), rounds: rounds,
	}
}

// cpuModel returns the system's name for its processor, or the architecture if there is no
// name.
func cpuModel() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for lines := bufio.NewScanner(bytes.NewReader(info)); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// version returns the version of a module in this program.
func version(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == module {
				return m.Version
			}
		}
	}
	return "of unknown version"
}

// markdown renders the report.
func markdown(results []result, s setting, plotFile string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# This library beside client-go\n\n")
	fmt.Fprintf(&b, "Written by `make bench` on %s: %s, %s, GOMAXPROCS=%d; %s; client-go %s.\n\n",
		s.date, s.cpu, plural(s.cores, "core"), s.procs, s.goVersion, s.clientGo)
	fmt.Fprintf(&b, "Both run in one process on the same work. Each figure is the median of %s, after a warm-up round that does not count. Within a round ", plural(s.rounds, "round"))
	b.WriteString("the sides take turns, and each round begins with a different side. This library has two queues: DeltaFIFO, the default, and RealFIFO. " +
		"**A ratio above 1 says that this library is better.** Times depend on the machine, ratios much less. A floor is the figure that this " +
		"library must still reach after any change; two floors are for the two queues.\n\n")
	var lines [][]string
	for _, g := range groups(results) {
		lines = append(lines, []string{"**" + g.title + "**"})
		for _, f := range g.rows {
			lines = append(lines, f.cells())
		}
		if g.failed != nil {
			lines = append(lines, []string{"no result, see below"})
		}
	}
	writeTable(&b, header(), lines)
	if plotFile != "" {
		fmt.Fprintf(&b, "![ns per event against the number of watchers](%s)\n\n", plotFile)
	}
	b.WriteString(remarks + "\n")
	b.WriteString("## What the rows measure, and how far they spread\n\nEach figure is the median, with the least and the greatest value of all rounds.\n\n")
	for _, r := range results {
		r.write(&b)
	}
	return strings.TrimSpace(b.String()) + "\n"
}

// write renders the section: its explanation, and the spread of its figures.
func (r result) write(b *strings.Builder) {
	fmt.Fprintf(b, "### %s\n\n%s\n\n", r.section.title, r.section.about)
	if r.err != nil {
		fmt.Fprintf(b, "There is no result: %v.\n\n", r.err)
		return
	}
	columns := []string{"", "unit"}
	for _, s := range sides {
		columns = append(columns, s.name)
	}
	var lines [][]string
	for _, f := range r.rows {
		lines = append(lines, f.spread())
	}
	writeTable(b, columns, lines)
}

// spread returns a row with the median, the least and the greatest of each figure.
func (f figures) spread() []string {
	c := []string{f.name, f.unit}
	for _, v := range f.samples {
		c = append(c, fmt.Sprintf("%s (%s–%s)", number(median(v)), number(slices.Min(v)), number(slices.Max(v))))
	}
	return c
}

// writeTable renders lines. A line may have fewer cells than there are columns.
func writeTable(b *strings.Builder, columns []string, lines [][]string) {
	fmt.Fprintf(b, "| %s |\n", strings.Join(columns, " | "))
	fmt.Fprintf(b, "|---|---|%s\n", strings.Repeat("---:|", len(columns)-2))
	for _, cells := range lines {
		cells = append(slices.Clip(cells), make([]string, len(columns)-len(cells))...)
		fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
	}
	b.WriteString("\n")
}

// remarks are the author's answers to questions that a reader may have about the figures. They
// belong to the present results: check them when you change the results.
//
//go:embed remarks.md
var remarks string

// These are the file names of a report.
const reportFile, plotFile = "RESULTS.md", "results.svg"

// writeReport writes the report and the plot to a directory.
func writeReport(dir string, results []result, s setting) error {
	plotted := ""
	if all := panels(results); len(all) > 0 {
		var svg bytes.Buffer
		if err := writePlot(&svg, all); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, plotFile), svg.Bytes(), 0o644); err != nil {
			return err
		}
		plotted = plotFile
	}
	return os.WriteFile(filepath.Join(dir, reportFile), []byte(markdown(results, s, plotted)), 0o644)
}
