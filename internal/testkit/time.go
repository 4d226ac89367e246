package testkit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Hour is long enough for any wait in a bubble that should succeed.
const Hour = time.Hour

// Within returns a ctx for a wait that should succeed. It ends after d, or with the test.
func Within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// SleepBubble sleeps for d of the bubble's time, and then waits until all goroutines of the
// bubble are blocked.
func SleepBubble(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Took calls f, and returns how long the call took.
func Took(f func()) time.Duration {
	begun := time.Now()
	f()
	return time.Since(begun)
}

// LongOrShort returns how often a test repeats something: short with -short, and long without.
func LongOrShort(long, short int) int {
	if testing.Short() {
		return short
	}
	return long
}

// Ago returns how long ago t was, rounded to microseconds. The informer's stopwatch adds one
// nanosecond to each time, so that no time is zero; rounding removes this nanosecond.
func Ago(t time.Time) time.Duration { return time.Since(t).Round(time.Microsecond) }
