package main

import (
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/customcacheinformer/informer/internal/lab"
)

// remarks are the author's answers to questions that a reader may have about the figures. They
// belong to the present results: check them when you change the results.
//
//go:embed remarks.md
var remarks string

// report writes the table, and then the explanation of each section and the spread of its figures.
func report(out io.Writer, results []result, rounds int) {
	fmt.Fprintf(out, "# This library compared with client-go\n\n")
	fmt.Fprintf(out, "Written by `make bench` on %s: %s.\n\n", time.Now().Format(time.DateOnly), lab.Machine("", "k8s.io/client-go"))
	fmt.Fprintf(out, "Both run in one process on the same work. Each figure is the median of %s, after a warm-up round that does not count. Within a round "+
		"the sides take turns, and each round begins with a different side. This library has two queues: DeltaFIFO, the default, and RealFIFO. "+
		"**A ratio above 1 says that this library is better.** Times depend on the machine, ratios much less. A floor is the figure that this "+
		"library must still reach after any change, in a full run on a machine that does nothing else; two floors are for the two queues.\n\n", plural(rounds, "round"))
	titles := []string{"", "unit", sides[0].name}
	for _, s := range sides[1:] {
		titles = append(titles, s.name, "ratio")
	}
	lab.Header(out, 2, append(titles, "floor", "met")...)
	group := func(title string, of []figures) {
		if len(of) > 0 {
			lab.Cells(out, append([]string{"**" + title + "**"}, make([]string, len(titles)+1)...)...)
		}
		for _, f := range of {
			lab.Cells(out, f.cells()...)
		}
	}
	var common []figures
	rest := make([][]figures, len(results))
	for i, r := range results {
		for _, f := range r.rows {
			switch {
			case r.err != nil:
			case f.common:
				common = append(common, f)
			default:
				rest[i] = append(rest[i], f)
			}
		}
	}
	group("The usual workloads", common)
	for i, r := range results {
		group(r.section.title, rest[i])
	}
	fmt.Fprintf(out, "\n%s\n", remarks)
	fmt.Fprintf(out, "## What the rows measure, and how far they spread\n\nEach figure is the median, with the least and the greatest value of all rounds. "+
		"The two ratios are the bounds between which the median of the ratios of all rounds lies with a probability of 95 %%.\n")
	for _, r := range results {
		r.write(out)
	}
}

// write writes the section: its explanation, and the spread of its figures.
func (r result) write(out io.Writer) {
	fmt.Fprintf(out, "\n### %s\n\n%s\n\n", r.section.title, r.section.about)
	if r.err != nil {
		fmt.Fprintf(out, "There is no result: %v.\n", r.err)
		return
	}
	lab.Header(out, 2, "", "unit", sides[0].name, sides[1].name, sides[2].name)
	for _, f := range r.rows {
		cells := []string{f.name, f.unit}
		for side, v := range f.samples {
			cell := fmt.Sprintf("%s (%s–%s)", lab.Number(lab.Median(v)), lab.Number(slices.Min(v)), lab.Number(slices.Max(v)))
			if low, high := lab.Interval(f.ratios(side)); side > 0 && len(v) > 1 && !f.plain {
				cell += fmt.Sprintf("; ratio %s–%s", lab.Number(low), lab.Number(high))
			}
			cells = append(cells, cell)
		}
		lab.Cells(out, cells...)
	}
}

// cells returns the cells of a row of the table.
func (f figures) cells() []string {
	cells := []string{f.name, f.unit, lab.Number(lab.Median(f.samples[0]))}
	for i := 1; i < len(sides); i++ {
		cells = append(cells, lab.Number(lab.Median(f.samples[i])), lab.Number(f.ratio(i)))
	}
	floors, met := f.floors()
	return append(cells, floors, met)
}

// floors returns the floors of our sides, and whether each is met, as text.
func (f figures) floors() (floors, met string) {
	if f.floor == (floor{}) {
		return "", ""
	}
	var least, reached []string
	for i := 1; i < len(sides); i++ {
		parts := []string{}
		if l := f.least(i); l > 0 {
			parts = append(parts, "≥ "+lab.Number(l))
		}
		if f.floor.below > 0 {
			parts = append(parts, "< "+lab.Number(f.floor.below))
		}
		least = append(least, strings.Join(parts, ", "))
		reached = append(reached, map[bool]string{true: "yes", false: "no"}[f.met(i)])
	}
	return strings.Join(slices.Compact(least), " / "), strings.Join(slices.Compact(reached), " / ")
}
