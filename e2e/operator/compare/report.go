package main

import (
	"fmt"
	"io"

	"github.com/customcacheinformer/informer/internal/lab"
)

// parts are the parts of the table.
var parts = []struct {
	title string
	of    func(figures) phase
}{
	{"start: all must be created", func(f figures) phase { return f.Create }},
	{"restart: all is done already", func(f figures) phase { return f.Restart }},
	{"then all Websites get another host", func(f figures) phase { return f.Move }},
	{"then nothing happens", func(f figures) phase { return f.Idle }},
}

// rows are the rows of each part.
var rows = []struct {
	name, unit string
	of         func(phase) float64
}{
	{"until all is done", "s", func(p phase) float64 { return p.Wall }},
	{"CPU time", "s", func(p phase) float64 { return p.CPU }},
	{"most memory ever resident", "MiB", func(p phase) float64 { return p.Peak / lab.MiB }},
	{"anonymous memory at the end", "MiB", func(p phase) float64 { return p.Anon / lab.MiB }},
	{"live heap afterwards", "MiB", func(p phase) float64 { return p.Heap / lab.MiB }},
	{"reconciles", "", func(p phase) float64 { return float64(p.Reconciles) }},
	{"write requests", "", func(p phase) float64 { return float64(p.Writes) }},
	{"of these refused", "", func(p phase) float64 { return float64(p.Refused) }},
}

// report writes everything as Markdown.
func (r results) report(out io.Writer, c config) {
	fmt.Fprintf(out, "# An operator, with this library and with controller-runtime\n\n"+
		"%s Websites, %d workers; the operator is the one in examples/operator, and the same written with controller-runtime,\n"+
		"with its defaults except for metrics, which are off, and once more without its priority queue. Each has a process and an API server of its own; medians of %d\n"+
		"rounds. The API server is on the same machine and competes for its processors, so times say less than CPU time.\n"+
		"All operators reached the same Ingresses and statuses in every round. The most memory includes the start of the process\n"+
		"and the pages of the program's file. The example's file is larger, because it serves a page, and html/template keeps the\n"+
		"linker from leaving out methods. Anonymous memory is without the file.\n",
		lab.Thousands(c.sites), c.workers, c.rounds)
	ours, peers := sides[len(sides)-1], sides[:len(sides)-1]
	for _, part := range parts {
		titles := []string{part.title, "unit"}
		for _, peer := range peers {
			titles = append(titles, peer.name, "ratio")
		}
		fmt.Fprintln(out)
		lab.Header(out, 2, append(titles, ours.name)...)
		for _, row := range rows {
			median := func(s side) float64 {
				return lab.MedianOf(r.rounds[s.name], func(f figures) float64 { return row.of(part.of(f)) })
			}
			cells := []string{row.name, row.unit}
			for _, peer := range peers {
				cells = append(cells, lab.Number(median(peer)), lab.Number(median(peer)/median(ours)))
			}
			lab.Cells(out, append(cells, lab.Number(median(ours)))...)
		}
	}
	fmt.Fprintf(out, "\nMeasured on %s.\n", r.machine)
}
