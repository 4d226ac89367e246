package lab

import (
	"cmp"
	"debug/buildinfo"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Median returns the middle of values, or the mean of the two in the middle. It returns NaN if there are no
// values.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	v := slices.Sorted(slices.Values(values))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// MedianOf returns the median of the values that of returns for all.
func MedianOf[F any](all []F, of func(F) float64) float64 {
	var values []float64
	for _, f := range all {
		values = append(values, of(f))
	}
	return Median(values)
}

// Quantiles returns for each part q the smallest of the values for which at least the part q of the values is not
// greater. Without values, these are NaN.
func Quantiles(values []float64, qs ...float64) (found []float64) {
	v := slices.Sorted(slices.Values(values))
	for _, q := range qs {
		if len(v) == 0 {
			found = append(found, math.NaN())
		} else {
			found = append(found, v[min(len(v)-1, int(math.Ceil(q*float64(len(v))))-1)])
		}
	}
	return found
}

// Interval returns bounds for the true median, with a confidence of at least 95 %. With less than six
// values, the bounds are the least and the greatest value.
func Interval(values []float64) (low, high float64) {
	if len(values) == 0 {
		return math.NaN(), math.NaN()
	}
	v, n := slices.Sorted(slices.Values(values)), float64(len(values))
	one := math.Pow(0.5, n) // the probability that the median lies below exactly k values; at first k is 0
	k := 0
	for all := one; k+1 < (len(v)+1)/2; k++ {
		one *= (n - float64(k)) / float64(k+1)
		if all += one; all > 0.025 {
			break
		}
	}
	return v[k], v[len(v)-1-k]
}

// Number returns a figure as text with three significant digits, or with all digits before the decimal point
// if there are more. It returns a dash for NaN and infinities.
func Number(v float64) string {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "–"
	case math.Abs(v) >= 100:
		return Thousands(int(math.Round(v)))
	}
	s := strconv.FormatFloat(v, 'g', 3, 64)
	if strings.Contains(s, "e") {
		s = strconv.FormatFloat(v, 'f', 4, 64)
	}
	return s
}

// Thousands returns a number as text with commas, such as "1,000".
func Thousands(n int) string {
	if n < 0 {
		return "-" + Thousands(-n)
	}
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// MiB is a mebibyte.
const MiB = 1 << 20

// Mebibytes returns a number of bytes as text, such as "12 MiB".
func Mebibytes(bytes float64) string { return Thousands(int(bytes/MiB)) + " MiB" }

// Seconds returns a duration as text, such as "1.50 s".
func Seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// PerSecond calls f, which must do n operations, again and again for some time. It returns the number of
// operations per second as text.
func PerSecond(during time.Duration, n int, f func()) string {
	start, done := time.Now(), 0
	for time.Since(start) < during {
		f()
		done += n
	}
	return Thousands(int(float64(done) / time.Since(start).Seconds()))
}

// Header writes the head of a table in Markdown. The first columns, as many as texts, are for texts, and the
// others for figures.
func Header(out io.Writer, texts int, titles ...string) {
	Cells(out, titles...)
	fmt.Fprintf(out, "|%s%s\n", strings.Repeat("---|", texts), strings.Repeat("---:|", len(titles)-texts))
}

// Cells writes a line of a table.
func Cells(out io.Writer, cells ...string) {
	fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | "))
}

// Machine returns a description of the machine and the versions of some modules in a program. program is the
// file of the program, or "" for this one.
func Machine(program string, modules ...string) string {
	if program == "" {
		program, _ = os.Executable()
	}
	processor := cmp.Or(strings.TrimLeft(field("/proc/cpuinfo", "model name"), ": \t"), runtime.GOARCH)
	text := fmt.Sprintf("%s, %d cores (%s/%s), GOMAXPROCS=%d; %s", processor, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH,
		runtime.GOMAXPROCS(0), runtime.Version())
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return text
	}
	for _, m := range info.Deps {
		if slices.Contains(modules, m.Path) {
			text += fmt.Sprintf("; %s %s", m.Path[strings.LastIndex(m.Path, "/")+1:], m.Version)
		}
	}
	return text
}
