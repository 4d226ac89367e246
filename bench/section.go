package main

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/customcacheinformer/informer/internal/lab"
)

// measuring is the time after which one measurement of one side counts as stuck. The longest
// measurement takes a few seconds.
const measuring = 5 * time.Minute

// section is one subject of the comparison.
type section struct {
	name  string // matched by -run
	title string
	about string // explains the rows, and why the comparison is fair
	cases []measurement
	// oneQueue is for figures that do not depend on the queue. Only DeltaFIFO is then
	// measured, and its figures are in both of our columns.
	oneQueue bool
	// once is for figures that hardly vary and take long. Only one round is then measured,
	// without a warm-up round.
	once bool
}

// measurement measures one side once and returns a value for each of its rows.
type measurement struct {
	rows    []row
	measure func(context.Context, side) ([]float64, error)
}

// row is a line of the table.
type row struct {
	name   string
	unit   string
	higher bool // more is better
	plain  bool // neither more nor less is better, so there is no ratio
	common bool // concerns most users, so it is at the top
	floor  floor
}

// named puts what rows have in common before their names.
func named(prefix string, rows ...row) []row {
	for i := range rows {
		rows[i].name = prefix + rows[i].name
	}
	return rows
}

// floor is the minimum that a row must reach: the ratio to client-go for each of our queues,
// and an upper limit of our own figure, in the unit of the row. 0 means no limit.
type floor struct{ deltaFIFO, realFIFO, below float64 }

// both returns a floor that is the same for both queues.
func both(ratio float64) floor { return floor{deltaFIFO: ratio, realFIFO: ratio} }

// atMost returns the floor of a row of which our side may take this much of client-go's figure.
func atMost(part float64) floor { return both(1 / part) }

// result holds the figures of a section, or its error.
type result struct {
	section section
	rows    []figures // of all cases of the section
	err     error
}

// figures are the samples of a row, by the index of the side.
type figures struct {
	row
	samples [][]float64
}

// run measures every case in the given number of rounds, in which the sides take turns. A round before
// these is for warming up, and does not count.
func (s section) run(ctx context.Context, rounds int) (res result) {
	res.section = s
	warmUp := 1
	if s.once {
		rounds, warmUp = 1, 0
	}
	all := sides
	if s.oneQueue {
		all = sides[:2]
	}
	for _, c := range s.cases {
		first := len(res.rows)
		for _, r := range c.rows {
			res.rows = append(res.rows, figures{r, make([][]float64, len(sides))})
		}
		err := lab.Rounds(rounds+warmUp, all, func(round int, side side) error {
			values, err := c.once(ctx, side)
			i := slices.Index(sides, side)
			for k := range values {
				if samples := res.rows[first+k].samples; round >= warmUp {
					samples[i] = append(samples[i], values[k])
				}
			}
			return err
		})
		if err != nil {
			res.err = fmt.Errorf("%s: %w", s.title, err)
			return res
		}
		for _, f := range res.rows[first:] {
			if s.oneQueue {
				f.samples[2] = f.samples[1]
			}
		}
	}
	return res
}

func (c measurement) once(ctx context.Context, s side) ([]float64, error) {
	lab.Progress("%s: %v", c.rows[0].name, s)
	runtime.GC()
	ctx, cancel := context.WithTimeoutCause(ctx, measuring, fmt.Errorf("not done after %v", measuring))
	defer cancel()
	values, err := c.measure(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.rows[0].name, err)
	}
	if len(values) != len(c.rows) {
		return nil, fmt.Errorf("%d figures for %d rows", len(values), len(c.rows))
	}
	return values, nil
}

// gain returns how much better our figure is than the peer's: twice as good is 2. It is NaN if the row has no ratio.
func (r row) gain(peer, ours float64) float64 {
	switch {
	case r.plain:
		return math.NaN()
	case r.higher:
		return ours / peer
	}
	return peer / ours
}

// ratio returns the gain of a side's median. It is NaN if there are no figures.
func (f figures) ratio(side int) float64 {
	return f.gain(lab.Median(f.samples[0]), lab.Median(f.samples[side]))
}

// ratios returns the gain of each round.
func (f figures) ratios(side int) (ratios []float64) {
	for i, ours := range f.samples[side] {
		ratios = append(ratios, f.gain(f.samples[0][i], ours))
	}
	return ratios
}

// least returns the least ratio that the row's floor asks of a side.
func (f figures) least(side int) float64 {
	return []float64{0, f.floor.deltaFIFO, f.floor.realFIFO}[side]
}

// met reports whether a side reaches the row's floor.
func (f figures) met(side int) bool {
	least := f.least(side)
	return (least == 0 || f.ratio(side) >= least) && (f.floor.below == 0 || lab.Median(f.samples[side]) < f.floor.below)
}

// restart collects the garbage of the preparations, and returns the start time of the
// measurement.
func restart() time.Time {
	runtime.GC()
	return time.Now()
}

func nanoseconds(d time.Duration) float64  { return float64(d.Nanoseconds()) }
func microseconds(d time.Duration) float64 { return nanoseconds(d) / 1e3 }
func milliseconds(d time.Duration) float64 { return nanoseconds(d) / 1e6 }

// plural returns a number of things in words.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
