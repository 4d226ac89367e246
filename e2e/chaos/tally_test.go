package chaos_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/customcacheinformer/informer/internal/lab"
)

// tally holds the outcomes of all faults, by the name of the fault.
type tally map[string][]outcome

func (a tally) add(o outcome) { a[o.fault] = append(a[o.fault], o) }

// String renders the outcomes as a Markdown table.
func (a tally) String() string {
	var text strings.Builder
	lab.Header(&text, 1, "fault", "times", "lasted", "converged: median / worst", "Health well: median / worst", "lists", "watches", "reported", "came back")
	all := faults()
	rank := func(name string) int { return slices.IndexFunc(all, func(f fault) bool { return f.name == name }) }
	for _, name := range slices.SortedFunc(maps.Keys(a), func(a, b string) int { return cmp.Compare(rank(a), rank(b)) }) {
		o, sum := a[name], outcome{}
		var converged, well float64
		for _, one := range o {
			sum.add(one.figures, 1)
			converged, well = max(converged, one.converged.Seconds()), max(well, one.well.Seconds())
		}
		lab.Cells(&text, name, fmt.Sprint(len(o)),
			fmt.Sprintf("%.2f s", lab.MedianOf(o, func(o outcome) float64 { return o.played.Seconds() })),
			fmt.Sprintf("%.2f s / %.2f s", lab.MedianOf(o, func(o outcome) float64 { return o.converged.Seconds() }), converged),
			fmt.Sprintf("%.2f s / %.2f s", lab.MedianOf(o, func(o outcome) float64 { return o.well.Seconds() }), well),
			fmt.Sprint(sum.lists), fmt.Sprint(sum.watches), fmt.Sprint(sum.reports), fmt.Sprint(sum.returned))
	}
	return text.String()
}
