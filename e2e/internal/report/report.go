// Package report has what the programs share that measure something and print tables of it.
package report

import (
	"context"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Make has run write a report to the standard output, and to a file if its name is not empty. The ctx of
// run ends with an interrupt.
func Make(file string, run func(ctx context.Context, out io.Writer) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var text strings.Builder
	err := run(ctx, io.MultiWriter(os.Stdout, &text))
	if err == nil && file != "" {
		err = os.WriteFile(file, []byte(text.String()), 0o644)
	}
	return err
}

// Median returns the median of a figure over all rounds. With an even number of rounds it is
// the mean of the middle two.
func Median[F any](rounds []F, of func(F) float64) float64 {
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

// Number formats a figure with three significant digits, or with all digits before the decimal
// point if there are more.
func Number(v float64) string {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "–"
	case math.Abs(v) >= 100:
		return Thousands(v)
	}
	s := strconv.FormatFloat(v, 'g', 3, 64)
	if strings.Contains(s, "e") {
		s = strconv.FormatFloat(v, 'f', 4, 64)
	}
	return s
}

// Thousands returns a number without decimals, with commas.
func Thousands(v float64) string {
	s := strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// CPU returns the CPU time that this process has used.
func CPU() time.Duration {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// LiveHeap returns the size of the heap without garbage, in bytes.
func LiveHeap() float64 {
	for range 3 { // one collection leaves objects in pools and objects with finalizers
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
