package docs_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const benchResults = "bench/RESULTS.md"

// column selects a figure of a row of bench/RESULTS.md.
type column int

const (
	clientGo column = 2
	ours     column = 3 // with DeltaFIFO, the default
)

// behind returns the cells of the first row of this name behind the heading of its section. The heading is in a
// table, too.
func behind(t *testing.T, file, section, row string) []string {
	t.Helper()
	found := false
	for line := range strings.Lines(read(t, file)) {
		cells := cellsOf(line)
		found = found || strings.HasPrefix(strings.TrimPrefix(cells[0], "**"), section)
		if found && len(cells) > 4 && strings.HasSuffix(cells[0], row) {
			return cells
		}
	}
	t.Fatalf("%s has no row %q behind %q", file, row, section)
	return nil
}

// measured returns a figure of bench/RESULTS.md, and its unit.
func measured(t *testing.T, section, row string, of column) string {
	t.Helper()
	cells := behind(t, benchResults, section, row)
	return cells[of] + " " + cells[1]
}

var figure = regexp.MustCompile(`([\d.,]*\d)(?: ([µm]?s|[kM]?B(?:/s)?|MiB))?`)

// figuresIn returns the figures of a cell. A figure without a unit has that of the next one.
func figuresIn(cell string) (figures []string) {
	found := figure.FindAllStringSubmatch(cell, -1)
	unit := ""
	for i := len(found) - 1; i >= 0; i-- {
		if found[i][2] != "" {
			unit = found[i][2]
		}
		figures = append([]string{strings.TrimSpace(found[i][1] + " " + unit)}, figures...)
	}
	return figures
}

// fits compares the figures in a cell of a page with exact ones. row has the first cell of its row, or the first two
// with "|" between them. Results that are "–" have no figure.
func fits(t *testing.T, page, row string, cell int, exact ...string) {
	t.Helper()
	text := find(t, page, strings.Split(row, "|")...)[cell]
	said := figuresIn(text)
	exact = slices.DeleteFunc(exact, func(e string) bool { return e == "–" })
	if len(said) != len(exact) {
		t.Errorf("%s, %q: %q has %d figures, want %d", page, row, text, len(said), len(exact))
		return
	}
	for i := range said {
		if !agree(t, said[i], exact[i]) {
			t.Errorf("%s, %q: has %s, measured were %s", page, row, said[i], exact[i])
		}
	}
}

func TestTheFiguresOfMemoryAreThoseOfTheResults(t *testing.T) {
	atRoot(t)
	const page = "docs/stores.md"
	for row, name := range map[string]string{
		"all of it": "heap per Pod",
		"`Omit: []string{\"metadata.managedFields\"}`, a `Transform` with client-go": "heap per Pod, without managed fields",
		"an informer of `*metav1.PartialObjectMetadata`":                             "heap per Pod, metadata only",
		"a `Transform` that keeps only labels, owners, node, phase and address":      "heap per Pod, reduced by the transform",
		"metadata without managed fields":                                            "heap per Pod, metadata only, without managed fields",
	} {
		fits(t, page, row, 1, measured(t, "Memory of", name, clientGo))
		fits(t, page, row, 2, measured(t, "Memory of", name, ours))
	}
	fits(t, page, "`store.NewProjection`, which keeps the same", 2, measured(t, "Memory of", "heap per Pod, reduced by the store", ours))

	for row, name := range map[string]string{
		"heap per Pod of 100,000, of 5,400 owners":        "heap per Pod",
		"the same, shared without managed fields":         "heap per Pod, shared without managed fields",
		"unstructured Pods":                               "unstructured Pods, heap of each",
		"EndpointSlices":                                  "EndpointSlices, heap of each",
		"ConfigMaps, a tenth of them the same":            "ConfigMaps, heap of each",
		"Nodes":                                           "Nodes, heap of each",
		"Pods in which nothing is equal":                  "strangers, heap of each",
		"CPU of a garbage collection with 100,000 Pods":   "CPU of a collection of the live heap",
		"CPU to decode a new Pod, and to share it":        "CPU to decode a Pod, and to share it",
		"CPU to decode an update of one, and to share it": "CPU to decode an update, and to share it",
	} {
		asIs, shared := measured(t, "Sharing", name, clientGo), measured(t, "Sharing", name, ours)
		fits(t, page, row, 1, asIs)
		fits(t, page, row, 2, shared)
		number := func(figure string) float64 { n, _, _ := strings.Cut(figure, " "); return parsed(t, n) }
		fits(t, page, row, 3, fmt.Sprintf("%.4f", number(shared)/number(asIs)))
	}
}

