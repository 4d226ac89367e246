package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"
)

// measuring is how long one measurement of one side may take before it counts as
// stuck; the longest takes a few seconds.
const measuring = 5 * time.Minute

// section is one of the things that are compared.
type section struct {
	name  string // that -run matches
	title string
	about string // what the rows measure, and why that is fair
	cases []measurement
	// open makes what all rounds share and returns what undoes it. It may be nil.
	open func(context.Context) (closer func() error, err error)
	// oneQueue says that the queue plays no part: DeltaFIFO is measured, and its
	// figures stand in both of our columns.
	oneQueue bool
	// still says that the figures hardly vary, and take long: one round is measured,
	// without one to warm up.
	still bool
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
	plain  bool // neither more nor less is better: there is no ratio
	common bool // what most users run, so it stands at the top
	floor  floor
}

// floor is what a row must reach: the ratio of each of our queues to client-go, and
// the most that its own figure may be, in the unit of the row. 0 asks for nothing.
type floor struct{ deltaFIFO, realFIFO, below float64 }

// both is a floor that is the same for both queues.
func both(ratio float64) floor { return floor{deltaFIFO: ratio, realFIFO: ratio} }

// result is what came of a section.
type result struct {
	section section
	rows    []figures // of all its cases; without samples if err is set
	err     error
}

// figures are the samples of a row, by the index of the side.
type figures struct {
	row
	samples [][]float64
}

// runSection measures every case of a section in as many rounds, and once before
// to warm up, which is not counted. Within a round the sides take turns, and the
// round after begins with another one, so that neither drift of the machine nor
// what a side leaves behind falls on the same one each time. One round is enough for
// figures that stand still.
func runSection(ctx context.Context, s section, rounds int, progress func(round int)) (res result) {
	res = result{section: s, rows: s.figures()}
	if s.open != nil {
		closer, err := s.open(ctx)
		if err != nil {
			res.err = err
			return res
		}
		defer func() {
			if err := closer(); err != nil && res.err == nil {
				res.err = err
			}
		}()
	}
	first := 0
	if s.still {
		first, rounds = 1, 1
	}
	for round := first; round <= rounds; round++ {
		progress(round)
		at := 0
		for _, c := range s.cases {
			for i := range sides {
				i = (i + round) % len(sides)
				if err := res.sample(ctx, c, at, i, round > 0); err != nil {
					res.err = fmt.Errorf("%s, %s: %w", c.rows[0].name, sides[i].name, err)
					return res
				}
			}
			at += len(c.rows)
		}
	}
	return res
}

// figures returns the section's rows without samples.
func (s section) figures() []figures {
	var all []figures
	for _, c := range s.cases {
		for _, r := range c.rows {
			all = append(all, figures{r, make([][]float64, len(sides))})
		}
	}
	return all
}

// sample measures a side once for a case whose rows begin at the given one, and
// keeps what came of it if it counts.
func (r *result) sample(ctx context.Context, c measurement, at, i int, counts bool) error {
	if r.section.oneQueue && sides[i] == realFIFO {
		return nil
	}
	runtime.GC()
	ctx, cancel := context.WithTimeoutCause(ctx, measuring, fmt.Errorf("not done after %v", measuring))
	defer cancel()
	values, err := c.measure(ctx, sides[i])
	if err != nil {
		return err
	}
	if len(values) != len(c.rows) {
		return fmt.Errorf("%d figures for %d rows", len(values), len(c.rows))
	}
	if !counts {
		return nil
	}
	for k, v := range values {
		f := &r.rows[at+k]
		f.samples[i] = append(f.samples[i], v)
		if r.section.oneQueue && sides[i] == deltaFIFO {
			same := slices.Index(sides, realFIFO)
			f.samples[same] = append(f.samples[same], v)
		}
	}
	return nil
}

// await waits until what is closed, and otherwise says what did not come.
func await(ctx context.Context, closed <-chan struct{}, what string) error {
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
}
