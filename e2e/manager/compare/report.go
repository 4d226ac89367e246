package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/customcacheinformer/informer/internal/lab"
)

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

// rows are the rows of the table, for managers with controllers and for those with handlers.
var rows = []row{
	{"start: until all is reconciled once", "s", func(f figures) float64 { return f.Start.Wall }},
	{"start: CPU time", "s", startCPU},
	{"start: reconciles", "", func(f figures) float64 { return float64(f.Start.Calls) }},
	{"updates: writing them", "s", func(f figures) float64 { return f.Writing }},
	{"updates: from the last write until all is reconciled", "ms", func(f figures) float64 { return 1000 * f.Update.Caught }},
	{"updates: from a write until it is reconciled, p50", "ms", func(f figures) float64 { return 1000 * f.Update.Median }},
	{"updates: from a write until it is reconciled, p99", "ms", func(f figures) float64 { return 1000 * f.Update.P99 }},
	{"updates: CPU time", "s", updateCPU},
	{"updates: reconciles", "", func(f figures) float64 { return float64(f.Update.Calls) }},
	{"idle: CPU time per minute", "ms", func(f figures) float64 { return 1000 * f.Idle.CPU * 60 / f.Idle.Wall }},
	{"live heap", "MiB", func(f figures) float64 { return f.Idle.Heap / lab.MiB }},
	{"most memory ever resident", "MiB", func(f figures) float64 { return f.Idle.Peak / lab.MiB }},
	{"goroutines", "", func(f figures) float64 { return float64(f.Idle.Goroutines) }},
}

func startCPU(f figures) float64  { return f.Start.CPU }
func updateCPU(f figures) float64 { return f.Update.CPU }

// report writes everything as Markdown.
func (r results) report(out io.Writer, c config) {
	fmt.Fprintf(out, "# A manager with %d controllers on one kind\n\n", c.Controllers)
	fmt.Fprintf(out, "%s objects of about 1 KiB; %s updates by %d writers. The same manager with client-go's informer and with this\n"+
		"library's: only `cache.Options.NewInformer` and `config.Wrap(informer.Transport)` differ. Medians of %d rounds; the median of the\n"+
		"ratios of all rounds lies between the last two figures with a probability of 95 %%. The API server is in another process on the\n"+
		"same machine and competes for its processors, so times say less than CPU time.\n\n",
		lab.Thousands(c.Objects), lab.Thousands(c.Updates), writers, c.rounds)
	if c.Rate > 0 {
		fmt.Fprintf(out, "%d updates are written in a second.\n\n", c.Rate)
	}
	if c.List {
		fmt.Fprintf(out, "For each update, each reconciler lists all objects, with `UnsafeDisableDeepCopy`.\n\n")
	}
	r.table(out, fmt.Sprintf("%d controllers", c.Controllers), false)
	if !c.List {
		r.handlers(out, c)
	}
	fmt.Fprintf(out, "\nMeasured on %s.\n", lab.Machine("", "k8s.io/client-go", "sigs.k8s.io/controller-runtime"))
}

// handlers writes the table of the handlers, and how much of the controllers' time they take.
func (r results) handlers(out io.Writer, c config) {
	fmt.Fprintf(out, "\nThe same with %d event handlers that only count, without queues and reconcilers. This is the cost of the\n"+
		"informer alone, including the decoding of the server's responses:\n\n", c.Controllers)
	r.table(out, fmt.Sprintf("%d handlers", c.Controllers), true)

	// How much of the CPU time can an informer influence at all?
	var parts []string
	for _, s := range sides {
		share := func(cpu func(figures) float64) string {
			return lab.Number(100 * lab.MedianOf(r[subject{s.name, true}], cpu) / lab.MedianOf(r[subject{s.name, false}], cpu))
		}
		parts = append(parts, fmt.Sprintf("%s %% at start and %s %% while updates come with %s", share(startCPU), share(updateCPU), s.name))
	}
	fmt.Fprintf(out, "\nOf the CPU time that the controllers take, the handlers alone take\n%s.\n"+
		"No informer can save more than that. The rest is queues, reconcilers and the copies of the objects that they read.\n",
		strings.Join(parts, ", "))
}

func (r results) table(out io.Writer, title string, handlers bool) {
	lab.Header(out, 2, title, "unit", sides[0].name, sides[1].name, "ratio", "of each round")
	for _, row := range rows {
		peers, all := r[subject{sides[0].name, handlers}], r[subject{sides[1].name, handlers}]
		peer, ours, ratios := lab.MedianOf(peers, row.of), lab.MedianOf(all, row.of), make([]float64, len(all))
		for n := range all {
			ratios[n] = row.of(peers[n]) / row.of(all[n])
		}
		low, high := lab.Interval(ratios)
		name := row.name
		if handlers {
			name = strings.NewReplacer("reconciles", "calls", "reconciled", "delivered").Replace(name)
		}
		lab.Cells(out, name, row.unit, lab.Number(peer), lab.Number(ours), lab.Number(peer/ours), lab.Number(low)+"–"+lab.Number(high))
	}
}