func TestTheFiguresOfStartsAreThoseOfTheResults(t *testing.T) {
	atRoot(t)
	const page, section = "docs/stores.md", "Many informers"
	for row, name := range map[string]string{
		"a list: CPU until synced":            "a sink of Pods, by a list: CPU",
		"a list: peak of memory":              "a sink of Pods, by a list: peak",
		"a stream: CPU until synced":          "a sink of Pods, by a stream: CPU",
		"a stream: peak of memory":            "a sink of Pods, by a stream: peak",
		"live heap of a Pod's lines and keys": "a sink of Pods, by a list: live heap of a Pod",
	} {
		fits(t, page, row, 1, measured(t, section, name, clientGo))
		fits(t, page, row, 2, measured(t, section, name, ours))
	}
	for row, from := range map[string]struct {
		name string
		side column
	}{
		"4, with Transport":          {"40 informers, 4 lists at a time", ours},
		"all, with Transport":        {"40 informers, all at a time", ours},
		"all, client-go's informers": {"40 informers, all at a time", clientGo},
	} {
		fits(t, page, row, 1, measured(t, section, from.name+": peak", from.side))
		fits(t, page, row, 2, measured(t, section, from.name+": time", from.side))
	}
}

func TestTheFiguresOfOperationsAreThoseOfTheResults(t *testing.T) {
	atRoot(t)
	const page, disk = "docs/operations.md", "store/disk/measure/RESULTS.md"
	pods := func(name string) string { return measured(t, "Memory of", name, ours) }
	fits(t, page, "a Pod of 13 kB as JSON: all; no managed fields; metadata; labels, node, phase, address", 1,
		pods("heap per Pod"), pods("heap per Pod, without managed fields"), pods("heap per Pod, metadata only"), pods("heap per Pod, reduced by the transform"))
	usual := func(name string) string { return measured(t, "The usual workloads", name, ours) }
	fits(t, page, "an object in the store, without the object itself", 1, usual("heap per cached object, without the object"))
	fits(t, page, "an idle watcher, heap and stacks", 1, usual("heap and stacks per idle watcher"))
	fits(t, page, "the first list of 100,000 objects of 1.6 kB: the heap at its peak", 1, usual("first list of 100000 objects, peak of the heap"))
	handlers := func(row string) float64 {
		return parsed(t, behind(t, "e2e/manager/compare/RESULTS.md", "20 handlers", row)[ours])
	}
	fits(t, page, "10,000 objects of 1 KiB from an API server, for 20 handlers: CPU until synced; CPU for an update", 1,
		fmt.Sprintf("%.2f s", handlers("start: CPU time")), fmt.Sprintf("%.4f ms", handlers("updates: CPU time")*1000/10_000))
	steady, peak := find(t, disk, "steady state: anonymous memory"), find(t, disk, "cold start: peak of anonymous memory")
	warm := find(t, disk, "warm start: anonymous memory afterwards")
	fits(t, page, "1,000,000 Pods of 2 KiB in memory (client-go's indexer as `Options.Store`): quiet; peak of the start", 1, steady[1], peak[1])
	fits(t, page, "the same over `store/disk`: after a cold start; its peak; after a warm start", 1, steady[2], peak[2], warm[2])
}

func TestTheFiguresOfTheOperatorAreThoseOfTheResults(t *testing.T) {
	atRoot(t)
	const page, results = "docs/operator.md", "e2e/operator/compare/RESULTS.md"
	const here = 6 // the column of this library
	for row, from := range map[string][2]string{
		"a start: CPU time":                        {"start:", "CPU time"},
		"a start: reconciles":                      {"start:", "reconciles"},
		"a restart: CPU time":                      {"restart:", "CPU time"},
		"a change of all: CPU time":                {"then all Websites", "CPU time"},
		"anonymous memory after the change of all": {"then all Websites", "anonymous memory at the end"},
	} {
		cells := behind(t, results, from[0], from[1])
		for i, column := range []int{2, 4, here} { // controller-runtime, without its priority queue
			fits(t, page, row, i+1, strings.TrimSpace(cells[column]+" "+cells[1]))
		}
	}
	sentence := fmt.Sprintf("needed %.1f s for 2,000 new Websites: %s calls with a write each, and %.1f s of CPU time",
		parsed(t, behind(t, results, "start:", "until all is done")[here]), behind(t, results, "start:", "write requests")[here],
		parsed(t, behind(t, results, "start:", "CPU time")[here]))
	if !strings.Contains(strings.Join(strings.Fields(read(t, "docs/sharding.md")), " "), sentence) {
		t.Errorf("docs/sharding.md does not have %q", sentence)
	}
}

// TestAManagerTakesAboutTheSame compares words with figures: README.md says that a manager takes less CPU time at its start,
// and then about as much as with client-go's informer.
func TestAManagerTakesAboutTheSame(t *testing.T) {
	atRoot(t)
	const results, tolerance = "e2e/manager/compare/RESULTS.md", 0.15
	start := behind(t, results, "20 controllers", "start: CPU time")
	sentence := fmt.Sprintf("start with %s s of CPU time instead of %s s", start[ours], start[ours-1])
	if !strings.Contains(strings.Join(strings.Fields(read(t, "README.md")), " "), sentence) || parsed(t, start[ours+1]) < 1.05 {
		t.Errorf("README.md does not have %q, or that is no difference", sentence)
	}
	for _, row := range []string{"updates: CPU time", "live heap", "most memory ever resident"} {
		if ratio := parsed(t, behind(t, results, "20 controllers", row)[4]); ratio < 1-tolerance || ratio > 1+tolerance {
			t.Errorf("%s, %q: the ratio is %.2f, which is not the same", results, row, ratio)
		}
	}
}
