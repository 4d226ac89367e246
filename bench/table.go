package main

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// median returns the middle of values, or the mean of the two in the middle.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	v := slices.Sorted(slices.Values(values))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// quantile returns the smallest value such that at least the part q of the values does not
// exceed it. The values must be sorted.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[min(len(sorted)-1, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// ratio returns how much better a side is than client-go: twice as good is 2. It is NaN if the
// row has no ratio or no figures.
func (f figures) ratio(side int) float64 {
	if f.plain {
		return math.NaN()
	}
	peer, ours := median(f.samples[0]), median(f.samples[side])
	if f.higher {
		return ours / peer
	}
	return peer / ours
}

// met reports whether a side reaches the row's floor.
func (f figures) met(side int) bool {
	least := f.least(side)
	return (least == 0 || f.ratio(side) >= least) && (f.floor.below == 0 || median(f.samples[side]) < f.floor.below)
}

// least returns the least ratio that the row's floor asks of a side.
func (f figures) least(side int) float64 {
	switch sides[side] {
	case deltaFIFO:
		return f.floor.deltaFIFO
	case realFIFO:
		return f.floor.realFIFO
	}
	return 0
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
			parts = append(parts, "≥ "+number(l))
		}
		if f.floor.below > 0 {
			parts = append(parts, "< "+number(f.floor.below))
		}
		least = append(least, strings.Join(parts, ", "))
		reached = append(reached, map[bool]string{true: "yes", false: "no"}[f.met(i)])
	}
	return strings.Join(slices.Compact(least), " / "), strings.Join(slices.Compact(reached), " / ")
}

// number formats a figure with three significant digits.
func number(v float64) string {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "–"
	case math.Abs(v) >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	s := strconv.FormatFloat(v, 'g', 3, 64)
	if strings.Contains(s, "e") {
		s = strconv.FormatFloat(v, 'f', 4, 64)
	}
	return s
}

// header returns the column titles of the table.
func header() []string {
	h := []string{"", "unit", sides[0].name}
	for _, s := range sides[1:] {
		h = append(h, s.name, "ratio")
	}
	return append(h, "floor", "met")
}

// cells returns the cells of a row of the table.
func (f figures) cells() []string {
	c := []string{f.name, f.unit, number(median(f.samples[0]))}
	for i := 1; i < len(sides); i++ {
		c = append(c, number(median(f.samples[i])), number(f.ratio(i)))
	}
	floors, met := f.floors()
	return append(c, floors, met)
}

// group is a set of rows of the table under one title.
type group struct {
	title  string
	rows   []figures
	failed error // the reason why there are no rows
}

// groups arranges the rows. The rows that concern most users come first, then the other rows
// of each section.
func groups(results []result) []group {
	common := group{title: "The usual workloads"}
	var rest []group
	for _, r := range results {
		g := group{title: r.section.title, failed: r.err}
		for _, f := range r.rows {
			switch {
			case r.err != nil:
			case f.common:
				common.rows = append(common.rows, f)
			default:
				g.rows = append(g.rows, f)
			}
		}
		if len(g.rows) > 0 || g.failed != nil {
			rest = append(rest, g)
		}
	}
	if len(common.rows) > 0 {
		rest = slices.Insert(rest, 0, common)
	}
	return rest
}

// text renders the table for a terminal.
func text(results []result) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	line := func(cells ...string) {
		// tabwriter aligns columns only across adjacent lines that have the cell, so every
		// line has all cells.
		cells = append(cells, make([]string, len(header())-len(cells))...)
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	line(header()...)
	for _, g := range groups(results) {
		line()
		line(strings.ToUpper(g.title))
		for _, f := range g.rows {
			line(f.cells()...)
		}
		if g.failed != nil {
			line("no result, see below")
		}
	}
	_ = w.Flush() // writing to a builder does not fail
	b.WriteString("\nFloors are for a full run on a machine that does nothing else.\n")
	for _, r := range results {
		if r.err != nil {
			fmt.Fprintf(&b, "\n%s: %v\n", r.section.title, r.err)
		}
	}
	return trailing.ReplaceAllString(b.String(), "")
}

// trailing matches the spaces that the alignment leaves at the ends of lines.
var trailing = regexp.MustCompile(`(?m) +$`)
