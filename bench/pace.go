package main

import (
	"context"
	"time"
)

// period is how often a paced stream sends.
const period = time.Millisecond

// pace calls send with 0, 1, 2 and so on, each when it is due: once a period. One
// that is late is made up for at once; nothing that holds it up puts off what is due
// after it. begun is called with the time from which the first period counts. pace
// returns when ctx has ended, or with send's error.
func pace(ctx context.Context, begun func(time.Time), send func(tick int) error) error {
	p, err := newPacer()
	if err != nil {
		return err
	}
	defer p.close()
	start, err := p.start()
	if err != nil {
		return err
	}
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

// due is when a tick of a pace that has begun is due.
func due(begun time.Time, tick int) time.Time {
	return begun.Add(time.Duration(tick+1) * period)
}
