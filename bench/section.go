package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"
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
	// open makes the things that all rounds share. closer undoes that. open may be nil.
	open func(context.Context) (closer func() error, err error)
	// oneQueue is for figures that do not depend on the queue. Only DeltaFIFO is then
	// measured, and its figures stand in both of our columns.
	oneQueue bool
	// still is for figures that hardly vary and take long. Only one round is then measured,
	// without a warm-up round.
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
	plain  bool // neither more nor less is better, so there is no ratio
	common bool // concerns most users, so it stands at the top
	floor  floor
}

// floor is the minimum that a row must reach: the ratio to client-go for each of our queues,
// and an upper limit of our own figure, in the unit of the row. 0 means no limit.
type floor struct{ deltaFIFO, realFIFO, below float64 }

// both returns a floor that is the same for both queues.
func both(ratio float64) floor { return floor{deltaFIFO: ratio, realFIFO: ratio} }

// result holds the figures of a section, or its error.
type result struct {
	section section
	rows    []figures // of all cases of the section; without samples if err is set
	err     error
}

// figures are the samples of a row, by the index of the side.
type figures struct {
	row
	samples [][]float64
}

// runSection measures every case of a section in the given number of rounds. A round before
// these is for warming up, and does not count. Within a round the sides take turns, and each
// round begins with a different side. So neither the drift of the machine nor the leftovers of
// one side always fall on the same side. A section with still set has only one round.
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

// sample measures a side once, for a case whose first row has index at. It keeps the values if
// counts is set.
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

// await waits until closed is closed. If ctx ends first, it returns an error that begins with
// what.
func await(ctx context.Context, closed <-chan struct{}, what string) error {
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
}
