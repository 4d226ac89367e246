package testkit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Hour is longer than anything in a bubble takes.
const Hour = time.Hour

// Within returns a ctx for a wait that should succeed. It ends after d, or with the test.
func Within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// SleepBubble lets d of a bubble's time pass, and then waits until everything that is due
// has happened.
func SleepBubble(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Ago returns how long ago t was. It rounds away the nanosecond that distinguishes a moment
// that has happened from one that never has.
func Ago(t time.Time) time.Duration { return time.Since(t).Round(time.Microsecond) }
