package main

import (
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// report renders everything as Markdown.
func (r results) report(c config) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# A manager with %d controllers on one kind\n\n", c.Controllers)
	fmt.Fprintf(&b, "%s objects of about 1 KiB; %s updates by %d writers. The same manager with client-go's informer and with this\n"+
		"library's: only `cache.Options.NewInformer` differs. Medians of %d rounds. The API server is in another process on the\n"+
		"same machine and competes for its processors, so times say less than CPU time.\n\n",
		thousands(float64(c.Objects)), thousands(float64(c.Updates)), writers, c.rounds)
	r.table(&b, fmt.Sprintf("%d controllers", c.Controllers), false)
	fmt.Fprintf(&b, "\nThe same with %d event handlers that only count, without queues and reconcilers. This is the cost of the\n"+
		"informer alone, including the decoding of the server's responses:\n\n", c.Controllers)
	r.table(&b, fmt.Sprintf("%d handlers", c.Controllers), true)
	fmt.Fprintf(&b, "\n%s\n%s\n", r.shares(), machine())
	return b.String()
}

func (r results) table(b *strings.Builder, title string, handlers bool) {
	fmt.Fprintf(b, "| %s | unit | %s | %s | ratio |\n|---|---|---:|---:|---:|\n", title, sides[0].name, sides[1].name)
	for _, row := range rows {
		peer, ours := r.median(subject{sides[0].name, handlers}, row.of), r.median(subject{sides[1].name, handlers}, row.of)
		name := row.name
		if handlers {
			name = strings.NewReplacer("reconciles", "calls", "reconciled", "told").Replace(name)
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", name, row.unit, number(peer), number(ours), number(peer/ours))
	}
}

// shares describes how much of the CPU time an informer can influence at all.
func (r results) shares() string {
	var parts []string
	for _, s := range sides {
		share := func(cpu func(figures) float64) float64 {
			return 100 * r.median(subject{s.name, true}, cpu) / r.median(subject{s.name, false}, cpu)
		}
		parts = append(parts, fmt.Sprintf("%s %% at start and %s %% while updates come with %s",
			number(share(func(f figures) float64 { return f.Start.CPU })), number(share(func(f figures) float64 { return f.Update.CPU })), s.name))
	}
	return "Of the CPU time that the controllers take, the handlers alone take\n" + strings.Join(parts, ", ") + ".\n" +
		"No informer can save more than that. It cannot save the decoding of the server's responses either, which costs the same\n" +
		"on both sides. The rest is queues, reconcilers and the copies of the objects that they read.\n"
}

func machine() string {
	versions := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			versions[m.Path] = m.Version
		}
	}
	return fmt.Sprintf("Measured on %d cores (%s/%s), GOMAXPROCS=%d, %s, client-go %s, controller-runtime %s.",
		runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), runtime.Version(),
		versions["k8s.io/client-go"], versions["sigs.k8s.io/controller-runtime"])
}

// median returns the median of a figure over all rounds. With an even number of rounds it is
// the mean of the middle two.
func (r results) median(s subject, of func(figures) float64) float64 {
	var values []float64
	for _, f := range r[s] {
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
	s := strconv.FormatFloat(v, 'g', 3, 64)
	if strings.Contains(s, "e") {
		s = strconv.FormatFloat(v, 'f', 4, 64)
	}
	return s
}

func thousands(v float64) string {
	s := strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
