package main

import (
	"context"
	"testing"
	"time"
)

func TestAPaceMakesUpForADelay(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var begun time.Time
	var late time.Duration
	next := 0
	err := pace(ctx, func(at time.Time) { begun = at }, func(tick int) error {
		if tick != next {
			t.Errorf("tick %d after %d", tick, next-1)
		}
		next++
		switch tick {
		case 2:
			// This is like an informer that takes no events for a while. The test needs a real
			// kernel timer, which ignores the time of a synctest bubble. Its assertions
			// tolerate any delay.
			time.Sleep(20 * period)
		case 10:
			late = time.Since(due(begun, tick))
		case 30:
			stop()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if next <= 30 {
		t.Errorf("%d ticks, want more than 30", next)
	}
	// Tick 10 was due while tick 2 slept, and was not put off.
	if late < 10*period {
		t.Errorf("tick 10 came %v after it was due, want at least %v", late, 10*period)
	}
	if took := time.Since(begun); took < 30*period {
		t.Errorf("31 ticks took %v, want at least %v", took, 30*period)
	}
}
