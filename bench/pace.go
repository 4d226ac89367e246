package main

import (
	"context"
	"time"
)

// period is the time between two ticks of a paced stream.
const period = time.Millisecond

// pace calls send with 0, 1, 2 and so on, once a period, each when it is due. It makes up for
// late ticks at once, so a delay does not put off the ticks after it. It calls begun with the
// start of the first period. pace returns when ctx is done, or when send returns an error.
func pace(ctx context.Context, begun func(time.Time), send func(tick int) error) error {
	p, start, err := startPacer()
	if err != nil {
		return err
	}
	defer p.close()
	begun(start)
	for tick := 0; ctx.Err() == nil; {
		due, err := p.wait()
		if err != nil {
			return err
		}
		for range due {
			if err := send(tick); err != nil {
				return err
			}
			tick++
		}
	}
	return nil
}

func due(begun time.Time, tick int) time.Time {
	return begun.Add(time.Duration(tick+1) * period)
}
