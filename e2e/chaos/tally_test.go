package chaos_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// tally holds the outcomes of all faults, by the name of the fault.
type tally map[string][]outcome

func (a tally) add(o outcome) { a[o.fault] = append(a[o.fault], o) }

// String renders the outcomes as a Markdown table.
func (a tally) String() string {
	var text strings.Builder
	fmt.Fprintln(&text, "| fault | times | lasted | converged: median / worst | Health well: median / worst | lists | watches | reported | came back |")
	fmt.Fprintln(&text, "|---|---:|---:|---:|---:|---:|---:|---:|---:|")
	all := faults()
	rank := func(name string) int { return slices.IndexFunc(all, func(f fault) bool { return f.name == name }) }
	names := make([]string, 0, len(a))
	for name := range a {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	for _, name := range names {
		o := a[name]
		fmt.Fprintf(&text, "| %s | %d | %s | %s / %s | %s / %s | %d | %d | %d | %d |\n", name, len(o),
			middle(o, func(o outcome) time.Duration { return o.played }),
			middle(o, func(o outcome) time.Duration { return o.converged }), worst(o, func(o outcome) time.Duration { return o.converged }),
			middle(o, func(o outcome) time.Duration { return o.well }), worst(o, func(o outcome) time.Duration { return o.well }),
			total(o, func(o outcome) int64 { return o.lists }), total(o, func(o outcome) int64 { return o.watches }),
			total(o, func(o outcome) int64 { return o.reports }), total(o, func(o outcome) int64 { return o.returned }))
	}
	return text.String()
}

func middle(all []outcome, of func(outcome) time.Duration) string { return seconds(median(all, of)) }

func median[E any, V cmp.Ordered](all []E, of func(E) V) V {
	values := make([]V, 0, len(all))
	for _, e := range all {
		values = append(values, of(e))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func worst(all []outcome, of func(outcome) time.Duration) string {
	var most time.Duration
	for _, o := range all {
		most = max(most, of(o))
	}
	return seconds(most)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

func total(all []outcome, of func(outcome) int64) (sum int64) {
	for _, o := range all {
		sum += of(o)
	}
	return sum
}
